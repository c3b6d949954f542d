package plan

import (
	"bytes"
	"fmt"
	"strings"

	"kerninst/agent/cfg"
	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
)

// Tail calls. A snippet that asks what a function returns, at a jump to another function:
// the jump is made a call in the patch (gen/called.go has how, and who meets what). That
// pushes an address, and a frame record, so what is called finds no arguments on the stack
// where it looks for them. A compiler makes a jump of a call only where those fit into the
// place that the function's own had. So there are none if either is known to have none:
//
//   - the function itself; then it does not matter which one the jump leads to, as through
//     a thunk to that which a register says;
//   - or what is jumped to, directly or by a module's way to far functions.
//
// The jump has to lead to where a function begins, and the function has to be one of C
// (compiled): only then is the stack, at the jump, what it was at the entry. All others are
// refused.
//
// What is called may sleep, for ever, or recur, each time with so much more of the stack;
// where it never comes back, nobody asks what is returned, and the stack goes with its
// task. Chains of tail calls without an end, in place of a loop, would run out of stack,
// as they would in a kernel that was built without that optimisation.

// returnsAt reports whether instruction k returns, by itself or by the kernel's thunk.
func (fn *function) returnsAt(k int) bool {
	_, thunk := fn.thunk(k)
	return fn.insns[k].Flow == isa.FlowReturn || thunk
}

// thunk is what instruction k returns by, if it is a jump to that.
func (fn *function) thunk(k int) (isa.Addr, bool) {
	i := fn.insns[k]
	if i.Flow != isa.FlowJump {
		return 0, false
	}
	f, ok := fn.text.Locate(i.Target)
	return i.Target, ok && f.Addr == i.Target && cfg.Returns(fn.text.Arch.Name, f.Name)
}

// called reports whether the jump at instruction k is to be made a call.
func (fn *function) called(req Request, k int) bool {
	return req.Snippet.Returned() && !fn.returnsAt(k)
}

// comesBack reports why it cannot be told at instruction at what the function returns.
func (fn *function) comesBack(req Request, at int) *Refusal {
	i, to := fn.insns[at], fn.insns[at].Target
	switch i.Flow {
	case isa.FlowJump:
		if fn.dispatches(at) {
			return fn.unknownJump(at)
		}
	case isa.FlowIndirectJump: // by a table into the function itself, for all that is known
		leaves, r := fn.leaves(at)
		if r != nil {
			return r
		}
		if to = fn.farTarget(at); !leaves {
			to = fn.Addr
		}
	case isa.FlowReturn:
		return nil
	default:
		return refuse(NoArgument, "%s does not return: what the function returns is known only where it does, as in kinst:%s:%s:return", fn.name(at), fn.Module, fn.Name)
	}
	switch {
	case fn.returnsAt(at):
		return nil
	case fn.within(to):
		return refuse(NoArgument, "%s jumps to somewhere in the function: it does not return", fn.name(at))
	}
	if _, err := fn.text.Arch.Call(i, fn.code[fn.off(at):], i.Addr); err != nil {
		return refuse(ControlFlow, "%s: what is returned is known when that has come back, but it cannot be made a call: %v", fn.name(at), err)
	}
	return fn.nothingOnStack(req, at, to)
}

// farTarget is where a jump through a register leads that the instruction before it has
// loaded; 0: none has.
func (fn *function) farTarget(k int) (to isa.Addr) {
	if far := fn.text.Arch.Far; k > 0 && far != nil {
		to, _, _ = far(fn.code[fn.off(k-1):], fn.insns[k-1].Addr)
	}
	return to
}

// nothingOnStack reports why what the jump at instruction at leads to may have arguments on
// the stack.
func (fn *function) nothingOnStack(req Request, at int, to isa.Addr) *Refusal {
	to = fn.past(to)
	g, ok := fn.text.Locate(to)
	if !ok || g.Addr != to { // arm64's compiler puts code of other functions behind a file's last
		return refuse(NoArgument, "%s leads to %v, where no function begins: it does not return", fn.name(at), to)
	}
	whole := fn.Func
	whole.Name = Hot(fn.Name) // a part that is seldom run has the arguments of all
	own, err := onStack(req, whole)
	if err == nil && !own {
		return nil
	}
	why := "it may have arguments there itself"
	if err != nil {
		why = err.Error()
	}
	no := func(format string, args ...any) *Refusal {
		return refuse(StackArguments, "%s: to see what is returned, the jump would be made a call, which moves arguments on the stack. Of %v, %s; of what it leads to, %s",
			fn.name(at), fn.Func, why, fmt.Sprintf(format, args...))
	}
	if err != nil && !fn.compiled() {
		return no("it does not matter: nothing says that the function is one of C")
	}
	switch its, err := onStack(req, g); {
	case err != nil:
		return no("%v", err)
	case its:
		return no("%v may have some", g)
	}
	return nil
}

// compiled reports whether a function whose types are not known is one of C: it has an
// ftrace site, and is a module's, which may have come without types, or has a name that
// only compilers give.
func (fn *function) compiled() bool {
	return fn.traceable && (fn.Module != "" || strings.Contains(fn.Name, "."))
}

// past is where a jump leads that comes to a module's way to far functions: a jump through
// a register.
func (fn *function) past(to isa.Addr) isa.Addr {
	b := make([]byte, gen.AnnexRoom)
	if fn.Module == "" || fn.text.Read(to, b) != nil {
		return to
	}
	if leap, ok := gen.ReadLeap(fn.text.Arch, b, to); ok && !leap.Saved {
		return leap.To
	}
	return to
}

func onStack(req Request, f ktext.Func) (bool, error) {
	if req.OnStack == nil {
		return false, fmt.Errorf("the types of %v's arguments are not known", f)
	}
	return req.OnStack(f)
}

// byABI are the functions whose callers take for lost what a call may change, and no less:
// where ftrace's site is a call, compilers do not look at what a callee really changes
// (GCC's -fipa-ra goes with -pg off).
var byABI = map[string]isa.RegSet{
	"amd64": isa.Set(0, 1, 2, 6, 7, 8, 9, 10, 11, 16), // rax rcx rdx rsi rdi r8-r11, flags
}

// back is what may be overwritten when what is called at instruction at has come back, and
// what the patch returns by: what nobody reads who comes to the jump, and what nobody reads
// behind the function, whichever way it is left, but what it returns.
func (fn *function) back(at int) (isa.RegSet, isa.Addr, *Refusal) {
	free, err := fn.free(at)
	if err != nil {
		return 0, 0, unreadable(err)
	}
	by := isa.Addr(0)
	for k := range fn.whole() {
		if !fn.returnsAt(k) {
			continue
		}
		if to, ok := fn.thunk(k); ok {
			by = to
		}
		out, err := fn.free(k)
		if err != nil {
			return 0, 0, unreadable(err)
		}
		free |= out
		break
	}
	if fn.traceable {
		free |= byABI[fn.text.Arch.Name]
	}
	return free &^ gen.Wanted(fn.text.Arch) &^ fn.text.Arch.NeverUse, by, nil
}

// checkCalled decodes a patch in which the last of the displaced is a call.
func (p *Plan) checkCalled(arch *isa.Arch, b body, at int) error {
	in := gen.Input{Patch: b.at, Displaced: p.Displaced, Bytes: p.Original, Lead: p.Lead, Free: p.Free, Thunk: p.Thunk}
	call, back, err := gen.Called(arch, in, at, b.start)
	switch {
	case err != nil:
		return err
	case p.Mechanism == Pun || p.Annex != nil || p.Board != nil && p.Board.Whole:
		return fmt.Errorf("the jump at %v is made a call where nobody knows what is on the stack", p.At())
	case !bytes.HasPrefix(b.code[min(at, len(b.code)):], call):
		return fmt.Errorf("the patch does something else than to call what the jump at %v leads to", p.At())
	case !bytes.Equal(b.code[min(b.start, len(b.code)):], back):
		return fmt.Errorf("the patch for %v does not end in a return", p.At())
	}
	return p.checkSnippet(arch, b, at+len(call))
}
