package main

// entryNames is what the functions of an ISA's system calls begin with
// (arch/*/include/asm/syscall_wrapper.h).
type entryNames struct {
	prefix string
	// dispatch is where all of them come by, and function what it is that is called from there
	// (arch/x86/entry/syscall_64.c): to splice one place is faster than to plan four hundred. Empty:
	// there is no such place, or none that can be spliced.
	dispatch, function string
}

var entriesOf = map[string]entryNames{
	"amd64":   {"__x64_sys_", "kinst::x64_sys_call:entry", `load64(sym("sys_call_table") + arg1*8)`},
	"arm64":   {prefix: "__arm64_sys_"},
	"riscv64": {prefix: "__riscv_sys_"},
}
