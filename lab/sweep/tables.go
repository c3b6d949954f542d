package sweep

import (
	"fmt"
	"strconv"
	"strings"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
)

// JumpTable is a table of distances, as the text before an indirect jump shows it
// to who reads it like prose: what the last instructions before the jump name.
type JumpTable struct {
	Addr, Base isa.Addr // of the first entry; what an entry is added to
	Size       int      // bytes of an entry, which is signed
	Scale      int      // an entry is shifted left by so much
	Entries    int      // by the last comparison with the index; 0: none is near
}

// Entry is where an entry leads.
func (t JumpTable) Entry(b []byte) isa.Addr {
	var v uint64
	for k := range t.Size {
		v |= uint64(b[k]) << (8 * k)
	}
	free := 64 - 8*t.Size
	return t.Base + isa.Addr(int64(v<<free)>>free<<t.Scale)
}

// Table reads the forms that GCC gives jump tables: false if the text is another.
//
//	arm64   ldrh w1, [TABLE, w0, uxtw #1]; adr x0, BASE; add x1, x0, w1, sxth #2; br x1
//	        ldr x2, [TABLE, w1, sxtw #3]; br x2
//	riscv64 slli a5, a5, 2; add a5, a5, TABLE; lw a5, 0(a5); add a5, a5, TABLE; jr a5
//	        slli a5, a4, 3; add a5, a5, TABLE; ld a5, 0(a5); jr a5
func (j *IndirectJump) Table(arch string) (JumpTable, bool) {
	switch arch {
	case "arm64":
		return j.armTable()
	case "riscv64":
		return j.riscvTable()
	}
	return JumpTable{}, false
}

// last finds the last instruction before place n of one of the mnemonics whose
// first operand is dst; "" is any.
func (j *IndirectJump) last(n int, dst, mnemonics string) (int, []string) {
	for k := n - 1; k >= 0; k-- {
		ops := operands(j.Before[k].Operands)
		if len(ops) > 0 && (dst == "" || wide(ops[0]) == wide(dst)) && words(mnemonics)[j.Before[k].Mnemonic] {
			return k, ops
		}
	}
	return -1, nil
}

// wide is the name of the whole of an arm64 register.
func wide(r string) string {
	if rest, ok := strings.CutPrefix(r, "w"); ok {
		return "x" + rest
	}
	return r
}

var armEntries = map[string]int{"ldrb": 1, "ldrh": 2, "ldr": 4}

func (j *IndirectJump) armTable() (t JumpTable, ok bool) {
	n, sum := j.last(len(j.Before), j.reg, "add ldr") // add x1, x0, w1, sxth #2
	if n < 0 {
		return t, false
	}
	if j.Before[n].Mnemonic == "ldr" {
		t.Size = 8
		return j.armLoad(t, n, sum)
	}
	if len(sum) != 4 || !strings.HasSuffix(sum[3], " #2") {
		return t, false
	}
	t.Scale = 2
	base, at := j.last(n, sum[1], "adr")
	load, from := j.last(n, sum[2], "ldrb ldrh ldr")
	if base < 0 || load < 0 {
		return t, false
	}
	t.Base = address(at) - j.Before[base].Shift
	t.Size = armEntries[j.Before[load].Mnemonic]
	return j.armLoad(t, load, from)
}

// armLoad reads where the table is, and how long: instruction n loads an entry.
func (j *IndirectJump) armLoad(t JumpTable, n int, ops []string) (JumpTable, bool) {
	in := operands(strings.Trim(ops[1], "[]")) // x1, w0, uxtw #1
	if len(in) < 3 {
		return t, false
	}
	a, ok := j.made.before(j.Before[n].Addr, in[0])
	t.Addr, t.Entries = isa.Addr(a), j.entries(n, in[1])
	return t, ok
}

// entries is the bound that is set on the index in front of instruction n: by a
// branch past it that is not taken, by one that leads here, or by its being a byte.
func (j *IndirectJump) entries(n int, index string) int {
	compared := false // with what is not known here
	for k := n; k >= 0; k-- {
		l := j.Before[k]
		for _, op := range operands(l.Operands) {
			compared = compared || words("bltu bgeu cmp")[l.Mnemonic] && wide(op) == wide(index)
		}
		if b, ok := j.bounds[l.Addr]; ok && wide(b.index) == wide(index) {
			return b.entries
		}
		if k < n && j.makes(k, index) {
			if !compared && (l.Mnemonic == "ldrb" || l.Mnemonic == "lbu") {
				return 1 << 8
			}
			return 0
		}
	}
	return 0
}

// bound is what a comparison says of an index where it has come out below.
type bound struct {
	index   string
	entries int
}

// compared tells what a conditional branch says of an index, and where: behind it,
// or where it leads. before are the instructions in front of it.
//
//	arm64   cmp w0, #LAST; b.hi ELSEWHERE, or b.ls HERE
//	riscv64 li a5, LAST; …; bltu a5, a0, ELSEWHERE, or bgeu a5, a0, HERE
func compared(before []Listed, l *Listed, m *made) (at isa.Addr, b bound, ok bool) {
	at = l.Addr + isa.Addr(l.Len)
	switch l.Mnemonic {
	case "b.ls", "bgeu":
		at = l.Target
	case "b.hi", "bltu":
	default:
		return at, b, false
	}
	j := IndirectJump{Before: before}
	if l.Mnemonic[0] == 'b' && l.Mnemonic[1] == '.' {
		k, cmp := j.last(len(before), "", "cmp")
		if k == len(before)-1 && k >= 0 && len(cmp) == 2 && cmp[1][0] == '#' {
			return at, bound{cmp[0], int(number(cmp[1])) + 1}, true
		}
		return at, b, false
	}
	ops := operands(l.Operands)
	last, ok := m.now[ops[0]]
	return at, bound{ops[1], int(last) + 1}, ok
}

// makes reports whether instruction k names the register first, as what it writes.
func (j *IndirectJump) makes(k int, reg string) bool {
	ops := operands(j.Before[k].Operands)
	return len(ops) > 0 && j.Before[k].Flow == isa.FlowNone && wide(ops[0]) == wide(reg) && !strings.HasPrefix(j.Before[k].Mnemonic, "c")
}

func (j *IndirectJump) riscvTable() (t JumpTable, ok bool) {
	n, ops := j.last(len(j.Before), j.reg, "add ld") // add a5, a5, a4
	if n < 0 {
		return t, false
	}
	t.Size = 8
	load, from, base := n, ops, ""
	if j.Before[n].Mnemonic == "add" {
		t.Size, base = 4, ops[2]
		if load, from = j.last(n, ops[1], "lw"); load < 0 {
			return t, false
		}
	}
	where, isPlain := strings.CutPrefix(strings.TrimSuffix(from[1], ")"), "0(")
	at, sum := j.last(load, where, "add")
	switch {
	case !isPlain || at < 0 && base == "":
		return t, false
	case at < 0: // made out of sight
	case base == "" || sum[2] == base:
		base = sum[2]
		t.Entries = j.scaled(at, sum[1], t.Size)
	case sum[1] == base:
		t.Entries = j.scaled(at, sum[2], t.Size)
	}
	a, ok := j.made.before(j.Before[n].Addr, base)
	if t.Addr = isa.Addr(a); t.Size == 4 {
		t.Base = t.Addr
	}
	return t, ok
}

// scaled is the bound on the index that a register holds before instruction n, times
// size: shifted left, or also cut to 32 bits on the way.
func (j *IndirectJump) scaled(n int, reg string, size int) int {
	shift := map[int]string{4: "0x2", 8: "0x3"}[size]
	k, ops := j.last(n, reg, "slli srli")
	if k < 0 {
		return 0
	}
	if j.Before[k].Mnemonic == "srli" && ops[2] == "0x1e" && size == 4 {
		shift = "0x20"
		k, ops = j.last(k, ops[1], "slli")
	}
	if k < 0 || ops[2] != shift {
		return 0
	}
	return j.entries(k, ops[1])
}

// TableReport compares jump tables with what is read of them from the text.
type TableReport struct {
	Compared int        // by the comparison that stands before the jump
	Read     int        // by what follows: another table, or no place in the function
	Other    []isa.Addr // in a form that is not read here
	Lost     []isa.Addr // it is not where the text in front of the jump, read from top to bottom, has it
	Wrong    []string
}

// Tables compares the edges of every jump with a known table with the kernel's
// memory, where objdump's text says that the table lies.
func (r *FlowReport) Tables(g *cfg.Graph, t *ktext.Text) *TableReport {
	out := &TableReport{}
	starts := map[isa.Addr]bool{}
	for k := range r.Jumps {
		if x, ok := r.Jumps[k].Table(g.Arch.Name); ok {
			starts[x.Addr] = true
		}
	}
	for k := range r.Jumps {
		j := &r.Jumps[k]
		if j.Kind != cfg.KindTable {
			continue
		}
		x, ok := j.Table(g.Arch.Name)
		if !ok {
			out.Other = append(out.Other, j.Addr)
			continue
		}
		leads, err := x.leads(g, t, j.Addr, starts)
		if err != nil {
			out.Lost = append(out.Lost, j.Addr)
			continue
		}
		if x.Entries > 0 {
			out.Compared++
		} else {
			out.Read++
		}
		b, _ := g.AtAddr(j.Addr)
		edges, within := map[isa.Addr]bool{}, true
		for _, e := range g.Extra(b) {
			edges[g.Start(e.To)] = true
			within = within && leads[g.Start(e.To)]
		}
		if !within || x.Entries > 0 && len(leads) != len(edges) {
			out.Wrong = append(out.Wrong, fmt.Sprintf("%v: the table at %v leads to %d places, %d by the graph", j.Addr, x.Addr, len(leads), len(edges)))
		}
	}
	return out
}

// maxEntries bounds what is read of a table.
const maxEntries = 4096

// leads are the places that a table leads to. Where no comparison is near, it ends
// where another begins, or where an entry leads nowhere in the function.
func (t JumpTable) leads(g *cfg.Graph, text *ktext.Text, jump isa.Addr, starts map[isa.Addr]bool) (map[isa.Addr]bool, error) {
	home, _ := text.Locate(jump)
	out := map[isa.Addr]bool{}
	b := make([]byte, t.Size)
	for n := 0; n < maxEntries && (t.Entries == 0 || n < t.Entries); n++ {
		at := t.Addr + isa.Addr(n*t.Size)
		if t.Entries == 0 && n > 0 && starts[at] {
			break
		}
		if err := text.Read(at, b); err != nil {
			return nil, err
		}
		to := t.Entry(b)
		if f, ok := text.Locate(to); t.Entries == 0 && (!ok || f.Addr != home.Addr || !g.Boundary(to)) {
			break
		}
		out[to] = true
	}
	return out, nil
}

// number reads an immediate.
func number(text string) int64 {
	v, _ := strconv.ParseInt(strings.TrimPrefix(text, "#"), 0, 64)
	return v
}
