package scenarios

import (
	"strings"
	"testing"

	"kerninst/agent/wire"
)

const proxiedText = `1000
10 20 30
BenchmarkSquid/miss-1 300 126027507 ns/op 222.542 req/s 6.910 MB/s 0.0000 hits/req
BenchmarkSquid/mixed-1 300 57587537 ns/op 365.667 req/s 10.043 MB/s 0.5333 hits/req
6001000
110 220 330
412
syscall openat 561 8000
syscall read 20 16.5
`

func TestReadProxied(t *testing.T) {
	p, err := readProxied([]byte(proxiedText))
	if err != nil {
		t.Fatal(err)
	}
	if p.asked != 600 || p.nanos != 6e6 || p.disk != [3]float64{100, 200, 300} || p.files != 412 {
		t.Errorf("read %+v", p)
	}
	if got := p.phases["mixed"]; len(p.phases) != 2 || got["hits/req"] != 0.5333 || got["ns/op"] != 57587537 || got["req/s"] != 365.667 || got["MB/s"] != 10.043 {
		t.Errorf("phases %v", p.phases)
	}
	if p.calls["openat"] != (syscallShare{561, 8000}) || p.calls["read"] != (syscallShare{20, 16.5}) || len(p.calls) != 2 {
		t.Errorf("system calls %v", p.calls)
	}
}

func TestReadProxiedRefuses(t *testing.T) {
	for _, tt := range []struct{ old, new string }{
		{"412\n", ""},
		{"1000\n", "1000 5\n"},
		{"110 220 330", "110 220"},
		{"openat 561 8000", "openat 561"},
		{"openat 561 8000", "openat a b"},
	} {
		if p, err := readProxied([]byte(strings.Replace(proxiedText, tt.old, tt.new, 1))); err == nil {
			t.Errorf("with %q for %q it read %+v", tt.new, tt.old, p)
		}
	}
}

// squidFails is what the check says of two guests of which one prints what is changed.
func squidFails(old, new string) string {
	const requests = 5
	text := "1000\n10 20 30\nBenchmarkSquid/miss-1 150 126027507 ns/op 222.542 req/s 6.910 MB/s 0.0000 hits/req\n" +
		"BenchmarkSquid/mixed-1 150 57587537 ns/op 365.667 req/s 10.043 MB/s 0.5333 hits/req\n" +
		"6001000\n500 220 330\n212\nsyscall openat 561 8000\nsyscall read 20 16.5\n"
	ran := func(out string) *wire.Result {
		return &wire.Result{Runs: []*wire.RunResult{{Stdout: []byte(out)}}}
	}
	guests := map[string]*Answer{}
	for _, name := range []string{"drive", "trace"} {
		guests[name] = &Answer{Results: map[string]*wire.Result{"disk": ran("/dev/squid / ext4 rw,dirsync 0 0"),
			"start": ran(""), "serve": ran(""), "stop": ran(""), "work": ran(strings.Replace(text, old, new, 1))}}
	}
	return failure(func(fail func(string)) { checkSquid(NewT("amd64", "", guests, fail), requests) })
}

func TestSquidCheck(t *testing.T) {
	for _, tt := range []struct{ name, old, new, fails string }{
		{"as it was", "", "", ""},
		{"requests are missing", "miss-1 150", "miss-1 149", "drive: requests"},
		{"new documents are hits", "0.0000 hits", "0.0100 hits", "drive: miss: hits of a request"},
		{"known documents are no hits", "0.5333 hits", "0.3900 hits", "drive: mixed: hits of a request"},
		{"the origin answers at once", "126027507", "99999999", "drive: miss: time of a request"},
		{"documents are not stored", "\n212\n", "\n188\n", "drive: files in the store"},
		{"files are not written", "500 220 330", "100 220 330", "drive: writes to the disk"},
		{"writing takes no time", "500 220 330", "500 220 30", "drive: milliseconds in which the disk wrote"},
		{"no system call is traced", "syscall openat 561 8000\nsyscall read 20 16.5\n", "", "microseconds of system calls"},
		{"files are stored but not opened", "openat 561", "openat 211", "files that Squid has opened"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := squidFails(tt.old, tt.new)
			if (got == "") != (tt.fails == "") || !strings.Contains(got, tt.fails) {
				t.Errorf("failed with %q, want %q", got, tt.fails)
			}
		})
	}
}

// TestRequested: fewer requests, or others, than were asked for are seen.
func TestRequested(t *testing.T) {
	phases := func(hits, ns float64) map[string]map[string]float64 {
		return map[string]map[string]float64{"miss": {"hits/req": 0, "ns/op": ns}, "mixed": {"hits/req": hits, "ns/op": ns}}
	}
	const long = 2 * squidDelay * 1e6
	for name, tt := range map[string]struct {
		p  proxied
		ok bool
	}{
		"as asked":      {proxied{asked: 2 * squidClients * 10, phases: phases(0.5, long)}, true},
		"fewer":         {proxied{asked: 2*squidClients*10 - 1, phases: phases(0.5, long)}, false},
		"no hits":       {proxied{asked: 2 * squidClients * 10, phases: phases(0, long)}, false},
		"all hit":       {proxied{asked: 2 * squidClients * 10, phases: phases(1, long)}, false},
		"nobody waited": {proxied{asked: 2 * squidClients * 10, phases: phases(0.5, 1)}, false},
		"no phase":      {proxied{asked: 2 * squidClients * 10}, false},
	} {
		if got := failure(func(fail func(string)) { NewT("amd64", "", nil, fail).requested("guest", &tt.p, 10) }); (got == "") != tt.ok {
			t.Errorf("%s: %q", name, got)
		}
	}
}
