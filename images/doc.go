// Package images turns a bare Debian host into something to boot: for one
// target it fetches Debian trixie's own kernel, busybox and a cross-building
// toolchain, builds the guest's programs and the kernel module, and lays out a
// reproducible initramfs.
//
// # Method
//
// Packages come through apt with a configuration and a state of its own, so
// that signatures are verified and the host's apt is never touched. They are
// unpacked, not installed: no maintainer script runs, no privilege is needed,
// and no path leads out of the folder. What they unpack to is run by chroot, in a user namespace of its own
// for an ordinary user.
//
// # The cache
//
// Everything lives below $XDG_CACHE_HOME/kerninst:
//
//	sha256/ab/abcd...  objects, named by their content
//	index/KIND/KEY     which objects a step with these inputs made
//	tree/KEY           unpacked toolchains, named by the packages in them
//	apt/KEY            apt's state for one mirror
//	lock/              flock(2) files, one per entry that is being made
//	tmp/               unfinished work; what is there while nobody uses the
//	                   cache is of labs that were killed, and goes
//	version            of this layout: a newer one is refused
//
// An entry appears by rename(2) only when it is complete, and it is never
// changed afterwards: readers take no locks, and two labs may fill one cache.
// An object whose length or hash is wrong is removed and made again, with a
// message. Whoever uses the cache holds lock/in-use, shared, until its process
// ends; GC takes it alone.
//
// # The lock file
//
// images.lock names the version, size and SHA-256 of every package, and its path
// in the archive. By that it is fetched, without the archive's index: the lock,
// which is in version control, vouches for its bytes, whichever mirror they come
// from. A package of the locked version whose bytes differ is an error. Where one
// is gone, or another kernel is asked for than the locked one, the index is asked,
// its signature verified. A package that the mirror no longer has in the locked
// version is replaced by the mirror's, and the manifest says so.
package images
