// Package amd64 decodes and encodes 64-bit x86 machine code.
//
// One table per opcode map (tables.go) gives both the length of an instruction
// and what it reads and writes, so the two cannot drift apart; what a prefix or
// ModRM as a whole decides is in system.go, vector.go and x87.go. Of vector and
// x87 instructions only general registers, flags and memory are told. What no
// stock kernel holds may come back as FlowUnknown; lab/sweep proves what is known.
// The text is made by x86asm, with the corrections of text.go.
//
// References are to the Intel 64 and IA-32 Architectures Software Developer's
// Manual (SDM), volume 2.
package amd64
