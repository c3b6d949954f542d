package images

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"kerninst/lab/plain"
)

// hidden are the guest's folders that something is mounted over when it has
// booted: files in the initramfs would be out of sight.
var hidden = []string{"/dev", "/proc", "/run", "/sys", "/tmp"}

// reserved are the paths of the lab's own files.
var reserved = []string{"/init", "/job", "/bin/busybox", "/bin/kinst", "/sbin/kerninstd", "/lib/kerninst", "/lib/modules", "/programs"}

// home is where added files go that are given no place.
const home = "/root"

// ParseAdd reads SRC[:DST]: a file or folder of the host, and where it is to be
// in the guest. Without DST, or with one that ends in a slash, it keeps its name.
func ParseAdd(word string) (src, dst string, err error) {
	src, dst = word, home+"/"
	if _, err := os.Lstat(word); err != nil {
		if at := strings.LastIndex(word, ":"); at > 0 {
			src, dst = word[:at], word[at+1:]
		}
	}
	if _, err := os.Stat(src); err != nil {
		return "", "", err
	}
	if !path.IsAbs(dst) {
		return "", "", fmt.Errorf("%s: the place %q in the guest is not absolute", word, dst)
	}
	if strings.HasSuffix(dst, "/") {
		abs, err := filepath.Abs(src)
		if err != nil {
			return "", "", err
		}
		dst += filepath.Base(abs)
	}
	dst = path.Clean(dst)
	switch {
	case dst == "/":
		return "", "", fmt.Errorf("%s: the guest's / is not to be replaced", word)
	case within(dst, hidden) != "":
		return "", "", fmt.Errorf("%s: the guest mounts over %s, where nobody would see it: choose another place", word, within(dst, hidden))
	case within(dst, reserved) != "":
		return "", "", fmt.Errorf("%s: %s is the lab's own: choose another place", word, within(dst, reserved))
	}
	return src, dst, nil
}

// within is the first of the paths that p is, or lies below.
func within(p string, paths []string) string {
	for _, q := range paths {
		if p == q || strings.HasPrefix(p, q+"/") {
			return q
		}
	}
	return ""
}

// Add reads what the words ask for, as ParseAdd does. Its errors are the
// caller's.
func Add(words []string) ([]File, error) {
	var all []File
	for _, w := range words {
		src, dst, err := ParseAdd(w)
		if err != nil {
			return nil, err
		}
		if src, err = filepath.EvalSymlinks(src); err != nil { // a link that is named means what it points to
			return nil, err
		}
		files, err := FilesFrom(src, dst)
		if err != nil {
			return nil, err
		}
		all = append(all, files...)
	}
	if _, err := withParents(all); err != nil {
		return nil, err
	}
	for _, f := range all {
		if p := within(f.Path, append(hidden, reserved...)); p != "" {
			return nil, fmt.Errorf("%s in the guest: %s is not to be changed", f.Path, p)
		}
		if !f.Mode.IsDir() && folder(f.Path) {
			return nil, fmt.Errorf("%s is a folder in the guest, which the kernel keeps: for a file in it give %s/", f.Path, f.Path)
		}
		if f.Mode.Type() == 0 {
			if err := stored(f.Source); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// folder says whether a path is a folder of every guest. A file that came later in the
// initramfs would not be unpacked, and nobody told (init/initramfs.c, clean_path).
func folder(p string) bool {
	for _, f := range skeleton {
		if f.Path == p && f.Mode.IsDir() || strings.HasPrefix(f.Path, p+"/") {
			return true
		}
	}
	return slices.ContainsFunc(reserved, func(own string) bool { return strings.HasPrefix(own, p+"/") })
}

// madeUp are the file systems whose files the kernel makes up as they are read: they
// have no length, some have no end, and some are waited for (linux/magic.h).
var madeUp = map[int64]string{
	unix.PROC_SUPER_MAGIC:    "proc",
	unix.SYSFS_MAGIC:         "sysfs",
	unix.DEBUGFS_MAGIC:       "debugfs",
	unix.TRACEFS_MAGIC:       "tracefs",
	unix.SECURITYFS_MAGIC:    "securityfs",
	unix.CGROUP_SUPER_MAGIC:  "cgroup",
	unix.CGROUP2_SUPER_MAGIC: "cgroup2",
	unix.BPF_FS_MAGIC:        "bpf",
	unix.EFIVARFS_MAGIC:      "efivarfs",
	unix.PSTOREFS_MAGIC:      "pstore",
	unix.SELINUX_MAGIC:       "selinuxfs",
	unix.BINFMTFS_MAGIC:      "binfmt_misc",
	0x62656570:               "configfs", // fs/configfs/mount.c
	0x65735543:               "fusectl",  // fs/fuse/control.c
	0x19800202:               "mqueue",   // ipc/mqueue.c
}

// stored says whether a file can be read, and has content of its own.
func stored(name string) error {
	f, err := plain.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return fmt.Errorf("%s: statfs: %w", name, err)
	}
	if kind := madeUp[int64(fs.Type)]; kind != "" {
		return fmt.Errorf("%s is on %s: the kernel makes such files up as they are read, and they may have no end: add a copy of it", name, kind)
	}
	return nil
}

// Kept is an added file as a manifest names it.
type Kept struct {
	Path string `json:"path"` // in the guest
	Mode uint32 `json:"mode"` // fs.FileMode
	Link string `json:"link,omitempty"`
	Digest
}

// Keep copies the files' contents into the folder dir, each named by its
// SHA-256, and returns the files as they are there: what is booted is what is
// recorded.
func Keep(dir string, all []File) ([]File, []Kept, error) {
	out, kept := make([]File, len(all)), make([]Kept, len(all))
	for k, f := range all {
		out[k], kept[k] = f, Kept{Path: f.Path, Mode: uint32(f.Mode), Link: f.Link}
		if f.Mode.Type() != 0 {
			continue
		}
		content := f.Data
		if f.Source != "" {
			var err error
			if content, err = asLong(f.Source); err != nil {
				return nil, nil, err
			}
		}
		d := digestOf(content)
		name := filepath.Join(dir, d.SHA256)
		if err := errors.Join(os.MkdirAll(dir, 0o755), writeFile(name, content, 0o644)); err != nil {
			return nil, nil, err
		}
		out[k].Data, out[k].Source, kept[k].Digest = nil, name, d
	}
	return out, kept, nil
}

// asLong reads a file that is as long as it says: one that grows for ever has no end.
func asLong(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	b, err := plain.Read(name, info.Size())
	var long *plain.TooLongError
	if errors.As(err, &long) || err == nil && int64(len(b)) < info.Size() {
		err = fmt.Errorf("%s changed while it was read", name)
	}
	return b, err
}

// Unkeep is the inverse of Keep. A file that was changed since is an error.
func Unkeep(dir string, kept []Kept) ([]File, error) {
	var out []File
	for _, k := range kept {
		f := File{Path: k.Path, Mode: fs.FileMode(k.Mode), Link: k.Link}
		if p := within(path.Clean(k.Path), append(hidden, reserved...)); p != "" || !path.IsAbs(k.Path) {
			return nil, fmt.Errorf("a file that was added as %q: no lab adds files there", k.Path)
		}
		if f.Mode.Type() == 0 {
			if !validSum(k.SHA256) {
				return nil, fmt.Errorf("%s: %q is not a SHA-256", k.Path, k.SHA256)
			}
			f.Source = filepath.Join(dir, k.SHA256)
			sum, size, err := hashFile(f.Source)
			if err != nil {
				return nil, fmt.Errorf("the file that was added as %s: %w", k.Path, err)
			}
			if (Digest{sum, size}) != k.Digest {
				return nil, fmt.Errorf("%s is not the file that was added as %s: it was changed since", f.Source, k.Path)
			}
		}
		out = append(out, f)
	}
	return out, nil
}
