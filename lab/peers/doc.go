// Package peers reads what other tracers answer, in words that can be compared with our
// own: bpftrace's documents, and what the kernel's tracing file system shows of kprobe
// events and their histograms, which perf probe sets up likewise.
//
// All of it is what a guest says: each reader is an error where the text is not of the
// form that it knows, and never guesses.
package peers
