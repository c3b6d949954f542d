package daemon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"kerninst/agent/index"
	"kerninst/agent/ktext"
	"kerninst/agent/plan"
	"kerninst/agent/wire"
)

// indexed is the kernel's index, if the image has one.
type indexed struct {
	file  *index.Index // mapped, or nil
	view  *index.View  // never nil once it was looked for
	alone *index.View  // without it
	size  int          // of the index in use; 0: none
	err   error        // why one that is there is not used
	took  time.Duration
}

// openIndex maps the index and holds it against this kernel. Whatever is wrong
// with it, every function can be analysed by itself: it is said and left out.
func (d *Daemon) openIndex(file string) {
	start := time.Now()
	d.index.alone, _ = index.NewView(nil, d.text) // without an index nothing can be wrong with it
	d.index.view = d.index.alone
	d.index.size = 0
	var err error
	if d.index.file == nil {
		d.index.file, err = mapIndex(file)
	}
	if x := d.index.file; x != nil {
		var v *index.View
		if v, err = index.NewView(x, d.text); err == nil {
			d.index.view, d.index.size = v, x.Size()
		}
	}
	d.index.err, d.index.took = err, time.Since(start)
}

// mapIndex opens an index in mapped memory; nil if there is no such file. It
// stays mapped: the daemon has one, for as long as it lives.
func mapIndex(file string) (*index.Index, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() == 0 {
		return nil, &index.Damaged{What: "the file is empty"}
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, &fs.PathError{Op: "mmap", Path: file, Err: err}
	}
	x, err := index.Open(b)
	if err != nil {
		return nil, errors.Join(err, unix.Munmap(b))
	}
	return x, nil
}

// facts is what plans are told of a function. An index that does not hold is
// given up, for good: then it is what the function's own code shows.
func (d *Daemon) facts(f ktext.Func) (plan.Facts, error) {
	defer d.stages.enter(d.stages.enter(stageLiveness))
	if d.index.size > 0 {
		fn, err := d.index.view.ForSplice(f)
		var damaged *index.Damaged
		var changed *index.Changed
		switch {
		case err == nil:
			return factsOf(fn), nil
		case !errors.As(err, &damaged) && !errors.As(err, &changed):
			return plan.Facts{}, err
		}
		d.index.view, d.index.size, d.index.err = d.index.alone, 0, err
		d.forget() // what was learnt from it
	}
	fn, err := d.index.alone.Function(f)
	if err != nil {
		return plan.Facts{}, err
	}
	return factsOf(fn), nil
}

// forget drops what is kept of functions while points of a step are planned.
func (d *Daemon) forget() {
	if d.known != nil {
		*d.known = plan.Functions{}
	}
}

func factsOf(fn *index.Function) plan.Facts {
	if fn.How == index.Indexed {
		return plan.Facts{Source: plan.SourceIndex, Free: fn.Free, Jumps: fn, Rebases: fn.Rebases()}
	}
	return plan.Facts{Source: plan.SourceFunction, Free: fn.Free, Rebases: fn.Rebases()}
}

// look looks functions up, one by one, and times each.
func (d *Daemon) look(ctx context.Context, l *wire.Look, res *wire.Result) (err error) {
	out := &wire.Looked{OpenNs: uint64(d.index.took), IndexBytes: uint64(d.index.size)}
	res.Looked = out
	if d.index.err != nil {
		out.IndexError = d.index.err.Error()
	}
	view := d.index.view
	if l.Alone {
		view = d.index.alone
	} else if d.index.size > 0 {
		start := time.Now()
		if err := view.Whole(); err != nil {
			out.IndexError = err.Error()
		}
		out.WholeNs = uint64(time.Since(start))
	}
	lo, hi := d.text.Bounds()
	n := 0
	d.text.Functions("", func(f ktext.Func) bool {
		if f.Addr < lo || f.Addr >= hi {
			return true
		}
		if n++; (n-1)%int(max(l.Every, 1)) != 0 {
			return true
		}
		var one *wire.Looked_Function
		if one, err = lookAt(view, f); err == nil {
			out.Functions = append(out.Functions, one)
			err = ctx.Err()
		}
		return err == nil
	})
	return err
}

func lookAt(view *index.View, f ktext.Func) (*wire.Looked_Function, error) {
	start := time.Now()
	fn, err := view.Function(f)
	if err != nil {
		return nil, err
	}
	one := &wire.Looked_Function{Name: f.String(), How: fn.How.String(), Ns: uint64(time.Since(start)), Instructions: uint32(fn.Instructions())}
	fn.Each(func(a addr, _ regSet) { one.Free += uint32(fn.Free(a).Len()) })
	return one, nil
}
