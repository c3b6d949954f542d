# What the scenario granularities does in its guests besides splices and kprobes: other tracers
# of functions that are named on standard input, around a workload. The first word says which.

tracing=/sys/kernel/tracing answer=/run/answer

# sites are what ftrace's filter takes, of names that one function has.
sites() { awk 'NF == 1 { n[$1]++ } END { for (f in n) if (n[f] == 1) print f }' $tracing/available_filter_functions | sort | gzip; }

# ftrace WORK...: what the workload prints, a line, how many functions were traced, and how many records of them
# there are and were overwritten, on the only CPU.
ftrace() {
	cd $tracing || exit
	awk 'NR == FNR { asked[$1]; next } $1 in asked { print FNR }' - available_filter_functions >set_ftrace_filter &&
		echo function >current_tracer && "$@" && echo -- && grep -vc '^#' set_ftrace_filter && sed -n 's/^\(entries\|overrun\): //p' per_cpu/cpu0/stats
	echo nop >current_tracer; echo >set_ftrace_filter
}

# bpftrace HOOK ACTION MARK WORK...: what the workload prints, a line, and for each function how often it was come by
# while it ran: its probes count what bpftrace itself does while they come and go, too. So it prints its map when
# MARK is called, which is twice before that, as the first time it reads all symbols, and once behind it, and at its end.
bpftrace() {
	hook=$1 action=$2 mark=$3; shift 3
	rm -f $answer /run/bench
	{ sed "s/.*/$hook:&,/" | tr -d '\n' | sed 's/,$//'; echo " $action"
		echo "$hook:$mark { printf(\"--\\n\"); print(@); } END { printf(\"--\\n\"); }"; } >/run/program.bt
	ulimit -n 65536 # each function's program is a file
	export BPFTRACE_MAX_PROBES=65536 BPFTRACE_MAX_BPF_PROGS=65536 BPFTRACE_MAX_MAP_KEYS=65536
	/usr/bin/bpftrace -o $answer -c "/bin/sh /run/granular.sh inside $*" /run/program.bt >/run/said 2>&1
	[ -s /run/bench ] || { tail -c 2000 /run/said >&2; exit 1; }
	[ $(grep -c -e '^--$' $answer) = 4 ] || { echo "bpftrace has not printed its map when it was to" >&2; exit 1; }
	cat /run/bench && echo -- && sed -e 's/^@\[\(.*\)\]: /\1 /' $answer | awk '/^--$/ { part++ } NF == 2 && (part == 2 || part == 3) { n[$1] += part == 2 ? -$2 : $2 }
		END { for (f in n) printf "%s %.0f\n", f, n[f] }'
	grep -i -e lost -e warn -e attach /run/said | cut -c1-200 | tail -n 50 >&2 # it shows the whole program with each
	sleep 3 # what is put off when probes go comes meanwhile
}

# inside is what bpftrace starts when its probes are there; what these are made faster by comes a
# moment later, and so does what it prints.
inside() { sleep 1; times >/dev/null; sleep 5; times >/dev/null; sleep 5; "$@" >/run/bench && times >/dev/null; sleep 5; }

"$@"
