// Package sweep compares the decoders with GNU objdump, over every instruction
// of a kernel and of its modules.
//
// objdump is the toolchain root's, and what it prints is read twice: the
// addresses give the length of each instruction; mnemonic and operands, through
// a book of what mnemonics do, give its flow, its target, the registers and
// flags that it reads and writes, and whether it loads or stores. The book knows
// no encodings and the decoders know no mnemonics, so a slip in one does not hide
// in the other.
//
// In the same way the graph of a kernel is held against objdump's text: where
// blocks begin and end, where branches lead, and what jump tables hold.
//
// What remains different is named in testdata, with the reason.
package sweep
