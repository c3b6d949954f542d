package libvirt

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
)

// defaultPool is the pool of a host that is another machine.
const defaultPool = "kerninst"

// PoolError says that a host's pool is of no use as it is.
type PoolError struct{ Why string }

func (e *PoolError) Error() string { return e.Why }

// pool is a folder of a libvirtd's host, by which the lab and QEMU there share files.
type pool struct {
	conn   *conn
	pool   golibvirt.StoragePool
	folder string
	owner  *owner // of what is made in it; nil: libvirtd's
}

// owner is who QEMU is on that host.
type owner struct{ user, group string }

// folders are the kinds of pools whose volumes are files of a folder.
var folders = []string{"dir", "fs", "netfs"}

// openPool finds a pool that is in use.
func openPool(ctx context.Context, c *conn, b Backend) (*pool, error) {
	found, err := call(ctx, c, "storage pool", func(l *golibvirt.Libvirt) (golibvirt.StoragePool, error) {
		return l.StoragePoolLookupByName(b.pool)
	})
	switch {
	case isNumber(err, golibvirt.ErrNoStoragePool):
		return nil, &PoolError{fmt.Sprintf("it has no storage pool %s for images: make one there, as `virsh -c %s pool-create-as %s dir --target FOLDER`, or name another by ?pool=", b.pool, b.driver, b.pool)}
	case err != nil:
		return nil, err
	}
	text, err := call(ctx, c, "storage pool "+b.pool, func(l *golibvirt.Libvirt) (string, error) {
		state, _, _, _, err := l.StoragePoolGetInfo(found)
		if err != nil {
			return "", err
		}
		if golibvirt.StoragePoolState(state) != golibvirt.StoragePoolRunning {
			return "", &PoolError{fmt.Sprintf("its storage pool %s is not in use: `virsh -c %s pool-start %s` has it so", b.pool, b.driver, b.pool)}
		}
		return l.StoragePoolGetXMLDesc(found, 0)
	})
	if err != nil {
		return nil, err
	}
	var is struct {
		Type   string `xml:"type,attr"`
		Target struct {
			Path string `xml:"path"`
		} `xml:"target"`
	}
	if err := xml.Unmarshal([]byte(text), &is); err != nil {
		return nil, fmt.Errorf("storage pool %s: %w", b.pool, err)
	}
	if !slices.Contains(folders, is.Type) || !filepath.IsAbs(is.Target.Path) {
		return nil, &PoolError{fmt.Sprintf("its storage pool %s is a %s: images want a folder (%s)", b.pool, is.Type, strings.Join(folders, ", "))}
	}
	p := &pool{conn: c, pool: found, folder: is.Target.Path}
	p.owner, err = emulatorsUser(ctx, c, b)
	return p, err
}

// emulatorsUser is whose QEMU is: a session's is libvirtd's own.
func emulatorsUser(ctx context.Context, c *conn, b Backend) (*owner, error) {
	if b.driver != systemDriver {
		return nil, nil
	}
	text, err := call(ctx, c, "capabilities", func(l *golibvirt.Libvirt) (string, error) { return l.ConnectGetCapabilities() })
	if err != nil {
		return nil, err
	}
	var has struct {
		Models []struct {
			Model  string   `xml:"model"`
			Labels []string `xml:"baselabel"`
		} `xml:"host>secmodel"`
	}
	if err := xml.Unmarshal([]byte(text), &has); err != nil {
		return nil, fmt.Errorf("capabilities: %w", err)
	}
	for _, m := range has.Models {
		if m.Model != "dac" || len(m.Labels) == 0 {
			continue
		}
		user, group, ok := strings.Cut(m.Labels[0], ":")
		if ok {
			return &owner{strings.TrimPrefix(user, "+"), strings.TrimPrefix(group, "+")}, nil
		}
	}
	return nil, nil
}

func isNumber(err error, n golibvirt.ErrorNumber) bool {
	var e golibvirt.Error
	return errors.As(err, &e) && e.Code == uint32(n)
}

// volumeXML describes a file to libvirt.
type volumeXML struct {
	XMLName    xml.Name `xml:"volume"`
	Name       string   `xml:"name"`
	Capacity   int64    `xml:"capacity"`
	Allocation int64    `xml:"allocation"`
	Format     struct {
		Type string `xml:"type,attr"`
	} `xml:"target>format"`
	Permissions struct {
		Mode  string `xml:"mode"`
		Owner string `xml:"owner,omitempty"`
		Group string `xml:"group,omitempty"`
	} `xml:"target>permissions"`
}

func (p *pool) describe(name string, size int64) (string, error) {
	v := volumeXML{Name: name, Capacity: size}
	v.Format.Type, v.Permissions.Mode = "raw", "0600"
	if p.owner != nil {
		v.Permissions.Owner, v.Permissions.Group = p.owner.user, p.owner.group
	}
	text, err := xml.Marshal(v)
	return string(text), err
}

// find looks a volume up; ok is false if there is none.
func (p *pool) find(ctx context.Context, name string) (v golibvirt.StorageVol, ok bool, err error) {
	v, err = call(ctx, p.conn, "volume "+name, func(l *golibvirt.Libvirt) (golibvirt.StorageVol, error) {
		return l.StorageVolLookupByName(p.pool, name)
	})
	if isNumber(err, golibvirt.ErrNoStorageVol) {
		return v, false, nil
	}
	return v, err == nil, err
}

// make makes a volume of zeros; one that is there is as good.
func (p *pool) make(ctx context.Context, name string, size int64) (golibvirt.StorageVol, error) {
	text, err := p.describe(name, size)
	if err != nil {
		return golibvirt.StorageVol{}, err
	}
	v, err := call(ctx, p.conn, "make volume "+name, func(l *golibvirt.Libvirt) (golibvirt.StorageVol, error) {
		return l.StorageVolCreateXML(p.pool, text, 0)
	})
	if !isNumber(err, golibvirt.ErrStorageVolExist) {
		return v, err
	}
	v, _, err = p.find(ctx, name)
	return v, err
}

// remove removes a volume, if it is there.
func (p *pool) remove(ctx context.Context, name string) error {
	v, ok, err := p.find(ctx, name)
	if err != nil || !ok {
		return err
	}
	_, err = call(ctx, p.conn, "remove volume "+name, func(l *golibvirt.Libvirt) (struct{}, error) {
		return struct{}{}, l.StorageVolDelete(v, 0)
	})
	if isNumber(err, golibvirt.ErrNoStorageVol) {
		return nil
	}
	return err
}

// size is how large the file of a volume is: asked for what is known of it, libvirt looks. Its capacity
// is another thing, as soon as libvirt has looked at what is in the file and takes it for a disk.
func (p *pool) size(ctx context.Context, v golibvirt.StorageVol) (int64, error) {
	return call(ctx, p.conn, "look at "+v.Name, func(l *golibvirt.Libvirt) (int64, error) {
		_, _, physical, err := l.StorageVolGetInfoFlags(v, uint32(golibvirt.StorageVolGetPhysical))
		if size := int64(physical); err != nil || size >= 0 {
			return size, err
		}
		return 0, fmt.Errorf("the host says that it has %d bytes", physical)
	})
}

// there reports whether the file of a volume is there.
func (p *pool) there(ctx context.Context, v golibvirt.StorageVol) (bool, error) {
	_, err := p.size(ctx, v)
	if isNumber(err, golibvirt.ErrNoStorageVol) {
		return false, nil
	}
	return err == nil, err
}

// send writes what r has to the beginning of a volume. Of a connection on which that was broken off
// nobody knows what is to come: go-libvirt may still be sending.
func (p *pool) send(ctx context.Context, v golibvirt.StorageVol, r io.Reader, size int64) error {
	_, err := call(ctx, p.conn, "send "+v.Name, func(l *golibvirt.Libvirt) (struct{}, error) {
		return struct{}{}, l.StorageVolUpload(v, r, 0, uint64(size), 0)
	})
	if err != nil {
		p.conn.close()
	}
	return err
}

// sendAll writes the beginning of a volume, and holds that it is there: libvirtd takes what its disk
// has no room for without a word.
func (p *pool) sendAll(ctx context.Context, v golibvirt.StorageVol, b []byte) error {
	if err := p.send(ctx, v, bytes.NewReader(b), int64(len(b))); err != nil {
		return err
	}
	var there bytes.Buffer
	if err := p.receive(ctx, v, &there, 0, int64(len(b))); err != nil {
		return err
	}
	if !bytes.Equal(there.Bytes(), b) {
		return p.torn(v.Name)
	}
	return nil
}

// torn says that what was sent is not what is there.
func (p *pool) torn(name string) error {
	return &PoolError{fmt.Sprintf("its storage pool %s took %s, and has not all of it: is its disk full?", p.pool.Name, name)}
}

// sink is a writer that does not fail: go-libvirt waits for ever behind one that does. What comes
// after an error is cut off.
type sink struct {
	to  io.Writer
	err error
	cut func()
}

func (s *sink) Write(b []byte) (int, error) {
	if s.err == nil {
		if _, s.err = s.to.Write(b); s.err != nil {
			s.cut()
		}
	}
	return len(b), nil
}

// receive reads a volume from an offset on, at most max bytes; 0: to its end.
func (p *pool) receive(ctx context.Context, v golibvirt.StorageVol, w io.Writer, from, max int64) error {
	failed := make(chan error, 1)
	to := &sink{to: w, cut: p.conn.close}
	_, err := call(ctx, p.conn, "fetch "+v.Name, func(l *golibvirt.Libvirt) (struct{}, error) {
		err := l.StorageVolDownload(v, to, uint64(from), uint64(max), 0)
		failed <- to.err
		return struct{}{}, err
	})
	if err == nil {
		return <-failed
	}
	select {
	case why := <-failed:
		if why != nil {
			return why
		}
	case <-time.After(unread): // it was given up
	}
	return err
}

// now is what the host's clock says, by a volume that is made for it.
func (p *pool) now(ctx context.Context, machine string) (time.Time, error) {
	name := machine + ".now"
	v, err := p.make(ctx, name, 0)
	if err != nil {
		return time.Time{}, err
	}
	now, err := p.written(ctx, v)
	return now, errors.Join(err, p.remove(ctx, name))
}

// volumes are all that libvirt knows of.
func (p *pool) volumes(ctx context.Context) ([]golibvirt.StorageVol, error) {
	return call(ctx, p.conn, "volumes", func(l *golibvirt.Libvirt) ([]golibvirt.StorageVol, error) {
		all, _, err := l.StoragePoolListAllVolumes(p.pool, 1, 0)
		return all, err
	})
}

// written is when a volume was last written to, by the host's clock.
func (p *pool) written(ctx context.Context, v golibvirt.StorageVol) (time.Time, error) {
	text, err := call(ctx, p.conn, "look at "+v.Name, func(l *golibvirt.Libvirt) (string, error) { return l.StorageVolGetXMLDesc(v, 0) })
	if err != nil {
		return time.Time{}, err
	}
	var is struct {
		Seconds float64 `xml:"target>timestamps>mtime"`
	}
	err = xml.Unmarshal([]byte(text), &is)
	return time.Unix(int64(is.Seconds), 0), err
}
