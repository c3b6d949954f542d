package images

import (
	"reflect"
	"strings"
	"testing"
)

const (
	sumA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	sumB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func TestLockRoundTrip(t *testing.T) {
	a := Package{"make", "4.4.1-2", "amd64", Digest{sumA, 10}, "pool/main/m/make_4.4.1-2_amd64.deb"}
	b := Package{"awk", "1:5.2~1+b1", "all", Digest{sumB, 20}, ""}
	want := Lock{"guest/arm64": {b}, "toolchain/amd64/arm64": {b, a}}
	got, err := parseLock(want.format())
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("parse(format) = %v, %v, want %v", got, err, want)
	}
}

func TestLockRefuses(t *testing.T) {
	tests := []struct{ line, want string }{
		{"make 1 amd64 10 " + sumA + " s", "2: 6 fields"},
		{"make 1 amd64 10 " + sumA + " s pool/../etc", "2: \"pool/../etc\" is no path"},
		{"make 1 amd64 10 " + sumA + " s http://elsewhere/pool/x", "2: "},
		{"make 1 amd64 ten " + sumA + " s -", `2: size "ten"`},
		{"make 1 amd64 0 " + sumA + " s -", `2: size "0"`},
		{"make 1 amd64 10 " + sumA[1:] + " s -", "2: "},
		{"make 1 amd64 10 ../" + sumA[3:] + " s -", "2: "},
	}
	for _, tt := range tests {
		_, err := parseLock([]byte("# comment\n" + tt.line + "\n"))
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %s...", tt.line, err, tt.want)
		}
	}
}

func TestCompare(t *testing.T) {
	p := Package{"make", "1", "amd64", Digest{sumA, 10}, ""}
	newer, other, foreign := p, p, p
	newer.Version, newer.Digest = "2", Digest{sumB, 11}
	other.Digest = Digest{sumB, 10}
	foreign.Arch = "arm64"
	tests := []struct {
		name    string
		offered Package
		drift   int
		ok      bool
	}{
		{"same", p, 0, true},
		{"newer", newer, 1, true},
		{"other bytes", other, 0, false},
		{"other architecture", foreign, 1, true},
	}
	for _, tt := range tests {
		drift, err := compare([]Package{p}, []Package{tt.offered})
		if len(drift) != tt.drift || (err == nil) != tt.ok {
			t.Errorf("%s: %q, %v, want %d messages, ok %v", tt.name, drift, err, tt.drift, tt.ok)
		}
	}
}

// The committed lock must be enough for every pair it claims to be for.
func TestCommittedLock(t *testing.T) {
	l, err := ReadLock("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range lockedHosts {
		for _, tg := range targets {
			s, ok := selectionOf(host, tg, l)
			if !ok {
				t.Errorf("nothing is locked for %s on %s", tg.name, host)
				continue
			}
			want := append(targetPackages(tg, s.Kernel), toolchainPackages(host, tg, s.Kernel)...)
			for _, name := range want {
				if !hasPackage(s.all(), name) {
					t.Errorf("%s on %s: %s is not locked", tg.name, host, name)
				}
			}
		}
	}
}

func hasPackage(all []Package, name string) bool {
	for _, p := range all {
		if p.Name == name {
			return true
		}
	}
	return false
}
