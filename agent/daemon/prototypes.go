package daemon

import (
	"fmt"
	"os"
	"path/filepath"

	"kerninst/agent/ktext"
	"kerninst/agent/ktypes"
)

// typesFolder has the types of the kernel and of each module that has some.
const typesFolder = "/sys/kernel/btf"

// kernelTypes is the kernel's name there.
const kernelTypes = "vmlinux"

// prototypes are the types of functions, read when somebody first asks: only a jump that is
// made a call does.
type prototypes struct {
	of  map[string]*ktypes.Types // by module; "": the kernel
	err map[string]error         // why those of one are not known
}

// types are a module's.
func (p *prototypes) types(module string) (*ktypes.Types, error) {
	if p.of[module] != nil || p.err[module] != nil {
		return p.of[module], p.err[module]
	}
	if p.of == nil {
		p.of, p.err = map[string]*ktypes.Types{}, map[string]error{}
	}
	p.of[module], p.err[module] = p.read(module)
	return p.of[module], p.err[module]
}

func (p *prototypes) read(module string) (*ktypes.Types, error) {
	if module == "" {
		raw, err := os.ReadFile(filepath.Join(typesFolder, kernelTypes))
		if err != nil {
			return nil, err
		}
		return ktypes.Read(raw)
	}
	kernel, err := p.types("")
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(filepath.Join(typesFolder, module))
	if err != nil {
		return nil, err
	}
	return kernel.Of(raw)
}

// forget lets a module's types be read anew: another of its name may be loaded.
func (p *prototypes) forget() {
	for module := range p.of {
		if module != "" {
			delete(p.of, module)
		}
	}
	clear(p.err)
}

// onStack reports whether arguments of a function may be passed on the stack: it is known by
// any of its names, and by none otherwise.
func (d *Daemon) onStack(f ktext.Func) (bool, error) {
	types, err := d.prototypes.types(f.Module)
	if err != nil {
		return false, fmt.Errorf("the types of its arguments are not known: %w", err)
	}
	known, names := false, append([]string{f.Name}, d.text.Aliases(f)...)
	for _, name := range names {
		on, its := types.OnStack(d.arch.Name, name)
		switch {
		case its == nil && on:
			return true, nil
		case its == nil:
			known = true
		default:
			err = its
		}
	}
	if known {
		return false, nil
	}
	return false, err
}
