// Package riscv64 decodes and encodes RV64GC machine code, and finds the jump
// targets of a whole kernel.
//
// Decode follows the opcode maps of the RISC-V Unprivileged ISA manual; from
// the extensions it knows C, M, A, H, Zicsr, Zba, Zbb, Zbc, Zbs, Zcb, Zicbom,
// Zicond, Zacas, Svinval, and of F, D, V and the vector cryptography what general
// registers and memory see (vector.go). Other encodings come back as FlowUnknown
// with the length that the low bits give. lab/sweep proves what is known. The text is made by riscv64asm, which
// prints compressed instructions in their expanded form.
package riscv64
