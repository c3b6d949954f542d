package main

// What the functions of system calls begin with (arch/*/include/asm/syscall_wrapper.h).
const (
	entryPrefix  = "__riscv_sys_"
	entryPattern = entryPrefix + "*"
)
