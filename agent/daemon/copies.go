package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"kerninst/agent/inline"
	"kerninst/agent/inlined"
	"kerninst/agent/ktext"
	"kerninst/agent/wire"
)

// copiesFile is what is known of the kernel's inlined copies, if the image has it (agent/inline, Index.Bytes).
const copiesFile = "/lib/kerninst/kernel.copies"

// copied is that, and what it is joined with.
type copied struct {
	index *inline.Index // read when somebody first asks
	text  *ktext.Text
	in    *inlined.Copies // of text
}

// copies says what specifications mean where functions are inlined, and which lines places are of. What
// one specification cannot mean is said of it, and is no error of the step's.
func (d *Daemon) copies(ask *wire.Copies, res *wire.Result) error {
	c, err := d.copied.of(d.text, copiesFile)
	if err != nil {
		return err
	}
	res.Meant = c.Meant(ask.Specs)
	for _, p := range ask.Places {
		res.Sources = append(res.Sources, c.Source(p.Place, p.Returned))
	}
	return nil
}

// of is what is known of the copies in a text.
func (c *copied) of(text *ktext.Text, file string) (*inlined.Copies, error) {
	if c.text == text && text != nil {
		return c.in, nil
	}
	if c.index == nil {
		b, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, errors.New("this guest has not been told of inlined copies: lab shell --inline does so")
		} else if err != nil {
			return nil, err
		}
		if c.index, err = inline.Open(b); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	in, err := inlined.In(text, c.index)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	c.text, c.in = text, in
	return in, nil
}
