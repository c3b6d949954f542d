#!/bin/sh
# Prints the figures that the project is judged by. Nothing is asserted here:
# host times depend on the machine. Counts and costs are asserted by the
# scenarios, in guest instructions.
set -eu
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

seconds() { # COMMAND...: how long it took
	start=$(date +%s.%N)
	"$@" >"$out/log" 2>&1 || { cat "$out/log" >&2; exit 1; }
	echo "$start $(date +%s.%N)" | awk '{printf "%.1f", $2 - $1}'
}

# timing FILE KEY: one number of a timings.json
timing() { sed -n "s|.*\"$2\": \([0-9.]*\).*|\1|p" "$1"; }

for arch in amd64 arm64 riscv64; do
	bin/lab image build --arch $arch >/dev/null 2>&1
	echo "warm smoke of $arch: $(seconds bin/lab run --arch $arch --out "$out/$arch" --force) s"
	echo "plain TCG start to daemon ready on $arch, beside another guest: $(timing "$out/$arch/$arch/timings.json" hello/boot.boot) s"
	echo "likewise alone: $(bin/lab run --arch $arch --scenario boot --out "$out/boot" --force >/dev/null 2>&1 &&
		timing "$out/boot/$arch/timings.json" hello/boot.boot) s"
	cat "$out/$arch/$arch/bench.txt"
done
${GO:-go} test -run '^$' -bench . ./agent/... ./lab/...
