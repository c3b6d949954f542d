package scenarios

import (
	"fmt"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/lab/report"
)

// Classes of drawn instructions, each with figures of its own. What a count could be
// wrong by differs: one rep instruction is as many executions to the emulator as it
// has iterations, and what faults runs twice.
const (
	handledClass = "exception" // faults are handled by an entry of the exception table
	repClass     = "rep"       // a string instruction that repeats itself
	memoryClass  = "memory"    // may fault to the decoder, and does not: the kernel would die of it
	otherClass   = "other"
	moduleClass  = "modules" // in a module's code, whatever it is
)

// drawnClasses are all of them and where they occur.
var drawnClasses = []struct {
	name string
	on   []string
}{
	{handledClass, []string{"amd64", "arm64", "riscv64"}},
	{repClass, []string{"amd64"}},
	{memoryClass, []string{"amd64", "arm64", "riscv64"}},
	{otherClass, []string{"amd64", "arm64", "riscv64"}},
	{moduleClass, []string{"amd64", "arm64", "riscv64"}},
}

// firstShare is the part of the points that rare classes may have, each: of what was
// executed they are a hundredth or less, so they are drawn first.
const firstShare = 10

var drawnFirst = []string{handledClass, repClass, moduleClass}

// classify says of which class the instruction at an offset from the text's start is.
func classify(text *ktext.Text, off uint64) (string, error) {
	lo, _ := text.Bounds()
	a := lo + isa.Addr(off)
	code := make([]byte, text.Arch.MaxLen)
	if err := text.Read(a, code); err != nil {
		return "", err
	}
	i := text.Arch.Decode(code, a)
	f, _ := text.Locate(a)
	r, reserved, err := text.Reserved(f, a, i.End())
	switch {
	case err != nil:
		return "", err
	case reserved && r.Class == ktext.Exception:
		return handledClass, nil
	case i.Traits&isa.Repeats != 0:
		return repClass, nil
	case i.Traits&isa.MayFault != 0:
		return memoryClass, nil
	}
	return otherClass, nil
}

// tally is what became of the points of one class in one guest.
type tally struct {
	spliced, refused int
	arrivals, seen   uint64 // seen: executions in the guest of which they were drawn
	wrong            []string
}

// classes files the tallies of a guest and says what must hold for each class.
func (t *T) classes(guest string, all map[string]*tally) {
	for _, c := range drawnClasses {
		if !contains(c.on, t.Arch) {
			continue
		}
		n := all[c.name]
		if n == nil {
			n = &tally{}
		}
		what := fmt.Sprintf("%s: points of the class %s", guest, c.name)
		t.equal(what+" whose counter is not what was seen outside", n.wrong, []string(nil))
		metric := func(name string, v int) {
			t.Metrics["oracle."+guest+"."+c.name+"."+name] = report.Metric{Value: float64(v), Unit: "points", N: 1}
		}
		metric("refused", n.refused)
		if c.name == handledClass && t.Arch == "riscv64" {
			// There most are too near each other.
			t.atLeast(what+", spliced or refused", float64(n.spliced+n.refused), 1)
			metric("points", n.spliced)
			continue
		}
		t.atLeast(what, float64(n.spliced), 1)
		metric("points", n.spliced)
		t.count("oracle."+guest+"."+c.name+".arrivals", n.arrivals)
		if c.name == moduleClass { // which else runs for the load alone: it may not have
			t.atLeast(what+", arrivals", float64(n.arrivals), executedOften)
		}
		if c.name == repClass {
			t.count("oracle."+guest+"."+c.name+".iterations", n.seen)
		}
	}
}
