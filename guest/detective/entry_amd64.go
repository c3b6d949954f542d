package main

// What the functions of system calls begin with (arch/*/include/asm/syscall_wrapper.h).
const entryPrefix = "__x64_sys_"

// Where all of them come by, and what they are by there (arch/x86/entry/syscall_64.c): to splice one
// place is faster than to plan four hundred.
const (
	dispatchSpec = "kinst::x64_sys_call:entry"
	dispatched   = `load64(sym("sys_call_table") + arg1*8)`
)
