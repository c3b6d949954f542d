# What the scenario apache does in its guests, part by part. Its first word says which.

conf=/etc/apache.conf log=/run/apache root=/srv/www port=80 document=index.html

sum() { sha256sum | cut -d' ' -f1; }

# One process for each connection, as in Apache 2.0, and always as many: none is made or ended
# while anybody counts. Each request is one line in the log, written at once, and one sendfile.
# What answers have to be, in the log and as a text, is settled here.
configure() {
	mkdir -p $log $root && : >$log/access && : >$log/error
	awk -v bytes=$2 'BEGIN { while (n < bytes) { line = sprintf("%07d\n", n); printf "%s", line; n += length(line) } }' >$root/$document
	echo "200 $(wc -c <$root/$document) /$document" >$log/line
	sum <$root/$document >$log/sum
	cat >$conf <<-END
	ServerRoot /usr/lib/apache2
	ServerName localhost
	Listen 127.0.0.1:$port
	LoadModule mpm_prefork_module modules/mod_mpm_prefork.so
	LoadModule authz_core_module modules/mod_authz_core.so
	LoadModule mime_module modules/mod_mime.so
	TypesConfig /etc/mime.types
	User nobody
	Group nogroup
	PidFile $log/pid
	DefaultRuntimeDir $log
	DocumentRoot $root
	ErrorLog $log/error
	LogFormat "%>s %B %U" answers
	CustomLog $log/access answers
	StartServers $1
	MinSpareServers 1
	MaxSpareServers $1
	ServerLimit $1
	MaxRequestWorkers $1
	MaxConnectionsPerChild 0
	KeepAlive Off
	EnableSendfile On
	$3
	END
}

listening() { grep -q "$(printf '0100007F:%04X 00000000:0000 0A' $port)" /proc/net/tcp; }

# start PROCESSES BYTES [DIRECTIVE]: waits, ten seconds at most, until all take connections.
start() {
	ip link set lo up
	configure "$@"
	setsid /usr/sbin/apache2 -f $conf -DFOREGROUND </dev/null >$log/said 2>&1 &
	echo $! >$log/started
	for i in $(seq 100); do
		[ $(pidof apache2 | wc -w) -gt $1 ] && listening && sleep 0.2 && return
		kill -0 $! 2>/dev/null || break
		sleep 0.1
	done
	echo "Apache does not start:" >&2
	cat $log/said $log/error >&2
	exit 1
}

# field NAME: what ab has said behind that.
field() { sed -n "s/^$1: *\([0-9.]*\).*/\1/p" $log/ab | head -n 1; }

# percentile N: of ab's times of requests, in milliseconds. Near 100 of few requests ab reads behind
# its table.
percentile() { sed -n "s/^$1,//p" $log/percentiles; }

# wrong WHAT: says so, and all that there is to say about it.
wrong() {
	echo "$1" >&2
	sleep 0.1 # what dies closes its connections first
	listening || echo "Apache was gone." >&2
	echo "ab's own words:" >&2
	tail -n 30 $log/ab >&2
	echo "Apache's own words:" >&2
	tail -n 20 $log/error >&2
	exit 1
}

# ask REQUESTS AT-ONCE: once, and holds what came against what had to.
ask() {
	: >$log/access
	/usr/bin/ab -q -n $1 -c $2 -e $log/percentiles http://127.0.0.1:$port/$document >$log/ab 2>&1 ||
		wrong "ab fails with exit status $?."
	[ "$(field 'Complete requests')" = $1 ] && [ "$(field 'Failed requests')" = 0 ] &&
		! grep -q '^Non-2xx' $log/ab || wrong "ab has not had $1 answers that are right."
	sleep 1 # until all processes wait for the next one
	read -r line <$log/line
	[ "$(uniq -c $log/access | sed 's/^ *//')" = "$1 $line" ] ||
		wrong "Apache's log has not $1 times '$line': $(sort $log/access | uniq -c | head -n 5)"
}

# Asks once more, and holds the text itself against the document's.
fetch() {
	got=$(printf 'GET /%s HTTP/1.0\r\n\r\n' $document | nc 127.0.0.1 $port | sed '1,/^\r$/d' | sum)
	sleep 1
	read -r sum <$log/sum
	[ "$got" = $sum ] || wrong "The document that came has SHA-256 $got."
}

# work SAMPLES REQUESTS AT-ONCE: prints times of samples in the format of Go's benchmarks, in
# nanoseconds: of a request, all together, of which ab says only how many there are in a second; of
# one from its begin to its end, in the mean; and percentiles of that.
work() {
	for i in $(seq $1); do
		ask $2 $3
		echo "complete: $(field 'Complete requests')"
		echo "failed: $(field 'Failed requests')"
		echo "length: $(field 'Document Length')"
		echo "html: $(field 'HTML transferred')"
		echo "logged: $(wc -l <$log/access)"
		echo "$(field 'Requests per second') $(field 'Time per request') $(percentile 50) $(percentile 90) $(percentile 95)" >>$log/samples.$$
	done
	fetch
	echo "sum: $got"
	awk -v requests=$2 'BEGIN { split("Request Response Response/p50 Response/p90 Response/p95", name) }
		{ for (k = 1; k <= NF; k++) { # as text: what is printed twice is the same
			v = sprintf("%.1f", k == 1 ? 1e9 / $k : 1e6 * $k)
			all[k] = all[k] " " v
			if (least[k] == "" || v + 0 < least[k] + 0) least[k] = v } }
		END { for (k = 1; k in name; k++) {
			print "# " name[k] all[k]
			print "Benchmark" name[k] "-1 " requests " " least[k] " ns/op" } }' $log/samples.$$
	rm $log/samples.$$
}

# What Apache has to say but that it begins, by which command, that it is told to end, and that all its
# processes are busy, as they are to be, is nothing that was meant: also of a process that has crashed it
# says so in a notice.
stop() {
	kill $(cat $log/started) 2>/dev/null || { echo "Apache was gone:" >&2; tail -n 20 $log/error >&2; exit 1; }
	for i in $(seq 100); do
		kill -0 $(cat $log/started) 2>/dev/null || break
		sleep 0.1
	done
	! grep -v -e AH00163: -e AH00094: -e AH00169: -e AH00161: $log/error >&2
}

"$@"
