#!/bin/sh
# Prints the figures that the project is judged by. Nothing is asserted here:
# host times depend on the machine. Counts and costs are asserted by the
# scenarios, in guest instructions.
#
#   ci/bench.sh [LEG...]    all legs, or those named: see the functions below
set -eu
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
trap 'exit 130' INT TERM

arches='amd64 arm64 riscv64'
legs='warm restore evaluation cost code dense cloned index copies hosts detect cold tests'

seconds() { # COMMAND...: how long it took
	start=$(date +%s.%N)
	"$@" >"$out/log" 2>&1 || { cat "$out/log" >&2; exit 1; }
	echo "$start $(date +%s.%N)" | awk '{printf "%.1f", $2 - $1}'
}

# timing FILE KEY: one number of a timings.json
timing() { sed -n "s|.*\"$2\": \([0-9.]*\).*|\1|p" "$1"; }

# Smoke with images and golden states in the cache, and what each guest cost.
warm() {
	for arch in $arches; do
		bin/lab image build --arch "$arch" >/dev/null 2>&1
		echo "warm smoke of $arch: $(seconds bin/lab run --arch "$arch" --out "$out/$arch" --force) s"
		echo "plain TCG start to daemon ready on $arch, beside another guest: $(timing "$out/$arch/$arch/timings.json" hello/boot.boot) s"
		echo "likewise alone: $(bin/lab run --arch "$arch" --scenario boot --out "$out/boot" --force >/dev/null 2>&1 &&
			timing "$out/boot/$arch/timings.json" hello/boot.boot) s"
		cat "$out/$arch/$arch/bench.txt"
	done
	echo "warm smoke of all ISAs: $(seconds bin/lab run --arch all --out "$out/all" --force) s"
}

# How long after its turn has come a guest's job is begun: its state is copied and
# checked, loaded, and the daemon takes the job. HOST=URI has it done through that libvirtd.
restore() {
	for arch in $arches; do
		for run in first 1 2 3; do # the first may have to make the state
			bin/lab run --arch "$arch" --scenario cost ${HOST:+--host "$HOST"} --out "$out/restore" --force >/dev/null 2>&1
			[ $run = first ] || echo "restore to plan running on $arch, run $run: $(timing "$out/restore/$arch/timings.json" running/cost.cost) s (hello $(timing "$out/restore/$arch/timings.json" hello/cost.cost) s after QEMU's start)"
		done
	done
}

# SCENARIO=all: slices of the papers' evaluations. 900 s of two CPUs are aimed at, for each ISA, warm: what the first run
# makes (images with Squid, Apache and tools, golden states, the index) is in the cache of who has run it before.
# One that fails is said, with what it said, and the next ISA has its turn.
evaluation() {
	for arch in $arches; do
		bin/lab image build --arch "$arch" >/dev/null 2>&1 || : # the run says why
		start=$(date +%s) how=passed
		bin/lab run --arch "$arch" --scenario all --out "$out/all-$arch" >"$out/log" 2>&1 || how="failed, exit status $?"
		echo "SCENARIO=all of $arch: $(($(date +%s) - start)) s, $how"
		[ "$how" = passed ] || tail -n 30 "$out/log" >&2
	done
}

# What a hit of each kind of probe adds, and what one insertion takes.
cost() {
	bin/lab cost --arch all 2>/dev/null
}

# The hot paths of the Go code.
code() {
	"${GO:-go}" test -run '^$' -bench . ./agent/... ./lab/...
}

# What it takes to plan a counter in each block of a kernel, all in one batch.
dense() {
	"${GO:-go}" test -run '^$' -bench '^BenchmarkDense$' -benchtime 1x -timeout 30m ./ci/e2e >"$out/log" 2>&1 ||
		{ cat "$out/log" >&2; exit 1; }
	grep ^Benchmark "$out/log"
}

# What it takes to plan a clone of three hundred functions, with what is known of them.
cloned() {
	"${GO:-go}" test -run '^$' -bench '^BenchmarkCloned$' -benchtime 20x -benchmem -timeout 30m ./ci/e2e >"$out/log" 2>&1 ||
		{ cat "$out/log" >&2; exit 1; }
	grep ^Benchmark "$out/log"
}

# What it takes to know a whole kernel, beside what objdump takes to print it; and
# in a guest, to open the index and to know a function.
index() {
	"${GO:-go}" test -run '^$' -bench '^BenchmarkIndex$' -benchtime 1x -timeout 30m ./ci/e2e >"$out/log" 2>&1 ||
		{ cat "$out/log" >&2; exit 1; }
	grep ^Benchmark "$out/log"
}

# What it takes to know a kernel's inlined copies, if the cache has nothing of them, to open
# that, and to look up in it.
copies() {
	"${GO:-go}" test -run '^$' -bench '^BenchmarkCopies$' -benchtime 200x -timeout 30m -v ./ci/e2e >"$out/log" 2>&1 ||
		{ cat "$out/log" >&2; exit 1; }
	grep -E '^Benchmark.* ns/op|had after|were taken at the most' "$out/log"
}

# What twelve cells take here, and on two hosts by ssh that this machine is as well: the median of three
# times, and what the one is of the other.
hosts() {
	"${GO:-go}" test -run '^$' -bench '^BenchmarkHosts$' -benchtime 3x -timeout 30m ./ci/e2e >"$out/log" 2>&1 ||
		{ cat "$out/log" >&2; exit 1; }
	grep ^Benchmark "$out/log"
}

# How soon the lab knows that a guest has died.
detect() {
	"${GO:-go}" run ./ci/detect
}

# empty COMMAND...: runs it with an empty cache, for the lab and for Go's builds,
# on a link of 10 MB/s. Go's modules stay: go.sum has no more than a few MB.
empty() {
	rm -rf "$out/cache"
	# apt counts in KiB/s.
	printf 'Acquire::%s::Dl-Limit "9765";\n' http https >"$out/apt.conf"
	APT_CONFIG="$out/apt.conf" XDG_CACHE_HOME="$out/cache" "$@"
}

# What somebody waits for who has just cloned this.
cold() {
	for arch in $arches; do
		echo "empty cache to the result of $arch at 10 MB/s: $(seconds empty make lab "ARCH=$arch" "OUT=$out/cold-$arch") s"
	done
}

# All tests, first with an empty cache, then with the one that this left.
tests() {
	echo "make test, empty cache, 10 MB/s: $(seconds empty make test) s; $(tail -n 1 "$out/log")"
	echo "make test, warm: $(seconds env XDG_CACHE_HOME="$out/cache" make test) s; $(tail -n 1 "$out/log")"
}

# What the host's CPUs did until now, in ticks: all work, and what was ready to be done
# while the machine that this host is a guest of did something else.
ticks() { awk '/^cpu / {print $2 + $3 + $4 + $7 + $8, $9}' /proc/stat; }

# stolen BEFORE AFTER: the share of that which was waited for.
stolen() {
	echo "$1 $2" | awk '{w = $3 - $1; s = $4 - $2; printf "%.0f", (w + s ? 100 * s / (w + s) : 0)}'
}

for leg in ${*:-$legs}; do
	case " $legs " in
	*" $leg "*)
		before=$(ticks)
		"$leg"
		# Seconds are worth little where it is much.
		echo "$leg: $(stolen "$before" "$(ticks)") % of the CPU time that was wanted was taken by the host's own host"
		;;
	*) echo "bench: no leg $leg: $legs" >&2; exit 2 ;;
	esac
done
