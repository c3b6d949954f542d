// Package arm64 decodes and encodes A64 machine code.
//
// Decode follows the encoding groups of the Arm Architecture Reference Manual
// (Arm ARM, DDI 0487), section C4.1, and claims an encoding only when every
// bit that the group fixes has its value. Of floating point and vectors it tells
// general registers, flags and memory, and refuses what is reserved or newer than its
// table (simdforms.go); of SVE and SME it knows what the kernel uses (simd.go).
// lab/sweep proves what is known.
// The text is made by arm64asm, which does not know all of it; see text.go.
package arm64
