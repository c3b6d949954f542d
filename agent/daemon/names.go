package daemon

import (
	"fmt"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/splice"
)

// names are those of addresses that somebody came by. Who was called by a patch comes back to it, and is
// said to come back to the kernel's own code, which the patch stands for.
type names struct {
	text *ktext.Text
	live []*splice.Live
}

func (d *Daemon) names() names { return names{d.text, d.splicer.Live()} }

// kernels is where in the kernel's own code somebody comes back to.
func (n names) kernels(a isa.Addr) isa.Addr {
	if _, ok := n.text.Locate(a - 1); ok {
		return a
	}
	for _, l := range n.live {
		if at, ok := l.Plan.Returns(a); ok && l.Plan.In == nil { // what is in a clone, its entry tells
			return at
		}
	}
	return a
}

// stack names the addresses of a stack. All but the first are behind calls: one that
// does not return may be the last instruction of its function.
func (n names) stack(addresses []uint64) (out []string) {
	for k, a := range addresses {
		back, call := isa.Addr(a), isa.Addr(a)
		if k > 0 {
			back = n.kernels(back)
			call = back - 1
		}
		name := fmt.Sprintf("%#x", a)
		if f, ok := n.text.Locate(call); ok {
			name = fmt.Sprintf("%v+%#x", f, uint64(back-f.Addr))
		}
		out = append(out, name)
	}
	return out
}
