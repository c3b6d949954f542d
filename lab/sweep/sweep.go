package sweep

import (
	"context"
	"fmt"
	"io"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/images"
)

// tools names objdump inside the toolchain's root.
var tools = map[string]string{
	"amd64": "x86_64-linux-gnu-objdump", "arm64": "aarch64-linux-gnu-objdump", "riscv64": "riscv64-linux-gnu-objdump",
}

// Run compares the decoder of an ISA with objdump over the pieces.
func Run(ctx context.Context, root *images.Root, arch *isa.Arch, pieces []Piece) (*Report, error) {
	l := lay(arch, pieces)
	file := elfFile(arch.Name, l.base, l.code, l.starts)
	var r *Report
	err := root.Stream(ctx, "code", file, append([]string{tools[arch.Name]}, append(arguments, "code")...), func(out io.Reader) (err error) {
		r, err = l.compare(out)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("sweep of %s: %w", arch.Name, err)
	}
	return r, nil
}

// Objdump has objdump disassemble the pieces to nowhere: for who wants to know how
// long that takes.
func Objdump(ctx context.Context, root *images.Root, arch *isa.Arch, pieces []Piece) error {
	l := lay(arch, pieces)
	file := elfFile(arch.Name, l.base, l.code, l.starts)
	argv := []string{"sh", "-c", `exec "$0" -d code >/dev/null`, tools[arch.Name]}
	err := root.Stream(ctx, "code", file, argv, func(out io.Reader) error {
		_, err := io.Copy(io.Discard, out)
		return err
	})
	if err != nil {
		return fmt.Errorf("objdump of %s: %w", arch.Name, err)
	}
	return nil
}

// Kernel lists the functions of a kernel, without the words that arm64 keeps
// between them.
func Kernel(t *ktext.Text) ([]Piece, error) {
	var out []Piece
	var err error
	t.Functions("", func(f ktext.Func) bool {
		lo, hi := t.Bounds()
		if f.Addr < lo || f.End() > hi || f.Size == 0 {
			return true
		}
		var code []byte
		if code, err = t.Code(f); err != nil {
			return false
		}
		out = append(out, Piece{Name: f.String(), Addr: f.Addr, Code: code})
		return true
	})
	return out, err
}
