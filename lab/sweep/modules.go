package sweep

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"

	"kerninst/agent/isa"
)

// maxModule bounds one module, in bytes; the largest graphics driver has 20 MB.
const maxModule = 256 << 20

// Modules unpacks a Debian kernel package and calls visit with the code of each
// module. The code is as the compiler left it: relocations are not applied.
func Modules(ctx context.Context, deb string, visit func(name string, code []Piece) error) (err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("modules of %s: %w", path.Base(deb), err)
	}
	defer func() {
		if err != nil {
			stop()
		}
		if e := cmd.Wait(); err == nil && e != nil {
			err = fmt.Errorf("modules of %s: %w: %s", path.Base(deb), e, errs.String())
		}
	}()
	for in := tar.NewReader(out); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			_, err := io.Copy(io.Discard, out) // what tar pads with
			return err
		} else if err != nil {
			return err
		}
		name, packed := strings.CutSuffix(path.Base(h.Name), ".ko.xz")
		if !packed || h.Typeflag != tar.TypeReg {
			continue
		}
		code, err := moduleCode(ctx, in)
		if err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
		if err := visit(name, code); err != nil {
			return err
		}
	}
}

// madeByLoader are sections that the kernel gives size and content when it loads
// a module.
var madeByLoader = map[string]bool{".plt": true, ".init.plt": true, ".text.ftrace_trampoline": true}

// moduleCode unpacks one module and divides its code at symbols.
func moduleCode(ctx context.Context, packed io.Reader) ([]Piece, error) {
	cmd := exec.CommandContext(ctx, "xz", "-dc")
	cmd.Stdin = packed
	var ko, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &ko, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("xz: %w: %s", err, errs.String())
	}
	f, err := elf.NewFile(bytes.NewReader(ko.Bytes()))
	if err != nil {
		return nil, err
	}
	symbols, err := f.Symbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return nil, err
	}
	var out []Piece
	for n, s := range f.Sections {
		if madeByLoader[s.Name] || s.Flags&elf.SHF_EXECINSTR == 0 || s.Type != elf.SHT_PROGBITS || s.Size == 0 || s.Size > maxModule {
			continue
		}
		code, err := s.Data()
		if err != nil {
			return nil, err
		}
		out = append(out, divide(s.Name, code, marksIn(symbols, elf.SectionIndex(n)))...)
	}
	return out, nil
}

// mark is a place in a section where something begins.
type mark struct {
	off  uint64
	name string
	data bool // what follows is no code, as mapping symbols say
	both bool // the mark does not say whether it is
}

// marksIn lists the functions and mapping symbols of a section in order.
func marksIn(symbols []elf.Symbol, section elf.SectionIndex) []mark {
	var out []mark
	for _, y := range symbols {
		if y.Section != section {
			continue
		}
		switch kind := elf.ST_TYPE(y.Info); {
		case strings.HasPrefix(y.Name, "$d"):
			out = append(out, mark{off: y.Value, data: true})
		case strings.HasPrefix(y.Name, "$x"):
			out = append(out, mark{off: y.Value})
		case kind == elf.STT_FUNC:
			out = append(out, mark{off: y.Value, name: y.Name, both: true})
		}
	}
	slices.SortStableFunc(out, func(a, b mark) int { return int(int64(a.off) - int64(b.off)) })
	return out
}

// divide cuts a section at its marks and leaves out what is data.
func divide(section string, code []byte, marks []mark) (out []Piece) {
	name, data, from := section, false, uint64(0)
	cut := func(to uint64) {
		to = min(to, uint64(len(code)))
		if to > from && !data {
			out = append(out, Piece{Name: name, Addr: isa.Addr(from), Code: code[from:to]})
		}
		from = max(from, to)
	}
	for _, m := range marks {
		cut(m.off)
		if m.name != "" {
			name = m.name
		}
		if !m.both {
			data = m.data
		}
	}
	cut(uint64(len(code)))
	return out
}
