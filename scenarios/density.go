package scenarios

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/onsi/gomega"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/ktext"
	"kerninst/agent/plan"
	"kerninst/agent/wire"
	"kerninst/lab/measure"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// density: a counter in every basic block of a range of the kernel's text, all of them at once,
// while programs run to the right results. What is counted has to be a flow: who comes to a block
// comes from one before it and goes to one behind (see conserved). The graph is the host's, of a
// dump that the guest has sent before anything was spliced.
//
// Ranges. The linker puts .text of one object file behind that of the one before, in the order in
// which the kernel's top Kbuild names directories: certs/, mm/, fs/, ipc/. So mm/ and fs/ are all
// functions from the first of mm/filemap.o up to the first of ipc/, names included that several
// files have. What the compiler has put into .text.unlikely (cold halves) or .noinstr.text lies
// elsewhere, and is in the whole kernel's range only.
func densities() []Scenario {
	one := func(name, title, label string, d density) Scenario {
		return Scenario{Name: name, Title: title, Labels: []string{label}, Guests: d.guests, Check: d.check}
	}
	return []Scenario{
		one("density-slice", "a counter in each basic block of some hundred functions of fs/, and what is counted is a flow", "counts", density{of: statToDcache, least: 1000, sums: 100, patience: 10 * time.Minute}),
		one("density", "a counter in each basic block of mm/ and fs/ while LMbench's operations and Squid run", "proof", density{of: mmAndFs, squid: true, least: 100_000, sums: 3000, memory: 3072, patience: 2 * time.Hour}),
		one("density-kernel", "a counter in each basic block of the kernel while LMbench's operations and Squid run", "proof", density{of: wholeText, squid: true, least: 590_000, sums: 8000, memory: 12288, patience: 12 * time.Hour}),
	}
}

// density is what is counted at once, and beside what.
type density struct {
	of       func(arch string) [2]string // the functions that it begins and ends at
	squid    bool                        // LMbench's operations and Squid run
	least    int                         // blocks outside reserved text: fewer are not those of the range that is meant
	sums     int                         // of flow, that anybody has come by
	memory   int                         // MiB; 0: the lab's default
	patience time.Duration               // of the guest
}

// filemapBegin is the first function of mm/filemap.o, of Debian's 6.12.107 on each ISA.
const filemapBegin = "__traceiter_mm_filemap_delete_from_page_cache"

// statToDcache are fs/stat.o, exec.o, pipe.o, namei.o and what lies between that and fs/inode.o.
func statToDcache(string) [2]string { return [2]string{"generic_fillattr", "get_nr_dirty_inodes"} }

// mmAndFs ends where ipc/ begins: ipc/compat.o, where there is one, or else ipc/util.o.
func mmAndFs(arch string) [2]string {
	return [2]string{filemapBegin, map[string]string{"amd64": "get_compat_ipc64_perm", "arm64": "get_compat_ipc64_perm", "riscv64": "sysvipc_proc_release"}[arch]}
}

func wholeText(string) [2]string { return [2]string{"_stext", "_etext"} }

// fewestCounted is the part of the blocks outside reserved text that have to be counted at once.
const fewestCounted = 0.95

// fewestAsked is the part of the blocks that the host sees in the range that the guest has to have asked for: what either takes for
// padding, or for nobody's, the other may not.
const fewestAsked = 0.95

// densityWork are operations of guest/bench, before and while everything is counted.
var densityWork = []string{"open", "stat", "read", "write", "pipe", "msg"}

func (d density) guests(arch string) []Guest {
	bounds := d.of(arch)
	g := Guest{Name: "guest", CPUs: 1, Time: vm.Exact}
	if d.squid {
		g = squidGuest("guest")
	}
	g.Index, g.Memory, g.RunTimeout = true, d.memory, d.patience
	work := func(when string) (out []*wire.Step) {
		for _, op := range densityWork {
			out = append(out, run(op+" "+when, benchProgram, op, "48", "5"))
		}
		return out
	}
	every := splice("splice", &wire.Point{Function: bounds[0], Until: bounds[1], Each: wire.Each_BLOCK})
	every.GetSplice().SkipRefused, every.GetSplice().Brief = true, true
	steps := []*wire.Step{textDump("dump"), snapshot("before", "")}
	if d.squid {
		steps = append(steps, squidBegins(5)...)
	}
	steps = append(append(append(steps, work("bare")...), crowd("crowd"), every), work("counted")...)
	if d.squid {
		steps = append(steps, run("lmbench", lmbenchProgram, "2"), squidWork("drive", 5), squidPart("stop", "stop"))
	}
	g.Job = job(append(steps, crowd("crowd behind"), readStill("counts"), unsplice("splice"), snapshot("after", "before"))...)
	return []Guest{g}
}

func (d density) check(t *T) {
	const g = "guest"
	flow, err := t.flowOf(g)
	t.g.Expect(err).NotTo(gomega.HaveOccurred(), "the flow of control in the guest's kernel")
	metric := func(name string, v float64, unit string) {
		t.Metrics["density."+name] = report.Metric{Value: v, Unit: unit, N: 1}
	}
	blocks, refused, reserved := 0, map[string]int{}, 0
	for _, p := range t.done(g, "splice").Points {
		n := 1
		if p.Refusal != nil && flow.whole(p) {
			n = flow.blocksOf(isa.Addr(p.Address))
		}
		blocks += n
		switch {
		case p.Refusal == nil:
			refused["by "+p.Mechanism] += n
		case p.Refusal.Reason == plan.ReservedText.String():
			reserved += n
		default:
			refused["refused "+p.Refusal.Reason] += n
		}
	}
	for why, n := range refused {
		metric(strings.ReplaceAll(why, " ", "-"), float64(n), "blocks")
	}
	counted := len(t.done(g, "counts").Addresses)
	metric("blocks", float64(blocks), "blocks")
	metric("reserved", float64(reserved), "blocks")
	metric("outside", float64(blocks-reserved), "blocks") // reserved text
	t.atLeast("blocks that are asked for outside reserved text", float64(blocks-reserved), float64(d.least))
	t.atLeast("part of the range's blocks that is asked for", float64(blocks)/float64(flow.blocksIn(t.done(g, "splice").Points)), fewestAsked)
	metric("counted", float64(counted), "blocks")
	metric("counted.of", 100*float64(counted)/float64(blocks-reserved), "%")
	t.densityCosts(g, counted, metric)
	t.equal("ranges of text that differ afterwards", len(t.done(g, "after").Text.Differing), 0)
	if d.squid {
		t.lmbenched(g)
		t.servedBy(g, 5)
	}
	came := 0
	for _, n := range flow.counts {
		if n > 0 {
			came++
		}
	}
	metric("came", float64(came), "blocks")
	t.checkFlow(flow, d.sums, metric)
	t.checkCalls(flow, t.crowded(g, "crowd", "crowd behind"), d.sums, metric)
	t.atLeast("part of the blocks outside reserved text that is counted", float64(counted)/float64(blocks-reserved), fewestCounted)
}

// lmbenched holds that LMbench's operations have all come to their end.
func (t *T) lmbenched(guest string) {
	suite, err := measure.ParseSuite(t.ran(guest, "lmbench")[0])
	t.noError("LMbench's operations", err)
	var names []string
	for _, o := range suite.Operations {
		names = append(names, o.Name)
	}
	t.equal("LMbench's operations", names, allOps())
}

// densityCosts files what it takes to count so many blocks, and what the same work takes with it.
func (t *T) densityCosts(guest string, counted int, metric func(string, float64, string)) {
	for _, op := range densityWork {
		bare, with := t.benches(guest, op+" bare")[0].NS, t.benches(guest, op+" counted")[0].NS
		metric(op+".times", float64(slices.Min(with))/float64(slices.Min(bare)), "x")
	}
	res := t.done(guest, "splice")
	for k, s := range res.Stages {
		metric(fmt.Sprintf("splice.%d.%s", k, strings.ReplaceAll(strings.ReplaceAll(s.Name, ",", ""), " ", "-")), float64(s.Ns)/float64(counted), "insns/point")
	}
	m := res.PatchMemory
	for name, n := range map[string]uint64{"areas": m.GetAreas(), "used": m.GetUsed(), "pages": m.GetPages()} {
		metric("memory."+name, float64(n), "bytes")
	}
}

// checkFlow holds counts against each other; and the check against itself, with one count
// that is one too high.
func (t *T) checkFlow(f *flow, least int, metric func(string, float64, string)) {
	sums := f.sums()
	wrong := f.broken(sums)
	moved, held := 0, map[cfg.Block]bool{}
	for _, s := range sums {
		if f.moved(s) {
			moved++
		}
		for _, b := range slices.Concat(s.from, s.to) {
			held[b] = true
		}
	}
	metric("flow.blocks", float64(len(held)), "blocks")
	metric("flow.sums", float64(len(sums)), "sums")
	metric("flow.sums.came", float64(moved), "sums")
	metric("flow.broken", float64(len(wrong)), "sums")
	t.atLeast("sums that control has come by", float64(moved), float64(least))
	t.equal(fmt.Sprintf("of %d sums, those that do not hold (%d, some of them)", len(sums), len(wrong)), wrong[:min(10, len(wrong))], []string{})
	k := slices.IndexFunc(sums, func(s sum) bool { return f.moved(s) && !slices.Contains(s.to, s.from[0]) })
	f.counts[sums[k].from[0]]++
	t.atLeast("sums that do not hold when one count is one too high", float64(len(f.broken(sums))), 1)
	f.counts[sums[k].from[0]]--
}

// flow is a kernel's graph with what was counted of its blocks.
type flow struct {
	g      *cfg.Graph
	preds  *cfg.Lists
	counts map[cfg.Block]uint64
	each   map[cfg.Block]int
	calls  bool // a block goes on behind what it calls: throughCalls
}

// graphOf takes a guest's dump.
func (t *T) graphOf(guest string) (*flow, error) {
	arch, err := all.Lookup(t.Arch)
	if err != nil {
		return nil, err
	}
	dump, err := ktext.ReadDump(t.Guests[guest].Dump)
	if err != nil {
		return nil, err
	}
	text, err := dump.Text(arch)
	if err != nil {
		return nil, err
	}
	g, err := cfg.Build(text, cfg.Options{Workers: 2})
	if err != nil {
		return nil, err
	}
	return &flow{g: g, preds: g.Preds(), counts: map[cfg.Block]uint64{}, each: map[cfg.Block]int{}}, nil
}

// flowOf takes a guest's dump, and its counts of blocks. A block that has two counters has none.
func (t *T) flowOf(guest string) (*flow, error) {
	f, err := t.graphOf(guest)
	if err != nil {
		return nil, err
	}
	res := t.done(guest, "counts")
	if len(res.Addresses) != len(res.Counts) {
		return nil, errors.New("not as many counts as addresses")
	}
	for k, a := range res.Addresses {
		b, ok := f.g.AtAddr(isa.Addr(a))
		if !ok {
			return nil, fmt.Errorf("no block is at %#x", a)
		}
		f.counts[b] = res.Counts[k]
		f.each[b]++
	}
	for b, n := range f.each {
		if n > 1 {
			delete(f.counts, b)
		}
	}
	return f, nil
}

// whole reports whether a refusal is of all of a function's blocks: it is at its begin, where a
// single block's would be at its first instruction behind ftrace's.
func (f *flow) whole(p *wire.PointResult) bool {
	return p.Mechanism == "" && slices.Contains([]string{plan.IndirectJump.String(), plan.Undecodable.String()}, p.Refusal.Reason)
}

// blocksOf counts the blocks of a function that something leads to; a call ends none.
func (f *flow) blocksOf(a isa.Addr) int {
	p, ok := f.g.Pos(a)
	if !ok {
		return 1
	}
	return max(f.led(f.g.FuncAt(p)), 1)
}

// led counts them by the function's index.
func (f *flow) led(function int) (n int) {
	lo, hi := f.g.FuncBlocks(function)
	for b := lo; b < hi; b++ {
		if f.g.Marks(b)&(cfg.Split|cfg.Data|cfg.Orphan) == 0 && f.g.Kind(b) != cfg.KindPad {
			n++
		}
	}
	return n
}

// blocksIn counts the blocks of all functions from the first of some points to the last.
func (f *flow) blocksIn(points []*wire.PointResult) (n int) {
	lo, hi := len(f.g.Entries()), -1
	for _, p := range points {
		if pos, ok := f.g.Pos(isa.Addr(p.Address)); ok {
			lo, hi = min(lo, f.g.FuncAt(pos)), max(hi, f.g.FuncAt(pos))
		}
	}
	for k := lo; k <= hi; k++ {
		n += f.led(k)
	}
	return n
}

// sum says that some blocks are come by as often as others are together.
type sum struct{ from, to []cfg.Block }

// moved reports whether anybody came by.
func (f *flow) moved(s sum) bool {
	return slices.ContainsFunc(s.from, func(b cfg.Block) bool { return f.counts[b] > 0 })
}

// passed reports whether who comes to a block that is counted has left it by one of its edges
// as soon as anybody else may look: it calls nothing, in which a task might sleep, and no
// instruction of it may fault to a fixup, trap or go where it is not known.
func (f *flow) passed(b cfg.Block) bool {
	k := f.g.Kind(b)
	return len(f.g.Extra(b)) == 0 && f.g.Marks(b)&(cfg.FaultSite|cfg.Unknown|cfg.Pinned) == 0 &&
		(k == cfg.KindFall || k == cfg.KindJump || k == cfg.KindCond)
}

// closed reports whether nobody comes to a block but from those that are seen to lead there.
func (f *flow) closed(b cfg.Block) bool {
	return f.g.Marks(b)&(cfg.Entry|cfg.Taken|cfg.Orphan|cfg.Split|cfg.Unknown|cfg.Data) == 0
}

// sums are all that node counts have to satisfy by Kirchhoff's law, without edges' counts: where
// some blocks lead to some others, and nobody else does, and nowhere else, they are come by as
// often as those. The least such sets are what edges join, taken as joining who goes with who
// comes. Only blocks that are counted are in any. Since all are read while every CPU stands still,
// and no task can be inside a block that calls nothing on a kernel that does not preempt itself,
// they hold exactly.
func (f *flow) sums() []sum { return f.sumsOf(f.passed) }

// sumsOf are those whose blocks who comes to them leaves in some way.
func (f *flow) sumsOf(left func(cfg.Block) bool) (out []sum) {
	seen := map[cfg.Block]bool{}
	for _, b := range slices.Sorted(maps.Keys(f.counts)) {
		if seen[b] || len(f.succ(b)) == 0 {
			continue
		}
		s := f.joined(b)
		for _, p := range s.from {
			seen[p] = true
		}
		// Who goes round a single block leaves no sum.
		if f.all(s.from, left) && f.all(s.to, f.closed) && !slices.Equal(s.from, s.to) {
			out = append(out, s)
		}
	}
	return out
}

// succ are the blocks that one leads to, and pred those that lead to one.
func (f *flow) succ(b cfg.Block) []cfg.Block {
	if f.calls {
		b = f.last(b)
	}
	return unique(f.g.Succ(b, nil))
}

func (f *flow) pred(b cfg.Block) []cfg.Block {
	list := f.preds.Of(b)
	if f.calls {
		list = slices.Clone(list)
		for k, p := range list {
			list[k] = f.head(p)
		}
	}
	return unique(list)
}

// joined are the blocks that lead to where one does, and to where those do, and all of these.
func (f *flow) joined(b cfg.Block) sum {
	s := sum{from: []cfg.Block{b}}
	in, came := map[cfg.Block]bool{b: true}, map[cfg.Block]bool{}
	for k := 0; k < len(s.from); k++ {
		for _, to := range f.succ(s.from[k]) {
			if came[to] {
				continue
			}
			came[to] = true
			s.to = append(s.to, to)
			for _, p := range f.pred(to) {
				if !in[p] {
					in[p] = true
					s.from = append(s.from, p)
				}
			}
		}
	}
	slices.Sort(s.from)
	slices.Sort(s.to)
	return s
}

// all reports whether all of some blocks are counted and as is said.
func (f *flow) all(list []cfg.Block, is func(cfg.Block) bool) bool {
	return !slices.ContainsFunc(list, func(b cfg.Block) bool { _, ok := f.counts[b]; return !ok || !is(b) })
}

func unique(list []cfg.Block) []cfg.Block {
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}

// broken names the sums that do not hold.
func (f *flow) broken(sums []sum) []string {
	out := []string{}
	for _, s := range sums {
		if from, to := f.total(s.from), f.total(s.to); from != to {
			out = append(out, fmt.Sprintf("%d blocks, the first %v (%d), go to %d, the first %v (%d)", len(s.from), f.g.Start(s.from[0]), from, len(s.to), f.g.Start(s.to[0]), to))
		}
	}
	return out
}

func (f *flow) total(list []cfg.Block) (n uint64) {
	for _, b := range list {
		n += f.counts[b]
	}
	return n
}
