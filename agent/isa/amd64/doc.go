// Package amd64 decodes and encodes 64-bit x86 machine code.
//
// One table per opcode map (tables.go) gives both the length of an instruction
// and what it reads and writes, so the two cannot drift apart. Vector, x87 and
// most system instructions have a length but no effects: they come back as
// FlowUnknown. The text is made by x86asm, with the corrections of text.go.
//
// References are to the Intel 64 and IA-32 Architectures Software Developer's
// Manual (SDM), volume 2.
package amd64
