package pad

import (
	"cmp"
	"slices"
	"strings"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
)

// Leaf is a function that a copy elsewhere can stand in for: its body, once nobody is
// in it, is room for springboards.
//
// Such a body reads the same wherever it is. It calls nothing, jumps only within
// itself, forms no address, and waits for nothing: none of it has an entry in the
// exception table, so no task is ever asleep in it. Nothing else in the kernel's code
// can be read as a jump, call or address of any of it, its entry included, but for where
// its own branches lead (who else would lead there is not asked: compilers do not jump
// into the middle of functions that do not jump out, and assembly has no ftrace site).
// So it is not on a path that anybody calls by name, which is as cold as can be told
// without running it; system calls are warm all the same. It has an ftrace site, behind
// which a register is free: who traces it overwrites that one.
type Leaf struct {
	ktext.Func
	Body isa.Addr // behind the ftrace site
}

// MaxLeaf bounds the body of a Leaf, in bytes: a copy of it takes patch memory.
const MaxLeaf = 256

// stretch is the part of the text, in bytes, of which the leaves are looked for at a time.
const stretch = 1 << 14

// Spent are leaves that are not visited any more: the others, of stretches that have such. Its
// owner, who takes leaves for one purpose, is spared to be shown thousands in vain.
type Spent map[stretchKey][]Leaf

// stretchKey is where a run begins, and the number of a stretch.
type stretchKey [2]isa.Addr

// Leaves visits the leaves that overlap [lo, hi) in the code that at is in, until visit
// returns true: those of the stretch around at first, then of the two beside it, and so
// on; of these the nearest first. With spent, which may be nil, those that visit calls spent
// are never visited again. The error is that of text that cannot be read.
func (f *Finder) Leaves(at, lo, hi isa.Addr, spent Spent, visit func(Leaf) (found, spent bool)) error {
	r, ok := f.text.RunOf(at)
	if !ok {
		return nil
	}
	lo, hi = max(lo, r.Lo), min(hi, r.Hi)
	middle, first, last := at/stretch, (lo-MaxLeaf)/stretch, hi/stretch
	for d := isa.Addr(0); middle >= first+d || middle+d <= last; d++ {
		near, err := f.beside(r, middle, d, spent)
		if err != nil {
			return err
		}
		slices.SortStableFunc(near, func(a, b Leaf) int { return cmp.Compare(distance(a.Addr, at), distance(b.Addr, at)) })
		for _, l := range near {
			if l.End() <= lo || l.Addr >= hi {
				continue
			}
			found, gone := visit(l)
			if gone && spent != nil {
				f.drop(r, l, spent)
			}
			if found {
				return nil
			}
		}
	}
	return nil
}

// drop has a leaf not be visited any more.
func (f *Finder) drop(r ktext.Run, l Leaf, spent Spent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := stretchKey{r.Lo, l.Addr / stretch}
	left, some := spent[key]
	if !some {
		left = slices.Clone(f.leaves[key])
	}
	spent[key] = slices.DeleteFunc(left, func(m Leaf) bool { return m.Addr == l.Addr })
}

func distance(a, b isa.Addr) isa.Addr { return max(a, b) - min(a, b) }

// beside are the leaves of the two stretches that are d from one.
func (f *Finder) beside(r ktext.Run, middle, d isa.Addr, spent Spent) ([]Leaf, error) {
	out, err := f.left(r, middle-d, spent)
	if err != nil || d == 0 {
		return slices.Clone(out), err
	}
	more, err := f.left(r, middle+d, spent)
	return slices.Concat(out, more), err
}

// left are the leaves of a stretch that are not spent.
func (f *Finder) left(r ktext.Run, n isa.Addr, spent Spent) ([]Leaf, error) {
	if out, some := spent[stretchKey{r.Lo, n}]; some {
		return out, nil
	}
	return f.inStretch(r, n)
}

// inStretch are the leaves that begin in a stretch. They are remembered, until the text is
// another: what is written is compared with what was planned.
func (f *Finder) inStretch(r ktext.Run, n isa.Addr) (out []Leaf, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := stretchKey{r.Lo, n}
	out, ok := f.leaves[key]
	if ok {
		return out, nil
	}
	for a := max(n*stretch, r.Lo); a < min((n+1)*stretch, r.Hi); {
		fn, ok := f.text.Locate(a)
		if !ok || fn.Module != r.Module || fn.End() <= a {
			break
		}
		body := isa.Addr(0)
		if fn.Addr >= n*stretch {
			if body, err = f.bodyOf(r, fn); err != nil {
				return nil, err
			}
		}
		if body != 0 {
			out = append(out, Leaf{fn, body})
		}
		a = fn.End()
	}
	f.leaves[key] = out
	return out, nil
}

// called is what names of functions begin with that users call, by way of a table.
const called = "__riscv_"

// bodyOf is where a Leaf's body begins; 0: the function is none.
func (f *Finder) bodyOf(r ktext.Run, n ktext.Func) (isa.Addr, error) {
	if n.Size == 0 || n.Size > MaxLeaf || strings.HasPrefix(n.Name, called) {
		return 0, nil
	}
	code, err := f.text.Code(n)
	if err != nil {
		return 0, err
	}
	site := f.text.FtraceSite(n.Addr, code)
	body := n.Addr + isa.Addr(site)
	if site == 0 || site >= len(code) || f.text.Traced(n.Addr, code) {
		return 0, nil
	}
	if _, reserved, err := f.text.Reserved(n, body, n.End()); reserved || err != nil {
		return 0, err
	}
	inside, ok := Movable(f.text.Arch, code[site:], body)
	if !ok {
		return 0, nil
	}
	m, err := f.text.Targets(r.Module)
	if err != nil {
		return 0, err
	}
	for a := n.Addr; ; a++ {
		a, ok = m.First(a, n.End())
		if !ok {
			return body, nil
		}
		if !inside[a] {
			return 0, nil
		}
	}
}

// Movable reports whether code that lies at a does the same wherever it lies, and
// control leaves it by returning only. inside is where its own branches lead. All of it
// can be come to from its begin: what cannot is another function, which has no symbol.
func Movable(arch *isa.Arch, code []byte, a isa.Addr) (inside map[isa.Addr]bool, ok bool) {
	const never = isa.Lost | isa.Privileged | isa.Exclusive | isa.Landing | isa.Shadow | isa.Rebases
	inside, begins, ends := map[isa.Addr]bool{}, map[isa.Addr]bool{}, false
	for k := 0; k < len(code); {
		i := arch.Decode(code[k:], a+isa.Addr(k))
		begins[i.Addr] = true
		if ends && !inside[i.Addr] { // compilers put what only a branch back leads to nowhere else
			return nil, false
		}
		k += i.Len
		if i.Traits&never != 0 || k > len(code) {
			return nil, false
		}
		switch i.Flow {
		case isa.FlowNone:
			if i.Traits&isa.PCRel != 0 {
				return nil, false
			}
		case isa.FlowCond, isa.FlowJump:
			inside[i.Target] = true
		case isa.FlowReturn:
		default:
			return nil, false
		}
		ends = i.Flow.Ends()
	}
	for to := range inside {
		if !begins[to] {
			return nil, false
		}
	}
	return inside, ends
}
