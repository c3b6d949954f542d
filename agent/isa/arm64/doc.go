// Package arm64 decodes and encodes A64 machine code.
//
// Decode follows the encoding groups of the Arm Architecture Reference Manual
// (Arm ARM, DDI 0487), section C4.1, and claims an encoding only when every
// bit that the group fixes has its value. Vector and floating-point data
// processing, SVE and memory tagging come back as FlowUnknown. The text is
// made by arm64asm, which does not know all of it; see text.go.
package arm64
