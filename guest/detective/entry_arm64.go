package main

// What the functions of system calls begin with (arch/*/include/asm/syscall_wrapper.h).
const entryPrefix = "__arm64_sys_"

// No one place is to be spliced where all of them come by.
const dispatchSpec, dispatched = "", ""
