package ktext

// syscallPrefix is what the functions of an ISA's system calls begin with
// (arch/*/include/asm/syscall_wrapper.h).
var syscallPrefix = map[string]string{"amd64": "__x64_sys_", "arm64": "__arm64_sys_", "riscv64": "__riscv_sys_"}

// Syscall is the function that is called for a system call, or what all begin with, if no name is
// given. It takes the registers; the one with the arguments may be inlined into it.
func Syscall(arch, name string) string { return syscallPrefix[arch] + name }
