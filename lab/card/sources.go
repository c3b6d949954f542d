package card

import (
	"regexp"
	"slices"
	"strings"
)

// Source is which line of the kernel's source a place is of, function+offset, or module:function+offset; empty: nobody knows.
// returned says that the place is where a call returns to: it is the call that is meant.
type Source func(place string, returned bool) string

// place is how kernels and the lab write one, with the function's size and module behind it.
var place = regexp.MustCompile(`\b([A-Za-z_][\w.]*\+0x[0-9a-f]+)(?:/0x[0-9a-f]+)?(?: \[(\w+)\])?`)

// asked is a place with its module in front.
func asked(function, module string) string {
	if module == "" {
		return function
	}
	return module + ":" + function
}

// standing is what a kernel's console has in front of the place where a CPU stands (amd64; arm64 and
// riscv64; of warnings, before and since Linux 6.19), and behind it where it is the first of a list of
// those where calls return to (arm64, since Linux 6.10).
var standing = regexp.MustCompile(`(RIP: [0-9a-f]+:|\be?pc : |WARNING: .*\bat (\S+:\d+ )?)$`)

const standingBehind = " (P)"

// Tell adds lines of the source to all places that the card has.
func (c *Card) Tell(of Source) {
	for n := range c.CPUs {
		cpu := &c.CPUs[n]
		cpu.Source = named(of, cpu.Symbol, false)
		for k := range cpu.Backtrace {
			cpu.Backtrace[k].Source = named(of, cpu.Backtrace[k].Symbol, true)
		}
	}
	c.Console = slices.Clone(c.Console) // what it is from stays as it was said
	for k, line := range c.Console {
		c.Console[k] = told(of, line)
	}
}

// inPatch is what symbols of patches begin with; what they are of is a point, maybe a module's.
const inPatch = "(patch of "

// named is the line of a symbol.
func named(of Source, symbol string, returned bool) string {
	if strings.HasPrefix(symbol, inPatch) {
		return ""
	}
	if m := place.FindStringSubmatch(symbol); m != nil {
		return of(asked(m[1], m[2]), returned)
	}
	return ""
}

// told is a line of the console with those of the source behind it.
func told(of Source, line string) string {
	var all []string
	for _, m := range place.FindAllStringSubmatchIndex(line, -1) {
		module := ""
		if m[4] >= 0 {
			module = line[m[4]:m[5]]
		}
		stands := standing.MatchString(line[:m[0]]) || strings.HasPrefix(line[m[1]:], standingBehind)
		if s := of(asked(line[m[2]:m[3]], module), !stands); s != "" {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return line
	}
	return line + "  # " + strings.Join(all, "; ")
}
