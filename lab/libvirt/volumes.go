package libvirt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"kerninst/lab/qemu"
	"kerninst/lab/untrusted"
	"kerninst/lab/vm"
)

// gap is how many bytes of zeros lie in front of a state in a pool: libvirtd looks at what files
// begin with, and says of what it takes for a disk how large that is, not the file.
const gap = 64 << 10

// volumes are a machine's files on a host that has none of the lab's: volumes of a pool. It
// connects by itself, for a file that does not come would keep answers waiting that are needed.
type volumes struct {
	backend Backend
	machine string // its name, with which the names of its volumes begin

	mu     sync.Mutex
	pool   *pool
	folder string
	closed bool // for good

	state, content string                          // the file of the machine's state, and what that is called in the pool
	sums           map[string]string               // vm.Spec's
	seen           map[string]golibvirt.StorageVol // by the names of files: what was looked up is asked for by what it was called
}

var _ qemu.Files = (*volumes)(nil)

// openVolumes connects.
func openVolumes(ctx context.Context, b Backend, machine string) (*volumes, error) {
	v := &volumes{backend: b, machine: machine}
	return v, v.with(ctx, func(*pool) error { return nil })
}

// with does something with the pool.
func (v *volumes) with(ctx context.Context, do func(*pool) error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return fmt.Errorf("files of %s: %w", v.machine, fs.ErrClosed)
	}
	if v.pool == nil || closed(v.pool.conn.lost()) {
		v.drop()
		c, err := v.backend.dial(ctx)
		if err != nil {
			return err
		}
		if v.pool, err = openPool(ctx, c, v.backend); err != nil {
			c.close()
			return err
		}
		if v.folder == "" { // which others read
			v.folder = v.pool.folder
		}
		v.backend.listener.swept.Do(func() { // for others' sake: in vain is no harm
			if now, err := v.pool.now(ctx, v.machine); err == nil {
				v.pool.sweepAbandoned(ctx, now)
			}
		})
	}
	return do(v.pool)
}

// drop ends the connection.
func (v *volumes) drop() {
	if v.pool != nil {
		v.pool.conn.close()
	}
	v.pool = nil
}

func (v *volumes) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.drop()
	v.closed = true
}

func (v *volumes) volume(name string) string { return v.machine + "." + name }

// At is qemu.Files'.
func (v *volumes) At(name string) string { return filepath.Join(v.folder, v.volume(name)) }

// Await is qemu.Files'. libvirt reads no file that it has not made, or seen when it last looked.
func (v *volumes) Await(ctx context.Context, name string) error {
	if err := v.Remove(ctx, name); err != nil {
		return err
	}
	return v.with(ctx, func(p *pool) error {
		_, err := p.make(ctx, v.volume(name), 0)
		return err
	})
}

// found is a volume that has to be there.
func (v *volumes) found(ctx context.Context, p *pool, name string) (golibvirt.StorageVol, error) {
	if vol, ok := v.seen[name]; ok {
		return vol, nil
	}
	vol, ok, err := p.find(ctx, v.volume(name))
	switch {
	case err != nil:
		return vol, err
	case !ok:
		return vol, missing(name)
	case v.seen == nil:
		v.seen = map[string]golibvirt.StorageVol{}
	}
	v.seen[name] = vol
	return vol, nil
}

func missing(name string) error { return fmt.Errorf("%s on the host: %w", name, fs.ErrNotExist) }

// receive reads a file. What QEMU has removed libvirt may still know.
func (v *volumes) receive(ctx context.Context, name string, w io.Writer, from, max int64) error {
	return v.with(ctx, func(p *pool) error {
		vol, err := v.found(ctx, p, name)
		if err != nil {
			return err
		}
		err = p.receive(ctx, vol, w, from, max)
		if err == nil || closed(p.conn.lost()) {
			return err
		}
		there, again := p.there(ctx, vol)
		if again == nil && !there {
			return missing(name)
		}
		return errors.Join(err, again)
	})
}

// atMost keeps the first bytes of what is written to it.
type atMost struct {
	bytes.Buffer
	max int64
}

func (a *atMost) Write(p []byte) (int, error) {
	if room := a.max - int64(a.Len()); int64(len(p)) > room {
		a.Buffer.Write(p[:max(0, room)])
		return 0, errors.New("the host sends more than was asked for")
	}
	return a.Buffer.Write(p)
}

// Read is qemu.Files'.
func (v *volumes) Read(ctx context.Context, name string, from, max int64) ([]byte, error) {
	got := &atMost{max: max}
	if err := v.receive(ctx, name, got, from, max); err != nil {
		return nil, err // somebody may still be writing to it
	}
	return got.Bytes(), nil
}

// size is how large a file is, in bytes: to ask for that is a fraction of the work of reading what is
// not there.
func (v *volumes) size(ctx context.Context, name string) (size int64, err error) {
	err = v.with(ctx, func(p *pool) error {
		vol, err := v.found(ctx, p, name)
		if err == nil {
			size, err = p.size(ctx, vol)
		}
		if isNumber(err, golibvirt.ErrNoStorageVol) {
			return missing(name)
		}
		return err
	})
	return size, err
}

// Write is qemu.Files'.
func (v *volumes) Write(ctx context.Context, name string, b []byte) error {
	return v.with(ctx, func(p *pool) error {
		vol, err := v.found(ctx, p, name)
		if err != nil {
			return err
		}
		if err = p.sendAll(ctx, vol, b); isNumber(err, golibvirt.ErrNoStorageVol) {
			return missing(name)
		}
		return err
	})
}

// Fetch is qemu.Files'.
func (v *volumes) Fetch(ctx context.Context, name, to string) error {
	ctx, cancel := context.WithTimeout(ctx, pushLimit)
	defer cancel()
	out, err := untrusted.Create(to)
	if err != nil {
		return err
	}
	err = v.receive(ctx, name, out, 0, 0)
	return errors.Join(err, out.Close())
}

// Give is qemu.Files'.
func (v *volumes) Give(ctx context.Context, name string, b []byte) error {
	if err := v.Remove(ctx, name); err != nil {
		return err
	}
	return v.with(ctx, func(p *pool) error {
		vol, err := p.make(ctx, v.volume(name), int64(len(b)))
		if err != nil {
			return err
		}
		return p.sendAll(ctx, vol, b)
	})
}

// Lend is qemu.Files'. What was lent is in the pool once for all machines.
func (v *volumes) Lend(ctx context.Context, _, from string) (qemu.Lent, error) {
	info, err := os.Stat(from)
	if err != nil {
		return qemu.Lent{}, err
	}
	content, there := v.content, false
	if from == v.state && content != "" {
		err = v.with(ctx, func(p *pool) (err error) { _, there, err = p.find(ctx, content); return err })
	}
	if err == nil && !there { // as where somebody has just removed it
		content, err = v.push(ctx, from, gap)
	}
	if err != nil {
		return qemu.Lent{}, err
	}
	return qemu.Lent{At: filepath.Join(v.folder, content), Size: info.Size(), Skip: gap}, os.Remove(from)
}

// Remove is qemu.Files'.
func (v *volumes) Remove(ctx context.Context, name string) error {
	return v.with(ctx, func(p *pool) error { return p.remove(ctx, v.volume(name)) })
}

// images has all that a machine starts from be on the host, and returns the machine that starts
// from it there.
func (v *volumes) images(ctx context.Context, s vm.Spec) (vm.Spec, error) {
	v.sums = s.Sums
	files := []*string{&s.Kernel, &s.Initrd}
	if s.Firmware != "" {
		files = append(files, &s.Firmware)
	}
	s.Plugins = append([]vm.Plugin(nil), s.Plugins...)
	for i := range s.Plugins {
		files = append(files, &s.Plugins[i].Object)
	}
	for _, file := range files {
		name, err := v.push(ctx, *file, 0)
		if err != nil {
			return s, err
		}
		*file = filepath.Join(v.folder, name)
	}
	if s.State != "" { // which is lent later, when there is little time
		content, err := v.push(ctx, s.State, gap)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return s, err
		}
		v.state, v.content = s.State, content
	}
	return s, v.with(ctx, func(p *pool) error { return p.room(ctx, "what a guest writes", 0) })
}

// push has a file be in the pool (pool.push).
func (v *volumes) push(ctx context.Context, file string, skip int64) (name string, err error) {
	v.backend.listener.pushing.Lock()
	defer v.backend.listener.pushing.Unlock()
	err = v.patiently(ctx, func(p *pool) (err error) { name, err = p.push(ctx, file, skip, v.sums[file]); return err })
	return name, err
}

// busyInterval is how soon a volume is tried again that others have in use.
const busyInterval = 100 * time.Millisecond

// patiently is with for what libvirtd refuses while others make or send the same volume.
func (v *volumes) patiently(ctx context.Context, do func(*pool) error) error {
	ctx, cancel := context.WithTimeout(ctx, pushLimit)
	defer cancel()
	for {
		err := v.with(ctx, do)
		if !isNumber(err, golibvirt.ErrOperationInvalid) {
			return err
		}
		select {
		case <-time.After(busyInterval):
		case <-ctx.Done():
			return err
		}
	}
}

// sweep removes what is left of the machine.
func (v *volumes) sweep(ctx context.Context) error {
	return v.with(ctx, func(p *pool) error {
		all, err := p.volumes(ctx)
		for _, vol := range all {
			if strings.HasPrefix(vol.Name, v.machine+".") {
				err = errors.Join(err, p.remove(ctx, vol.Name))
			}
		}
		return err
	})
}

// machineVolume is the name of a machine's volume.
var machineVolume = regexp.MustCompile(`^(` + namePrefix + `[a-z2-7]{26})\.`)

// abandoned is how old what belongs to no domain has to be for its lab to be dead: one that is
// alive makes a domain of it in minutes.
const abandoned = time.Hour

// sweepAbandoned removes what labs have left that were killed.
func (p *pool) sweepAbandoned(ctx context.Context, now time.Time) error {
	all, err := p.volumes(ctx)
	if err != nil {
		return err
	}
	for _, vol := range all {
		m := machineVolume.FindStringSubmatch(vol.Name)
		if m == nil {
			continue
		}
		_, err := call(ctx, p.conn, "domain "+m[1], func(l *golibvirt.Libvirt) (golibvirt.Domain, error) { return l.DomainLookupByName(m[1]) })
		if !golibvirt.IsNotFound(err) {
			continue // it lives, or cannot be asked for
		}
		written, err := p.written(ctx, vol)
		if err == nil && now.Sub(written) > abandoned {
			err = p.remove(ctx, vol.Name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
