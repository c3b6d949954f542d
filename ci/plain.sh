#!/bin/sh
# The lab in any CI system that runs a shell: GitLab, Jenkins, Buildbot, cron.
# It does what github/lab.yml does, with the same make targets. One ISA a job:
#
#	ARCH=riscv64 ci/plain.sh
#
# As root in a Debian 12 or 13 container it installs what is missing; elsewhere
# it says what is. Keep ${XDG_CACHE_HOME:-~/.cache}/kerninst between runs, under
# a key made of images/images.lock.
#
#	ARCH      ISA, several with commas, or all; default: the host's own
#	SCENARIO  names or labels; default: smoke
#	MATRIX    not empty: every combination of ISAs, scenarios and what follows,
#	          as `lab matrix` runs them; its OUT/junit.xml is of all together
#	KERNEL    versions, of a matrix several with commas; default: the locked one
#	SEED      a number, of a matrix several as 1-3; default: 1
#	OUT       an empty or new folder for the results; default: out/ci
#
# Exit status: 0 passed, else make's; OUT/summary.md says what failed, and is
# printed.
set -eu

cd "$(dirname "$0")/.."
out=${OUT:-out/ci}

if [ "$(id -u)" = 0 ] && ! command -v make >/dev/null; then
	apt-get update
	DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ca-certificates git make
fi

status=0
if [ -n "${MATRIX:-}" ]; then
	make matrix OUT="$out" || status=$?
else
	make lab OUT="$out" || status=$?
fi
[ ! -e "$out/summary.md" ] || cat "$out/summary.md"
exit "$status"
