#!/bin/sh
# Checks that this host has what the lab needs, and gets what it lacks.
#
#   ci/setup.sh         packages and Go, for the targets in ARCH (default: all);
#                       with TESTS=1 also what only tests need
#   ci/setup.sh --go    prints the path of a Go that is new enough
#
# Exit status: 0 all there, 2 usage, 3 something is missing: the last line says
# what to run. Nothing but Debian packages is ever installed, and that only by
# root or after a question on a terminal. No service is left enabled.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cache=${XDG_CACHE_HOME:-${HOME:?set HOME or XDG_CACHE_HOME}/.cache}/kerninst

# The Go to fetch where the host's is too old, and the hashes of its module
# (the same that the Go checksum database has).
go_fetch=go1.25.14
go_hash_amd64='h1:XriDgll2yv4W2YeUo2X/WuUuy+iGJkXGH0CQloMBEXo='
go_hash_arm64='h1:tccCYNAEolyjUyQVNxD/wJuly2Sx85m+OUkzGIhO1oY='

qemu_oldest=7.2

say() { echo "setup: $*" >&2; }
die() { say "$*"; exit 3; }
have() { command -v "$1" >/dev/null 2>&1; }

# at_least HAVE WANT: compares dotted numbers; go1.25rc1 counts as 1.25.
at_least() {
	[ "$(printf '%s\n%s\n' "$2" "$1" | sed 's/[^0-9.].*//' | sort -V | head -n 1)" = "$2" ]
}

# --- packages ---------------------------------------------------------------

# riscv64_package: Debian 13 took the emulator out of qemu-system-misc.
riscv64_package() {
	id=$(. /etc/os-release 2>/dev/null; echo "${ID:-}${VERSION_ID:-}")
	case $id in
	debian1[0-2]) echo qemu-system-misc ;;
	debian*) echo qemu-system-riscv ;;
	*) if apt-cache show qemu-system-riscv >/dev/null 2>&1; then
		echo qemu-system-riscv
	else
		echo qemu-system-misc
	fi ;;
	esac
}

# want PROGRAM-OR-FILE PACKAGE: adds the package if the first is not here.
missing=
want() {
	case $1 in
	/*) [ -e "$1" ] && return ;;
	*) have "$1" && return ;;
	esac
	case " $missing " in *" $2 "*) ;; *) missing="$missing $2" ;; esac
}

qemu_of() {
	case $1 in
	amd64) echo qemu-system-x86_64 qemu-system-x86 ;;
	arm64) echo qemu-system-aarch64 qemu-system-arm ;;
	riscv64) echo qemu-system-riscv64 "$(riscv64_package)" ;;
	*) say "ARCH: unknown architecture $1: want amd64, arm64, riscv64 or all"; exit 2 ;;
	esac
}

targets() {
	case ${ARCH:-all} in
	all) echo amd64 arm64 riscv64 ;;
	*) printf '%s\n' "$ARCH" | tr ',' ' ' ;;
	esac
}

# check_wishes stops at what a person has mistyped: neither is guessed.
check_wishes() {
	case ${ARCH:-} in
	*[!a-z0-9,\ ]*) qemu_of "$ARCH" ;; # before the shell takes it for a pattern
	esac
	if [ -n "${GO:-}" ] && ! (cd / && GOTOOLCHAIN=local "$GO" env GOVERSION) >/dev/null 2>&1; then
		say "GO=$GO: no Go that runs (by its name on the PATH, or its whole path): correct it, or leave GO out for the host's own"
		exit 2
	fi
}

find_missing() {
	missing=
	want apt-get apt
	want dpkg-deb dpkg
	want make make
	want git git
	want xz xz-utils
	want /etc/ssl/certs/ca-certificates.crt ca-certificates
	[ -e /usr/share/keyrings/debian-archive-keyring.pgp ] ||
		want /usr/share/keyrings/debian-archive-keyring.gpg debian-archive-keyring
	for arch in $(targets); do
		pair=$(qemu_of "$arch") || exit $?
		# shellcheck disable=SC2086 # two words are meant
		want $pair
	done
	[ -n "$(command -v "${GO:-go}")" ] || want go golang-go
	if [ -n "${TESTS:-}" ]; then
		want mount mount
		want ssh openssh-client
		# The daemon alone, which tests start themselves.
		want /usr/sbin/libvirtd libvirt-daemon
		want "/usr/lib/$(uname -m)-linux-gnu/libvirt/connection-driver/libvirt_driver_qemu.so" libvirt-daemon-driver-qemu
	fi
}

# Since Debian 13 the package of libvirtd brings services. They are of no use
# here: a test's libvirtd is its own.
no_services='systemctl list-unit-files --no-legend "libvirtd*" "virtlogd*" | cut -d " " -f 1 | xargs -r systemctl disable --now --quiet'

# install_missing runs or shows one command. But for libvirtd none of these
# packages has a service, and recommended ones, which may, are left out.
install_missing() {
	have apt-get || die "this is not a Debian host; it needs:$missing"
	cmd="apt-get install -y --no-install-recommends$missing"
	for p in $missing; do
		if ! apt-cache show "$p" >/dev/null 2>&1; then
			cmd="apt-get update && $cmd"
			break
		fi
	done
	case " $missing " in
	*" libvirt-daemon "*) [ -d /run/systemd/system ] && cmd="$cmd && $no_services" ;;
	esac
	if [ "$(id -u)" = 0 ]; then
		say "$cmd"
		DEBIAN_FRONTEND=noninteractive sh -c "$cmd" >&2 || die "failed: $cmd"
		return
	fi
	cmd="sudo sh -c '$cmd'"
	say "missing:$missing"
	if [ -t 0 ] && [ -t 2 ] && have sudo; then
		printf 'setup: run %s ? [y/N] ' "$cmd" >&2
		read -r answer || answer=
		case $answer in
		y | Y | yes) sh -c "$cmd" >&2 && return ;;
		esac
	fi
	die "run: $cmd"
}

check_versions() {
	for arch in $(targets); do
		pair=$(qemu_of "$arch") || exit $?
		q=${pair%% *}
		v=$("$q" --version | sed -n 's/.*version \([0-9.]*\).*/\1/p' | head -n 1)
		at_least "${v:-0}" "$qemu_oldest" ||
			die "$q is version ${v:-unknown}; $qemu_oldest or newer is needed (Debian 12 has 7.2)"
		say "$q $v"
	done
}

# --- Go ---------------------------------------------------------------------

# new_enough GO: it is, or will fetch by itself one that is.
new_enough() {
	v=$(cd / && GOTOOLCHAIN=local "$1" env GOVERSION 2>/dev/null) || return 1
	v=${v#go}
	at_least "$v" "$go_want" && return
	at_least "$v" 1.21 && [ "$(cd / && "$1" env GOTOOLCHAIN)" != local ]
}

# fetch_go GO: gets a newer toolchain through the module proxy, which even old
# versions of Go can ask. Modules carry no mode bits, and no go.mod but their
# own; both are put right here, as Go itself does since 1.21.
fetch_go() {
	arch=$("$1" env GOHOSTARCH)
	case $arch in
	amd64) hash=$go_hash_amd64 ;;
	arm64) hash=$go_hash_arm64 ;;
	*) die "no $go_fetch is known for $arch: install Go $go_want or newer and put it first on the PATH" ;;
	esac
	module=golang.org/toolchain@v0.0.1-$go_fetch.linux-$arch
	say "Go on this host is older than $go_want: fetching $go_fetch (65 MB)"
	mkdir -p "$cache/go" || die "$cache cannot be written: set XDG_CACHE_HOME"
	tmp=$(mktemp -d "$cache/go/.new-XXXXXX")
	trap 'chmod -R u+w "$tmp"; rm -rf "$tmp"' EXIT
	trap 'exit 130' INT TERM
	(cd "$tmp" && GO111MODULE=on GOFLAGS= GOTOOLCHAIN=local GOPATH="$tmp" GOCACHE="$tmp/cache" \
		GOMODCACHE="$tmp/mod" "$1" mod download -json "$module" >"$tmp/result") ||
		die "$module cannot be fetched: $(sed -n 's/.*"Error": *//p' "$tmp/result" | head -n 1); check GOPROXY and the network"
	grep -qF "\"Sum\": \"$hash\"" "$tmp/result" ||
		die "$module is not what it should be (want $hash): $(grep '"Sum"' "$tmp/result")"
	dir=$(sed -n 's/.*"Dir": *"\(.*\)".*/\1/p' "$tmp/result")
	chmod -R u+w "$dir"
	chmod +x "$dir"/bin/* "$dir"/pkg/tool/*/*
	find "$dir" -name _go.mod | while read -r f; do cp "$f" "${f%/*}/go.mod"; done
	# sudo with the user's cache: what is in there is the user's.
	if [ "$(id -u)" = 0 ] && [ "$(stat -c %u "${cache%/*}")" = "${SUDO_UID:-0}" ]; then
		chown -hR "${SUDO_UID:-0}:${SUDO_GID:-0}" "$tmp" && chown -h "${SUDO_UID:-0}:${SUDO_GID:-0}" "$cache" "$cache/go"
	fi
	# Whoever renames first wins; the other's copy is as good.
	mv -T "$dir" "$go_dir" 2>/dev/null || [ -x "$go_dir/bin/go" ] || die "$go_dir cannot be written"
}

# find_go sets $go.
find_go() {
	go_want=$(sed -n 's/^go \([0-9.]*\)$/\1/p' "$root/go.mod")
	go_dir=$cache/go/$go_fetch
	for go in "${GO:-go}" "$go_dir/bin/go"; do
		go=$(command -v "$go") && new_enough "$go" && return
	done
	go=$(command -v go) || die "no Go here: run ci/setup.sh"
	at_least "${go_fetch#go}" "$go_want" || die "go.mod wants $go_want, newer than $go_fetch in ci/setup.sh"
	fetch_go "$go"
	go=$go_dir/bin/go
	new_enough "$go" || die "$go does not run"
}

check_wishes
case $# in
0) ;;
1) [ "$1" = --go ] || { say "usage: ci/setup.sh [--go]"; exit 2; }
	find_go
	echo "$go"
	exit ;;
*) say "usage: ci/setup.sh [--go]"; exit 2 ;;
esac

find_missing
if [ -n "$missing" ]; then
	install_missing
	find_missing
	[ -z "$missing" ] || die "still missing:$missing"
fi
check_versions
find_go
say "$("$go" version) at $go"
