package cfg

// Lists holds a list of blocks for every block, in two slices.
type Lists struct {
	first []uint32 // of block b in list; first[b+1] is its end
	list  []Block
}

// Of is the list of b.
func (p *Lists) Of(b Block) []Block { return p.list[p.first[b]:p.first[b+1]] }

// Group makes the lists of n blocks from pairs, which each must give in the same
// order whenever it is called: once to count, once to fill.
func Group(n int, each func(add func(at, of Block))) *Lists {
	p := &Lists{first: make([]uint32, n+1)}
	each(func(at, _ Block) { p.first[at+1]++ })
	for b := range n {
		p.first[b+1] += p.first[b]
	}
	p.list = make([]Block, p.first[n])
	next := make([]uint32, n)
	copy(next, p.first)
	each(func(at, of Block) {
		p.list[next[at]] = of
		next[at]++
	})
	return p
}

// Preds turns Succ around, for every block.
func (g *Graph) Preds() *Lists {
	var succ []Block
	return Group(len(g.kind), func(add func(at, of Block)) {
		for b := range Block(len(g.kind)) {
			succ = g.Succ(b, succ[:0])
			for _, t := range succ {
				add(t, b)
			}
		}
	})
}
