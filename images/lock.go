package images

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// LockFile is where the lock is in the repository.
const LockFile = "images/images.lock"

// Package is one Debian package.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Arch    string `json:"arch"` // amd64, arm64, riscv64 or all
	Digest
	// Path is where an archive has it, as addresses spell it; empty: only its index says.
	Path string `json:"path,omitempty"`
}

func (p Package) String() string { return p.Name + " " + p.Version + " " + p.Arch }

// anywhere is p without its path, to compare: old bundles have none, and archives differ.
func (p Package) anywhere() Package {
	p.Path = ""
	return p
}

// set names a list of packages in the lock: what the guest of an architecture
// is made of, or what builds it on one kind of host.
func guestSet(arch string) string           { return "guest/" + arch }
func toolchainSet(host, arch string) string { return "toolchain/" + host + "/" + arch }

// Lock is the content of the lock file: packages by set, sorted.
type Lock map[string][]Package

// noPath stands in the lock for a path that is not known.
const noPath = "-"

const lockHeader = `# Debian packages that guests and their toolchains are made of.
# Written by "lab image build --refresh"; do not edit.
# package version architecture size sha256 sets`

// ReadLock reads the lock file of the repository at root. A repository without
// one has an empty lock.
func ReadLock(root string) (Lock, error) {
	name := filepath.Join(root, LockFile)
	b, err := os.ReadFile(name)
	if os.IsNotExist(err) {
		return Lock{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	l, err := parseLock(b)
	if err != nil {
		return nil, fmt.Errorf("images: %s:%w; restore it from version control", name, err)
	}
	return l, nil
}

func parseLock(b []byte) (Lock, error) {
	l := Lock{}
	in := bufio.NewScanner(bytes.NewReader(b))
	for n := 1; in.Scan(); n++ {
		line := in.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line)
		if len(f) != 7 {
			return nil, fmt.Errorf("%d: %d fields instead of 7", n, len(f))
		}
		size, err := strconv.ParseInt(f[3], 10, 64)
		if err != nil || size <= 0 {
			return nil, fmt.Errorf("%d: size %q is not a number of bytes", n, f[3])
		}
		if !validSum(f[4]) {
			return nil, fmt.Errorf("%d: %q is not a SHA-256", n, f[4])
		}
		p := Package{f[0], f[1], f[2], Digest{f[4], size}, f[6]}
		if p.Path == noPath {
			p.Path = ""
		} else if !inPool(p.Path) {
			return nil, fmt.Errorf("%d: %q is no path in an archive's pool", n, p.Path)
		}
		for _, set := range strings.Split(f[5], ",") {
			l[set] = append(l[set], p)
		}
	}
	return l, in.Err()
}

// inPool says whether a path leads to where archives keep packages.
func inPool(path string) bool {
	return strings.HasPrefix(path, "pool/") && !strings.Contains(path+"/", "/../")
}

// format is the inverse of parseLock.
func (l Lock) format() []byte {
	return l.text(" path", func(p Package) string { return " " + cmp.Or(p.Path, noPath) })
}

// content is what is locked without where archives have it. That decides nothing, so what
// an earlier run has chosen for the same content is still known, paths or not.
func (l Lock) content() string {
	return string(l.text("", func(Package) string { return "" }))
}

// text is the lock, its last column added to the others'.
func (l Lock) text(column string, of func(Package) string) []byte {
	sets := map[Package][]string{}
	for set, pkgs := range l {
		for _, p := range pkgs {
			sets[p] = append(sets[p], set)
		}
	}
	var lines []string
	for p, in := range sets {
		slices.Sort(in)
		lines = append(lines, fmt.Sprintf("%s %d %s %s%s\n", p, p.Size, p.SHA256, strings.Join(in, ","), of(p)))
	}
	slices.Sort(lines)
	return []byte(lockHeader + column + "\n" + strings.Join(lines, ""))
}

// of returns what is locked for one pair of host and target.
func (l Lock) of(host, arch string) []Package {
	return append(slices.Clone(l[guestSet(arch)]), l[toolchainSet(host, arch)]...)
}

// all are the packages of all sets.
func (l Lock) all() (pkgs []Package) {
	for _, set := range l {
		pkgs = append(pkgs, set...)
	}
	return pkgs
}

// lacks are those of pkgs that are in no set, wherever an archive has them.
func (l Lock) lacks(pkgs []Package) (others []Package) {
	have := map[Package]bool{}
	for _, p := range l.all() {
		have[p.anywhere()] = true
	}
	for _, p := range pkgs {
		if !have[p.anywhere()] {
			others = append(others, p)
		}
	}
	return others
}

// compare holds what the mirror offers against the lock. What differs in
// version is drift, one message each; the same version with other bytes is an
// error: somebody's copy has been changed.
func compare(locked, offered []Package) (drift []string, err error) {
	byName := map[string]Package{}
	for _, p := range locked {
		byName[p.Name+":"+p.Arch] = p
	}
	for _, p := range offered {
		l, ok := byName[p.Name+":"+p.Arch]
		switch {
		case !ok:
			drift = append(drift, fmt.Sprintf("%s is not in the lock file", p))
		case l.Version != p.Version:
			drift = append(drift, fmt.Sprintf("%s is locked, the mirror has %s", l, p.Version))
		case l.Digest != p.Digest:
			return nil, fmt.Errorf("images: %s: the mirror's has SHA-256 %s and %d bytes, "+
				"the lock file says %s and %d: not used; try another mirror (MIRROR=)",
				p, p.SHA256, p.Size, l.SHA256, l.Size)
		}
	}
	return drift, nil
}
