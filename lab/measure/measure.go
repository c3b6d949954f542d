// Package measure turns what guest programs print into figures.
//
// Two units, never mixed: insns/op is instructions an operation takes, read as
// nanoseconds of a guest whose clock is its instruction count, in a loop that
// cannot sleep; ns/op is host time and only good for ratios.
package measure

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Bench is the output of one run of guest/bench.
type Bench struct {
	Name    string
	Ops     uint64   // operations in each sample
	NS      []uint64 // nanoseconds of each sample
	TotalOp uint64   // operations in all, the warm-up included
}

// ParseBench reads the output of guest/bench.
func ParseBench(out []byte) (*Bench, error) {
	var b Bench
	sc := bufio.NewScanner(bytes.NewReader(out))
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) != 3 || b.Name != "" && f[0] != b.Name {
			return nil, fmt.Errorf("benchmark output: unexpected line %q", sc.Text())
		}
		b.Name = f[0]
		n, err := strconv.ParseUint(f[2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("benchmark output: line %q: %w", sc.Text(), err)
		}
		if f[1] == "total" {
			b.TotalOp = n
			continue
		}
		ops, err := strconv.ParseUint(f[1], 10, 64)
		if err != nil || ops == 0 || b.Ops != 0 && ops != b.Ops {
			return nil, fmt.Errorf("benchmark output: line %q: bad number of operations", sc.Text())
		}
		b.Ops = ops
		b.NS = append(b.NS, n)
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("benchmark output: %w", err)
	}
	if b.TotalOp == 0 || len(b.NS) == 0 {
		return nil, fmt.Errorf("benchmark output: %q has no samples or no total", firstLine(out))
	}
	return &b, nil
}

func firstLine(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\n")
	return s
}

// Min is the smallest sample per operation: under exact time, the one that no
// interrupt fell into.
func (b *Bench) Min() float64 {
	lo := b.NS[0]
	for _, n := range b.NS {
		lo = min(lo, n)
	}
	return float64(lo) / float64(b.Ops)
}

// fifth is the sample per operation that a fifth of all are below: like Min, but that a few
// samples without an interrupt that all others have do not count.
func (b *Bench) fifth() float64 {
	return float64(slices.Sorted(slices.Values(b.NS))[len(b.NS)/5]) / float64(b.Ops)
}

// tick is the resolution of the guest's clock in nanoseconds: the frequency of
// QEMU's timer on each ISA.
var tick = map[string]float64{"amd64": 1, "arm64": 16, "riscv64": 100}

// Resolution is what a figure of n operations in a sample is known to, in nanoseconds:
// the sample and what is subtracted begin and end at ticks.
func Resolution(arch string, n int) float64 { return 2 * tick[arch] / float64(n) }

// Added is how many instructions more than base an operation of with takes, by the smallest
// samples. Both were rounded to the guest clock's tick, so the difference is only known
// to two ticks a sample; as instructions are whole, it is rounded to the whole
// number when one lies within that resolution, and the second result says so; where it is half an
// instruction or more, one always would, and none is. Where none does, one run may have had a sample of a kind that the other had not, and they are compared
// a fifth further up.
func Added(arch string, base, with *Bench) (insns float64, exact bool) {
	res := Resolution(arch, int(min(base.Ops, with.Ops)))
	smallest := with.Min() - base.Min()
	for _, d := range []float64{smallest, with.fifth() - base.fifth()} {
		if whole := math.Round(d); res < 0.5 && math.Abs(d-whole) <= res {
			return whole + 0, true // of a tick less, -0 is made: results would print it so
		}
	}
	return smallest, false
}
