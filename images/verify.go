package images

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Verify reads all of the cache. Objects are compared with their names, index
// entries with the lock, unpacked toolchains with the packages they came from.
// It returns how many it looked at, and a *DamagedError for each that is not
// what was put there.
func Verify(ctx context.Context, opt Options) (n int, damaged []error, err error) {
	c, lock, err := storeOf(opt)
	if err != nil {
		return 0, nil, err
	}
	for _, part := range []func(context.Context, Lock) (int, []error, error){c.verifyObjects, c.verifyIndex, c.verifyTrees} {
		k, bad, err := part(ctx, lock)
		n, damaged = n+k, append(damaged, bad...)
		if err != nil {
			return n, damaged, err
		}
	}
	return n, damaged, nil
}

func (c *cache) verifyObjects(ctx context.Context, _ Lock) (n int, damaged []error, err error) {
	names, _ := filepath.Glob(filepath.Join(c.dir, "sha256", "??", "*"))
	for _, name := range names {
		if ctx.Err() != nil {
			return n, damaged, ctx.Err()
		}
		sum, _, err := hashFile(name)
		switch {
		case errors.Is(err, fs.ErrNotExist): // another lab replaced it
		case err != nil:
			return n, damaged, fmt.Errorf("images: %w", err)
		case sum != filepath.Base(name):
			damaged = append(damaged, &DamagedError{name, "its SHA-256 is " + sum})
		}
		n++
	}
	return n, damaged, nil
}

// verifyIndex finds entries that cannot be read, and choices of packages that
// are locked with other bytes.
func (c *cache) verifyIndex(_ context.Context, lock Lock) (n int, damaged []error, err error) {
	names, _ := filepath.Glob(filepath.Join(c.dir, "index", "*", "*"))
	for _, name := range names {
		kind := filepath.Base(filepath.Dir(name))
		var bad error
		if kind == "packages" {
			var s selection
			if bad = readJSON(name, &s); bad == nil {
				_, bad = compare(lock.all(), s.all())
			}
		} else {
			bad = readJSON(name, new(files))
		}
		if bad != nil && !errors.Is(bad, fs.ErrNotExist) {
			damaged = append(damaged, &DamagedError{name, bad.Error()})
		}
		n++
	}
	return n, damaged, nil
}

func readJSON(name string, v any) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// verifyTrees compares each unpacked toolchain whose packages are known here.
func (c *cache) verifyTrees(ctx context.Context, lock Lock) (n int, damaged []error, err error) {
	for key, pkgs := range c.trees(lock) {
		root := filepath.Join(c.dir, "tree", key)
		if _, err := os.Stat(root); err != nil {
			continue
		}
		n++
		c.say("comparing the toolchain %.12s with its packages", key)
		why, err := c.verifyTree(ctx, root, pkgs)
		if err != nil {
			return n, damaged, err
		}
		if why != "" {
			damaged = append(damaged, &DamagedError{root, why})
		}
	}
	return n, damaged, nil
}

// trees are the packages of all toolchains that the lock or an earlier choice
// asks for, by the tree's key.
func (c *cache) trees(lock Lock) map[string][]Package {
	all := map[string][]Package{}
	var known []selection
	for _, t := range targets {
		if s, ok := selectionOf(hostArch(), t, lock); ok {
			known = append(known, *s)
		}
	}
	names, _ := filepath.Glob(filepath.Join(c.dir, "index", "packages", "*"))
	for _, name := range names {
		var s selection
		if readJSON(name, &s) == nil {
			known = append(known, s)
		}
	}
	for _, s := range known {
		for _, t := range targets {
			b := &builder{t: t}
			all[b.treeKey(&s)] = s.tools()
		}
	}
	return all
}

// member is what a package says about one file: a hash, or where a link leads.
type member struct {
	sum, link string
	mode      fs.FileMode
}

// verifyTree says what first differs between a tree and its packages; "" if
// nothing does.
func (c *cache) verifyTree(ctx context.Context, root string, pkgs []Package) (why string, err error) {
	want := map[string]member{}
	for _, p := range pkgs {
		if err := c.verify(p.Digest); errors.Is(err, fs.ErrNotExist) {
			return "", nil // nothing to compare with
		} else if err != nil {
			return "", nil // found with the objects
		}
		if err := members(ctx, c.object(p.Digest), root, want); err != nil {
			return "", fmt.Errorf("images: %s: %w", p, err)
		}
	}
	seen := 0
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if rel == "build" {
			return filepath.SkipDir // other labs' work
		}
		if d.IsDir() || added[rel] {
			return nil
		}
		m, ok := want[rel]
		if !ok {
			why = rel + " is of no package"
			return fs.SkipAll
		}
		seen++
		if why = m.differs(name, d); why != "" {
			why = rel + " " + why
			return fs.SkipAll
		}
		return nil
	})
	if err == nil && why == "" && seen != len(want) {
		why = fmt.Sprintf("%d of its %d files are missing", len(want)-seen, len(want))
	}
	return why, err
}

// added are the files that finishTree makes.
var added = map[string]bool{"dev/null": true, "proc/self/maps": true, "usr/bin/awk": true, "usr/bin/sh": true}

// members adds what a package holds to want, by its place below root.
func members(ctx context.Context, deb, root string, want map[string]member) error {
	return packageFiles(ctx, deb, func(h *tar.Header, content io.Reader) error {
		name := placed(root, h.Name)
		switch h.Typeflag {
		case tar.TypeReg:
			sum := sha256.New()
			if _, err := io.Copy(sum, content); err != nil {
				return err
			}
			want[name] = member{sum: hex.EncodeToString(sum.Sum(nil)), mode: perm(h)}
		case tar.TypeLink:
			want[name] = want[placed(root, h.Linkname)]
		case tar.TypeSymlink:
			if !added[name] {
				want[name] = member{link: h.Linkname}
			}
		}
		return nil
	})
}

// merged are the folders of a file system's top that are links into /usr.
var merged = map[string]bool{"bin": true, "sbin": true, "lib": true, "lib64": true, "lib32": true, "libx32": true}

// placed is where a package's file is in a tree, in which some folders of the
// top are links.
func placed(root, name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	first, rest, below := strings.Cut(name, "/")
	if below && merged[first] {
		if to, err := os.Readlink(filepath.Join(root, first)); err == nil {
			return path.Join(to, rest)
		}
	}
	return name
}

// differs compares a file of a tree.
func (m member) differs(name string, d fs.DirEntry) string {
	if d.Type() == fs.ModeSymlink {
		if to, err := os.Readlink(name); err != nil || to != m.link {
			return "leads elsewhere"
		}
		return ""
	}
	info, err := d.Info()
	if err != nil || !info.Mode().IsRegular() || m.sum == "" {
		return "is another kind of file"
	}
	if info.Mode().Perm() != m.mode {
		return fmt.Sprintf("has mode %v instead of %v", info.Mode().Perm(), m.mode)
	}
	if sum, _, err := hashFile(name); err != nil || sum != m.sum {
		return "is not what its package holds"
	}
	return ""
}
