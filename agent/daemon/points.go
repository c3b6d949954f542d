package daemon

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/kdev"
	"kerninst/agent/kpoke"
	"kerninst/agent/ktext"
	"kerninst/agent/place"
	"kerninst/agent/plan"
	"kerninst/agent/splice"
	"kerninst/agent/wire"
)

// areaSize is the code of an area that patches lie in, in bytes: room for
// 8192 patches, and the most that arm64 allows is 1 MiB.
const areaSize = 512 << 10

// firstArea is that of the first one. On amd64 it is in the module's text, where what may fault is, and static keys: in
// clones, which would not have more of that.
func (d *Daemon) firstArea() int {
	if d.arch.Name == "amd64" {
		return kdev.ArenaLen
	}
	return areaSize
}

// set is the splices of one step.
type set struct {
	specs   []string
	actions [][]action
	points  []*wire.Point       // as they can be planned again
	results []*wire.PointResult // of the points, until they are described
	live    []*splice.Live
	clones  // that points are in
}

// prepare makes the splicer and gets patch memory that all of the kernel's
// text reaches.
func (d *Daemon) prepare() error {
	d.poker = kpoke.New(d.dev, d.info, d.stages.point)
	d.splicer = splice.New(d.arch, d.poker)
	d.probed = d.splicer.Probed
	if err := d.splicer.Reserve(d.info.TextStart, d.info.TextEnd, d.firstArea()); err != nil {
		return err
	}
	d.splicer.ReservePages(place.PageRoom(d.arch, d.info.TextStart))
	d.splicer.Heap().LimitSites(place.Sites{Faults: kdev.AnnexFaults, Keys: kdev.MaxKeys})
	err := d.splicer.ReserveAnnex()
	if err != nil && !errors.Is(err, unix.ENOSPC) {
		return err
	}
	if err != nil { // what may fault is refused then
		d.phases = append(d.phases, fmt.Sprintf("no instruction that may fault is spliced: %v", err))
	}
	// Cells that all CPUs share will do.
	if err := d.splicer.ReserveLocal(); err != nil {
		d.phases = append(d.phases, fmt.Sprintf("counters are shared by all CPUs: %v", err))
	}
	return nil
}

// request is what a point's plan is asked for with.
// before are the plans of the same batch: they will be live together.
func (d *Daemon) request(p *wire.Point, before *plan.Set) (plan.Request, error) {
	taken := func(lo, hi isa.Addr) bool { return before.Touches(lo, hi) || d.splicer.Taken(lo, hi) }
	asked := func(a isa.Addr) bool { return before.Asked(a) || d.splicer.Asked(a) }
	copied := func(a isa.Addr) *plan.Plan { return cmp.Or(before.Copied(a), d.splicer.Copied(a)) }
	heap := d.splicer.Heap()
	if d.trial != nil {
		heap = d.trial
	}
	r := plan.Request{
		Module: p.Module, Function: p.Function, Offset: isa.Off(p.Offset), NoSpill: p.Cheap, Jumps: p.Jumps, Apart: p.Apart,
		Features: gen.Features{LSE: d.info.LSE(), NoWindows: d.info.NoWindows(), Preempted: d.info.Preempted(), NoTraps: !d.info.Traps(), Keys: d.info.Keys()}, Loads: d.info.Loads,
		Facts: d.facts, Heap: heap, Own: d.siteable(), Padding: d.padding, Known: d.known, Taken: taken, Probed: d.probed, Copied: copied, Asked: asked,
		Spare: d.asked.in, Wanted: func(lo, hi isa.Addr) bool { return d.asked.has(lo, hi, before.Asked) }, Dry: d.dry, Terse: true,
		OnStack: d.onStack,
		Still:   covers(p), // what is moved away is dearer, for as long as nobody comes by
	}
	var err error
	var actions []action
	if r.Snippet, actions, err = compound(p.Actions); err == nil {
		err = r.Snippet.Resolve(d.symbol)
	}
	if err == nil {
		err = d.bind(p, r.Snippet, actions)
	}
	if err != nil {
		return r, err
	}
	if p.Mechanism != "" {
		m, ok := plan.ParseMechanism(p.Mechanism)
		if !ok {
			return r, fmt.Errorf("mechanism %q is not known", p.Mechanism)
		}
		r.Mechanism = m
	}
	for _, name := range p.Without {
		m, ok := plan.ParseMechanism(name)
		if !ok {
			return r, fmt.Errorf("mechanism %q is not known", name)
		}
		r.Without = append(r.Without, m)
	}
	return r, nil
}

// siteable is the patch memory where code may have sites.
func (d *Daemon) siteable() place.Window {
	if d.info.Sited() {
		return place.Window{Hi: ^isa.Addr(0)}
	}
	return d.splicer.Own()
}

// plan plans one point, with the result to report. With block, what only counts may stand
// elsewhere, and a trap may do where nothing else does; without, it is not the last word.
func (d *Daemon) plan(p *wire.Point, before *plan.Set, block bool) (*plan.Plan, *wire.PointResult, error) {
	if p.SameAs != "" {
		known := d.resolved[p.SameAs]
		if len(known) == 0 {
			return nil, &wire.PointResult{}, fmt.Errorf("step %q resolved no point", p.SameAs)
		}
		f, ok := d.text.Locate(known[0])
		if !ok {
			return nil, &wire.PointResult{}, fmt.Errorf("no function at %v", known[0])
		}
		p = &wire.Point{Module: f.Module, Function: d.text.Known(f).Known(), Offset: uint64(known[0]-f.Addr) + p.Offset, Actions: p.Actions, Apart: p.Apart}
	}
	if cloned(p) { // alone
		results := make([]*wire.PointResult, 1)
		ones := make([]*plan.Plan, 1)
		_, err := d.planClones(context.Background(), []*wire.Point{p}, nil, before, ones, results)
		return ones[0], results[0], err
	}
	find := plan.Point
	if p.Text > 0 {
		at := d.info.TextStart + isa.Addr(p.Text-1)
		f, ok := d.text.Locate(at)
		if !ok {
			return nil, &wire.PointResult{Address: uint64(at), Refusal: &wire.Refusal{Reason: "no such function", Detail: fmt.Sprintf("no symbol covers %v", at)}}, nil
		}
		p = &wire.Point{Module: f.Module, Function: f.Name, Offset: uint64(at - f.Addr), Each: p.Each, Mechanism: p.Mechanism, Without: p.Without, Cheap: p.Cheap, Actions: p.Actions, Apart: p.Apart}
		if p.Each != wire.Each_ITSELF {
			return nil, d.wholeRefused(p, f), nil
		}
		// By its address: functions may share a name.
		find = func(text *ktext.Text, req plan.Request) (*plan.Plan, *plan.Refusal) { return plan.At(text, f, req) }
	}
	res := result(p)
	if p.Module == kdev.ModuleName { // which the view of the kernel leaves out
		res.Refusal = &wire.Refusal{Reason: plan.ReservedText.String(), Detail: p.Module + " is the module that splices"}
		return nil, res, nil
	}
	if p.Each != wire.Each_ITSELF {
		if _, r := d.offsets(p, p.Function); r != nil {
			res.Refusal = refused(r)
			return nil, res, nil
		}
		return nil, res, fmt.Errorf("%s: %v were not listed", res.Spec, p.Each)
	}
	req, err := d.request(p, before)
	if err != nil {
		return nil, res, err
	}
	if res.Refusal = clockless(p.Function, req.Snippet); res.Refusal != nil {
		return nil, res, nil
	}
	if req.Block = block; !block && req.Mechanism != plan.Trap {
		req.Without = append(req.Without, plan.Trap)
	}
	switch {
	case p.Entry:
		find = plan.Entry
	case p.Search:
		find = plan.Search
	case p.Block != nil:
		find = endOf(p)
	}
	d.stages.enter(stagePlan)
	defer d.stages.enter("")
	made, refusal := find(d.text, req)
	if refusal == nil && made.Called && timing(p) {
		refusal = &plan.Refusal{Reason: plan.NoArgument, Detail: fmt.Sprintf("%s+%#x jumps to another function: the time inside ends there, and what is returned is known when that has come back; ask for one of the two", made.Symbol, uint64(made.Offset))}
		if !req.Dry {
			d.splicer.Release(made)
		}
	}
	if refusal == nil {
		d.stages.enter(stageForeign)
		if refusal, err = d.foreign(made); err != nil || refusal != nil {
			if !req.Dry {
				d.splicer.Release(made)
			}
		}
	}
	if err != nil {
		return nil, res, err
	}
	if refusal != nil {
		res.Refusal = refused(refusal)
		return nil, res, nil
	}
	return made, located(made, res), nil
}

// wholes are what stands in place of an offset where all that a function has are meant.
var wholes = map[wire.Each]string{wire.Each_INSTRUCTION: "", wire.Each_RETURN: "return", wire.Each_BLOCK: "block", wire.Each_CALL: "call"}

// result is what a point's begins with.
func result(p *wire.Point) *wire.PointResult {
	name, whole := wholes[p.Each]
	if !whole {
		name = fmt.Sprint(p.Offset)
	}
	return &wire.PointResult{Spec: fmt.Sprintf("kinst:%s:%s:%s", p.Module, p.Function, name), Symbol: p.Function, Offset: p.Offset}
}

// timing reports whether a point is where time inside a function, or a block, begins or ends.
func timing(p *wire.Point) bool {
	return slices.ContainsFunc(p.Actions, func(a *wire.Action) bool { return a.Timed != wire.Timed_UNTIMED })
}

func refused(r *plan.Refusal) *wire.Refusal {
	return &wire.Refusal{Reason: r.Reason.String(), Class: r.Class, Detail: r.Detail}
}

// located says in a result where a plan's point is, and what leads to its patch.
func located(p *plan.Plan, res *wire.PointResult) *wire.PointResult {
	res.Spec = fmt.Sprintf("kinst:%s:%s:%d", p.Module, p.Symbol, p.Offset)
	res.Offset, res.Address, res.WrittenAt = uint64(p.Offset), uint64(p.Asked()), uint64(p.Point)
	if p.For != 0 {
		res.RunsAt = uint64(p.At())
	}
	res.Mechanism, res.Called = p.Mechanism.String(), p.Called
	if p.In != nil {
		res.WrittenAt = uint64(p.Patch)
	}
	return res
}

// describe fills the rest of a result in from a plan, for people: not before the point
// counts, which need not wait for that. Bytes are those of whole displaced instructions:
// what is behind the jump stays.
func (d *Daemon) describe(p *plan.Plan, actions []*wire.Action, res *wire.PointResult) {
	res.OldBytes = append(bytes.Clone(p.Original), p.Old[min(len(p.Original), len(p.Old)):]...)
	res.NewBytes = append(bytes.Clone(p.New), res.OldBytes[len(p.New):]...)
	for _, t := range p.Passed {
		res.Passed = append(res.Passed, &wire.Refusal{Reason: t.Refusal.Reason.String(), Detail: t.Mechanism.String() + ": " + t.Refusal.Detail})
	}
	res.PatchAddress, res.PatchBytes = uint64(p.Patch), p.Code
	if p.Annex != nil {
		res.AnnexAddress, res.AnnexBytes = uint64(p.Annex.Addr), p.Annex.Code
	}
	res.Liveness = p.Liveness.String()
	res.Added, res.Spilled, res.Cell = uint32(p.Added), uint32(p.Spilled), "shared"
	if len(p.Locals) > 0 {
		res.Cell = "per-cpu"
	}
	if p.Board != nil {
		res.BoardBytes = p.Board.New
	}
	if e := p.Moves(); e != nil {
		res.Moved = e.Name()
	}
	for _, a := range actions {
		res.Actions = append(res.Actions, a.Name)
	}
	for _, i := range p.Displaced {
		res.Displaced = append(res.Displaced, d.arch.Text(p.Original[i.Addr-p.Point:], i.Addr))
	}
}

// asked is what is known of the points that a step asks for before they are planned.
type asked struct {
	// near is what they may displace, by their functions' addresses: nothing of it is
	// moved away for the springboard of another.
	near map[isa.Addr][]place.Window
	// points are those that are certain, and functions those of which any instruction may
	// be one: nothing of them is locked for another's jump, or displaced by its window.
	points    []isa.Addr     // in order
	functions []place.Window // likewise
}

// widest is the most that one point displaces, in bytes, of what lies behind it: a window.
const widest = 20

// in reports whether points of a function are in [lo, hi).
func (a *asked) in(f ktext.Func, lo, hi isa.Addr) bool {
	return a != nil && slices.ContainsFunc(a.near[f.Addr], func(w place.Window) bool { return lo < w.Hi && w.Lo < hi })
}

// has reports whether points are in [lo, hi) that have no plan yet.
func (a *asked) has(lo, hi isa.Addr, planned func(isa.Addr) bool) bool {
	if a == nil {
		return false
	}
	k, _ := slices.BinarySearch(a.points, lo)
	for ; k < len(a.points) && a.points[k] < hi; k++ {
		if !planned(a.points[k]) {
			return true
		}
	}
	n, _ := slices.BinarySearchFunc(a.functions, lo, func(w place.Window, lo isa.Addr) int { return cmp.Compare(w.Hi, lo+1) })
	return n < len(a.functions) && a.functions[n].Lo < hi
}

// add adds the point at an offset, or, of several, all from there on.
func (a *asked) add(f ktext.Func, p *wire.Point, off isa.Off) {
	w := place.Window{Lo: f.Addr + isa.Addr(off), Hi: f.Addr + isa.Addr(off) + widest}
	switch {
	case p.Each != wire.Each_ITSELF:
		w.Hi = f.End()
		a.functions = append(a.functions, w)
	case p.Search || p.Entry:
		w.Hi = f.End()
	default:
		a.points = append(a.points, w.Lo)
	}
	a.near[f.Addr] = append(a.near[f.Addr], w)
}

// askedOf are all points of a step.
func (d *Daemon) askedOf(points []*wire.Point) *asked {
	out := &asked{near: map[isa.Addr][]place.Window{}}
	var last ktext.Func
	at := func(a isa.Addr) {
		if f, ok := d.text.Locate(a); ok {
			out.add(f, &wire.Point{}, isa.Off(a-f.Addr))
		}
	}
	for _, p := range points {
		switch {
		case p.Text > 0:
			at(d.info.TextStart + isa.Addr(p.Text-1))
		case p.SameAs != "" && len(d.resolved[p.SameAs]) > 0:
			at(d.resolved[p.SameAs][0] + isa.Addr(p.Offset))
		default:
			if last.Module != p.Module || last.Name != p.Function {
				var err error
				if last, err = d.text.Function(p.Module, p.Function); err != nil {
					last = ktext.Func{}
					continue
				}
			}
			out.add(last, p, isa.Off(p.Offset))
		}
	}
	slices.Sort(out.points)
	slices.SortFunc(out.functions, func(v, w place.Window) int { return cmp.Compare(v.Lo, w.Lo) })
	return out
}

// splice plans the points of a step and, if none is refused or refused ones
// may be left out, makes all of them live in one batch.
func (d *Daemon) splice(ctx context.Context, name string, s *wire.Splice, res *wire.Result) error {
	if d.sets[name] != nil {
		return fmt.Errorf("step %q has live splices already", name)
	}
	if err := d.rings.room(int(s.RingBytes)); err != nil {
		return err
	}
	if err := d.seeModules(modulesOf(s.Points)); err != nil {
		return err
	}
	d.prototypes.forget()
	d.known, d.asked = d.learnt.Again(), d.askedOf(s.Points)
	defer func() { d.known, d.learnt, d.asked = nil, d.known, nil }()
	made, plans, err := d.planAll(ctx, name, s, res)
	if s.Brief {
		defer func() { res.Points = brief(res.Points) }() // when they are described
	}
	if err != nil {
		return err
	}
	points := len(plans)
	if d.clocks.plan != nil {
		plans = append(plans, d.clocks.plan)
	}
	plans = append(plans, made.entries...)
	res.Clones = append(made.said, made.refused...)
	if s.Announce {
		if err := announce(plans); err != nil {
			d.splicer.Release(plans...)
			return err
		}
	}
	d.stages.enter(stagePatch)
	made.live, err = d.splicer.Apply(plans)
	d.stages.enter("")
	if err != nil {
		d.clocks.plan = nil
		return err
	}
	made.spliced = made.live[len(plans)-len(made.entries):]
	d.inside(made.said)
	made.live = d.clocks.run(made.live, points)
	d.sets[name] = made
	d.still = d.still || s.Brief
	for k, p := range plans[:points] {
		if s.Brief { // nobody is told of the rest
			made.results[k].Added, p.Passed = uint32(p.Added), nil
			continue
		}
		d.describe(p, made.points[k].Actions, made.results[k])
	}
	made.results, res.PatchMemory = nil, d.patchMemory()
	// Points may have been hit while others of the batch were written: counting
	// starts now, when the last is in.
	for _, l := range d.splicer.Live() {
		l.Restart()
	}
	return d.begin()
}

// planAll plans the points of a step, in their order. On error nothing is taken.
func (d *Daemon) planAll(ctx context.Context, name string, s *wire.Splice, res *wire.Result) (*set, []*plan.Plan, error) {
	made, most := &set{}, int(s.Most)
	var plans []*plan.Plan
	var before plan.Set
	all, err := d.expand(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	grow, err := d.grows(s.Clones)
	if err != nil {
		return nil, nil, err
	}
	all = d.adopt(grow, all)
	if err := d.fit(ctx, grow); err != nil {
		return nil, nil, err
	}
	all = append(all, d.pointsOf(grow)...)
	if s.Choose {
		all, d.chosen = d.choose(all)
		defer func() { d.chosen = nil }()
	}
	if !slices.Equal(all, s.Points) {
		d.asked = d.askedOf(all) // now it is known which
		d.forget()
	}
	d.room(len(all))
	if err := d.planClocks(s, &before); err != nil {
		return nil, nil, err
	}
	if most > 0 {
		most += before.Len()
	}
	ones, results := make([]*plan.Plan, len(all)), make([]*wire.PointResult, len(all))
	made.clones, err = d.planClones(ctx, all, grow, &before, ones, results)
	if err == nil && !s.SkipRefused {
		err = made.anyRefused(results)
	}
	if err == nil {
		err = d.planInTurn(ctx, all, s.SkipRefused, most, &before, ones, results)
	}
	for k, one := range ones {
		if one != nil {
			plans = append(plans, one)
			made.add(all[k], one, results[k])
			d.rings.known(made.points[len(made.points)-1], results[k].Tags)
			d.resolved[name] = append(d.resolved[name], one.Asked())
		}
	}
	tried(d.chosen, results)
	res.Points = append(res.Points, slices.DeleteFunc(results, func(r *wire.PointResult) bool { return r == nil })...)
	if err != nil {
		d.splicer.Release(append(append(plans, d.clocks.dropped()...), made.entries...)...)
		return nil, nil, err
	}
	made.grew()
	return made, plans, nil
}

// planInTurn plans points, until there are so many plans with those before. Those behind the
// last have neither a plan nor a result.
func (d *Daemon) planInTurn(ctx context.Context, all []*wire.Point, skipRefused bool, most int, plans *plan.Set, ones []*plan.Plan, results []*wire.PointResult) error {
	n := together
	if most > 0 { // the first so many are the first, whatever they are had by
		n = 1
	}
	for some := range slices.Chunk(inTurn(all, most), n) {
		if most > 0 && plans.Len() >= most {
			break
		}
		if err := d.planSome(ctx, all, some, plans, most, ones, results); err != nil {
			return err
		}
		for _, k := range some {
			if err := whyRefused(results[k].GetRefusal()); err != nil && !skipRefused {
				return err
			}
		}
	}
	return nil
}

// together is how many points of a step are planned before others of them may be counted
// at what they have left.
const together = 256

// inTurn is the order in which points are planned: entries, which may be had at several
// instructions, when those are taken that are asked for themselves. The first so many points
// are the first.
func inTurn(all []*wire.Point, most int) (order []int) {
	for k := range all {
		order = append(order, k)
	}
	if most == 0 {
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(turn(all[a]), turn(all[b])) })
	}
	return order
}

func turn(p *wire.Point) int {
	if p.Entry {
		return 1
	}
	return 0
}

// anyRefused is why a clone, or the first point in one, is refused.
func (c *clones) anyRefused(results []*wire.PointResult) error {
	for _, s := range c.said {
		if err := whyRefused(s.Refusal); err != nil {
			return err
		}
	}
	for _, r := range results {
		if err := whyRefused(r.GetRefusal()); err != nil {
			return err
		}
	}
	return nil
}

// whyRefused is a refusal as an error; nil is none.
func whyRefused(r *wire.Refusal) error {
	if r == nil {
		return nil
	}
	return fmt.Errorf("%s: %s", r.Reason, r.Detail)
}

// planSome plans some of the points: first all that can be spliced themselves, then those of
// the others that another instruction is left for, until there are so many plans with those
// before. A point without a plan is refused; those behind the last are left out, and of a block
// that is refused the second point.
func (d *Daemon) planSome(ctx context.Context, points []*wire.Point, some []int, plans *plan.Set, most int, ones []*plan.Plan, results []*wire.PointResult) (err error) {
	for _, block := range []bool{false, true} {
		for _, k := range some {
			if ones[k] != nil || cloned(points[k]) || most > 0 && plans.Len() >= most || points[k].Block != nil && (block || leaves(points[k])) {
				continue
			}
			if err := d.unwanted(ctx); err != nil {
				return err
			}
			if points[k].Block != nil {
				err = d.planBlock(points[k:k+2], plans, ones[k:], results[k:])
			} else if ones[k], results[k], err = d.plan(points[k], plans, block); ones[k] != nil {
				plans.Add(ones[k])
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// unwanted is an error once nobody wants any more what is being planned.
func (d *Daemon) unwanted(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-d.enough:
		return errors.New("not all points were planned yet")
	default:
		return nil
	}
}

// countAll reads the cells of every live splice.
func (d *Daemon) countAll() map[*splice.Live][]uint64 {
	counts := map[*splice.Live][]uint64{}
	if d.dev == nil {
		return counts
	}
	for _, l := range d.splicer.Live() {
		counts[l] = l.Words()
	}
	return counts
}

// announce tells an observer outside the guest which addresses are points. It
// comes before the text is written: the write makes QEMU translate the point
// anew, and then it has to know.
func announce(plans []*plan.Plan) error {
	args := []string{"point"}
	for _, p := range plans {
		args = append(args, announced(p)...)
	}
	if out, err := exec.Command(markFile, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("announce points: %w: %s", err, out)
	}
	return nil
}

func (d *Daemon) unsplice(name string) error {
	s := d.sets[name]
	if s == nil {
		return fmt.Errorf("step %q has no live splices", name)
	}
	if err := d.splicer.Verify(); err != nil {
		return err
	}
	if err := d.splicer.Undo(append(slices.Clip(s.live), s.spliced...)); err != nil {
		return err
	}
	delete(d.sets, name)
	d.untag()
	return d.stopClocks()
}

// untag gives the tags of records back that nobody makes any more.
func (d *Daemon) untag() {
	live := map[*wire.Action]bool{}
	for _, s := range d.sets {
		for _, p := range s.points {
			for _, a := range p.Actions {
				live[a] = true
			}
		}
	}
	d.rings.untag(live)
}

// undoAll takes back what is live. It is in order that some of it cannot be:
// the module says why, and keeps what it has to.
func (d *Daemon) undoAll() error {
	if d.dev == nil {
		return nil
	}
	var errs []error
	for name := range d.sets {
		errs = append(errs, d.unsplice(name))
	}
	return errors.Join(errs...)
}

// read reports all live counters, in the order in which they were made: from
// the last splice to the end of the last program, or until now.
func (d *Daemon) read(r *wire.Read, res *wire.Result) error {
	counts, last := d.counts, d.ended
	if counts == nil && d.dev != nil {
		var err error
		if counts, last, err = d.moment(); err != nil {
			return err
		}
	}
	if last != nil {
		res.Moments = []*wire.Moment{d.began, last}
	}
	if r.Brief {
		for _, l := range d.splicer.Live() {
			if l.Plan.Clone != nil { // an entry counts nothing
				continue
			}
			if l.Plan.Snippet.Words() != 1 {
				return fmt.Errorf("%s+%#x has more cells than one: a brief read is of counters", l.Plan.Symbol, uint64(l.Plan.Offset))
			}
			res.Addresses, res.Counts = append(res.Addresses, uint64(l.Plan.Asked())), append(res.Counts, counts[l][0]-d.base[l][0])
		}
		return nil
	}
	of, code := d.places(), d.names()
	for _, l := range d.splicer.Live() {
		if p := of[l]; p.set != nil {
			res.Values = append(res.Values, p.set.values(p.at, l, counts[l], d.base[l], code, true)...)
		}
	}
	res.Values = append(res.Values, d.covered...)
	return d.readClones(res)
}

// readClones says of clones that grow where they were left.
func (d *Daemon) readClones(res *wire.Result) error {
	for _, name := range slices.Sorted(maps.Keys(d.sets)) {
		for k, g := range d.sets[name].growing {
			out, err := d.ledOut(g, d.sets[name].spliced)
			if err != nil {
				return err
			}
			said := proto.Clone(d.sets[name].said[k]).(*wire.Clone)
			said.Out = d.led(out)
			res.Clones = append(res.Clones, said)
		}
	}
	return nil
}
