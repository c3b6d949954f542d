package libvirt

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
)

// contentPrefix and the SHA-256 of a file, in hex, is the name of a volume that machines start from; of one that lies behind
// zeros, how many these are, too. It is whole when there is an empty one with wholeSuffix beside it: of who was lost in
// the middle another goes on, by writing the same bytes again. Nobody removes them.
const (
	contentPrefix = "kerninst-sha256-"
	wholeSuffix   = ".whole"
)

// pushLimit bounds how long one file takes to get to a host.
const pushLimit = 10 * time.Minute

// spareMiB is what a pool is to have left beside a file that goes there.
const spareMiB = 64

// room says that a file will not fit.
func (p *pool) room(ctx context.Context, file string, size int64) error {
	free, err := call(ctx, p.conn, "room", func(l *golibvirt.Libvirt) (int64, error) {
		_, _, _, free, err := l.StoragePoolGetInfo(p.pool)
		return int64(free), err
	})
	if err == nil && free < size+spareMiB<<20 {
		err = &PoolError{fmt.Sprintf("its storage pool %s is full: %s wants %d MiB and %d to spare, and there are %d; what is called %s… there can be removed while no lab runs (virsh vol-delete), with what ends in %s",
			p.pool.Name, filepath.Base(file), size>>20, spareMiB, free>>20, contentPrefix, wholeSuffix)}
	}
	return err
}

// contentName is what a file is called in a pool.
func contentName(sum string, skip int64) string {
	if skip == 0 {
		return contentPrefix + sum
	}
	return fmt.Sprintf("%s%s-at-%d", contentPrefix, sum, skip)
}

// push has a file be in the pool, behind that many bytes of zeros, by what is in it, and says what it
// is called there. sum is its SHA-256, in hex, if that is known.
func (p *pool) push(ctx context.Context, file string, skip int64, sum string) (name string, err error) {
	ctx, cancel := context.WithTimeout(ctx, pushLimit)
	defer cancel()
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	size := skip + info.Size()
	there := func(sum string) (bool, error) {
		name = contentName(sum, skip)
		return p.whole(ctx, name, size)
	}
	if sum != "" { // then it need not be read if it is there
		if whole, err := there(sum); err != nil || whole {
			return name, err
		}
	}
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return "", err
	}
	is := hex.EncodeToString(h.Sum(nil))
	if n != info.Size() || sum != "" && is != sum {
		return "", fmt.Errorf("%s: it is not what it was said to be: it was changed", file)
	}
	if sum == "" {
		if whole, err := there(is); err != nil || whole {
			return name, err
		}
	}
	if err := p.room(ctx, file, size); err != nil {
		return "", err
	}
	return name, p.fill(ctx, name, f, skip, size, is)
}

// fill makes a volume of a file, and holds that what is there is what was to be.
func (p *pool) fill(ctx context.Context, name string, f *os.File, skip, size int64, sum string) error {
	v, err := p.make(ctx, name, size)
	if err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	content, sent := sha256.New(), sha256.New()
	r := io.TeeReader(io.MultiReader(zeros(skip), io.TeeReader(f, content)), sent)
	if err := p.send(ctx, v, r, size); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(f.Name()), err)
	}
	there := sha256.New()
	if err := p.receive(ctx, v, there, 0, 0); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(f.Name()), err)
	}
	if hex.EncodeToString(content.Sum(nil)) != sum { // it is not called whole, and the next one writes it again
		return fmt.Errorf("%s: it was changed while it was sent", f.Name())
	}
	if !bytes.Equal(there.Sum(nil), sent.Sum(nil)) {
		return p.torn(filepath.Base(f.Name()))
	}
	_, err = p.make(ctx, name+wholeSuffix, 0)
	return err
}

// whole reports whether a file of that size is in the pool, and all of it.
func (p *pool) whole(ctx context.Context, name string, size int64) (bool, error) {
	if _, said, err := p.find(ctx, name+wholeSuffix); err != nil || !said {
		return false, err
	}
	v, ok, err := p.find(ctx, name)
	if err != nil || !ok {
		return false, err
	}
	has, err := p.size(ctx, v)
	if isNumber(err, golibvirt.ErrNoStorageVol) {
		return false, nil
	}
	return has == size, err
}

// zeros are n of them.
func zeros(n int64) io.Reader { return bytes.NewReader(make([]byte, n)) }
