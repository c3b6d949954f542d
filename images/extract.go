package images

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// maxUnpacked bounds what one package may unpack to, in bytes: ten times what
// the largest does.
const maxUnpacked = 8 << 30

// extract unpacks a package's files below dir. Unlike tar, which follows a link
// that an earlier package has left, it cannot leave dir: every path is resolved
// inside it (os.Root), and what is neither file, folder nor link is refused.
// Owner is who runs this; set-user-ID bits are dropped.
func extract(ctx context.Context, deb, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	var total int64
	return packageFiles(ctx, deb, func(h *tar.Header, content io.Reader) error {
		if !filepath.IsLocal(h.Name) {
			return fmt.Errorf("member %q lies outside", h.Name)
		}
		if total += h.Size; total > maxUnpacked {
			return fmt.Errorf("member %q: more than %d bytes in one package", h.Name, int64(maxUnpacked))
		}
		if err := extractOne(root, path.Clean(h.Name), h, content); err != nil {
			return fmt.Errorf("member %q: %w", h.Name, err)
		}
		return nil
	})
}

// packageFiles calls f for each member of a package's file system, to its end
// or f's first error. f may return errEnough to end it well.
func packageFiles(ctx context.Context, deb string, f func(h *tar.Header, content io.Reader) error) error {
	unpacking, stop := context.WithCancel(ctx)
	defer stop() // the rest need not be decompressed
	cmd := exec.CommandContext(unpacking, "dpkg-deb", "--fsys-tarfile", deb)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for in := tar.NewReader(out); err == nil; {
		var h *tar.Header
		if h, err = in.Next(); err == nil {
			err = f(h, in)
		}
	}
	if !errors.Is(err, io.EOF) {
		// dpkg-deb works in several processes: those that are still writing
		// end when nobody reads.
		stop()
		out.Close()
		cmd.Wait()
		if errors.Is(err, errEnough) {
			return nil
		}
		return interrupted(ctx, err)
	}
	_, _ = io.Copy(io.Discard, out) // padding: dpkg-deb is not to die of a closed pipe
	if err := cmd.Wait(); err != nil {
		return interrupted(ctx, fmt.Errorf("%w: %s", err, bytes.TrimSpace(said.Bytes())))
	}
	return nil
}

// interrupted is what ended something: an interrupt, if there was one, and not what came of that.
func interrupted(ctx context.Context, err error) error { return cmp.Or(ctx.Err(), err) }

var errEnough = errors.New("enough")

func extractOne(root *os.Root, name string, h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeDir {
		return extractDir(root, name, h)
	}
	if err := root.Remove(name); errors.Is(err, fs.ErrNotExist) {
		if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return root.Link(strings.TrimPrefix(path.Clean(h.Linkname), "/"), name)
	case tar.TypeReg:
	default:
		return fmt.Errorf("is of type %q: neither file, folder nor link", h.Typeflag)
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Chmod(perm(h)), f.Close(), root.Chtimes(name, h.ModTime, h.ModTime))
}

// extractDir makes a folder, or leaves what leads to one: an unpacked system
// has /bin as a link to usr/bin.
func extractDir(root *os.Root, name string, h *tar.Header) error {
	if st, err := root.Stat(name); err == nil && st.IsDir() {
		return nil
	}
	if err := root.MkdirAll(name, 0o755); err != nil {
		return err
	}
	return root.Chmod(name, perm(h)|0o700) // what comes next goes there
}

func perm(h *tar.Header) fs.FileMode { return fs.FileMode(h.Mode) & fs.ModePerm }
