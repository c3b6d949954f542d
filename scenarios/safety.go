package scenarios

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/wire"
	"kerninst/lab/report"
	"kerninst/lab/status"
	"kerninst/lab/vm"
)

// safety: places at which the kernel's own fast probe, an optimised kprobe, breaks the
// kernel, and a splice does not. Before it writes a jump of five bytes over several
// instructions, the kernel looks for jumps to between them in the function that has the
// symbol (arch/x86/kernel/kprobes/opt.c, can_optimize). Compilers put cold halves of
// functions elsewhere, under symbols of their own, and those jump back. Such places are
// found here in the text of the kernel as it runs; one of them is known to be reached by
// a long parameter, through its cold half.
//
// Other ISAs have no such probes. There it is what the kernel's probes are let into, the
// middle of an exclusive sequence, which may then never store (riscv64), and what they are
// kept from: functions' entries (riscv64, whose ftrace has them).
func safeties() []Scenario {
	return []Scenario{{
		Name: "safety", Title: "where the kernel's own probes break it, or are refused, splices do not break it, and count right",
		Labels: []string{"proof"}, Guests: safetyGuests, Check: checkSafety,
	}}
}

// What comes to param_set_copystring and back to its middle by its cold half.
const (
	lastWords = "string doesn't fit in" // of that half, before it jumps back
	trigger   = "cd /sys/module/firmware_class/parameters; echo /lib >path; head -c 300 /dev/zero | tr '\\0' x >path; true"
)

// jumpBytes is what an optimised kprobe overwrites.
const jumpBytes = 5

// half is a place behind which, within jumpBytes, a jump from another symbol leads.
type half struct {
	f   ktext.Func
	off isa.Off
}

func (h half) String() string { return fmt.Sprintf("%s+%#x", h.f.Name, uint64(h.off)) }

// eachFunction visits the functions of the kernel's own text, decoded. Instructions are
// the visitor's until it returns.
func eachFunction(x *ktext.Text, visit func(f ktext.Func, insns []isa.Insn)) (err error) {
	lo, hi := x.Bounds()
	var insns []isa.Insn
	x.Functions("", func(f ktext.Func) bool {
		var code []byte
		if f.Addr < lo || f.End() > hi {
			return true
		}
		if code, err = x.Code(f); err != nil {
			return false
		}
		insns = insns[:0]
		for k := 0; k < len(code); k += insns[len(insns)-1].Len {
			insns = append(insns, x.Arch.Decode(code[k:], f.Addr+isa.Addr(k)))
		}
		visit(f, insns)
		return true
	})
	return err
}

// alone reports whether a function's name is its own.
func alone(x *ktext.Text, f ktext.Func) bool {
	g, err := x.Function("", f.Name)
	return err == nil && g == f
}

// halves finds those places: what an optimised kprobe would overwrite is of one function,
// which it does not leave, and nothing in that function jumps to between its instructions.
func halves(x *ktext.Text) (out []half, err error) {
	from := map[isa.Addr][]isa.Addr{} // of direct jumps, by target: the functions that they are in
	err = eachFunction(x, func(f ktext.Func, insns []isa.Insn) {
		for _, i := range insns {
			if i.Flow == isa.FlowJump || i.Flow == isa.FlowCond {
				from[i.Target] = append(from[i.Target], f.Addr)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	err = eachFunction(x, func(f ktext.Func, insns []isa.Insn) {
		for k := range insns {
			if fromElsewhere(x, f, insns[k:], from) && alone(x, f) {
				out = append(out, half{f, isa.Off(insns[k].Addr - f.Addr)})
			}
		}
	})
	return out, err
}

// fromElsewhere reports whether what an optimised kprobe at the first of the instructions
// overwrites is entered in its middle, and only from other symbols.
func fromElsewhere(x *ktext.Text, f ktext.Func, insns []isa.Insn, from map[isa.Addr][]isa.Addr) bool {
	elsewhere, n := false, 0
	for k, i := range insns {
		if n >= jumpBytes {
			break
		}
		if _, reserved, err := x.Reserved(f, i.Addr, i.End()); reserved || err != nil || i.Flow != isa.FlowNone {
			return false
		}
		if k > 0 && slices.Contains(from[i.Addr], f.Addr) {
			return false
		}
		elsewhere = elsewhere || k > 0 && len(from[i.Addr]) > 0
		n += i.Len
	}
	return elsewhere && n >= jumpBytes
}

// optimise puts kprobes at places, and says how many of them the kernel has optimised.
const optimise = `cd /sys/kernel/tracing; n=0
while read place; do echo "p:safety/p$n $place" >>kprobe_events && n=$((n+1)); done
echo registered $n
echo 1 >events/safety/enable
sleep 5
echo optimised $(grep -c OPTIMIZED /sys/kernel/debug/kprobes/list)`

// manyWays is a function that each open of a file comes by, and leaves by several ways.
const manyWays = "do_sys_openat2"

// come puts kprobes at places, as far as they may be there, says how many are optimised, and
// takes them away when files were opened.
const come = `cd /sys/kernel/tracing; n=0
while read place; do { echo "p:later/p$n $place" >>kprobe_events; } 2>/dev/null && n=$((n+1)); done
echo registered $n
echo 1 >events/later/enable
sleep 5
echo optimised $(grep -c OPTIMIZED /sys/kernel/debug/kprobes/list)
cat /proc/version /nowhere >/dev/null 2>&1
echo 0 >events/later/enable; echo >kprobe_events`

// later splices all jumps of a function before kprobes come to it. As the kernel does not see
// them any more, it would let its jumps be written over what they lead to.
func later(found *Answer) (*wire.Job, error) {
	var jumps []*wire.Point
	var all []string
	err := eachFunction(found.Text, func(f ktext.Func, insns []isa.Insn) {
		for _, i := range insns {
			h := half{f, isa.Off(i.Addr - f.Addr)}
			if f.Name != manyWays || i.Flow == isa.FlowTrap {
				continue
			}
			all = append(all, h.String())
			if i.Flow == isa.FlowCond || i.Flow == isa.FlowJump {
				jumps = append(jumps, at(f.Name, uint64(h.off)))
			}
		}
	})
	kprobes := func(name string) *wire.Step { return shell(name, "echo '"+strings.Join(all, "\n")+"' | ( "+come+" )") }
	return job(snapshot("before", ""), skipping("jumps", jumps), kprobes("meanwhile"), unsplice("jumps"), kprobes("behind"), snapshot("after", "before")), err
}

func safetyGuests(arch string) []Guest {
	if arch != "amd64" {
		return barredGuests()
	}
	kprobes := func(found *Answer) (*wire.Job, error) {
		places, err := halves(found.Text)
		if err != nil {
			return nil, err
		}
		var lines []string
		for _, h := range apart(places) {
			lines = append(lines, h.String())
		}
		return job(shell("optimise", "echo '"+strings.Join(lines, "\n")+"' | ( "+optimise+" )"), shell("trigger", trigger)), nil
	}
	splices := func(found *Answer) (*wire.Job, error) {
		places, err := halves(found.Text)
		if err != nil {
			return nil, err
		}
		var points []*wire.Point
		for _, h := range places {
			points = append(points, at(h.f.Name, uint64(h.off)))
		}
		return job(snapshot("before", ""), announced(skipping("splice", points)), safetyLoad(trigger),
			read("count"), unsplice("splice"), snapshot("after", "before")), nil
	}
	return []Guest{
		{Name: "found", CPUs: 1, Time: vm.Exact, Text: true, Job: job(shell("trigger", trigger))},
		{Name: "kprobes", CPUs: 1, Time: vm.Exact, After: "found", Make: kprobes, Ends: status.Crashed},
		{Name: "splices", CPUs: 1, Time: vm.Exact, Oracle: true, After: "found", Make: splices},
		{Name: "later", CPUs: 1, Time: vm.Exact, After: "found", Make: later},
	}
}

// safetyLoad runs a command, and what reaches much of a kernel, while counters and observer
// count the same.
func safetyLoad(first string) *wire.Step {
	s := shell("load", first+"; "+fmt.Sprintf(oracleLoad, 1))
	s.GetRun().Metered = true
	return s
}

// apart leaves out places within the bytes of the one before: two optimised probes cannot
// overlap.
func apart(places []half) (out []half) {
	for _, h := range places {
		if n := len(out); n == 0 || out[n-1].f != h.f || h.off >= out[n-1].off+2*jumpBytes {
			out = append(out, h)
		}
	}
	return out
}

// fewestHalves and fewestSpliced are how many there have to be for the scenario to show
// anything: the kernel that it was first run on has 289 by another count.
const fewestHalves, fewestSpliced = 100, 50

func checkSafety(t *T) {
	if t.Arch != "amd64" {
		checkBarred(t)
		return
	}
	places, err := halves(t.Guests["found"].Text)
	t.equal("the kernel's text is read", err == nil, true)
	t.atLeast("places that are entered from another symbol", float64(len(places)), fewestHalves)
	t.file("safety.places", len(places))

	t.broke(places)

	c := t.coverage("safety", "splices")
	t.atLeast("of those, that were executed", float64(c.executed), 1)
	spliced := 0
	for _, p := range t.done("splices", "splice").Points {
		if p.Refusal == nil {
			spliced++
		}
	}
	t.atLeast("places that are spliced", float64(spliced), fewestSpliced)
	t.equal("with splices, the load came to its end", len(t.ran("splices", "load")), 1)

	t.atLeast("jumps that were spliced before kprobes came", float64(len(t.made("later", "jumps"))), 5)
	meanwhile, behind := t.saidBy("later", "meanwhile"), t.saidBy("later", "behind")
	// Behind a pun, none may come.
	t.atLeast("kprobes that came", float64(meanwhile["registered"]), 10)
	t.atLeast("kprobes that came when the splices were gone", float64(behind["registered"]), 20)
	t.equal("of those, that the kernel has optimised", meanwhile["optimised"], 0)
	t.atLeast("the same, when the splices are gone", float64(behind["optimised"]), 1)
	t.equal("ranges of text that differ afterwards", len(t.done("later", "after").Text.Differing), 0)
}

// broke: with the kernel's own probes, the kernel broke where a cold half jumps back. Of one
// since 7.0 it may be when the first are optimised, for places are in what that itself runs.
func (t *T) broke(places []half) {
	crash := t.Guests["kprobes"].Crash
	if t.Guests["kprobes"].Results["optimise"] == nil && !t.before(7, 0) {
		t.equal("the kernel broke in a function with such a place while it optimised probes",
			slices.ContainsFunc(places, func(h half) bool { return strings.Contains(crash, "RIP: 0010:"+h.f.Name+"+") }), true)
		return
	}
	said := t.said("optimise")
	t.file("safety.kprobes", said["registered"])
	t.file("safety.optimised", said["optimised"])
	t.atLeast("places at which the kernel has optimised a probe", float64(said["optimised"]), fewestHalves)
	// What it broke of depends on what the jump's last bytes are as instructions, which differ
	// by where the kernel is: often the stack's pointer is lost, and the function with it.
	t.equal("with the kernel's own probes, the kernel broke where the cold half jumps back",
		strings.Contains(crash, lastWords), true)
}

// file files a number of places.
func (t *T) file(name string, n int) {
	t.Metrics[name] = report.Metric{Value: float64(n), Unit: "points", N: 1}
}

// said is the numbers that a program said of the kernel's probes, by name.
func (t *T) said(step string) map[string]int { return t.saidBy("kprobes", step) }

func (t *T) saidBy(guest, step string) map[string]int {
	out := map[string]int{}
	for _, line := range strings.Split(string(t.ran(guest, step)[0]), "\n") {
		if f := strings.Fields(line); len(f) == 2 {
			out[f[0]], _ = strconv.Atoi(f[1])
		}
	}
	return out
}

// barredPlaces is how many places of each kind are looked at.
const barredPlaces = 50

// sequences are places between an exclusive load and its store, and entries are behind
// functions' ftrace sites, where the function begins: some of each, from all over the text.
func sequences(x *ktext.Text) (between, entries []half, err error) {
	err = eachFunction(x, func(f ktext.Func, insns []isa.Insn) {
		open := false
		for k, i := range insns {
			if open && i.Traits&isa.Exclusive == 0 && alone(x, f) {
				between = append(between, half{f, isa.Off(i.Addr - f.Addr)})
			}
			if i.Traits&isa.Exclusive != 0 {
				open = i.Traits&isa.Opens != 0 && closes(insns[k+1:])
			}
		}
		code, e := x.Code(f)
		if _, reserved, _ := x.Reserved(f, f.Addr, f.Addr+1); e == nil && !reserved && x.FtraceSite(f.Addr, code) > 0 && alone(x, f) {
			entries = append(entries, half{f, 0})
		}
	})
	return some(between), some(entries), err
}

// closes reports whether a store ends the sequence before anything jumps out of it.
func closes(insns []isa.Insn) bool {
	for _, i := range insns[:min(8, len(insns))] {
		switch {
		case i.Traits&isa.Exclusive != 0:
			return i.Traits&isa.Opens == 0
		case i.Flow.Ends():
			return false
		}
	}
	return false
}

// some are barredPlaces of many, evenly.
func some(all []half) (out []half) {
	for k := range min(barredPlaces, len(all)) {
		out = append(out, all[k*len(all)/min(barredPlaces, len(all))])
	}
	return out
}

// attempt asks for kprobes, which are never armed, and says how many there were.
const attempt = `cd /sys/kernel/tracing; n=0
while read place; do { echo "p:safety/p$n $place" >>kprobe_events; } 2>/dev/null && n=$((n+1)); done
echo accepted $n`

func barredGuests() []Guest {
	after := func(made func(between, entries []half) *wire.Job) func(*Answer) (*wire.Job, error) {
		return func(found *Answer) (*wire.Job, error) {
			between, entries, err := sequences(found.Text)
			return made(between, entries), err
		}
	}
	ask := func(name string, places []half) *wire.Step {
		var lines []string
		for _, h := range places {
			lines = append(lines, h.String())
		}
		return shell(name, "echo '"+strings.Join(lines, "\n")+"' | ( "+attempt+" )")
	}
	return []Guest{
		{Name: "found", CPUs: 1, Time: vm.Exact, Text: true, Job: job(shell("true", "true"))},
		{Name: "kprobes", CPUs: 1, Time: vm.Exact, After: "found", Make: after(func(between, entries []half) *wire.Job {
			return job(ask("between", between), ask("entries", entries))
		})},
		{Name: "splices", CPUs: 1, Time: vm.Exact, Oracle: true, After: "found", Make: after(func(between, entries []half) *wire.Job {
			var in, begin []*wire.Point
			for _, h := range between {
				in = append(in, at(h.f.Name, uint64(h.off)))
			}
			for _, h := range entries {
				begin = append(begin, &wire.Point{Function: h.f.Name, Entry: true})
			}
			return job(snapshot("before", ""), skipping("between", in), unsplice("between"), announced(skipping("splice", begin)),
				safetyLoad("true"), read("count"), unsplice("splice"), snapshot("after", "before"))
		})},
	}
}

func checkBarred(t *T) {
	between, entries, err := sequences(t.Guests["found"].Text)
	t.equal("the kernel's text is read", err == nil, true)
	t.equal("places that are looked at", []int{len(between), len(entries)}, []int{barredPlaces, barredPlaces})
	accepted, taken := t.said("between")["accepted"], t.said("entries")["accepted"]
	t.file("safety.kprobes.between", accepted)
	t.file("safety.kprobes.entries", taken)
	inside := []string{}
	for _, p := range t.done("splices", "between").Points {
		if p.Refusal == nil && p.RunsAt == 0 {
			inside = append(inside, p.Spec)
		}
	}
	t.equal("exclusive sequences in which there is a splice", inside, []string{})
	t.coverage("safety", "splices")
	n := 0
	for _, p := range t.done("splices", "splice").Points {
		if p.Refusal == nil {
			n++
		}
	}
	t.file("safety.splices.entries", n)
	t.atLeast("functions that have a splice at their entry", float64(n), barredPlaces*8/10)
	if t.Arch == "riscv64" {
		t.atLeast("places in exclusive sequences that the kernel puts a probe in", float64(accepted), 1)
		if t.before(7, 0) { // since then ftrace puts them there
			t.equal("functions at whose entry the kernel puts a probe", taken, 0)
		}
	}
}
