package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// FromModules is FromVmlinux for the debug files of modules: it returns what of makes of each, by the module's
// name. All that have not been made before come of one fetch of the package, and of each what is made is kept, and no more. A module
// that the kernel does not have is a *NoModuleError in the NoDebugError.
func FromModules(ctx context.Context, opt Options, name string, modules []string, of func(file io.ReaderAt) ([]byte, error)) (map[string][]byte, error) {
	b, err := newBuilder(opt)
	if err == nil {
		err = b.cache.use(ctx)
	}
	if err != nil {
		return nil, err
	}
	modules = moduleNames(modules)
	if b.own != nil {
		out, err := b.eachModule(ctx, builtModules{b.own.path}.visit, b.own.release, modules, of)
		if err != nil {
			return nil, &NoDebugError{b.own.release, err}
		}
		return out, nil
	}
	s, err := b.choose(ctx)
	if err != nil {
		return nil, err
	}
	kernel, err := s.guest(kernelIn...)
	if err != nil {
		return nil, err
	}
	return b.keptModules(ctx, s.Kernel, name, kernel.SHA256, modules, of)
}

// moduleNames are modules' own names, each once and in order.
func moduleNames(words []string) (out []string) {
	for _, w := range words {
		out = append(out, ModuleName(w))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// keptModules are those that have been made of a Debian kernel's modules, or are made now.
func (b *builder) keptModules(ctx context.Context, release, name, kernel string, modules []string, of func(io.ReaderAt) ([]byte, error)) (map[string][]byte, error) {
	keyed := func(module string) string { return keyOf(name, kernel, module) }
	var fetched map[string][]byte
	fetch := func() (err error) { // when the first lacks
		lacking := slices.DeleteFunc(slices.Clone(modules), func(m string) bool { return b.cache.have("debug", keyed(m)) != nil })
		fetched, err = b.modulesOfDebugPackage(ctx, release, lacking, of)
		return err
	}
	out := map[string][]byte{}
	for _, module := range modules {
		made, err := b.madeOrKept(ctx, name, keyed(module), release, func() (files, error) {
			if fetched[module] == nil {
				if err := fetch(); err != nil {
					return nil, err
				}
			}
			d, err := b.cache.put(bytes.NewReader(fetched[module]))
			return files{name: d}, err
		})
		if err != nil {
			return nil, err
		}
		out[module] = made
	}
	return out, nil
}

// modulesOfDebugPackage fetches the package, makes what is wanted of each module, and lets go of it.
func (b *builder) modulesOfDebugPackage(ctx context.Context, release string, modules []string, of func(io.ReaderAt) ([]byte, error)) (map[string][]byte, error) {
	pkg, err := b.debugPackage(ctx, release)
	if err != nil {
		return nil, err
	}
	defer os.Remove(b.cache.object(pkg.Digest))
	b.say("unpacking debug files of modules of %s", pkg.Name)
	visit := func(ctx context.Context, f func(string, func() (io.ReadCloser, error)) error) error {
		return visitPackage(ctx, b.cache.object(pkg.Digest), f)
	}
	return b.eachModule(ctx, visit, release, modules, of)
}

// moduleVisit is moduleTree's.
type moduleVisit func(ctx context.Context, f func(name string, content func() (io.ReadCloser, error)) error) error

// eachModule makes what is wanted of each module in a tree.
func (b *builder) eachModule(ctx context.Context, visit moduleVisit, release string, modules []string, of func(io.ReaderAt) ([]byte, error)) (map[string][]byte, error) {
	out, known := map[string][]byte{}, map[string]bool{}
	err := visit(ctx, func(file string, content func() (io.ReadCloser, error)) error {
		name, packing, ok := splitModule(file)
		if !ok {
			return nil
		}
		known[name] = true
		if !slices.Contains(modules, name) || out[name] != nil {
			return nil
		}
		made, err := b.ofModule(ctx, packing, content, of)
		if err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
		if out[name] = made; len(out) == len(modules) {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	for _, name := range modules {
		if out[name] == nil {
			return nil, &NoModuleError{name, release, slices.Sorted(maps.Keys(known))}
		}
	}
	return out, nil
}

// ofModule makes it of one file, which it unpacks to where there is room: a graphics driver's has a quarter of a gigabyte.
func (b *builder) ofModule(ctx context.Context, packing string, content func() (io.ReadCloser, error), of func(io.ReaderAt) ([]byte, error)) ([]byte, error) {
	argv, ok := unpackers[packing]
	if !ok {
		return nil, fmt.Errorf("it is packed as %q, which is unknown here", packing)
	}
	r, err := content()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	dir, err := b.cache.temp("debug")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	f, err := os.Create(filepath.Join(dir, "module"))
	if err != nil {
		return nil, b.cache.unwritable(err)
	}
	defer f.Close()
	bounded := io.LimitReader(r, vmlinuxRoom)
	if argv == nil {
		_, err = io.Copy(f, bounded)
	} else {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Stdin, cmd.Stdout = bounded, f
		err = cmd.Run()
	}
	if err != nil {
		return nil, b.cache.unwritable(err)
	}
	return of(f)
}
