package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
)

// segment is a part of the initramfs with a fixed size: where the kernel puts
// itself depends on the size of the whole, so it must not follow the content.
type segment struct {
	name  string // of its constant
	bytes int64
}

// The filler costs no disk, and in the guest only its memory while it boots. But the kernel
// overwrites what it frees (free_initrd_mem, POISON_FREE_INITMEM), so that all of it is in
// every golden state, where pages of zeros would not be. So segments are not much larger
// than what is in them, 24 MB in all today.
const (
	baseSegmentSize  = 4 << 20  // busybox and the file system's skeleton
	agentSegmentSize = 24 << 20 // what this repository builds
	jobSegmentSize   = 8 << 20  // one boot's job and extra files
)

var (
	baseSegment  = segment{"baseSegmentSize", baseSegmentSize}
	agentSegment = segment{"agentSegmentSize", agentSegmentSize}
	jobSegment   = segment{"jobSegmentSize", jobSegmentSize}
)

// write appends the segment to f.
func (s segment) write(f *os.File, entries []File) error {
	entries, err := withParents(entries)
	if err != nil {
		return err
	}
	w := &cpioWriter{f: f}
	for _, e := range entries {
		if err := w.add(e); err != nil {
			return err
		}
	}
	err = w.finish(s.bytes)
	var big *tooBigError
	if errors.As(err, &big) {
		return fmt.Errorf("images: a segment of the initramfs is full: %w; raise %s in images/initrd.go", big, s.name)
	}
	return err
}

// roomForJob is what a segment keeps free for a job, in bytes.
const roomForJob = 4 << 20

// fitting is a segment that entries fit into with a job beside them: as large as
// this one, or several times that. Sizes are few, since each puts the kernel
// somewhere else.
func (s segment) fitting(entries []File) (segment, error) {
	entries, err := withParents(entries)
	if err != nil {
		return s, err
	}
	need := int64(roomForJob)
	for _, e := range entries {
		size := int64(len(e.Data))
		if e.Source != "" {
			info, err := os.Stat(e.Source)
			if err != nil {
				return s, fmt.Errorf("images: %w", err)
			}
			size = info.Size()
		}
		need += size + int64(cpioHeader+len(e.Path)+len(e.Link)) + 8 // two paddings
	}
	return segment{s.name, (need + s.bytes - 1) / s.bytes * s.bytes}, nil
}

// copyInto appends the file called name.
func copyInto(dst *os.File, name string) error {
	src, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("images: %w", err)
	}
	defer src.Close()
	_, err = io.Copy(dst, src)
	return err
}

// skeleton is the guest's file system without programs.
var skeleton = []File{
	{Path: "/dev", Mode: fs.ModeDir | 0o755},
	{Path: "/dev/console", Mode: fs.ModeDevice | fs.ModeCharDevice | 0o600, Major: 5, Minor: 1},
	{Path: "/etc", Mode: fs.ModeDir | 0o755},
	{Path: "/etc/group", Mode: 0o644, Data: []byte("root:x:0:\nnogroup:x:65534:\n")},
	{Path: "/etc/hosts", Mode: 0o644, Data: []byte("127.0.0.1 localhost\n")},
	{Path: "/etc/passwd", Mode: 0o644, Data: []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")},
	{Path: "/mnt", Mode: fs.ModeDir | 0o755},
	{Path: "/proc", Mode: fs.ModeDir | 0o555},
	{Path: "/root", Mode: fs.ModeDir | 0o700},
	{Path: "/run", Mode: fs.ModeDir | 0o755},
	{Path: "/sys", Mode: fs.ModeDir | 0o555},
	{Path: "/tmp", Mode: fs.ModeDir | 0o777},
	{Path: "/usr/bin/env", Mode: fs.ModeSymlink | 0o777, Link: "/bin/busybox"},
	{Path: "/var/tmp", Mode: fs.ModeDir | 0o777},
}

// layoutVersion is part of the image's key: count it up when this file changes
// what is written.
const layoutVersion = "1"

// base is the object with the base and the agent segment.
func (b *builder) base(ctx context.Context, guest, programs, native files) (Digest, error) {
	key := []string{layoutVersion, fmt.Sprint(baseSegmentSize, agentSegmentSize), guest["busybox"].SHA256}
	for _, fs := range []files{programs, native} {
		for _, name := range sortedNames(fs) {
			key = append(key, name, fs[name].SHA256)
		}
	}
	got, err := b.cache.made(ctx, "base", keyOf(key...), func() (files, error) {
		b.say("writing the initramfs of %s", b.t.name)
		return b.writeBase(guest["busybox"], programs, native)
	})
	return got["base"], err
}

func (b *builder) writeBase(busybox Digest, programs, native files) (files, error) {
	dir, err := b.cache.temp("base")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	f, err := os.Create(dir + "/base")
	if err != nil {
		return nil, b.cache.unwritable(err)
	}
	defer f.Close()
	system, err := b.system(busybox)
	if err != nil {
		return nil, err
	}
	agent := []File{{Path: "/bin/kinst", Mode: fs.ModeSymlink | 0o777, Link: "/sbin/kerninstd"}}
	for _, fs := range []files{programs, native} {
		for name, d := range fs {
			if err := b.cache.verify(d); err != nil {
				b.cache.discard(d, name, err)
				return nil, err
			}
			agent = append(agent, File{Path: "/" + name, Mode: modeOf(name), Source: b.cache.object(d)})
		}
	}
	if err := errors.Join(baseSegment.write(f, system), agentSegment.write(f, agent)); err != nil {
		return nil, err
	}
	sum, size, err := hashFile(f.Name())
	if err != nil {
		return nil, err
	}
	d := Digest{sum, size}
	return files{"base": d}, b.cache.adopt(f.Name(), d)
}

func modeOf(name string) fs.FileMode {
	if strings.HasSuffix(name, ".ko") {
		return 0o644
	}
	return 0o755
}

// system is the base segment: busybox under all its names, and the skeleton.
func (b *builder) system(busybox Digest) ([]File, error) {
	if err := b.cache.verify(busybox); err != nil {
		b.cache.discard(busybox, "busybox", err)
		return nil, err
	}
	bin, err := os.ReadFile(b.cache.object(busybox))
	if err != nil {
		return nil, err
	}
	names, err := applets(bin)
	if err != nil {
		return nil, err
	}
	all := append(slices.Clone(skeleton), File{Path: "/bin/busybox", Mode: 0o755, Data: bin})
	for _, name := range names {
		if name != "busybox" {
			all = append(all, File{Path: "/bin/" + name, Mode: fs.ModeSymlink | 0o777, Link: "busybox"})
		}
	}
	return all, nil
}

// applets reads busybox's own table of names out of its binary, which need not
// run here: NUL-terminated, sorted, from "[" to an empty one.
func applets(bin []byte) ([]string, error) {
	at := bytes.Index(bin, []byte("[\x00[[\x00acpid\x00"))
	if at < 0 {
		return nil, errors.New("images: busybox has no table of applets: is the package a busybox?")
	}
	var names []string
	for rest := bin[at:]; ; {
		name, tail, ok := bytes.Cut(rest, []byte{0})
		if !ok || len(name) == 0 {
			break
		}
		names, rest = append(names, string(name)), tail
	}
	if !slices.IsSorted(names) || !slices.Contains(names, "sh") || slices.ContainsFunc(names, func(s string) bool {
		return strings.ContainsAny(s, "/ ")
	}) {
		return nil, fmt.Errorf("images: busybox's table of applets is not one: %.60q", names)
	}
	return names, nil
}

func sortedNames(fs files) []string { return slices.Sorted(maps.Keys(fs)) }
