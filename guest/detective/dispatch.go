package main

// dispatcher is where all system calls come by, and which function each leads to there: to splice one
// place is faster than to plan four hundred.
type dispatcher struct{ spec, function string }

// dispatchers are those of ISAs that have such a place, and one that can be spliced
// (arch/x86/entry/syscall_64.c).
var dispatchers = map[string]dispatcher{
	"amd64": {"kinst::x64_sys_call:entry", `load64(sym("sys_call_table") + arg1*8)`},
}
