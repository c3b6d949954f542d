package index

import (
	"hash/crc32"
	"sort"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
)

// Once all of the text was compared, a function that has the same bytes as then is what was
// analysed, and need not be decoded to know that. Nor need all of it be to tell what is live
// at one place: the block there will do.

// summer sums up each function's bytes while the text goes by.
type summer struct {
	x    *Index
	next int // the function that is not summed up to its end
	sums []uint32
}

// add adds the bytes of the text at off; those before them were added.
func (s *summer) add(code []byte, off isa.Off) error {
	for end := off + isa.Off(len(code)); s.next < len(s.sums); s.next++ {
		f, err := s.x.Func(s.next)
		if err != nil {
			return err
		}
		lo, hi := max(f.Start, off), min(f.Start+f.Size, end)
		if lo < hi {
			s.sums[s.next] = crc32.Update(s.sums[s.next], crcTable, code[lo-off:hi-off])
		}
		if f.Start+f.Size > end {
			break
		}
	}
	return nil
}

// unchanged is a function of which the bytes are those that were compared with what was
// analysed; nil: it has to be looked at.
func (v *View) unchanged(f ktext.Func) (*Function, error) {
	lo, hi := v.t.Bounds()
	if v.x == nil || f.Module != "" || f.Addr < lo || f.Addr >= hi {
		return nil, nil
	}
	if err := v.broken.Load(); err != nil {
		return nil, *err
	}
	if err := v.Whole(); err != nil {
		return nil, err
	}
	known, k, err := v.x.funcAt(isa.Off(f.Addr - lo))
	if err != nil || k < 0 {
		return nil, err
	}
	code := make([]byte, known.Size)
	if err := v.t.Read(f.Addr, code); err != nil {
		return nil, err
	}
	switch {
	case crc32.Checksum(code, crcTable) != v.whole.sums[k]:
		return nil, nil
	case !known.Traced:
		return v.alone(f, ByItself)
	}
	return &Function{Func: f, How: Indexed, Traced: true, arch: v.t.Arch, known: known, late: &late{v: v, code: code}}, nil
}

// Rebases is whether the function may change what a CPU finds per-CPU memory with; nil
// where it is not known, as where the index does not tell of all of it.
func (f *Function) Rebases() *bool {
	switch {
	case f.How != Indexed:
		return f.rebases
	case f.known.Size < f.Size:
		return nil
	}
	return &f.known.Rebases
}

// late looks up what somebody asks of a function. What is wrong with the index is then told
// to who asks for the next function; of this one, nothing is known.
type late struct {
	v       *View
	code    []byte
	lo, hi  isa.Addr // of the block that insns and before are of
	bounded bool     // begins and tables are known
}

func (l *late) broken(err error) {
	if err != nil {
		l.v.broken.Store(&err)
	}
}

// bounds looks up where blocks begin.
func (l *late) bounds(f *Function) {
	if l.bounded {
		return
	}
	l.bounded = true
	blocks, err := l.v.blocks(f.known)
	if err == nil {
		err = l.v.lead(f, blocks)
	}
	l.broken(err)
}

// all looks everything up.
func (l *late) all(f *Function) {
	l.bounds(f)
	blocks, err := l.v.blocks(f.known)
	if err == nil {
		err = l.v.fill(f, blocks, l.v.decoded(l.code, f.known, blocks))
	}
	if l.broken(err); err != nil {
		f.insns, f.before = nil, nil
	}
	f.late = nil
}

// near looks up the block that holds a, if that is one of instructions.
func (l *late) near(f *Function, a isa.Addr) {
	if a >= l.lo && a < l.hi {
		return
	}
	l.lo, l.hi, f.insns, f.before = 0, 0, nil, nil
	b, ok, err := l.holds(f, a)
	if err == nil && ok {
		err = l.fill(f, &b)
	}
	l.broken(err)
}

// holds is the block that a is in, if its instructions are known.
func (l *late) holds(f *Function, a isa.Addr) (b numbered, ok bool, err error) {
	lo, _ := l.v.t.Bounds()
	behind := sort.Search(f.known.Blocks, func(k int) bool {
		b, failed := l.v.block(f.known, k)
		if failed != nil {
			err = failed
		}
		return lo+isa.Addr(b.Start) > a
	})
	if err != nil || behind == 0 {
		return b, false, err
	}
	b, err = l.v.block(f.known, behind-1)
	return b, err == nil && b.holdsCode() && !b.Odd && a < lo+isa.Addr(b.End), err
}

func (l *late) fill(f *Function, b *numbered) error {
	lo, _ := l.v.t.Bounds()
	at, code := lo+isa.Addr(b.Start), b.of(l.code, f.known)
	insns := decode(make([]isa.Insn, 0, len(code)/usualLen+1), f.arch, code, at)
	before := f.everything(len(insns))
	if err := l.v.back(b, insns, before); err != nil {
		return err
	}
	l.lo, l.hi, f.insns, f.before = at, lo+isa.Addr(b.End), insns, before
	return nil
}
