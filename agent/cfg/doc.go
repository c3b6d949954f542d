// Package cfg finds the flow of control in the text of a whole kernel, without
// debug information.
//
// Method. Every function is decoded from its symbol to the next. An instruction
// that does not simply fall through ends a block; whatever any symbol's code can
// jump to begins one, and so does what the kernel's tables lead to: both sides
// of a static key, the fixups of the exception table. Compilers put cold halves
// into symbols of their own, so there are no functions here but entries: a jump
// to another symbol is an edge like any other.
//
// Blocks tile the text. Padding is a kind of block, and so is data: words that
// the kernel keeps in front of entries, literals that code loads, tables by name. Code that nothing is seen to
// reach stays in the graph, marked Orphan: what jumps there is not known.
//
// Invariants (Check holds them): blocks are in order and tile the text; a block
// begins at an instruction; every direct target inside the text that is an
// instruction begins a block; what follows a call is a successor of it exactly
// when the callee may return; edges lead to blocks.
//
// What is not understood is marked and counted, never hidden: instructions that
// did not decode, indirect jumps whose targets are unknown, targets inside other
// instructions, functions that run over their end.
package cfg
