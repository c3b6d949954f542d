package main

// What the functions of system calls begin with (arch/*/include/asm/syscall_wrapper.h).
const (
	entryPrefix  = "__arm64_sys_"
	entryPattern = entryPrefix + "*"
)
