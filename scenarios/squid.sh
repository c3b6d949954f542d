# What the scenario squid does in its guests, part by part. Its first word says which.

conf=/etc/squid.conf log=/var/log/squid/cache.log store=/var/spool/squid
proxy=3128 origin=8000
tracing=/sys/kernel/tracing

# A disk that takes its time: memory behind a timer. With the directories of its file
# system written at once, whoever makes a file waits for it.
disk() {
	[ -d /sys/kernel/config/nullb ] || mount -t configfs none /sys/kernel/config
	dev=/sys/kernel/config/nullb/squid
	mkdir $dev || { echo "this kernel has no null_blk" >&2; exit 1; }
	echo 1 >$dev/memory_backed && echo "$1" >$dev/size && echo 4096 >$dev/blocksize &&
	echo 2 >$dev/irqmode && echo 100000 >$dev/completion_nsec && echo 1 >$dev/power || exit
	/usr/sbin/mke2fs -q -F -t ext4 -O ${3:-dir_index} -E lazy_itable_init=0,lazy_journal_init=0 /dev/squid || exit
	mkdir -p $store && mount -t ext4 -o ${2:-dirsync} /dev/squid $store && chown nobody $store || exit
	grep " $store " /proc/mounts
}

configure() {
	mkdir -p ${log%/*} && chown nobody ${log%/*}
	cat >$conf <<-END
	http_port 127.0.0.1:$proxy
	visible_hostname proxy
	cache_effective_user nobody
	cache_effective_group nogroup
	cache_dir ${2:-ufs $store 192 16 256}
	cache_mem 1 MB
	maximum_object_size_in_memory 8 KB
	maximum_object_size 4 MB
	http_access allow all
	access_log none
	cache_store_log none
	cache_log $log
	pid_filename none
	coredump_dir none
	pinger_enable off
	dns_nameservers 127.0.0.1
	shutdown_lifetime 0 seconds
	error_directory /usr/share/squid-langpack/en
	icon_directory /usr/share/squid/icons
	$1
	END
}

listening() { grep -q "$(printf '0100007F:%04X 00000000:0000 0A' $1)" /proc/net/tcp; }

# Waits, ten seconds at most, until a program takes connections.
await() {
	for i in $(seq 100); do
		listening $1 && return
		kill -0 $2 2>/dev/null || return
		sleep 0.1
	done
	return 1
}

start() {
	ip link set lo up
	configure "$1" "$2"
	/usr/sbin/squid-gnutls -N -z -f $conf >/run/squid.out 2>&1 &&
	{ setsid $3 /usr/sbin/squid-gnutls -N -f $conf </dev/null >>/run/squid.out 2>&1 & } &&
	echo $! >/run/squid.pid && await $proxy $! && return
	echo "Squid does not start:" >&2
	cat /run/squid.out >&2
	grep -vxFf /run/squid.out $log >&2 # most of it is in both
	exit 1
}

serve() {
	setsid /lib/kerninst/bench/wpb origin $origin $1 </dev/null >/dev/null 2>/run/origin.err &
	echo $! >/run/origin.pid
	await $origin $! && return
	echo "the origin does not start:" >&2
	cat /run/origin.err >&2
	exit 1
}

# The time that Squid has run, in nanoseconds, kernel and all; the store's disk.
usage() {
	cut -d' ' -f1 /proc/$(cat /run/squid.pid)/schedstat &&
	awk '$3 == "squid" { print $8, $11, $13 }' /proc/diskstats
}

drive() {
	usage &&
	/lib/kerninst/bench/wpb drive $proxy $origin $1 $2 $3 &&
	usage && find $store -type f -path '*/??/??/*' | wc -l && return
	sleep 0.1 # what dies closes its connections first
	listening $proxy || echo "Squid was gone." >&2
	echo "Squid's own words:" >&2
	tail -n 20 $log >&2
	df $store >&2
	exit 1
}

# Has a daemon ready, which puts the module back.
daemon() {
	setsid /sbin/kerninstd -serve </dev/null >/run/kerninstd.out 2>&1 &
	echo $! >/run/kerninstd.pid
	kinst 'kinst::vfs_read:entry vtime' kinst::vfs_read:call --skip-refused -- true # what it reads once, it has read then
}

undaemon() {
	kill $(cat /run/kerninstd.pid) && while kill -0 $(cat /run/kerninstd.pid) 2>/dev/null; do sleep 0.1; done
	cat /run/kerninstd.out
	rmmod kerninst
}

# Drives in the background, while something else looks at Squid.
drive_on() {
	rm -f /run/drive.status
	{ drive "$@" >/run/drive.out 2>/run/drive.err; echo $? >/run/drive.status; } &
	sleep 0.2 # until each client has a connection
}

# Waits until that has ended, and says what it said.
drive_ends() {
	while [ ! -e /run/drive.status ]; do sleep 0.1; done
	cat /run/drive.err >&2
	cat /run/drive.out
	exit $(cat /run/drive.status)
}

# Follows the time of Squid's, without getting in its way.
detective() {
	[ ! -e /run/drive.status ] || { echo "the clients had ended before" >&2; exit 1; }
	/programs/detective -pid $(cat /run/squid.pid) -json "$@" || exit
	[ ! -e /run/drive.status ] || { echo "the clients ended meanwhile" >&2; exit 1; }
}

# Has calls of one function from another wait for $1 microseconds before they begin: of the pairs
# that follow, the first that can be. Says which.
plant() {
	delay=$1 && shift
	while [ $# -gt 1 ]; do
		range=$(awk -v name=$1 '$2 ~ /^[tT]$/ && NF == 3 {
				if ($3 == name) at = $1
				else if ($1 > at && (end == "" || $1 < end) && at != "") end = $1
			} END { print at, end }' /proc/kallsyms)
		at=${range% *} end=${range#* }
		size=$((0x${end#????????} - 0x${at#????????})) # all of the kernel is within 2 GiB
		if kinst -l kinst::$1:entry kinst::$1:return >/run/plant.out 2>&1 && ! grep refused /run/plant.out >&2 &&
			insmod /lib/kerninst/peer.ko kind=ftrace function=$2 delay=$delay addr=0x$at size=$size; then
			echo $1 $2
			return
		fi
		echo "$1 is not planted" >&2
		shift 2
	done
	exit 1
}

unplant() { rmmod peer; }

# Says of each of Squid's system calls how many there were and how long they took, in
# microseconds.
trace() {
	[ -d $tracing/events ] || mount -t tracefs none $tracing || exit
	cat /run/squid.pid >$tracing/set_event_pid || exit
	echo 262144 >$tracing/buffer_size_kb || exit
	echo mono >$tracing/trace_clock
	echo 1 >$tracing/events/syscalls/enable || exit
	drive "$@"
	echo 0 >$tracing/tracing_on
	awk '/ sys_[a-z0-9_]+\(/ { split($0, a, /: sys_|\(/); enter = stamp($0); next }
		/ sys_[a-z0-9_]+ -> / { match($0, / sys_[a-z0-9_]+ -> /)
			name = substr($0, RSTART + 5, RLENGTH - 9)
			if (enter) { n[name]++; t[name] += stamp($0) - enter }
			enter = 0 }
		function stamp(s) { match(s, /[0-9]+\.[0-9]+: sys_/)
			split(substr(s, RSTART, RLENGTH - 6), b, "."); return b[1] % 100000 * 1000000 + b[2] }
		END { for (k in n) print "syscall", k, n[k], t[k] }' $tracing/trace
	lost=$(awk -F: '/^(overrun|dropped events)/ { n += $2 } END { print n + 0 }' $tracing/per_cpu/cpu0/stats)
	[ "$lost" = 0 ] || { echo "$lost events of Squid's system calls were lost" >&2; exit 1; }
}

# Waits until the guest has been up for so many seconds: so guests that have done more
# than others begin at the same time.
align() {
	late=$(awk -v at=$1 '{ print at - $1 }' /proc/uptime)
	case $late in
	-*) echo "the guest has been up for more than $1 s" >&2; exit 1 ;;
	esac
	sleep $late
}

stop() {
	kill $(cat /run/origin.pid)
	kill $(cat /run/squid.pid) 2>/dev/null || { echo "Squid was gone:" >&2; tail -n 20 $log >&2; exit 1; }
	for i in $(seq 100); do
		kill -0 $(cat /run/squid.pid) 2>/dev/null || break
		sleep 0.1
	done
	umount $store
}

"$@"
