package measure

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// Operation is one row of what guest/lmbench prints.
type Operation struct {
	Name    string
	N       int       // operations in a sample
	NS      float64   // nanoseconds of one, overhead subtracted: the shortest sample
	MBps    float64   // 10^6 bytes a second; 0: it moves none
	Samples []float64 // nanoseconds of one operation, in the order of measuring
}

// Spread is by how many percent the two shortest samples differ.
func (o *Operation) Spread() float64 {
	s := slices.Sorted(slices.Values(o.Samples))
	return 100 * (s[1] - s[0]) / s[0]
}

// suiteLine is all that guest/lmbench prints: configuration, samples, results.
var suiteLine = regexp.MustCompile(`^([a-z]+: [!-~]+|# [!-~]+( -?[0-9.]+){2,}|Benchmark[A-Z][!-~]*-[0-9]+ [0-9]+( -?[0-9.]+ (ns/op|MB/s))+)$`)

// Suite is the output of guest/lmbench.
type Suite struct {
	Operations []*Operation // in the order in which they were measured
	// Control are the samples of doing nothing, in nanoseconds: of what has to be
	// left when overhead is subtracted from overhead.
	Control []float64
}

// control is what guest/lmbench calls doing nothing.
const control = "Control"

// ParseSuite reads the output of guest/lmbench, which is in the format of Go's
// benchmarks. Nothing else may be in it: others read the same text.
func ParseSuite(out []byte) (*Suite, error) {
	samples, err := suiteSamples(out)
	if err != nil {
		return nil, fmt.Errorf("benchmark output: %w", err)
	}
	all := &Suite{Control: samples[control]}
	for r := benchfmt.NewReader(bytes.NewReader(out), "guest"); r.Scan(); {
		switch rec := r.Result().(type) {
		case *benchfmt.Result:
			o, err := operation(rec, samples)
			if err != nil {
				return nil, fmt.Errorf("benchmark output: %s: %w", rec.Name, err)
			}
			all.Operations = append(all.Operations, o)
		case *benchfmt.SyntaxError:
			return nil, fmt.Errorf("benchmark output: %w", rec)
		}
	}
	return all, nil
}

// suiteSamples are those of each operation, by name.
func suiteSamples(out []byte) (map[string][]float64, error) {
	samples := map[string][]float64{}
	for _, line := range strings.Split(strings.TrimSuffix(string(out), "\n"), "\n") {
		if !suiteLine.MatchString(line) {
			return nil, fmt.Errorf("unexpected line %q", line)
		}
		f := strings.Fields(line)
		if f[0] != "#" {
			continue
		}
		for _, text := range f[2:] {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return nil, fmt.Errorf("line %q: %w", line, err)
			}
			samples[f[1]] = append(samples[f[1]], v)
		}
	}
	return samples, nil
}

// operation joins a result with its samples, of which it has to be the shortest.
func operation(r *benchfmt.Result, samples map[string][]float64) (*Operation, error) {
	name := r.Name.String()
	o := &Operation{Name: name[:strings.LastIndexByte(name, '-')], N: r.Iters}
	o.Samples = samples[o.Name]
	for _, v := range r.Values {
		// benchfmt makes seconds and bytes of what was printed, and keeps that.
		switch v.OrigUnit {
		case "ns/op":
			o.NS = v.OrigValue
		case "MB/s":
			o.MBps = v.OrigValue
		}
	}
	if len(o.Samples) < 2 {
		return nil, fmt.Errorf("%d samples: want two or more", len(o.Samples))
	}
	if least := slices.Min(o.Samples); o.NS != least || least <= 0 {
		return nil, fmt.Errorf("%g ns/op: the shortest sample has %g", o.NS, least)
	}
	return o, nil
}
