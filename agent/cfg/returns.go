package cfg

// returns finds the calls that never come back. A block comes back if from it
// some path leads to a return, or to anything that is not known not to. The
// solution is the least one: functions that only call each other for ever do
// not return.
func (g *Graph) returns() {
	g.enterPadding()
	back := make([]bool, len(g.kind))
	for changed := true; changed; {
		changed = false
		for b := len(g.kind) - 1; b >= 0; b-- {
			if !back[b] && g.comesBack(Block(b), back) {
				back[b], changed = true, true
			}
		}
	}
	for b, k := range g.kind {
		if t := g.target[b]; k == KindCall && t != NoBlock && !back[t] {
			g.kind[b] = KindCallNoReturn
			if b+1 < len(g.mark) {
				g.mark[b+1] &^= Split
			}
		}
	}
	for _, p := range g.funcs {
		if !back[g.At(p)] {
			g.Stats.NoReturn++
		}
	}
}

// enterPadding makes code of the padding that some block, reached or not, leads
// to: a jump to an aligned label goes to the nops in front of it.
func (g *Graph) enterPadding() {
	var work, succ []Block
	for b, k := range g.kind {
		if k != KindPad {
			work = append(work, Block(b))
		}
	}
	for len(work) > 0 {
		b := work[len(work)-1]
		work = work[:len(work)-1]
		for _, s := range g.Succ(b, succ[:0]) {
			if g.kind[s] == KindPad {
				g.kind[s] = g.enteredPadding(s)
				work = append(work, s)
			}
		}
	}
}

// comesBack decides one block by what is known of the others.
func (g *Graph) comesBack(b Block, back []bool) bool {
	next := int(b)+1 < len(back) && back[b+1]
	t := g.target[b]
	switch g.kind[b] {
	case KindReturn, KindTail, KindIndirectJump, KindExit:
		return true
	case KindCall:
		if next && (t == NoBlock || back[t]) {
			return true
		}
	case KindJump, KindCond, KindCallLocal:
		if t != NoBlock && back[t] || g.kind[b] != KindJump && next {
			return true
		}
	case KindFall, KindIndirectCall, KindStaticCall, KindGate:
		if next {
			return true
		}
	}
	for _, e := range g.Extra(b) {
		if back[e.To] {
			return true
		}
	}
	return false
}

// reach marks what entries lead to. What is left over is padding that follows a
// call without return, or code that something unseen jumps to.
func (g *Graph) reach() {
	var stack, succ []Block
	entered := true
	visit := func(b Block) {
		if g.mark[b]&Reached == 0 {
			g.mark[b] |= Reached
			if g.mark[b]&Data != 0 && entered {
				g.Stats.Overruns++
			}
			if g.kind[b] == KindPad { // of a call's target alone, or what was left over
				g.kind[b] = g.enteredPadding(b)
			}
			stack = append(stack, b)
		}
	}
	drain := func() {
		for len(stack) > 0 {
			b := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			if k := g.kind[b]; (k == KindCall || k == KindCallNoReturn) && g.target[b] != NoBlock {
				visit(g.target[b])
			}
			succ = g.Succ(b, succ[:0])
			for _, s := range succ {
				visit(s)
			}
		}
	}
	for _, p := range g.funcs {
		visit(g.At(p))
	}
	drain()
	entered = false
	for b := range g.kind {
		if g.kind[b] == KindPad || g.mark[b]&Reached != 0 {
			continue
		}
		if g.allPadding(Block(b)) {
			g.kind[b] = KindPad
			continue
		}
		g.mark[b] |= Orphan
		visit(Block(b))
		drain()
	}
}

// enteredPadding is the kind of padding that something does lead to. Of data it
// is not known what happens there. Zeros are no instruction on arm64 and riscv64
// (udf #0, c.unimp): alternatives that were not chosen end in them.
func (g *Graph) enteredPadding(b Block) Kind {
	if g.mark[b]&Data != 0 {
		return KindExit
	}
	if g.Arch.Name != "amd64" && allZero(g.Code(g.start[b])[:g.start[b+1]-g.start[b]]) {
		return KindTrap
	}
	if end := g.start[b+1]; end == g.size || !g.insns.has(g.unit(end)) {
		return KindIndirectJump
	}
	return KindFall
}

// allPadding reports whether b holds only what fills gaps.
func (g *Graph) allPadding(b Block) bool {
	if g.mark[b]&Data != 0 {
		return true
	}
	if g.kind[b] != KindFall && g.kind[b] != KindTrap {
		return false
	}
	code := g.Code(g.start[b])[:g.start[b+1]-g.start[b]]
	a := g.Start(b)
	for len(code) > 0 {
		i := g.Arch.Decode(code, a)
		if i.Len > len(code) || !IsPad(g.Arch.Name, i, code) {
			return false
		}
		code, a = code[i.Len:], i.End()
	}
	return true
}
