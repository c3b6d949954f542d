#!/bin/sh
# Builds, for amd64, a kernel that looks for errors while it runs, of Debian's source:
# KASAN (memory), lockdep (locks), kmemleak (leaks), debug objects.
#
#   ci/checkingkernel.sh DIR
#   bin/lab run --arch amd64 --kernel DIR/build --append "no5lvl preempt=none" --mem 2048 --scenario device --timeout 15m
#
# It takes 3 GB in DIR, and about 40 minutes of one CPU; what is in DIR already is built on.
# JOBS says how many compilers run at once (default: one a CPU). Exit status: 0 built, 1 not
# built, 2 usage, 3 something is missing: the last line says what to run.
set -eu

version=6.12
source=/usr/src/linux-source-$version.tar.xz

say() { echo "checkingkernel: $*" >&2; }

[ $# = 1 ] && [ -n "$1" ] || { say "usage: ci/checkingkernel.sh DIR"; exit 2; }

missing=
want() { # FILE-OR-PROGRAM PACKAGE
	case $1 in
	/*) [ -e "$1" ] ;;
	*) command -v "$1" >/dev/null ;;
	esac || missing="$missing $2"
}
want "$source" "linux-source-$version"
want make make
want gcc gcc
want flex flex
want bison bison
want bc bc
want /usr/include/gelf.h libelf-dev
want /usr/include/openssl/ssl.h libssl-dev
[ -z "$missing" ] || {
	say "missing: run apt-get update && apt-get install -y --no-install-recommends$missing"
	exit 3
}
[ "$(uname -m)" = x86_64 ] || { say "this builds for amd64 with the host's compiler, and this host is none: run it on one"; exit 3; }

# What checks (the first group), what guests and kerninst.ko want that defconfig lacks
# (images/builddir.go), and what scenarios look at.
on='KASAN KASAN_VMALLOC PROVE_LOCKING DEBUG_ATOMIC_SLEEP DEBUG_KMEMLEAK DEBUG_OBJECTS
	DEBUG_OBJECTS_FREE DEBUG_OBJECTS_TIMERS DEBUG_OBJECTS_WORK DEBUG_OBJECTS_RCU_HEAD
	DEBUG_OBJECTS_PERCPU_COUNTER DEBUG_LIST DEBUG_VM SLUB_DEBUG STACKTRACE
	FUNCTION_TRACER DYNAMIC_FTRACE FUNCTION_GRAPH_TRACER KPROBES KPROBE_EVENTS KALLSYMS_ALL
	JUMP_LABEL KVM KVM_INTEL VIRTIO_CONSOLE VIRTIO_PCI BPF_SYSCALL BPF_JIT FTRACE_SYSCALLS
	LIVEPATCH PREEMPT_DYNAMIC HOTPLUG_CPU KEXEC TMPFS MODULE_UNLOAD HIBERNATION SUSPEND'
# No debugging information, which nobody reads, and no devices that guests have not.
off='DEBUG_INFO_DWARF_TOOLCHAIN_DEFAULT MODULE_SIG MODULE_SIG_ALL DRM SOUND WIRELESS WLAN CFG80211
	MAC80211 USB_SUPPORT NFS_FS PCCARD NETFILTER ETHERNET MDIO_DEVICE ATA SCSI MD HID AGP FB MEDIA_SUPPORT
	RFKILL SECURITY QUOTA AUTOFS_FS NETWORK_FILESYSTEMS MSDOS_FS VFAT_FS ISO9660_FS INPUT_MISC INPUT_TOUCHSCREEN
	INPUT_TABLET INPUT_JOYSTICK HYPERVISOR_GUEST'

mkdir -p "$1"
dir=$(cd "$1" && pwd)
[ -e "$dir/source/Makefile" ] || {
	say "unpacking $source"
	rm -rf "$dir/source" "$dir/linux-source-$version"
	tar -C "$dir" -xf "$source"
	mv "$dir/linux-source-$version" "$dir/source"
}
mkdir -p "$dir/build"
cd "$dir/build"
kernel() { make -C "$dir/source" O="$dir/build" -j "${JOBS:-$(nproc)}" "$@" >>"$dir/log" 2>&1 ||
	{ tail -n 20 "$dir/log" >&2; say "failed: all of it is in $dir/log"; exit 1; }; }
: >"$dir/log"
kernel x86_64_defconfig kvm_guest.config
# shellcheck disable=SC2086 # words are meant
"$dir/source/scripts/config" $(printf ' -e %s' $on) $(printf ' -d %s' $off) -e DEBUG_INFO_NONE \
	-m BINFMT_MISC --set-val DEBUG_KMEMLEAK_MEM_POOL_SIZE 40000
kernel olddefconfig
for option in $on; do
	grep -qE "^CONFIG_$option=[ym]" .config || { say "this source has no CONFIG_$option, or not with the others: $dir/build/.config"; exit 1; }
done
say "building (what it says is in $dir/log)"
kernel bzImage modules
say "built: bin/lab run --arch amd64 --kernel $dir/build --append 'no5lvl preempt=none' --mem 2048"
