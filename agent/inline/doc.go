// Package inline knows what a kernel's debugging information says of its code: the copies of
// inline functions, where each is entered, what it covers, who has it and where its arguments are
// at each place; and which line of the source an instruction is of.
//
// Make reads that from a vmlinux with DWARF 5 (sections 2.17, 3.3.8, 6.2 and 7.7 of the standard),
// which is gigabytes with what comes along. What it makes is an Index: some megabytes in one file,
// to be opened in a tenth of a second. Places in it are bytes from the begin of the kernel's text,
// _stext, so that it is the same wherever the kernel lies.
//
// MakeModule does so for a module's debug file, which the kernel has still to place: sections of code lie one behind
// the other in the text that its index is of, and debugging information has relocations, which are done for that.
//
// What the compiler calls an inlined copy is one entry and, mostly, several stretches of code, in
// which other copies are nested. Code of a copy is mixed with code of who has it, and a copy may
// be entered at several places when a part of it was moved in front of it: the entry is the one
// that the compiler names (DW_AT_entry_pc).
package inline
