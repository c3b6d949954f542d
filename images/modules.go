package images

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"kerninst/agent/near"
	"kerninst/lab/plain"
)

// ModuleList is where guest/init finds the paths of the modules that it is to
// load, one a line, each behind what it depends on.
const ModuleList = "/lib/modules/load"

// maxModuleFile bounds one module, in bytes; the largest graphics driver has 20 MB.
const maxModuleFile = 256 << 20

// NoModuleError says that a kernel has no module of a name.
type NoModuleError struct {
	Name, Release string
	Known         []string
}

func (e *NoModuleError) Error() string {
	return fmt.Sprintf("kernel %s has no module %s%s", e.Release, e.Name, near.Hint(e.Name, e.Known))
}

// moduleTree is where the modules of a kernel are. visit calls f with every
// file, by its path below the modules' folder; content can be read until f
// returns.
type moduleTree interface {
	visit(ctx context.Context, f func(name string, content func() (io.ReadCloser, error)) error) error
	// key names what is in the tree; empty if that may change.
	key() string
}

// packagedModules are those in a kernel's Debian packages.
type packagedModules struct {
	debs []string
	sum  string
}

func (p packagedModules) key() string { return p.sum }

func (p packagedModules) visit(ctx context.Context, f func(string, func() (io.ReadCloser, error)) error) error {
	for _, deb := range p.debs {
		if err := visitPackage(ctx, deb, f); err != nil {
			return err
		}
	}
	return nil
}

func visitPackage(ctx context.Context, deb string, f func(string, func() (io.ReadCloser, error)) error) error {
	return packageFiles(ctx, deb, func(h *tar.Header, content io.Reader) error {
		_, below, ok := strings.Cut(path.Clean(h.Name), "lib/modules/")
		if !ok || h.Typeflag != tar.TypeReg {
			return nil
		}
		_, name, _ := strings.Cut(below, "/") // behind the release
		return f(name, func() (io.ReadCloser, error) { return io.NopCloser(content), nil })
	})
}

// installedModules are those that `make modules_install` put into a folder.
type installedModules struct{ dir string }

func (installedModules) key() string { return "" }

func (m installedModules) visit(ctx context.Context, f func(string, func() (io.ReadCloser, error)) error) error {
	return filepath.WalkDir(m.dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(m.dir, name)
		if err != nil {
			return err
		}
		return f(filepath.ToSlash(rel), func() (io.ReadCloser, error) { return os.Open(name) })
	})
}

// builtModules are those in a kernel's build directory, where they were built.
type builtModules struct{ dir string }

func (builtModules) key() string { return "" }

// maxModulesOrder bounds modules.order, in bytes: a kernel with everything has
// half a megabyte.
const maxModulesOrder = 16 << 20

// list reads modules.order, which names the module, or the object that it is
// linked from (Linux 6.3 and newer), one path a line.
func (m builtModules) list() ([]string, error) {
	b, err := plain.Read(filepath.Join(m.dir, "modules.order"), maxModulesOrder)
	names := strings.Fields(string(b))
	for k, name := range names {
		names[k] = strings.TrimSuffix(name, path.Ext(name)) + ".ko"
	}
	return names, err
}

func (m builtModules) visit(_ context.Context, f func(string, func() (io.ReadCloser, error)) error) error {
	names, err := m.list()
	if err != nil {
		return err
	}
	if list := "modules.builtin"; fileExists(filepath.Join(m.dir, list)) {
		names = append(names, list)
	}
	for _, name := range names {
		if err := f(name, func() (io.ReadCloser, error) { return plain.Open(filepath.Join(m.dir, name)) }); err != nil {
			return err
		}
	}
	return nil
}

// Load returns what a guest brings along so that its init loads the modules of
// these names, and before each what it depends on. What is built into the
// kernel needs nothing. A name that the kernel does not know is a *NoModuleError.
func (img *Image) Load(ctx context.Context, opt Options, names []string) ([]File, error) {
	if len(names) == 0 {
		return nil, nil
	}
	b, err := newBuilder(opt)
	if err != nil {
		return nil, err
	}
	made, err := b.modules(ctx, img, append(slices.Clone(img.carriers), names...))
	if err != nil {
		return nil, err
	}
	var out []File
	for _, name := range sortedNames(made) {
		out = append(out, File{Path: "/lib/modules/" + path.Base(name), Mode: 0o644, Source: b.cache.object(made[name])})
	}
	return append(out, File{Path: ModuleList, Mode: 0o644, Data: loadList(made)}), nil
}

// modules are the modules of these names and what they depend on, by names in whose order
// they are loaded.
func (b *builder) modules(ctx context.Context, img *Image, names []string) (files, error) {
	step := func() (files, error) {
		found, err := loadable(ctx, img.modules, img.Release, names)
		if err != nil {
			return nil, err
		}
		made := files{}
		for k, m := range found {
			d, err := b.cache.put(bytes.NewReader(m.content))
			if err != nil {
				return nil, err
			}
			made[fmt.Sprintf("%03d/%s.ko", k, m.name)] = d
		}
		return made, nil
	}
	sum := img.modules.key()
	if sum == "" {
		return step()
	}
	made, err := b.cache.made(ctx, "modules", keyOf(append([]string{sum}, names...)...), step)
	if errors.Is(err, ErrNotCached) { // nothing is made, but a name that is none is said
		if _, none := loadable(ctx, img.modules, img.Release, names); none != nil {
			err = none
		}
	}
	return made, err
}

// loadList is what ModuleList says.
func loadList(made files) []byte {
	var list bytes.Buffer
	for _, name := range sortedNames(made) {
		fmt.Fprintln(&list, "/lib/modules/"+path.Base(name))
	}
	return list.Bytes()
}

// carriers are the modules by which results come. Since Linux 6.12 they are built into
// Debian's kernels; a guest of another brings along what is not.
var carriers = []string{"virtio_pci", "virtio_console"}

// carried are the carriers that are to be in the initramfs, by their paths there.
func (b *builder) carried(ctx context.Context, sel *selection) (files, error) {
	img, err := b.from(sel)
	if err != nil || len(img.carriers) == 0 {
		return nil, err
	}
	made, err := b.modules(ctx, img, img.carriers)
	if err != nil || len(made) == 0 {
		return nil, err
	}
	list, err := b.cache.put(bytes.NewReader(loadList(made)))
	out := files{strings.TrimPrefix(ModuleList, "/"): list}
	for name, d := range made {
		out["lib/modules/"+path.Base(name)] = d
	}
	return out, err
}

// moduleFile is one module, unpacked.
type moduleFile struct {
	name    string
	content []byte
	depends []string
}

// loadable finds modules and what they depend on, in the order of loading. A
// package can only be read from its start, so each pass finds what the one
// before has found to be wanted.
func loadable(ctx context.Context, tree moduleTree, release string, names []string) ([]moduleFile, error) {
	found := map[string]moduleFile{}
	known := map[string]bool{} // false: built in
	want := map[string]bool{}
	for _, n := range names {
		want[ModuleName(n)] = true
	}
	for len(want) > 0 {
		err := tree.visit(ctx, func(file string, content func() (io.ReadCloser, error)) error {
			if file == "modules.builtin" {
				return builtin(content, known)
			}
			name, packing, ok := splitModule(file)
			if !ok {
				return nil
			}
			known[name] = true
			if !want[name] {
				return nil
			}
			m, err := readModule(ctx, name, packing, content)
			found[name] = m
			delete(want, name)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("images: modules of %s: %w", release, err)
		}
		for name := range want {
			if is, ok := known[name]; !ok || is {
				return nil, &NoModuleError{name, release, slices.Sorted(maps.Keys(known))}
			}
		}
		clear(want)
		for _, m := range found {
			for _, d := range m.depends {
				if _, have := found[d]; !have && known[d] {
					want[d] = true
				}
			}
		}
	}
	return inOrder(found, names), nil
}

// ModuleName is a module's own name: the kernel's tools take dashes too.
func ModuleName(s string) string { return strings.ReplaceAll(s, "-", "_") }

// splitModule takes the module's name and its packing out of a file's.
func splitModule(file string) (name, packing string, ok bool) {
	name, packing, ok = strings.Cut(path.Base(file), ".ko")
	return ModuleName(name), packing, ok
}

// builtin notes the names in modules.builtin, one path a line.
func builtin(content func() (io.ReadCloser, error), known map[string]bool) error {
	r, err := content()
	if err != nil {
		return err
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, maxModuleFile))
	for _, line := range strings.Fields(string(text)) {
		if name, _, ok := splitModule(line); ok {
			known[name] = false
		}
	}
	return err
}

// unpackers are the programs for packed modules (MODULE_COMPRESS in the kernel's
// configuration).
var unpackers = map[string][]string{
	"": nil, ".xz": {"xz", "-dc"}, ".gz": {"gzip", "-dc"}, ".zst": {"zstd", "-dc"},
}

func readModule(ctx context.Context, name, packing string, content func() (io.ReadCloser, error)) (moduleFile, error) {
	m := moduleFile{name: name}
	argv, ok := unpackers[packing]
	if !ok {
		return m, fmt.Errorf("module %s is packed as %q, which is unknown here", name, packing)
	}
	r, err := content()
	if err != nil {
		return m, err
	}
	defer r.Close()
	bounded := io.LimitReader(r, maxModuleFile)
	if argv == nil {
		m.content, err = io.ReadAll(bounded)
	} else {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Stdin = bounded
		m.content, err = cmd.Output()
	}
	if err != nil {
		return m, fmt.Errorf("module %s: %w", name, err)
	}
	m.depends, err = depends(m.content)
	if err != nil {
		return m, fmt.Errorf("module %s: %w", name, err)
	}
	return m, nil
}

// depends reads a module's own list of what it needs: "depends=a,b" among the
// NUL-terminated strings of its section .modinfo.
func depends(ko []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(ko))
	if err != nil {
		return nil, err
	}
	s := f.Section(".modinfo")
	if s == nil {
		return nil, errors.New("has no .modinfo: not a kernel module")
	}
	info, err := s.Data()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, entry := range strings.Split(string(info), "\x00") {
		if list, ok := strings.CutPrefix(entry, "depends="); ok && list != "" {
			for _, d := range strings.Split(list, ",") {
				out = append(out, ModuleName(d))
			}
		}
	}
	return out, nil
}

// inOrder puts each module behind what it depends on.
func inOrder(found map[string]moduleFile, names []string) (out []moduleFile) {
	placed := map[string]bool{}
	var place func(name string)
	place = func(name string) {
		m, ok := found[name]
		if !ok || placed[name] {
			return
		}
		placed[name] = true
		for _, d := range m.depends {
			place(d)
		}
		out = append(out, m)
	}
	for _, n := range names {
		place(ModuleName(n))
	}
	return out
}
