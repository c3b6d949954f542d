package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/plan"
	"kerninst/agent/splice"
	"kerninst/agent/wire"
)

// Clones that grow, as JIFL's code cache does, by what is known to be executed: each site that leads
// out of one notes where to, and what was noted is part of the next, which takes the former's place.
// That is made when the daemon is told to, in no kernel context; until then the originals run.

// growing is a clone that grows.
type growing struct {
	spec      *wire.Cloning
	functions []ktext.Func  // the first is entered
	points    []*wire.Point // that are asked for by themselves
	links     map[isa.Addr][]isa.Addr
	never     map[isa.Addr]*plan.Refusal
	leftOut   []ktext.Func     // of never, in the order in which they were found
	notes     map[isa.Addr]int // words of the entry's cells, from 0, by the sites
	counts    map[isa.Addr]int // likewise, by the functions that are counted
	uses      map[isa.Addr]uint64
	entry     *plan.Plan
	rounds    int
	takes     int  // bytes, if it was refused for them
	full      bool // something is left out for what it would take
	grown     bool // no site notes anything any more
}

// usualClone is the most that a clone has unless it is said, in bytes.
const usualClone = 256 << 10

// grows begins clones that grow.
func (d *Daemon) grows(specs []*wire.Cloning) (out []*growing, err error) {
	for _, c := range specs {
		g := &growing{spec: c, links: map[isa.Addr][]isa.Addr{}, never: map[isa.Addr]*plan.Refusal{}}
		for _, name := range append([]string{c.Entry}, c.Functions...) {
			f, err := d.text.Function(c.Module, name)
			if err != nil {
				return nil, noSuch(c, err)
			}
			g.functions = append(g.functions, f)
		}
		for _, l := range c.Links {
			if err := d.link(g, l); err != nil {
				return nil, noSuch(c, err)
			}
		}
		g.grown = c.Still
		out = append(out, g)
	}
	return out, nil
}

// link takes over what is known of where a site leads.
func (d *Daemon) link(g *growing, l *wire.Led) error {
	at, err := d.text.Function("", l.Function)
	if err != nil {
		return err
	}
	for _, name := range l.To {
		to, err := d.text.Function("", name)
		if err != nil {
			return err
		}
		g.links[at.Addr+isa.Addr(l.Offset)] = append(g.links[at.Addr+isa.Addr(l.Offset)], to.Addr)
	}
	return nil
}

// led says of sites where they lead.
func (d *Daemon) led(sites map[isa.Addr][]isa.Addr) (out []*wire.Led) {
	for _, a := range slices.Sorted(maps.Keys(sites)) {
		f, _ := d.text.Locate(a) // it was copied
		l := &wire.Led{Function: d.text.Known(f).Known(), Offset: uint64(a - f.Addr)}
		for _, to := range sites[a] {
			if t, ok := d.text.Locate(to); ok && t.Addr == to {
				l.To = append(l.To, d.text.Known(t).Known())
			}
		}
		out = append(out, l)
	}
	return out
}

// ledOut is where the sites of a clone have led out of it.
func (d *Daemon) ledOut(g *growing, live []*splice.Live) (map[isa.Addr][]isa.Addr, error) {
	out := map[isa.Addr][]isa.Addr{}
	k := slices.IndexFunc(live, func(l *splice.Live) bool { return l.Plan == g.entry })
	if k < 0 {
		return out, nil
	}
	for _, x := range g.entry.Clone.Insns {
		word, noted := g.notes[x.Insn.Addr]
		if !noted {
			continue
		}
		to := isa.Addr(live[k].Beside(word))
		if x.Call != 0 && to != 0 {
			var err error
			if to, err = d.leadsNow(x.Call); err != nil {
				return nil, err
			}
		}
		if f, ok := d.text.Locate(to); ok && f.Addr == to && g.never[to] == nil {
			out[x.Insn.Addr] = []isa.Addr{to}
		}
	}
	return out, nil
}

// adopt gives the points that are to be in growing clones to these, and leaves the others.
func (d *Daemon) adopt(grow []*growing, all []*wire.Point) (others []*wire.Point) {
	for _, p := range all {
		k := -1
		if f, err := d.entered(cmp.Or(p.Within, ktext.Func{Module: p.Module, Name: plan.Hot(p.Function)}.String())); cloned(p) && err == nil {
			k = slices.IndexFunc(grow, func(g *growing) bool { return g.functions[0].Addr == f.Addr })
		}
		if k < 0 {
			others = append(others, p)
			continue
		}
		grow[k].points = append(grow[k].points, p)
	}
	return others
}

// pointsOf are what growing clones are asked for, by themselves and by rules. Rules say nothing of a function whose blocks
// are not known.
func (d *Daemon) pointsOf(grow []*growing) (out []*wire.Point) {
	for _, g := range grow {
		out = append(out, g.points...)
		for _, f := range g.functions {
			if g.never[f.Addr] != nil {
				continue
			}
			for _, rule := range g.spec.Rules {
				one := wire.Point{Module: f.Module, Function: d.text.Known(f).Known(), Mechanism: plan.Clone.String(), Within: d.text.Known(g.functions[0]).String(), Actions: rule.Actions}
				if rule.Each == wire.Each_ITSELF {
					out = append(out, &wire.Point{Module: one.Module, Function: one.Function, Mechanism: one.Mechanism, Within: one.Within, Actions: one.Actions, Entry: true})
					continue
				}
				for _, half := range plan.HalvesOf(d.text, f, d.known) {
					offsets, r := d.offsets(&wire.Point{Module: f.Module, Each: rule.Each}, half)
					if r != nil {
						continue
					}
					for _, off := range offsets {
						out = append(out, &wire.Point{Module: one.Module, Function: half, Offset: uint64(off), Mechanism: one.Mechanism, Within: one.Within, Actions: one.Actions})
					}
				}
			}
		}
	}
	return out
}

// asked adds what a clone that grows is asked to be.
func (g *growing) asked(of *plan.Cloning) {
	of.Functions = slices.Clone(g.functions)
	of.Links, of.Never, of.Notes, of.Uses = g.links, g.never, !g.grown, !g.grown
	of.Blind, of.Called, of.Stay = g.spec.NoLiveness, g.spec.NoInlining, g.spec.NoResuming
	of.Most = g.most()
}

// most is how many bytes it may have.
func (g *growing) most() int { return cmp.Or(int(g.spec.Most), usualClone) }

// made notes what became of it: what was left out is not asked for again.
func (g *growing) made(c *plan.Cloned) {
	g.entry, g.notes, g.counts = c.Entry, c.Notes, c.Uses
	g.functions = slices.DeleteFunc(g.functions, func(f ktext.Func) bool {
		r := c.Left[f.Addr]
		if r != nil {
			g.never[f.Addr], g.leftOut = r, append(g.leftOut, f)
		}
		return r != nil
	})
}

// grow runs a program, and has the clones of a step grow, until nothing is new.
func (d *Daemon) grow(ctx context.Context, w *wire.Grow, out *stream, res *wire.Result) error {
	s := d.sets[w.Splice]
	if s == nil || len(s.growing) == 0 {
		return fmt.Errorf("step %q has no live clones that grow", w.Splice)
	}
	for round := uint32(0); round < w.Rounds; round++ {
		if err := d.run(ctx, w.Run, out, res); err != nil {
			return err
		}
		var news []*growing
		before := formers(s.growing)
		for _, g := range s.growing {
			more, err := d.learnOf(g, s.spliced)
			if err != nil {
				return err
			}
			if more {
				news = append(news, g)
			}
		}
		if len(news) == 0 {
			break
		}
		if err := d.remake(ctx, w.Splice, news, before); err != nil {
			return err
		}
		s = d.sets[w.Splice]
	}
	before := formers(s.growing)
	for _, g := range s.growing {
		g.grown = true
		g.hottestFirst()
	}
	if err := d.remake(ctx, w.Splice, s.growing, before); err != nil {
		return err
	}
	res.Clones, res.PatchMemory = d.sets[w.Splice].said, d.patchMemory()
	return nil
}

func formers(all []*growing) map[*growing]former {
	out := map[*growing]former{}
	for _, g := range all {
		out[g] = g.now()
	}
	return out
}

// learnOf reads what the sites of a clone have noted. It reports whether that is anything new.
func (d *Daemon) learnOf(g *growing, live []*splice.Live) (news bool, err error) {
	g.rounds++
	out, err := d.ledOut(g, live)
	g.learnUses(d.arch, live, out)
	for _, site := range slices.Sorted(maps.Keys(out)) {
		to := out[site][0]
		f, _ := d.text.Locate(to)
		if g.links[site] == nil || !slices.Contains(g.links[site], to) {
			g.links[site] = append(g.links[site], to)
			news = true
		}
		if !slices.ContainsFunc(g.functions, func(h ktext.Func) bool { return h.Addr == to }) {
			g.functions = append(g.functions, f)
			news = true
		}
	}
	return news, err
}

// learnUses reads how often each function of a clone was entered since it was made, and of those that its sites
// led out to, once at least, how often that was counted.
func (g *growing) learnUses(arch *isa.Arch, live []*splice.Live, out map[isa.Addr][]isa.Addr) {
	k := slices.IndexFunc(live, func(l *splice.Live) bool { return l.Plan == g.entry })
	if k < 0 {
		return
	}
	g.uses = map[isa.Addr]uint64{}
	for f, word := range g.counts {
		g.uses[f] = live[k].CountedBeside(arch, word)
	}
	for site, to := range out {
		if _, copied := g.counts[to[0]]; !copied {
			g.uses[to[0]] += max(live[k].Beside(g.notes[site]+1), 1)
		}
	}
}

// hottestFirst has sites compare first with what was entered most: each that it is not takes another comparison.
func (g *growing) hottestFirst() {
	for _, all := range g.links {
		slices.SortStableFunc(all, func(a, b isa.Addr) int { return cmp.Compare(g.uses[b], g.uses[a]) })
	}
}

// leadsNow is where a static call's trampoline leads; 0: nowhere.
func (d *Daemon) leadsNow(trampoline isa.Addr) (isa.Addr, error) {
	code := make([]byte, longest)
	if err := d.text.Read(trampoline, code); err != nil {
		return 0, err
	}
	if i := d.arch.Decode(code, trampoline); i.Flow == isa.FlowJump {
		return i.Target, nil
	}
	return 0, nil
}

// former is what a clone was made of before it grew.
type former struct {
	functions []ktext.Func
	links     map[isa.Addr][]isa.Addr
	never     map[isa.Addr]*plan.Refusal
	leftOut   []ktext.Func
	grown     bool
}

func (g *growing) now() former {
	return former{slices.Clone(g.functions), maps.Clone(g.links), maps.Clone(g.never), slices.Clone(g.leftOut), g.grown}
}

func (g *growing) back(f former) {
	g.functions, g.links, g.never, g.leftOut, g.grown = f.functions, f.links, f.never, f.leftOut, f.grown
}

// counted is what the points of a step have counted, and had when counting began.
type counted struct{ words, base map[pointKey][]uint64 }

// pointKey is the same of a point and of the one that takes its place: the n-th there.
type pointKey struct {
	module, function string
	offset           uint64
	within           isa.Addr
	n                int
}

// keysOf tells points in their order.
func keysOf() func(p *plan.Plan) pointKey {
	times := map[pointKey]int{}
	return func(p *plan.Plan) pointKey {
		k := pointKey{p.Module, p.Symbol, uint64(p.Asked()), p.In.Point, 0}
		n := times[k]
		times[k]++
		k.n = n
		return k
	}
}

// remake plans some clones of a step anew, and has them take the former's place. What their points
// have counted goes on; who comes by in between is in the originals, and not counted, nor is who sleeps in
// the former when he wakes. If they cannot be had, they are what they were before, and the error says why.
func (d *Daemon) remake(ctx context.Context, name string, some []*growing, before map[*growing]former) error {
	old := d.sets[name]
	if len(old.entries) != len(old.growing) || slices.ContainsFunc(old.live, func(l *splice.Live) bool { return l.Plan.In == nil }) {
		return fmt.Errorf("step %q has splices, or other clones, beside those that grow: ask for them in another step", name)
	}
	going := old.of(some)
	kept := old.of(slices.DeleteFunc(slices.Clone(old.growing), func(g *growing) bool { return slices.Contains(some, g) }))
	if err := d.splicer.Undo(going.spliced); err != nil {
		return err
	}
	if d.sets[name] = kept; len(kept.growing) == 0 {
		delete(d.sets, name)
	}
	had := counted{map[pointKey][]uint64{}, map[pointKey][]uint64{}}
	of := keysOf()
	for _, l := range going.live { // nobody comes there any more
		k := of(l.Plan)
		had.words[k], had.base[k] = l.Words(), d.base[l]
		delete(d.base, l)
	}
	d.known = d.learnt.Again()
	defer func() { d.known, d.learnt = nil, d.known }()
	made, err := d.anew(ctx, some, had)
	if err == nil {
		d.sets[name] = whole(old.growing, kept, made)
		return nil
	}
	for _, g := range some {
		g.back(before[g])
	}
	made, again := d.anew(ctx, some, had)
	if again != nil {
		return fmt.Errorf("the clones of step %q that have grown are gone, they cannot be had again: %w", name, errors.Join(err, again))
	}
	d.sets[name] = whole(old.growing, kept, made)
	return fmt.Errorf("the clones of step %q have not grown any more: %w", name, err)
}

// of is the part of a step that some of its clones are, with their points. All of them grow.
func (s *set) of(some []*growing) *set {
	out := &set{}
	for k, g := range s.growing {
		if !slices.Contains(some, g) {
			continue
		}
		out.entries, out.spliced = append(out.entries, s.entries[k]), append(out.spliced, s.spliced[k])
		out.said, out.growing = append(out.said, s.said[k]), append(out.growing, g)
	}
	for k, l := range s.live {
		if slices.Contains(out.entries, l.Plan.In) {
			out.specs, out.actions = append(out.specs, s.specs[k]), append(out.actions, s.actions[k])
			out.points, out.live = append(out.points, s.points[k]), append(out.live, l)
		}
	}
	return out
}

// whole is a step of clones that are each in one of its parts, in their order.
func whole(order []*growing, parts ...*set) *set {
	out := &set{}
	for _, g := range order {
		for _, p := range parts {
			one := p.of([]*growing{g})
			out.entries, out.spliced = append(out.entries, one.entries...), append(out.spliced, one.spliced...)
			out.said, out.growing = append(out.said, one.said...), append(out.growing, one.growing...)
			out.specs, out.actions = append(out.specs, one.specs...), append(out.actions, one.actions...)
			out.points, out.live = append(out.points, one.points...), append(out.live, one.live...)
		}
	}
	return out
}

// anew makes clones of a step, with what their points have.
func (d *Daemon) anew(ctx context.Context, grow []*growing, had counted) (*set, error) {
	made, plans, err := d.replan(ctx, grow)
	if err != nil {
		return nil, err
	}
	cells, keys := make([][]uint64, len(plans)), make([]pointKey, len(plans))
	of := keysOf()
	for k, p := range plans {
		keys[k] = of(p)
		if cells[k] = had.words[keys[k]]; len(cells[k]) != p.Snippet.Words() {
			cells[k] = p.Snippet.Starts()
		}
	}
	for _, e := range made.entries {
		cells = append(cells, e.Snippet.Starts())
	}
	all, err := d.splicer.ApplyFrom(append(slices.Clip(plans), made.entries...), cells)
	if err != nil {
		return nil, err
	}
	made.live, made.spliced = all[:len(plans)], all[len(plans):]
	d.counts = nil
	for k, l := range made.live {
		if d.base[l] = had.base[keys[k]]; len(d.base[l]) != l.Plan.Snippet.Words() {
			d.base[l] = l.Words()
		}
	}
	return made, nil
}

// replan plans clones. What fits, as most do that have grown by little, is not tried before.
func (d *Daemon) replan(ctx context.Context, grow []*growing) (*set, []*plan.Plan, error) {
	made, plans, err := d.planAgain(ctx, grow)
	if !errors.Is(err, errFull) {
		return made, plans, err
	}
	if err := d.fit(ctx, grow); err != nil {
		return nil, nil, err
	}
	return d.planAgain(ctx, grow)
}

// errFull says that a clone takes more than it may, or than there is.
var errFull = errors.New("too large")

func (d *Daemon) planAgain(ctx context.Context, grow []*growing) (*set, []*plan.Plan, error) {
	made := &set{}
	var before plan.Set
	all := d.pointsOf(grow)
	ones, results := make([]*plan.Plan, len(all)), make([]*wire.PointResult, len(all))
	c, err := d.planClones(ctx, all, grow, &before, ones, results)
	made.clones = c
	var plans []*plan.Plan
	for k, one := range ones {
		if one != nil {
			plans = append(plans, one)
			made.add(all[k], one, results[k])
			d.rings.known(made.points[len(made.points)-1], results[k].Tags)
		}
	}
	if k := slices.IndexFunc(c.said, func(s *wire.Clone) bool { return s.Refusal != nil }); err == nil && k >= 0 {
		if err = errors.New(c.said[k].Refusal.Detail); full(c.said[k], plan.MemoryFull, plan.SitesFull, plan.PatchTooLong) {
			err = fmt.Errorf("%w: %w", errFull, err)
		}
	}
	if err != nil {
		d.splicer.Release(append(plans, c.entries...)...)
		return nil, nil, err
	}
	made.grew()
	return made, plans, nil
}

// full reports whether a clone is refused for one of some reasons.
func full(c *wire.Clone, reasons ...plan.Reason) bool {
	return c.Refusal != nil && slices.ContainsFunc(reasons, func(r plan.Reason) bool { return c.Refusal.Reason == r.String() })
}

// fit leaves functions out of clones that take more than they may, or have more sites than are left, or take all together more than there is: until none does, or
// has but the one that is entered. What else a clone is refused for is said when it is planned. Which take more than
// they may is found without the others, for to plan them all takes long.
func (d *Daemon) fit(ctx context.Context, grow []*growing) error {
	for some := grow; len(some) > 0; {
		said, err := d.tried(ctx, some)
		if err != nil {
			return err
		}
		var long []*growing
		for k, g := range some {
			why := plan.MemoryFull
			if full(said[k], plan.SitesFull) {
				why = plan.SitesFull
			}
			if full(said[k], plan.PatchTooLong, plan.SitesFull) && len(g.functions) > 1 {
				g.shorten(d.pathsOf(g), &plan.Refusal{Reason: why, Detail: said[k].Refusal.Detail})
				long = append(long, g)
			}
		}
		if len(long) > 0 {
			some = long
			continue
		}
		if len(some) < len(grow) { // each may be as large, and all together?
			some = grow
			continue
		}
		k := slices.IndexFunc(said, func(s *wire.Clone) bool { return full(s, plan.MemoryFull) })
		if k < 0 || !d.more() && !d.share(grow, said, &plan.Refusal{Reason: plan.MemoryFull, Detail: said[k].Refusal.Detail}) {
			return nil
		}
	}
	return nil
}

// tried is what is said of clones that are planned to see what they take, of memory that goes back.
func (d *Daemon) tried(ctx context.Context, some []*growing) ([]*wire.Clone, error) {
	d.trial = d.splicer.Heap().Copy()
	defer func() { d.trial = nil }()
	all := d.pointsOf(some)
	c, err := d.planClones(ctx, all, some, &plan.Set{}, make([]*plan.Plan, len(all)), make([]*wire.PointResult, len(all)))
	if err != nil {
		return nil, err
	}
	return c.said[:len(some)], nil
}

// cacheSize is the most code that the areas have of which one is made for clones, in bytes.
const cacheSize = 4 << 20

// more gets patch memory for clones, where they may be in any: on amd64 what has sites is in the module's text.
func (d *Daemon) more() bool {
	if !d.info.Sited() {
		return false
	}
	all := areaSize
	for _, a := range d.splicer.Heap().Areas() {
		if !a.Annex() && !a.Page() {
			all += a.CodeLen
		}
	}
	return all <= cacheSize && d.splicer.Reserve(d.info.TextStart, d.info.TextEnd, areaSize) == nil
}

// share leaves functions out of the largest clones, until all together may take what there is, and reports whether any
// was. That is what those have that fit, and less than the smallest other more: half of that is taken for it.
func (d *Daemon) share(grow []*growing, said []*wire.Clone, why *plan.Refusal) (some bool) {
	fit, functions, sizes := 0, 0, make([]int, len(grow))
	for k, g := range grow {
		if said[k].Refusal == nil {
			sizes[k] = int(said[k].Bytes)
			fit, functions = fit+sizes[k], functions+len(g.functions)
		}
	}
	all, room := fit, math.MaxInt
	for k, g := range grow {
		if said[k].Refusal != nil {
			sizes[k] = len(g.functions) * max(fit, 1) / max(functions, 1)
			all, room = all+sizes[k], min(room, fit+sizes[k]/2)
		}
	}
	for {
		most := -1
		for k, g := range grow {
			if len(g.functions) > 1 && (most < 0 || sizes[k] > sizes[most]) {
				most = k
			}
		}
		if most < 0 {
			return some
		}
		g, n := grow[most], len(grow[most].functions)
		order := g.coldest(d.pathsOf(g))
		g.flush(order[:max(len(order)/flushed, 1)], why)
		left := sizes[most] * len(g.functions) / n
		all, sizes[most], some = all-sizes[most]+left, left, true
		if all <= room {
			return true
		}
	}
}

// flushed is the part of a clone's functions that are left out at a time, so that others have room.
const flushed = 16

// pathsOf is how often each function of a clone, or any that it was seen to lead to, was entered since the clone
// was made. What is not known is as if it were entered always.
func (d *Daemon) pathsOf(g *growing) map[isa.Addr]uint64 {
	out := map[isa.Addr]uint64{}
	for _, f := range g.functions {
		out[f.Addr] = math.MaxUint64
		if n, counted := g.uses[f.Addr]; counted || g.uses == nil {
			out[f.Addr] = n
		}
	}
	leads := map[isa.Addr][]isa.Addr{}
	for site, all := range g.links {
		if from, ok := d.wholeOf(site); ok {
			leads[from.Addr] = append(leads[from.Addr], all...)
		}
	}
	for changed := true; changed; {
		changed = false
		for from, all := range leads {
			for _, to := range all {
				if n, in := out[from]; in && out[to] > n {
					out[from], changed = out[to], true
				}
			}
		}
	}
	return out
}

// wholeOf is the function that an address is in, or that whose cold half it is in.
func (d *Daemon) wholeOf(a isa.Addr) (ktext.Func, bool) {
	f, ok := d.text.Locate(a)
	if !ok {
		return f, false
	}
	f, err := plan.WholeOf(d.text, f, d.known)
	return f, err == nil
}

// coldest are its functions but the one that is entered: first the paths that were used least, and of those the latest.
func (g *growing) coldest(paths map[isa.Addr]uint64) []ktext.Func {
	order := slices.Clone(g.functions[1:])
	slices.Reverse(order)
	slices.SortStableFunc(order, func(a, b ktext.Func) int { return cmp.Compare(paths[a.Addr], paths[b.Addr]) })
	return order
}

// shorten leaves out of a clone that takes too much what that is, if all its functions take as much for each of
// their bytes.
func (g *growing) shorten(paths map[isa.Addr]uint64, why *plan.Refusal) {
	all, out := 0, 0
	for _, f := range g.functions {
		all += int(f.Size)
	}
	order, n := g.coldest(paths), 0
	least := 1
	if g.takes == 0 { // what it takes could not be said
		least = max(len(order)/flushed, 1)
	}
	for ; n < len(order) && (n < least || (all-out)*g.takes > all*g.most()); n++ {
		out += int(order[n].Size)
	}
	g.flush(order[:n], why)
}

// flush leaves functions out.
func (g *growing) flush(some []ktext.Func, why *plan.Refusal) {
	for _, f := range some {
		g.never[f.Addr], g.leftOut, g.full = why, append(g.leftOut, f), true
	}
	g.functions = slices.DeleteFunc(g.functions, func(f ktext.Func) bool { return g.never[f.Addr] != nil })
}
