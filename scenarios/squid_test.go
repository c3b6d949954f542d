package scenarios

import (
	"strings"
	"testing"
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
