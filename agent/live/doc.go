// Package live finds, for every place in a kernel's text, the general registers
// and condition flags whose value somebody may still read.
//
// Method. For each block b, within one activation (calls stepped over, jumps to
// other functions followed):
//
//	use(b)   read before it is overwritten, on some path from b to the return
//	def(b)   overwritten on every path from b to the return
//	want(b)  what callers of the activations that reach b read after the return
//	live(b)  = use(b) ∪ (want(b) − def(b))
//
// A call to g reads use(g), and of what is live behind it keeps all but def(g):
// it kills only what g's own code overwrites on every path. That matters:
// compilers keep caller-saved registers across calls of functions that they know
// not to touch them. In turn, what is live behind the call is wanted by g. So
// paths are matched: what returns goes to where it was called from. use and def
// are solved together, optimistically for def, so that recursion costs nothing;
// then want, forwards.
//
// The calling convention is assumed for indirect calls, whose callee is C, and
// for whoever may call a symbol indirectly. Of an indirect call that is handed
// flags, or behind which something is read that C leaves undefined, nothing is
// assumed: everything may be read, nothing is overwritten. And no function that
// begins with an ftrace site reads more than the convention allows: ftrace itself
// changes the rest there. It reads all arguments, used or not: tracers and livepatches
// do. Whatever knows other conventions is in a table, by name, with its reason. Where control is not understood, everything is live:
// unanalysable jumps, returns from exceptions, calls of the firmware, instructions
// that did not decode. A trap of BUG ends its path: its report of the registers may
// show a snippet's.
//
// Invariants (Check holds them): every equation holds at every block, and what a
// block reads before it writes it is live at its start.
package live
