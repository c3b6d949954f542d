package report

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// Bench renders the metrics of runs in the format of Go benchmarks, so that
// plain benchstat reads them: golang.org/x/perf/benchfmt describes it. A
// metric a.b of scenario s is the benchmark BenchmarkS/a/b.
//
// Under exact time two runs agree to the instruction, so units are declared
// exact, and benchstat warns of any variation instead of averaging it away. Of several
// runs, they are declared once, by what all of them say; each run sets all of the keys, since a key
// holds until it is set again.
func Bench(runs ...*Results) []byte {
	var b bytes.Buffer
	for i, r := range runs {
		if i > 0 {
			b.WriteByte('\n')
		}
		writeKeys(&b, r)
		if i == 0 {
			writeUnits(&b, runs)
		}
		for _, s := range r.Scenarios {
			for _, name := range sorted(s.Metrics) {
				writeMetric(&b, benchName(s.Name, name), s.Metrics[name])
			}
		}
	}
	return b.Bytes()
}

func writeKeys(b *bytes.Buffer, r *Results) {
	for _, kv := range []struct{ key, value string }{
		{"kernel", r.Kernel},
		{"qemu", r.QEMU},
		{"seed", strconv.FormatUint(r.Seed, 10)},
		{"arch", r.Arch},
		{"time", r.Time},
	} {
		fmt.Fprintf(b, "%s: %s\n", kv.key, strings.Join(strings.Fields(Clean(kv.value)), " "))
	}
	b.WriteByte('\n')
}

// writeMetric writes a line for each sample, so that benchstat finds the spread
// by itself, or one for all.
func writeMetric(b *bytes.Buffer, name string, m Metric) {
	n, values := 1, m.Samples
	if len(values) == 0 {
		n, values = max(1, m.N), []float64{m.Value}
	}
	for _, v := range values {
		fmt.Fprintf(b, "%s %d %s %s\n", name, n, strconv.FormatFloat(v, 'g', -1, 64), benchUnit(m.Unit))
	}
}

// writeUnits declares each unit once. benchstat keeps one direction per unit:
// where metrics of one unit disagree, none is given.
func writeUnits(b *bytes.Buffer, runs []*Results) {
	better, exact := map[string]map[Better]bool{}, true
	for _, r := range runs {
		exact = exact && r.Time == "exact"
		for _, s := range r.Scenarios {
			for _, m := range s.Metrics {
				u := benchUnit(m.Unit)
				if better[u] == nil {
					better[u] = map[Better]bool{}
				}
				better[u][m.Better] = true
			}
		}
	}
	for _, u := range sorted(better) {
		var keys []string
		if exact {
			keys = append(keys, "assume=exact")
		}
		for _, dir := range []Better{Lower, Higher} {
			if len(better[u]) == 1 && better[u][dir] {
				keys = append(keys, "better="+string(dir))
			}
		}
		if len(keys) > 0 {
			fmt.Fprintf(b, "Unit %s %s\n", u, strings.Join(keys, " "))
		}
	}
}

// benchUnit: a benchmark line has no figure without a unit.
func benchUnit(unit string) string {
	if unit == "" {
		return "count"
	}
	return unit
}

func benchName(scenario, metric string) string {
	parts := append([]string{scenario}, strings.Split(metric, ".")...)
	for i, p := range parts {
		parts[i] = benchPart(p)
	}
	first := []rune(parts[0])
	first[0] = unicode.ToUpper(first[0])
	parts[0] = string(first)
	return "Benchmark" + strings.Join(parts, "/")
}

// benchPart keeps letters, digits and inner hyphens. A hyphen before digits at
// the end would be read as GOMAXPROCS.
func benchPart(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' {
			return r
		}
		return '_'
	}, s)
	if i := strings.LastIndexByte(s, '-'); i >= 0 {
		if _, err := strconv.Atoi(s[i+1:]); err == nil {
			s = s[:i] + "_" + s[i+1:]
		}
	}
	return s
}
