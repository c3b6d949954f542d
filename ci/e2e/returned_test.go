package e2e

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kerninst/agent/ask"
)

// TestReturned holds what functions are found to return against what those know themselves
// (guest/module/peer/truth): some ways out are returns, others jumps to functions of the
// kernel's, of which only these know what they return.
func TestReturned(t *testing.T) {
	t.Parallel()
	for _, arch := range arches {
		t.Run(arch, func(t *testing.T) {
			for _, how := range [][]string{{"--time", "exact"}, {"--cpus", "2"}} {
				exact := how[1] == "exact"
				if !*full && exact == (arch == "arm64") { // `make proof` has both on each ISA
					continue
				}
				t.Run(how[1], func(t *testing.T) { returnsAreTrue(t, arch, exact, how...) })
			}
			t.Logf("proof returned %s 1", arch)
		})
	}
}

// returnsAreTrue is all that is asked of one guest.
func returnsAreTrue(t *testing.T, arch string, exact bool, how ...string) {
	g := withTruth(t, arch, how...)
	sumsAreTrue(t, g)
	signsAreTrue(t, g)
	besideOthers(t, g)
	if exact {
		costsWhatItSays(t, g)
	}
	if arch == "amd64" { // whose kernel is the only one in which calls become jumps
		asKretprobes(t, g)
	}
	sleepsTraced(t, g, arch)
	sleepsInCall(t, g)
}

// exits are the points of one function, those at its returns and those that are called.
func exits(a ask.Answer, function string) (returns, called []ask.Point) {
	for _, p := range a.Points {
		switch {
		case p.Symbol != function:
		case p.Called:
			called = append(called, p)
		default:
			returns = append(returns, p)
		}
	}
	return returns, called
}

// found is what an action found at points, all together: by a key, the hits.
func found(t *testing.T, points []ask.Point, action string) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	number := func(text string) float64 {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, p := range points {
		for _, f := range p.Actions {
			if f.Action != action {
				continue
			}
			for _, r := range f.Rows {
				out[strings.Join(r.Keys, ",")] += number(r.Value.String())
			}
			if f.Value != nil {
				out[""] += number(f.Value.String())
			}
		}
	}
	return out
}

// truths are the calls and the sum of what was returned, by function.
func truths(t *testing.T, text string) (calls, sum map[string]float64) {
	t.Helper()
	calls, sum = map[string]float64{}, map[string]float64{}
	for line := range strings.Lines(text) {
		var f string
		var n, ns, waited, ran, returned float64
		if k, err := fmt.Sscan(line, &f, &n, &ns, &waited, &ran, &returned); k != 6 {
			t.Fatalf("%q: %v", line, err)
		}
		calls[f], sum[f] = n, returned
	}
	return calls, sum
}

// sumsAreTrue calls truth_returns from two tasks at once.
func sumsAreTrue(t *testing.T, g *guestShell) {
	const below, tasks, function, sums = 3000, 2, "truth_returns", "sum(ret)"
	before, beforeSum := truths(t, typed(t, g, "cat /proc/truth", 10))
	a := answers(t, g, fmt.Sprintf(`kinst --json kinst:truth:%s:return --do "%s" --do count --run "for k in 1 2; do echo returns %d >/proc/truth & done; wait; cat /proc/truth"`, function, sums, below), 11)
	calls, sum := truths(t, a.Workload.Stdout)
	returns, called := exits(a, function)
	var want [2]float64 // of returns, and of the kernel's int_sqrt()
	for n := range below {
		if n%3 == 0 {
			want[0] += tasks * float64(5*n)
		} else {
			want[1] += tasks * math.Floor(math.Sqrt(float64(n)))
		}
	}
	got := [2]float64{found(t, returns, sums)[""], found(t, called, sums)[""]}
	if got != want || got[0]+got[1] != sum[function]-beforeSum[function] {
		t.Errorf("sums %v, want %v, and %v together", got, want, sum[function]-beforeSum[function])
	}
	hits := [2]float64{found(t, returns, "count")[""], found(t, called, "count")[""]}
	if n := calls[function] - before[function]; hits != [2]float64{n / 3, n - n/3} || n != tasks*below {
		t.Errorf("%v ways out, %v calls", hits, n)
	}
	t.Logf("%d returns, %d called: %v in %v calls; %+v", len(returns), len(called), got, hits, added(called))
}

// added is what each point adds to a hit.
func added(points []ask.Point) (out []string) {
	for _, p := range points {
		out = append(out, fmt.Sprintf("+%#x %s adds %d and saves %d", p.Offset, p.Mechanism, p.Added, p.Spilled))
	}
	return out
}

// signsAreTrue: what is returned has a sign, and is asked for by a predicate.
func signsAreTrue(t *testing.T, g *guestShell) {
	const below, function = 3 * 128, "truth_signs"
	a := answers(t, g, fmt.Sprintf(`kinst --json kinst:truth:%s:return --do "count by int32(ret)" --do "sum(int32(ret))" --run "echo signs %d >/proc/truth"`, function, below), 12)
	b := answers(t, g, fmt.Sprintf(`kinst --json --if "int32(ret) >= 0" kinst:truth:%s:return --do count --run "echo signs %d >/proc/truth"`, function, below), 13)
	want, digits, sum := map[string]float64{}, 0.0, 0.0
	for n := range below {
		value, c := -5, n&0x7f
		if c%3 != 0 {
			v, err := strconv.ParseUint(string(rune(c)), 16, 8)
			if value = int(v); err != nil {
				value = -1
			}
		}
		want[strconv.Itoa(value)]++
		sum += float64(value)
		if value >= 0 {
			digits++
		}
	}
	returns, called := exits(a, function)
	all := append(slices.Clone(returns), called...)
	if got := found(t, all, "count by int32(ret)"); fmt.Sprint(got) != fmt.Sprint(want) || found(t, all, "sum(int32(ret))")[""] != sum || len(called) == 0 {
		t.Errorf("%v, sum %v; want %v, %v; %d are called", got, found(t, all, "sum(int32(ret))"), want, sum, len(called))
	}
	came := 0.0
	for _, p := range b.Points {
		if p.Value != nil {
			v, err := strconv.ParseFloat(p.Value.String(), 64)
			if err != nil {
				t.Fatal(err)
			}
			came += v
		}
	}
	if came != digits {
		t.Errorf("%v digits, want %v", came, digits)
	}
}

// besideOthers: who has called is found behind the call, too; the time inside ends before it,
// so the two are not had together.
func besideOthers(t *testing.T, g *guestShell) {
	const run = ` --run "echo returns 3000 >/proc/truth"`
	a := answers(t, g, `kinst --json "kinst:truth:truth_returns:return /ret == 54/ stack(6)"`+run, 30)
	_, called := exits(a, "truth_returns")
	n := 0
	for _, p := range called {
		for _, f := range p.Actions {
			for _, r := range f.Stacks {
				n++
				if text := strings.Join(r.Symbols, " "); !strings.HasPrefix(r.Symbols[0], "truth:truth_returns+") || !strings.Contains(text, " truth:call+") {
					t.Errorf("%v", r.Symbols)
				}
			}
		}
	}
	if n != (3000-54*54)*2/3 { // of 84 numbers that have that root, those that 3 does not divide
		t.Errorf("%d stacks", n)
	}
	said, code := g.run(`kinst "kinst:truth:truth_returns:entry time" "kinst:truth:truth_returns:return sum(ret)"`+run, 31)
	if code != 1 || !strings.Contains(said, "ask for one of the two") {
		t.Errorf("exit status %d: %s", code, said)
	}
	a = answers(t, g, `kinst --json "kinst:truth:truth_returns:entry time" "kinst:truth:truth_returns:return count"`+run, 32)
	if returns, called := exits(a, "truth_returns"); len(called) != 0 || len(returns) != 3 || len(a.Times) != 1 || a.Times[0].Rows[0].Calls != 3000 || a.Times[0].Rows[0].Missing != 0 {
		t.Errorf("%d points, %d of them called, %+v", len(a.Points), len(called), a.Times)
	}
}

// costsWhatItSays: calls take as many instructions more as points say that they add. The
// fewest of several are those of which no interrupt came by.
func costsWhatItSays(t *testing.T, g *guestShell) {
	const below, times = 600, 9
	run := fmt.Sprintf("for k in $(seq %d); do grep returns /proc/truth; echo returns %d >/proc/truth; done; grep returns /proc/truth", times, below)
	fewest := func(text string) float64 {
		least, last := math.Inf(1), -1.0
		for line := range strings.Lines(text) {
			waited, err := strconv.ParseFloat(strings.Fields(line)[3], 64)
			if err != nil {
				t.Fatal(err)
			}
			if last >= 0 {
				least = min(least, waited-last)
			}
			last = waited
		}
		return least
	}
	bare := fewest(typed(t, g, run, 40))
	_, called := exits(answers(t, g, "kinst --json kinst:truth:truth_returns:return --do 'sum(ret)' --run true", 41), "truth_returns")
	if len(called) != 1 {
		t.Fatalf("%d ways out are called", len(called))
	}
	a := answers(t, g, fmt.Sprintf(`kinst --json kinst:truth:truth_returns:%d --do "sum(ret)" --run '%s'`, called[0].Offset, run), 42)
	got, want := (fewest(a.Workload.Stdout)-bare)/below, float64(called[0].Added)*2/3
	if math.Abs(got-want) > 0.5 {
		t.Errorf("a call takes %.2f instructions more, want %.2f", got, want)
	}
	t.Logf("a call takes %.2f instructions more, two of three %d", got, called[0].Added)
}

// tailing are functions of amd64's kernel that are left by jumps to others, one of them
// through a register.
var tailing = []string{"vfs_getattr_nosec", "__x64_sys_read", "__x64_sys_write", "proc_lookup"}

// seen has the kernel's own probes keep what those return, and two programs call them.
const seen = `cd /sys/kernel/tracing; [ -e kprobe_events ] || { mount -t tracefs none /sys/kernel/tracing; cd /sys/kernel/tracing; }
for f in FUNCTIONS; do echo "r:seen_$f $f r=\$retval" >>kprobe_events && echo "hist:keys=common_pid.execname,r:size=4096" >events/kprobes/seen_$f/trigger || exit 1; done
ls -lR /sys/class /proc/self/fd /proc/none >/dev/null 2>&1; cat /proc/version /proc/kallsyms >/dev/null
for f in FUNCTIONS; do echo "hist:keys=common_pid.execname,r:size=4096:pause" >>events/kprobes/seen_$f/trigger || exit 2; done`

// asKretprobes holds what functions of the kernel return, to two programs, against what the
// kernel's own probes see them return at the same time.
func asKretprobes(t *testing.T, g *guestShell) {
	typed(t, g, "printf %s '"+strings.ReplaceAll(seen, "FUNCTIONS", strings.Join(tailing, " "))+"' >/tmp/seen", 14)
	specs := "kinst::" + strings.Join(tailing, ":return kinst::") + ":return"
	a := answers(t, g, `kinst --json `+specs+` --if 'comm == "ls" || comm == "cat"' --do "count by uint64(ret)" --run "sh /tmp/seen"`, 15)
	if a.Workload.Exit != 0 {
		t.Fatalf("%+v", a.Workload)
	}
	for _, f := range tailing {
		returns, called := exits(a, f)
		got := found(t, append(slices.Clone(returns), called...), "count by uint64(ret)")
		want, tails := map[string]float64{}, found(t, called, "count by uint64(ret)")
		said := typed(t, g, "cat /sys/kernel/tracing/events/kprobes/seen_"+f+"/hist", 16)
		for _, m := range regexp.MustCompile(`common_pid: (?:ls|cat) .*r: *(\d+) *\} hitcount: *(\d+)`).FindAllStringSubmatch(said, -1) {
			n, err := strconv.ParseFloat(m[2], 64)
			if err != nil {
				t.Fatal(err)
			}
			want[m[1]] += n
		}
		if fmt.Sprint(got) != fmt.Sprint(want) || len(tails) == 0 {
			t.Errorf("%s returned %v, kretprobes saw %v; %v by jumps", f, unlike(got, want), unlike(want, got), total(tails))
		}
		t.Logf("%s: %d values, of %d points by jumps %v", f, len(got), len(called), total(tails))
	}
	typed(t, g, "cd /sys/kernel/tracing; for f in "+strings.Join(tailing, " ")+`; do echo '!hist:keys=common_pid.execname,r:size=4096' >events/kprobes/seen_$f/trigger; done; echo >kprobe_events; cd /`, 17)
}

// unlike is what one has otherwise than another.
func unlike(one, other map[string]float64) map[string]float64 {
	out := map[string]float64{}
	for k, v := range one {
		if other[k] != v {
			out[k] = v
		}
	}
	return out
}

func total(of map[string]float64) (n float64) {
	for _, v := range of {
		n += v
	}
	return n
}

// frame is a line of /proc/PID/stack.
var frame = regexp.MustCompile(`(?m)^\[<0>\] (\S+?)(?:\+0x\S+)?(?: \[\w+\])?$`)

func frames(stack string) (out []string) {
	for _, m := range frame.FindAllStringSubmatch(stack, -1) {
		out = append(out, m[1])
	}
	return out
}

// tracings are tracers that put an address of theirs in the place of the one that a function
// returns to, and keep that: how they are turned on for what truth_waits jumps to, and off.
var tracings = []struct {
	name, on, off string
	arches        []string
}{
	{"function graph", "echo wait_for_completion_interruptible >set_ftrace_filter && echo function_graph >current_tracer", "echo nop >current_tracer; echo >set_ftrace_filter", arches},
	{"kretprobe", "echo 'r:waited wait_for_completion_interruptible' >kprobe_events && echo 1 >events/kprobes/waited/enable", "echo 0 >events/kprobes/waited/enable; echo >kprobe_events", []string{"amd64", "arm64"}}, // riscv64's kernel takes none there
}

// sleepsTraced has a task sleep in what truth_waits jumps to, while that is traced: where it
// returns to is in a patch, and in no word of its stack. The patch stays, whatever else is
// spliced, until the task has left it.
func sleepsTraced(t *testing.T, g *guestShell, arch string) {
	for k, w := range tracings {
		if !slices.Contains(w.arches, arch) {
			continue
		}
		typed(t, g, "cd /sys/kernel/tracing; [ -e kprobe_events ] || { mount -t tracefs none /sys/kernel/tracing; cd /sys/kernel/tracing; }; "+w.on+" && cd /", 30+10*k)
		a := answers(t, g, `kinst --json kinst:truth:truth_waits:return --do "count by ret" --run "(echo waits 1 >/proc/truth; echo \$? >/tmp/woken) >/dev/null 2>&1 & sleep 0.1"`, 31+10*k)
		if _, called := exits(a, "truth_waits"); len(called) == 0 {
			t.Errorf("%s: no jump of truth_waits is called: %+v", w.name, a.Points)
		}
		// Others take the memory that is free.
		others := answers(t, g, `kinst --json --skip-refused kinst::vfs_read:block kinst::vfs_write:block kinst::do_sys_openat2:block --run "cat /proc/version" 2>/dev/null`, 32+10*k)
		if n := len(slices.DeleteFunc(others.Points, func(p ask.Point) bool { return p.Refusal != nil })); n < 50 {
			t.Errorf("%s: only %d others are spliced", w.name, n)
		}
		if said := typed(t, g, "ls /tmp/woken 2>/dev/null; echo wake 1 >/proc/truth; while [ ! -e /tmp/woken ]; do sleep 0.1; done; cat /tmp/woken; rm /tmp/woken; cd /sys/kernel/tracing; "+w.off+"; cd /", 33+10*k); said != "0\n" {
			t.Errorf("%s: with a task asleep in the patch: %q", w.name, said)
		}
	}
}

// sleepsInCall has a task sleep in what truth_waits jumps to, while the probe is there and
// when it is gone: its stack names all callers, by way of the patch, which stays until the
// task has left it, and with it the module, and then goes.
func sleepsInCall(t *testing.T, g *guestShell) {
	plain := frames(typed(t, g, "(echo waits 1 >/proc/truth) & p=$!; sleep 0.1; cat /proc/$p/stack; echo wake 1 >/proc/truth; wait $p", 20))
	before, _ := truths(t, typed(t, g, "cat /proc/truth", 21))
	a := answers(t, g, `kinst --json kinst:truth:truth_waits:return --do "count by ret" --run "(echo waits 1 >/proc/truth) & sleep 0.1; echo wake 1 >/proc/truth; wait; echo waits 0 >/proc/truth; `+
		`(echo waits 1 >/proc/truth; echo \$? >/tmp/slept) >/dev/null 2>&1 & p=\$!; sleep 0.1; echo \$p >/tmp/sleeper; cat /proc/\$p/stack"`, 22)
	returns, called := exits(a, "truth_waits")
	if got := [2]map[string]float64{found(t, returns, "count by ret"), found(t, called, "count by ret")}; fmt.Sprint(got) != "[map[7:1] map[0:1]]" {
		t.Errorf("returned: %v", got)
	}
	within(t, "while the probe is there", frames(a.Workload.Stdout), plain)
	within(t, "when it is gone", frames(typed(t, g, "cat /proc/$(cat /tmp/sleeper)/stack", 23)), plain)
	// Others are made meanwhile, and nobody's patch is overwritten.
	if a := answers(t, g, `kinst --json kinst:truth:truth_waits:return --do "count by ret" --run "echo waits 0 >/proc/truth"`, 24); fmt.Sprint(found(t, a.Points, "count by ret")) != "map[7:1]" {
		t.Errorf("%+v", a.Points)
	}
	// Without a daemon, the module takes care: it stays as long as the task sleeps.
	said := typed(t, g, "kill $(pidof kerninstd); while pidof kerninstd >/dev/null; do sleep 0.1; done; rmmod kerninst 2>/dev/null || echo it stays; dmesg | grep -c 'bytes of patches stay.* stack of [a-z]* ([0-9]*) has an address in that of truth_waits+'; ls /tmp/slept 2>/dev/null; true", 25)
	if said != "it stays\n1\n" {
		t.Errorf("with a task asleep in the patch: %q", said)
	}
	said = typed(t, g, "echo wake 1 >/proc/truth; while [ ! -e /tmp/slept ]; do sleep 0.5; done; cat /tmp/slept; n=0; while [ -e /sys/module/kerninst ]; do rmmod kerninst 2>/dev/null; sleep 0.5; n=$((n + 1)); [ $n -lt 240 ] || exit 9; done; echo it goes", 26)
	if said != "0\nit goes\n" {
		t.Errorf("when the task has left: %q", said)
	}
	after, sum := truths(t, typed(t, g, "cat /proc/truth", 27))
	if n := after["truth_waits"] - before["truth_waits"]; n != 4 || sum["truth_waits"] != 14 {
		t.Errorf("%v calls returned %v", n, sum["truth_waits"])
	}
}

// within holds a stack to be another with one place more in it, a patch.
func within(t *testing.T, when string, got, plain []string) {
	t.Helper()
	at := 0
	for at < len(plain) && at < len(got) && got[at] == plain[at] {
		at++
	}
	if len(plain) < 6 || at >= len(got) || !slices.Equal(got[at+1:], plain[at:]) || !patch.MatchString(got[at]) {
		t.Errorf("%s: %v, without a probe %v", when, got, plain)
	}
	t.Logf("%s: %v", when, got)
}

// patch is what places in patches are called, where areas have no name.
var patch = regexp.MustCompile(`^(kerninst_patches|0x[0-9a-f]+)$`)

func typed(t *testing.T, g *guestShell, command string, k int) string {
	t.Helper()
	said, code := g.run(command, k)
	if code != 0 {
		t.Fatalf("%s: exit status %d: %s", command, code, said)
	}
	return said
}
