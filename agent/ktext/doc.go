// Package ktext is a view of a kernel's text: its symbols, its bytes as they
// are now, and which of them must not be touched.
//
// A Text is made from /proc/kallsyms and a function that reads kernel memory,
// in the guest or from a dump on the host (Dump). It does not change after New; the
// kernel's own tables (static keys, exception table, …) are read when first
// asked for and then kept, since the kernel never changes where they point.
// Bytes of text are never kept: the kernel rewrites them.
package ktext
