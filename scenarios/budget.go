package scenarios

import (
	"embed"
	"fmt"
	"maps"
	"strconv"
	"strings"
)

// Budgets are what counting every system call may cost, one file for each ISA: of the
// operations of lmbench, and of those of Squid's that are named for it.

//go:embed budgets/*.txt
var budgets embed.FS

// allowance is a line of a budget. What is not asserted is below 0.
type allowance struct {
	ratio float64 // at most, spliced to bare
	added float64 // at most, in the operation's unit
	times float64 // at least, what kprobes add to what splices do
	// apart is by how much it may be another in two guests for where their kernels have put
	// their data, in the operation's unit.
	apart float64
}

type allowances struct {
	ops     map[string]allowance
	geomean float64 // at most, of the ratios
	times   float64 // at least, of what the geometric means are above 1, of operations whose added cost is asserted
}

// ofSquid begins the names of Squid's operations.
const ofSquid = "Squid/"

// suite leaves the operations of Squid, or those of lmbench.
func (b allowances) suite(squid bool) allowances {
	b.ops = maps.Clone(b.ops)
	maps.DeleteFunc(b.ops, func(name string, _ allowance) bool { return strings.HasPrefix(name, ofSquid) != squid })
	return b
}

func (t *T) allowances() allowances {
	text, err := budgets.ReadFile("budgets/" + t.Arch + ".txt")
	if err == nil {
		var b allowances
		if b, err = readBudget(string(text)); err == nil {
			return b
		}
	}
	panic(err) // of a file in this program
}

// readBudget reads lines of an operation and what it may cost, or of a figure of all.
// Behind # are comments; "-" is not asserted.
func readBudget(text string) (allowances, error) {
	b := allowances{ops: map[string]allowance{}}
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		v, err := figures(f[1:])
		switch {
		case err != nil:
			return b, fmt.Errorf("budget: %q: %w", line, err)
		case len(v) == 1 && f[0] == "geomean":
			b.geomean = v[0]
		case len(v) == 1 && f[0] == "times":
			b.times = v[0]
		case len(v) == 4 && v[0] >= 1 && v[3] >= 0 && b.ops[f[0]] == allowance{}:
			b.ops[f[0]] = allowance{v[0], v[1], v[2], v[3]}
		default:
			return b, fmt.Errorf("budget: %q: want an operation, once, with ratio, added, times and apart, or a figure of all", line)
		}
	}
	if b.geomean < 1 || b.times < 1 {
		return b, fmt.Errorf("budget: no figures of all operations")
	}
	return b, nil
}

// figures reads numbers, and -1 for what is not asserted.
func figures(words []string) (out []float64, err error) {
	for _, w := range words {
		v := -1.0
		if w != "-" {
			if v, err = strconv.ParseFloat(w, 64); err != nil {
				return nil, err
			}
		}
		out = append(out, v)
	}
	return out, nil
}

// over says which operations cost more than they may, or less than anything can.
func (b allowances) over(ops []probedOp) []string {
	out := []string{}
	say := func(o probedOp, format string, args ...any) {
		out = append(out, o.name+": "+fmt.Sprintf(format, args...))
	}
	for _, o := range ops {
		a := b.ops[o.name]
		added := o.spliced - o.bare
		loose := a.apart + o.known
		if ratio := o.spliced / o.bare; ratio > a.ratio {
			say(o, "%.4f x bare, at most %.4f", ratio, a.ratio)
		}
		if a.added >= 0 && added-loose > a.added {
			say(o, "%.2f %s added, at most %.2f", added, o.unit, a.added)
		}
		if a.added >= 0 && added+loose < 0 {
			say(o, "%.2f %s added, less than nothing", added, o.unit)
		}
		if a.times > 0 && o.kprobed > 0 && o.kprobed-o.bare < a.times*(added-loose) {
			say(o, "kprobes add %.1f times as much, at least %.1f", (o.kprobed-o.bare)/added, a.times)
		}
		if a.times > 0 && o.kprobed > 0 && added-loose <= 0 {
			say(o, "%.2f %s added, no more than differs by itself: not to be compared with kprobes", added, o.unit)
		}
	}
	return out
}

// steady are operations whose added cost is asserted: those that take the same each time.
func (b allowances) steady(ops []probedOp) (out []probedOp) {
	for _, o := range ops {
		if b.ops[o.name].added >= 0 {
			out = append(out, o)
		}
	}
	return out
}

// unmatched are operations without an allowance, and the other way round.
func (b allowances) unmatched(ops []probedOp) []string {
	out, have := []string{}, map[string]bool{}
	for _, o := range ops {
		have[o.name] = true
		if _, ok := b.ops[o.name]; !ok {
			out = append(out, o.name)
		}
	}
	for name := range b.ops {
		if !have[name] {
			out = append(out, name)
		}
	}
	return out
}
