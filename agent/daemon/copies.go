package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"kerninst/agent/inline"
	"kerninst/agent/inlined"
	"kerninst/agent/ktext"
	"kerninst/agent/wire"
)

// What is known of inlined copies, as far as the image has it: the kernel's (agent/inline, Index.Bytes), and
// modules' (Module.Bytes).
const (
	copiesFile      = "/lib/kerninst/kernel.copies"
	copiesOfModules = "/lib/kerninst/copies/*"
)

// copied is that, and what it is joined with.
type copied struct {
	index   *inline.Index // nil, too, if modules' alone is known
	modules []*inline.Module
	read    bool // when somebody first asks
	text    *ktext.Text
	in      *inlined.All // of text
}

// copies says what specifications mean where functions are inlined, and which lines places are of. What
// one specification cannot mean is said of it, and is no error of the step's.
func (d *Daemon) copies(ask *wire.Copies, res *wire.Result) error {
	if err := d.copied.readAll(copiesFile, copiesOfModules); err != nil {
		return err
	}
	if err := d.seeModules(d.copied.names()); err != nil {
		return err
	}
	c, err := d.copied.of(d.text)
	if err != nil {
		return err
	}
	res.Meant = c.Meant(ask.Specs)
	for _, p := range ask.Places {
		res.Sources = append(res.Sources, c.Source(p.Place, p.Returned))
	}
	return nil
}

// readAll reads what the image has, once.
func (c *copied) readAll(kernel, modules string) error {
	if c.read {
		return nil
	}
	files, err := filepath.Glob(modules)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(kernel)
	switch {
	case err == nil:
		if c.index, err = inline.Open(b); err != nil {
			return fmt.Errorf("%s: %w", kernel, err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case len(files) == 0:
		return errors.New("this guest has not been told of inlined copies: lab shell --inline does so")
	}
	c.modules = nil
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		m, err := inline.OpenModule(b)
		if err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
		c.modules = append(c.modules, m)
	}
	c.read = true
	return nil
}

// names are the modules of which something is known.
func (c *copied) names() (out []string) {
	for _, m := range c.modules {
		out = append(out, m.Name)
	}
	return out
}

// of is what is known of the copies in a text, which is another when modules have come or gone.
func (c *copied) of(text *ktext.Text) (*inlined.All, error) {
	if c.text == text && text != nil {
		return c.in, nil
	}
	in, err := inlined.Join(text, c.index, c.modules...)
	if err != nil {
		return nil, fmt.Errorf("what this guest has been told of inlined copies: %w", err)
	}
	c.text, c.in = text, in
	return in, nil
}
