// Package index keeps what was found out about a kernel's text in one file, so
// that it is found out once, on a fast machine, and looked up everywhere else.
//
// An index is made from a graph and its live registers (Make), and opened from
// bytes that may be mapped memory (Open). Opening looks at the header alone;
// records have fixed widths and are decoded where they lie, when they are asked
// for. Places are offsets from _stext, so an index is good wherever the kernel
// has put itself. It covers the kernel, not its modules: those are elsewhere at
// every load.
//
// The file, little-endian:
//
//	header     192 bytes: magic, ISA, hash of the dump, sizes, tables, its own sum
//	sums       4 bytes for each chunk of 16 KiB behind the sums: CRC-32C
//	about      for people and for the host: what the maker put there
//	functions  32 bytes each, in order of start
//	blocks     20 bytes each, in order of start; they tile the text
//	edges      24 bytes each, in order of the block that they leave
//	masks      8 bytes each, in order of place: what the sums of the text leave out
//	texts      4 bytes for each 64 KiB of the kernel's text: CRC-32C
//
// Reading checks the sums of the chunks that it touches, once each, and every
// number against its bounds: a damaged index gives errors (Damaged), never a
// wrong answer.
//
// A View joins an index with the text of a running kernel. Of each function that
// it is asked for, it compares the text with the hash in the index, what the
// kernel itself rewrites left out. What differs is marked so, and analysed by
// itself: within the function, taking everything as live wherever control
// leaves it. Who is going to overwrite registers (ForSplice) also needs to know
// that the callees and callers are as they were analysed: then, the whole text is
// compared, once.
package index
