# What the scenario peers does in its guest besides splices: a workload, and other tracers
# around it. Its first word says which.

tracing=/sys/kernel/tracing bench=/lib/kerninst/bench/bench other=/tmp/other answer=/run/answer

prepare() { cp $bench $other && echo 8192 >$tracing/buffer_size_kb && echo mono >$tracing/trace_clock; }

# ROUNDS times the workload; then once another program that does the same, unless that is 0.
work() {
	for i in $(seq $1); do $bench sizes $2 $3 || exit; done
	[ $4 = 0 ] || $other sizes $4 1 >/dev/null
}

# What a probe is made faster by comes later, as does what is put off when one goes.
settle() { sleep 3; }

# bpftrace PROGRAM WORK...: what the workload prints, a line, and bpftrace's answer.
bpftrace() {
	[ -x /usr/bin/bpftrace ] || { echo "bpftrace is not installed in this guest" >&2; exit 127; }
	program=$1; shift
	rm -f $answer /run/bench
	/usr/bin/bpftrace -v -f json -o $answer -e "$program" -c "/bin/sh /run/peers.sh inside $*" >/run/said 2>&1
	[ -s /run/bench ] || { grep -e '^ERROR' -e '^cannot' -e '^func ' /run/said | grep -v -e 'Use -v' >&2; exit 1; }
	cat /run/bench && echo -- && cat $answer
	settle
}

# perf count|record EVENT WORK...: likewise. What it says beside is in the way of what it answers.
perf() {
	[ -x /usr/bin/perf ] || { echo "perf is not installed in this guest" >&2; exit 127; }
	does=$1 event=$2; shift 2
	export HOME=/run
	rm -f $answer /run/bench /run/perf.data
	/usr/bin/perf probe -q --add "$event" 2>/run/said || { grep -v -e "not valid for" /run/said >&2; exit 1; }
	inside="/bin/sh /run/peers.sh inside $*"
	if [ $does = count ]; then
		/usr/bin/perf stat -x , -e probe:hit -o $answer -- $inside >/run/said 2>&1
	else
		/usr/bin/perf record -q -B -N -m 4M -e probe:hit -o /run/perf.data -- $inside >/run/said 2>&1 &&
			/usr/bin/perf script -F trace -i /run/perf.data >$answer 2>/run/said
	fi || { cat /run/said >&2; exit 1; }
	/usr/bin/perf probe -q -d 'probe:*' 2>/run/said || { cat /run/said >&2; exit 1; }
	cat /run/bench && echo -- && cat $answer
	settle
}

# systemtap NAME WORK...: likewise, with a module that was made of a script for this kernel; or
# what SystemTap said instead of making it.
systemtap() {
	[ -x /usr/bin/staprun ] || { echo "systemtap is not installed in this guest" >&2; exit 127; }
	module=/lib/kerninst/systemtap/$1; shift
	[ -e $module.ko ] || { cat $module.said >&2; exit 1; }
	rm -f $answer /run/bench
	/usr/bin/staprun -o $answer $module.ko -c "/bin/sh /run/peers.sh inside $*" >/run/said 2>&1 &&
		[ -s /run/bench ] && ! grep -q -e WARNING -e ERROR /run/said || { cat /run/said >&2; exit 1; }
	cat /run/bench && echo -- && cat $answer
	settle
}

# inside is what bpftrace, perf and SystemTap start when their probes are there.
inside() { settle; work "$@" >/run/bench; }

# tracefs EVENT TRIGGER SHOW WORK...: kprobe events, one a line; a trigger of the last, or
# nothing; and what to show afterwards.
tracefs() {
	events=$1 trigger=$2 show=$3; shift 3
	cd $tracing || exit
	echo >trace; echo $([ "$show" = trace ] && echo 1 || echo 0) >tracing_on
	names=
	while read -r event; do
		echo "$event" 2>/dev/null >>kprobe_events || { refused; exit 1; }
		name=${event#?:peers/}; name=${name%% *}; names="$name $names"
	done <<-END
	$events
	END
	if [ "$trigger" ]; then
		echo "$trigger" >events/peers/$name/trigger || { refused; exit 1; }
	else
		for n in $names; do echo 1 >events/peers/$n/enable || { refused; exit 1; }; done
	fi
	settle
	work "$@" && echo -- && cat $show || exit
	gone; settle
}

gone() {
	[ "$trigger" ] && echo "!$trigger" >events/peers/${names%% *}/trigger
	for n in $names; do echo 0 >events/peers/$n/enable; echo "-:peers/$n" >>kprobe_events; done
	echo 1 >tracing_on
}

# refused says in the kernel's own words why it has not taken an event.
refused() {
	tail -n 3 error_log | grep error: | sed 's/^\[[^]]*\] //' >&2
	gone 2>/dev/null
}

"$@"
