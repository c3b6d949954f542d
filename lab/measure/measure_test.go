package measure

import (
	"math"
	"strings"
	"testing"
)

func TestParseBench(t *testing.T) {
	for _, tt := range []struct{ name, in, err string }{
		{"good", "null 10 350\nnull 10 340\nnull total 30\n", ""},
		{"empty", "", "no samples"},
		{"no total", "null 10 350\n", "no total"},
		{"two programs", "null 10 350\nread 10 340\n", "unexpected line"},
		{"other ops", "null 10 350\nnull 11 340\n", "bad number"},
		{"not a number", "null 10 x\n", "line"},
		{"zero ops", "null 0 1\n", "bad number"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, err := ParseBench([]byte(tt.in))
			if tt.err == "" {
				if err != nil || b.Min() != 34 || b.TotalOp != 30 {
					t.Fatalf("got %+v, %v", b, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("got %v, want an error about %q", err, tt.err)
			}
		})
	}
}

// TestAddedOutliers: most samples have an interrupt of 2,776 instructions; that one run has
// some without, and the other none, adds nothing.
func TestAddedOutliers(t *testing.T) {
	base, with := &Bench{Ops: 1000}, &Bench{Ops: 1000}
	for k := range uint64(40) {
		base.NS = append(base.NS, 432400+k%2*16)
		with.NS = append(with.NS, 659392+k%2*16)
		if k%8 == 4 {
			base.NS[k] -= 2776
		}
		if k%10 == 7 {
			with.NS[k] += 8000
		}
	}
	if got, exact := Added("arm64", base, with); got != 227 || !exact {
		t.Errorf("got %v %v, want 227 true", got, exact)
	}
}

func TestAdded(t *testing.T) {
	sample := func(ns uint64) *Bench { return &Bench{Ops: 2000, NS: []uint64{ns, ns + 5000}} }
	for _, tt := range []struct {
		arch       string
		base, with uint64
		want       float64
		exact      bool
	}{
		{"amd64", 712000, 718000, 3, true},
		{"riscv64", 926000, 940100, 7, true}, // a tick late
		{"riscv64", 926000, 941000, 7.5, false},
		{"arm64", 926000, 936000, 5, true},
		{"amd64", 712000, 712000, 0, true},
		{"arm64", 926016, 926000, 0, true}, // a tick early
		{"amd64", 718000, 712000, -3, true},
	} {
		got, exact := Added(tt.arch, sample(tt.base), sample(tt.with))
		if got != tt.want || exact != tt.exact || got == 0 && math.Signbit(got) {
			t.Errorf("%s %d→%d: got %v %v, want %v %v", tt.arch, tt.base, tt.with, got, exact, tt.want, tt.exact)
		}
	}
}

// TestAddedCoarse: where two ticks are half an instruction or more, no number is whole.
func TestAddedCoarse(t *testing.T) {
	base, with := &Bench{Ops: 384, NS: []uint64{384_000}}, &Bench{Ops: 384, NS: []uint64{384_000 + 384*3}}
	if got, exact := Added("riscv64", base, with); got != 3 || exact {
		t.Errorf("got %v %v, want 3 false", got, exact)
	}
}
