// Package riscv64 decodes and encodes RV64GC machine code, and finds the jump
// targets of a whole kernel.
//
// Decode follows the opcode maps of the RISC-V Unprivileged ISA manual; from
// the extensions it knows C, M, A, Zicsr, Zba, Zbb, Zbs, and of F and D the
// loads and stores. Other floating point and vectors come back as FlowUnknown
// with the length that the low bits give. The text is made by riscv64asm, which
// prints compressed instructions in their expanded form.
package riscv64
