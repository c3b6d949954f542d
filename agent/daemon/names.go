package daemon

import (
	"fmt"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/plan"
	"kerninst/agent/splice"
)

// names are those of addresses that somebody came by. Who was called by a patch comes back to it, and is
// said to come back to the kernel's own code, which the patch stands for.
type names struct {
	text  *ktext.Text
	plans []*plan.Plan // whose patches are live
}

func (d *Daemon) names() names {
	n := names{text: d.text}
	for _, l := range d.splicer.Live() {
		n.plans = append(n.plans, patched(l)...)
	}
	return n
}

// patched is the plan whose patch a splice runs, if it has one of its own.
func patched(l *splice.Live) []*plan.Plan {
	if l.Plan.In != nil {
		return nil
	}
	return []*plan.Plan{l.Plan}
}

// kernels is where in the kernel's own code somebody comes back to.
func (n names) kernels(a isa.Addr) isa.Addr {
	for _, p := range n.plans {
		if at, ok := p.Returns(a); ok {
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
