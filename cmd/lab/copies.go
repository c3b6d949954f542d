package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"kerninst/agent/inline"
	"kerninst/agent/inlined"
	"kerninst/agent/ktext"
	"kerninst/agent/near"
	"kerninst/images"
	"kerninst/lab/analysis"
	"kerninst/lab/card"
	"kerninst/lab/plain"
)

// known is where what is known of copies is from, and of which modules.
type known struct{ copies, named []string }

func (k *known) add(f *pflag.FlagSet) {
	f.Var(&given{list: &k.copies}, "copies", "what is known of inlined copies, of this `FILE` (lab inline --save), and not of the debug package; may be repeated")
}

// addModules adds the flag for modules.
func (k *known) addModules(f *pflag.FlagSet, help string) {
	f.Var(&given{list: &k.named, comma: ","}, "module", help)
}

// given is a flag that may be repeated, or have its values behind each other, of which none may be empty: a
// script's variable that is not set would be taken for a flag that is not given.
type given struct {
	list  *[]string
	comma string // "": a value may have any letter
}

func (g *given) String() string {
	if g.list == nil {
		return ""
	}
	return strings.Join(*g.list, ",")
}

func (g *given) Set(value string) error {
	values := []string{value}
	if g.comma != "" {
		values = strings.Split(value, g.comma)
	}
	if slices.Contains(values, "") {
		return errors.New("its value is empty")
	}
	*g.list = append(*g.list, values...)
	return nil
}

func (g *given) Type() string { return "strings" }

// knowledge is what is known of copies: of the kernel's own, or nil, and of modules'.
type knowledge struct {
	kernel  *inline.Index
	modules []*inline.Module
}

// names are the modules of which something is known.
func (k *knowledge) names() (out []string) {
	for _, m := range k.modules {
		out = append(out, m.Name)
	}
	return out
}

// module is the one that is known, if the kernel's own copies are not.
func (k *knowledge) module() *inline.Module {
	if k.kernel != nil || len(k.modules) == 0 {
		return nil
	}
	return k.modules[0]
}

// sayPart says of which functions alone lines are told, if it is not all.
func (k *knowledge) sayPart(verb string) {
	if k.kernel != nil && k.kernel.Of != nil {
		progress("%s: of the kernel, lines of the source are told where %s are, and those that have them: no others are in --copies", verb, strings.Join(k.kernel.Of, ", "))
	}
}

// index is the kernel's, or the module's that is known.
func (k *knowledge) index() (x *inline.Index, module string) {
	if m := k.module(); m != nil {
		return m.Index, m.Name
	}
	return k.kernel, ""
}

// whole is a file of all that is known.
func (k *knowledge) whole() ([]byte, error) {
	if m := k.module(); m != nil {
		return m.Bytes()
	}
	return k.kernel.Bytes()
}

// only is a file of what is known of some functions.
func (k *knowledge) only(names []string) ([]byte, error) {
	if m := k.module(); m != nil {
		only, err := m.Only(names...)
		if err != nil {
			return nil, err
		}
		return only.Bytes()
	}
	only, err := k.kernel.Only(names...)
	if err != nil {
		return nil, err
	}
	return only.Bytes()
}

// ofModuleFlag is the error of --modprobe where --module has named the module.
func ofModuleFlag(err error) error {
	var none *images.NoModuleError
	if errors.As(err, &none) {
		return usage(fmt.Errorf("--module: %w", none))
	}
	return err
}

// about is what is known of the inlined copies in the kernel that the flags name, its own, if that is wanted, and in
// modules of it. What --copies names is taken instead, and has to have all of the modules.
func (k *known) about(ctx context.Context, c *common, arch string, kernel bool, modules []string) (*knowledge, error) {
	if len(k.copies) > 0 {
		return k.read(arch, kernel, modules)
	}
	root, err := repository()
	if err != nil {
		return nil, err
	}
	out := &knowledge{}
	opt := images.Options{Arch: arch, Kernel: images.KernelWord(c.kernel), Mirror: c.mirror, Root: root, Progress: progress}
	if len(modules) > 0 {
		if err := c.hasModules(ctx, arch, modules); err != nil {
			return nil, err
		}
		if out.modules, err = analysis.ModuleCopies(ctx, opt, modules); err != nil {
			return nil, ofModuleFlag(kernelError(err))
		}
	}
	if kernel {
		out.kernel, err = analysis.Copies(ctx, opt)
	}
	return out, kernelError(err)
}

// hasModules is an error that says which module was meant if the kernel lacks one: before its debug package comes.
func (c *common) hasModules(ctx context.Context, arch string, modules []string) error {
	img, opts, err := c.image(ctx, arch)
	if err == nil {
		_, err = (&own{modules: modules}).load(ctx, img, opts)
	}
	return ofModuleFlag(err)
}

// read reads what --copies names.
func (k *known) read(arch string, kernel bool, modules []string) (*knowledge, error) {
	all := &knowledge{}
	for _, file := range k.copies {
		if err := all.read(file, arch); err != nil {
			return nil, usage(fmt.Errorf("--copies %s: %w", file, err))
		}
	}
	files := strings.Join(k.copies, ", ")
	if kernel && all.kernel == nil && len(modules) == 0 {
		return nil, usage(fmt.Errorf("--copies %s: it is of module %s, not of the kernel itself", files, all.modules[0].Name))
	}
	for _, name := range modules {
		if !slices.ContainsFunc(all.modules, func(m *inline.Module) bool { return m.Name == images.ModuleName(name) }) {
			return nil, usage(fmt.Errorf("--copies %s: nothing of module %s%s (lab inline --module --save makes such a file)", files, name, near.Hint(name, all.names())))
		}
	}
	if !kernel { // one module is looked into
		all.kernel = nil
		all.modules = slices.DeleteFunc(all.modules, func(m *inline.Module) bool { return m.Name != images.ModuleName(modules[0]) })
	}
	return all, nil
}

// read takes what one file has.
func (k *knowledge) read(file, arch string) error {
	b, err := plain.Read(file, mostCopies)
	if err != nil {
		return err
	}
	var x *inline.Index
	if inline.IsModule(b) {
		m, err := inline.OpenModule(b)
		if err != nil {
			return fmt.Errorf("%w; lab inline --module --save makes such a file", err)
		}
		if slices.ContainsFunc(k.modules, func(o *inline.Module) bool { return o.Name == m.Name }) {
			return fmt.Errorf("another file is of module %s, too", m.Name)
		}
		x = m.Index
		k.modules = append(k.modules, m)
	} else {
		if x, err = inline.Open(b); err != nil {
			return fmt.Errorf("%w; lab inline --save makes such a file", err)
		}
		if k.kernel != nil {
			return errors.New("another file is of the kernel itself, too")
		}
		k.kernel = x
	}
	if x.Arch != arch {
		return fmt.Errorf("it is of %s, not of %s", x.Arch, arch)
	}
	return nil
}

// takeCopies puts what is known of inlined copies into a folder, for the daemon.
func (k *known) takeCopies(ctx context.Context, c *common, arch, dir string) (files []images.File, err error) {
	about, err := k.about(ctx, c, arch, true, k.named)
	if err != nil {
		return nil, err
	}
	take := func(to, name string, bytes func() ([]byte, error)) {
		if err != nil {
			return
		}
		var b []byte
		if b, err = bytes(); err == nil {
			file := images.File{Path: to, Mode: 0o444, Source: filepath.Join(dir, name)}
			files = append(files, file)
			err = os.WriteFile(file.Source, b, 0o600)
		}
	}
	if about.kernel != nil {
		take(daemonCopies, "kernel.copies", about.kernel.Bytes)
	}
	for _, m := range about.modules {
		take(path.Join(daemonModules, m.Name), m.Name+".module.copies", m.Bytes)
	}
	return files, err
}

// Where the daemon looks for them: the kernel's own, and a file for each module.
const (
	daemonCopies  = "/lib/kerninst/kernel.copies"
	daemonModules = "/lib/kerninst/copies"
)

// readBefore tells lines of the source on cards, of kernels whose debugging information has been read
// before: nothing is fetched for a card. Whoever has built a kernel has it at hand.
func readBefore(opts images.Options) func(func() (*ktext.Dump, error)) (card.Source, error) {
	opts.Offline = true
	return func(dump func() (*ktext.Dump, error)) (card.Source, error) {
		x, err := analysis.Copies(context.Background(), opts)
		var none *images.NoDebugError
		if errors.Is(err, images.ErrNotCached) || errors.As(err, &none) {
			return nil, fmt.Errorf("the kernel's debugging information has not been read; bin/lab inline --arch %s fdget does so, once", opts.Arch)
		}
		if err != nil {
			return nil, err
		}
		d, err := dump()
		if err != nil {
			return nil, err
		}
		n, err := analysis.CopiesIn(d, x)
		if err != nil {
			return nil, err
		}
		modules := map[string]*inline.Module{}
		return func(place string, returned bool) string {
			name, rest, of := strings.Cut(place, ":")
			if !of {
				return n.Source(place, returned)
			}
			if _, asked := modules[name]; !asked {
				modules[name] = moduleReadBefore(opts, name)
			}
			if modules[name] == nil {
				return ""
			}
			return inlined.SourceIn(modules[name], rest, returned)
		}, nil
	}
}

// moduleReadBefore is what is known of a module, or nil: the lab's own has no package, and most nobody has asked for.
func moduleReadBefore(opts images.Options, name string) *inline.Module {
	all, err := analysis.ModuleCopies(context.Background(), opts, []string{name})
	if err != nil || len(all) != 1 {
		return nil
	}
	return all[0]
}

// mostCopies bounds a file of copies, in bytes.
const mostCopies = 64 << 20
