package console

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the .want files anew")

// logs are consoles of stock 6.12 kernels in real trouble, one folder per ISA.
func logs(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("testdata/*/*.log")
	if err != nil || len(all) < 40 {
		t.Fatalf("corpus of %d logs, %v", len(all), err)
	}
	return all
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// classify feeds text in pieces of size bytes.
func classify(text []byte, size int) *Classifier {
	c := New()
	for len(text) > 0 {
		n := min(size, len(text))
		c.Write(text[:n])
		text = text[n:]
	}
	c.Flush()
	return c
}

// summary is what the .want files hold.
func summary(c *Classifier) string {
	var b strings.Builder
	for _, f := range c.Findings() {
		mark := " "
		if f.Fatal {
			mark = "!"
		}
		fmt.Fprintf(&b, "%s%s line %d, %d more: %s\n", mark, f.Class, f.Number, len(f.After), f.Line)
	}
	b.WriteString("--\n")
	for _, l := range c.Decisive(20) {
		b.WriteString(l + "\n")
	}
	return b.String()
}

func TestCorpus(t *testing.T) {
	for _, path := range logs(t) {
		text := read(t, path)
		if len(text) > 20<<10 {
			t.Errorf("%s: %d bytes are too many for a test", path, len(text))
		}
		whole := classify(text, len(text))
		wantPath := strings.TrimSuffix(path, ".log") + ".want"
		if *update {
			if err := os.WriteFile(wantPath, []byte(summary(whole)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := summary(whole), string(read(t, wantPath)); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
		}
		for _, size := range []int{1, 7, 4096} {
			if c := classify(text, size); !reflect.DeepEqual(c.Findings(), whole.Findings()) {
				t.Errorf("%s: pieces of %d bytes give other findings", path, size)
			}
		}
	}
}

// What a log is about is in its name; the goldens must not drift from it.
func TestCorpusNames(t *testing.T) {
	about := map[string]struct {
		class Class
		fatal bool
	}{
		"panic": {Panic, true}, "no-init": {Panic, true}, "init-exit": {InitDied, true}, "go-panic": {GoPanic, true},
		"oops": {Oops, true}, "badptr": {Oops, true}, "bug": {Oops, true}, "warn": {Warning, false}, "atomic": {Bug, false},
		"hung": {HungTask, false}, "lockup": {SoftLockup, false}, "hardlockup": {HardLockup, false},
		"oom": {OOM, false}, "segfault": {Segfault, true}, "boot": {},
	}
	for _, path := range logs(t) {
		name := strings.TrimSuffix(filepath.Base(path), ".log")
		want, ok := about[name]
		if !ok {
			t.Errorf("%s: nobody knows what it is about", path)
		}
		c := classify(read(t, path), 512)
		first, fatal := c.Fatal()
		if (want.class != "" && c.Count(want.class) == 0) || (want.class == "" && len(c.Findings()) > 0) {
			t.Errorf("%s: findings %v", path, c.Findings())
		}
		if fatal != want.fatal || fatal && first.Class != want.class {
			t.Errorf("%s: first fatal finding is %q", path, first.Class)
		}
		if name == "lockup" && c.Count(RCUStall) == 0 {
			t.Errorf("%s: no RCU stall", path)
		}
	}
}

// Lines that no log of the corpus holds, as the kernel's source prints them.
var samples = []struct {
	line  string
	class Class // empty: must not match
}{
	{"[    1.000000] traps: kerninstd[77] general protection fault ip:1 sp:2 error:0 in kerninstd[400000+1000]", Segfault},
	{"[    1.000000][  T77] Kernel panic - not syncing: with the caller's id", Panic},
	{"Kernel panic - not syncing: without a time stamp", Panic},
	{"unfinished line[   12.345678] Kernel panic - not syncing: behind it", Panic},
	{"[    1.000000] Insufficient stack space to handle exception!", Oops},
	{"[    1.000000] Bad mode in Error handler detected on CPU0, code 0xbf000002 -- SError", Oops},
	{"[    1.000000] Oops - illegal instruction [#1]", Oops},
	{"[    1.000000] NMI watchdog: Watchdog detected hard LOCKUP on cpu 0", HardLockup},
	{"[    1.000000] rcu: INFO: rcu_sched detected stalls on CPUs/tasks:", RCUStall},
	{"[    1.000000] rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 1-... } 25 jiffies", RCUStall},
	{"[    1.000000] INFO: rcu_tasks detected stalls on tasks:", RCUStall},
	{"[    1.000000] BUG: Bad page state in process init  pfn:1", Bug},
	{"[    1.000000] WARNING: CPU: 0 PID: 1 at fs/open.c:7 do_open+0x20/0x410", Warning},
	{"[    1.000000] WARNING: fs/open.c:7 at do_open+0x20/0x410, CPU#0: init/1", Warning}, // since 6.19
	{"[    1.000000] WARNING: /build/kerninst/area.c:7 at ki_area_free+0x20/0x410 [kerninst], CPU#1: kerninstd/77", Warning},
	{"[    1.000000] WARNING: at do_open+0x20/0x410, CPU#0: init/1", Warning},
	{"[    1.000000] WARNING: memory is low at all times", ""},
	{"fatal error: all goroutines are asleep - deadlock!", GoPanic},
	{"SIGSEGV: segmentation violation", GoPanic},
	{"kerninst-init: daemon killed by signal 9 (killed)", DaemonEnded},
	{"kerninst-init: daemon exited: status 2", DaemonEnded},
	{"kerninst-init: daemon exited: status 0", ""},

	{"the log says: Kernel panic - not syncing", ""},
	{"echo '[1.0] Kernel panic'", ""},
	{"[    1.000000] init: Kernel panic - not syncing", ""},
	{"[    1.000000] Run /init as init process", ""},
	{"[    1.000000] squid[99]: segfault at 0 ip 1 sp 2 error 4", ""},
	{"[    1.000000] DEBUG: BUG: nothing", ""},
	{"don't panic: this is a test", ""},
	{"", ""},
}

func TestSamples(t *testing.T) {
	for _, s := range samples {
		c := classify([]byte(s.line+"\n"), 5)
		switch f := c.Findings(); {
		case s.class == "" && len(f) != 0:
			t.Errorf("%q taken for %s", s.line, f[0].Class)
		case s.class != "" && (len(f) != 1 || f[0].Class != s.class):
			t.Errorf("%q: findings %v, want %s", s.line, f, s.class)
		}
	}
}

// Every rule has its reason, and a line of the corpus or the samples that it
// classifies: a rule that nothing shows to work is no rule.
func TestEveryRuleIsUsed(t *testing.T) {
	used := map[*rule]bool{}
	try := func(line string) { used[match(line)] = true }
	for _, path := range logs(t) {
		for line := range strings.Lines(string(read(t, path))) {
			try(clean([]byte(strings.TrimRight(line, "\r\n"))))
		}
	}
	for _, s := range samples {
		try(s.line)
	}
	for i := range rules {
		if !used[&rules[i]] {
			t.Errorf("rule %d (%s) matches nothing: %s", i, rules[i].class, rules[i].pattern)
		}
		if rules[i].why == "" {
			t.Errorf("rule %d (%s) has no reason", i, rules[i].class)
		}
	}
}

func TestControlCharacters(t *testing.T) {
	tests := []struct{ in, want string }{
		{"plain\r", "plain"},
		{"\x1b[31mred\x1b[0m text", "red text"},
		{"\x1b]0;title\x07shown", "shown"},
		{"\x1b]0;title\x1b\\shown", "shown"},
		{"\x1b(Bcharset", "charset"},
		{"bell\x07 back\x08space nul\x00 del\x7f", "bell backspace nul del"},
		{"tab\tkept", "tab\tkept"},
		{"c1\u009b31m", "c131m"},
		{"bad utf8 \xff\xfe.", "bad utf8 ?."},
		{"ünïcode", "ünïcode"},
		{"\x1b]never ends", ""},
	}
	for _, tt := range tests {
		c := classify([]byte(tt.in+"\nnext\n"), 3)
		if got := c.Tail(2); got[0] != tt.want || got[1] != "next" {
			t.Errorf("%q: %q, want %q", tt.in, got, tt.want)
		}
	}
}

func TestLastWordsWithoutNewline(t *testing.T) {
	c := New()
	c.Write([]byte("[    1.000000] Kernel panic - not syncing: x"))
	if len(c.Findings()) != 0 {
		t.Error("an unfinished line was judged")
	}
	c.Flush()
	c.Flush()
	if len(c.Findings()) != 1 || c.Lines() != 1 {
		t.Errorf("findings %v, %d lines", c.Findings(), c.Lines())
	}
}

func TestBounded(t *testing.T) {
	c := New()
	calls := 0
	c.OnFinding = func(Finding) { calls++ }
	c.Write([]byte(strings.Repeat("x", 1<<20)))
	if cap(c.line) > 2*maxLine {
		t.Errorf("an endless line takes %d bytes", cap(c.line))
	}
	c.Write([]byte("\n"))
	const n = 1000
	for range n {
		c.Write([]byte("[    1.000000] BUG: one of many\n"))
	}
	if len(c.Findings()) != maxFindings || c.Count(Bug) != n || calls != n {
		t.Errorf("%d findings kept, %d counted, %d told", len(c.Findings()), c.Count(Bug), calls)
	}
	for _, f := range c.Findings() {
		if len(f.After) > contextSize || len(f.Before) > beforeSize {
			t.Fatalf("finding with %d+%d lines", len(f.Before), len(f.After))
		}
	}
	if len(c.last.kept) > 2*tailSize || len(c.Tail(1000)) != tailSize {
		t.Errorf("tail of %d lines, %d kept", len(c.Tail(1000)), len(c.last.kept))
	}
	if got := c.Tail(0); len(got) != 0 {
		t.Errorf("Tail(0) = %q", got)
	}
}

// However a text is cut, the findings are the same.
func FuzzSplit(f *testing.F) {
	f.Add([]byte("[    1.000000] Kernel panic - not syncing: x\n\x1b[1mrest"), 3)
	f.Add([]byte("\x1b]\xff\n\x1b"), 1)
	f.Fuzz(func(t *testing.T, text []byte, at int) {
		if at < 0 || at > len(text) {
			return
		}
		whole, cut := New(), New()
		whole.Write(text)
		cut.Write(text[:at])
		cut.Write(text[at:])
		whole.Flush()
		cut.Flush()
		if !reflect.DeepEqual(whole.Findings(), cut.Findings()) || !reflect.DeepEqual(whole.Tail(5), cut.Tail(5)) {
			t.Errorf("cut at %d: %v, %v", at, whole.Findings(), cut.Findings())
		}
		for _, line := range whole.Tail(tailSize) {
			if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' && r != '\t' || r >= 0x7f && r <= 0x9f }) {
				t.Errorf("control character in %q", line)
			}
		}
	})
}
