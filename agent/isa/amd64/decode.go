package amd64

import (
	"slices"

	"kerninst/agent/isa"
)

// insn is an instruction under decode.
//
//	[legacy prefixes][REX] opcode [ModRM [SIB] [disp]] [immediate]
//
// The cursor n never passes b; short is set when b ends too early.
type insn struct {
	b     []byte
	n     int
	short bool

	opsize16, addr32, rep, repne, lock bool
	rex                                byte // 0 when absent

	escaped bool // behind 0f, where the opcode is second
	second  byte

	modrm    byte
	ripRel   bool
	rel32    int        // index of a rip-relative displacement
	addrRegs isa.RegSet // registers that the memory operand's address uses
	indexed  bool       // the index is a vector
	index    byte       // its number, or another register's
	also     isa.Insn   // registers beside those of the row
	disp     int64      // of a branch
	fields   [2]isa.Field
	nFields  int
}

// wide consumes a displacement or an immediate; those of four bytes or more may
// hold an address.
func (d *insn) wide(n int) {
	if n >= 4 && d.nFields < len(d.fields) {
		d.fields[d.nFields] = isa.Field{Off: d.n, Size: n}
		d.nFields++
	}
	d.skip(n)
}

// Absolute lists the fields of an instruction that may hold an address as it is;
// see isa.Arch.
func Absolute(b []byte) []isa.Field {
	if len(b) > maxLen {
		b = b[:maxLen]
	}
	d := insn{b: b}
	op, ok := d.prefixes()
	if !ok {
		return nil
	}
	if d.opcode(op); d.short {
		return nil
	}
	return slices.Clone(d.fields[:d.nFields]) // or all that was decoded would be kept with them
}

func (d *insn) next() byte {
	if d.n >= len(d.b) {
		d.short = true
		return 0
	}
	c := d.b[d.n]
	d.n++
	return c
}

func (d *insn) skip(n int) {
	if d.n+n > len(d.b) {
		d.short = true
		n = len(d.b) - d.n
	}
	d.n += n
}

// Decode reads one instruction; see isa.Arch.
func Decode(b []byte, a isa.Addr) isa.Insn {
	if len(b) > maxLen {
		b = b[:maxLen]
	}
	d := insn{b: b}
	op, ok := d.prefixes()
	if !ok {
		return lost(a)
	}
	r, ok := d.opcode(op)
	if d.short || d.n == 0 {
		return lost(a)
	}
	if !ok && d.n == 1 || ok && r.imm == iRel32 && d.opsize16 && !d.sized(op) {
		return lost(a)
	}
	if !ok || !d.understood(op) {
		return isa.Unknown(a, d.n, all)
	}
	return d.effects(r, op, a)
}

// lost is the decode of a byte that begins no instruction known here.
func lost(a isa.Addr) isa.Insn {
	i := isa.Unknown(a, 1, all)
	i.Traits = isa.Lost
	return i
}

// prefixes consumes legacy prefixes and REX and returns the first opcode byte.
// A REX that another prefix follows is void on the CPU; such code is refused.
func (d *insn) prefixes() (byte, bool) {
	for {
		c := d.next()
		switch {
		case c == 0x66:
			d.opsize16 = true
		case c == 0x67:
			d.addr32 = true
		case c == 0xf2:
			d.repne, d.rep = true, false
		case c == 0xf3:
			d.rep, d.repne = true, false
		case c == 0xf0:
			d.lock = true
		case c == 0x2e, c == 0x36, c == 0x3e, c == 0x26, c == 0x64, c == 0x65:
		case c&0xf0 == 0x40:
			d.rex = c
			c = d.next()
			return c, !isPrefix(c) && !d.short
		default:
			return c, !d.short
		}
		if d.short {
			return 0, false
		}
	}
}

func isPrefix(c byte) bool {
	switch c {
	case 0x66, 0x67, 0xf2, 0xf3, 0xf0, 0x2e, 0x36, 0x3e, 0x26, 0x64, 0x65:
		return true
	}
	return c&0xf0 == 0x40
}

// opcode finds the row and consumes everything up to the instruction's end. It
// is false where only the length, in d.n, is known.
func (d *insn) opcode(op byte) (*row, bool) {
	switch {
	case op == 0x0f:
		return d.escape()
	case op == 0xc4, op == 0xc5:
		return d.vex(op)
	case op == 0x62:
		return d.evex()
	case invalid[op], op == 0x8f && d.peek()&0x38 != 0: // XOP
		d.n = 1
		return nil, false
	case op >= 0xd8 && op <= 0xdf:
		d.operand()
		return d.x87(op)
	case d.peek() >= 0xc0 && (op == 0x8d || op == 0xff && (d.peek()>>3&7 == 3 || d.peek()>>3&7 == 5)):
		// lea, far call or far jump of a register
		d.n = 1
		return nil, false
	case op&0xfe == 0xc6 && d.peek()&0x38 != 0 && d.peek() != 0xf8: // xabort and xbegin are others
		d.n = 1
		return nil, false
	}
	return d.finish(&oneByte[op], op)
}

func (d *insn) peek() byte {
	if d.n < len(d.b) {
		return d.b[d.n]
	}
	return 0
}

// escape handles the maps behind 0f.
func (d *insn) escape() (*row, bool) {
	op := d.next()
	d.escaped, d.second = true, op
	switch op {
	case 0x38:
		return d.map38()
	case 0x3a:
		op = d.next()
		d.operand()
		d.skip(1)
		if !sseOpcodes[3].has(op) {
			return nil, false
		}
		return d.vectorRow(3, op, d.mandatory(), inSSE, 0)
	}
	r, ok := d.finish(&twoByte[op], op)
	if sseOpcodes[1].has(op) {
		return d.vectorRow(1, op, d.mandatory(), inSSE, 0)
	}
	return d.system(op, r, ok)
}

// Rows of map 38 that are no vector instructions, by opcode and prefix.
var rows38 = []struct {
	op, prefix byte
	memory     bool // the operand must be in memory
	row        row
}{
	{0x80, p66, true, row{g: rd, e: rd, flags: fW, traits: priv | ser}}, // invept
	{0x81, p66, true, row{g: rd, e: rd, flags: fW, traits: priv | ser}}, // invvpid
	{0x82, p66, true, row{g: rd, e: rd, traits: priv | ser}},            // invpcid
	{0xf0, pF2, false, row{g: rw, e: rd, eb: true}},                     // crc32
	{0xf1, pF2, false, row{g: rw, e: rd}},
	{0xf0, pNone, true, row{g: wr, e: rd}}, {0xf0, p66, true, row{g: wr, e: rd}}, // movbe
	{0xf1, pNone, true, row{e: wr, g: rd}}, {0xf1, p66, true, row{e: wr, g: rd}},
	{0xf5, p66, true, row{e: wr, g: rd, traits: priv}},                                                   // wruss
	{0xf6, pNone, true, row{e: wr, g: rd, traits: priv}},                                                 // wrss
	{0xf6, p66, false, row{g: rw, e: rd, flags: fRC}}, {0xf6, pF3, false, row{g: rw, e: rd, flags: fRC}}, // adcx, adox
	{0xf8, p66, true, row{g: rd, e: rd, traits: stor}},                   // movdir64b
	{0xf8, pF2, true, row{g: rd, e: rd, flags: fW, traits: stor}},        // enqcmd
	{0xf8, pF3, true, row{g: rd, e: rd, flags: fW, traits: priv | stor}}, // enqcmds
	{0xf9, pNone, true, row{e: wr, g: rd}},                               // movdiri
}

func init() {
	for k := range rows38 {
		rows38[k].row.known, rows38[k].row.modrm = true, true
	}
}

func (d *insn) map38() (*row, bool) {
	op := d.next()
	d.operand()
	p := d.mandatory()
	if sseOpcodes[2].has(op) {
		return d.vectorRow(2, op, p, inSSE, 0)
	}
	for k := range rows38 {
		if x := &rows38[k]; x.op == op && x.prefix == p && (!x.memory || d.modrm < 0xc0) {
			if p != p66 || op != 0xf0 && op != 0xf1 { // 66 is the operand size of movbe alone
				d.opsize16 = false
			}
			return &x.row, true
		}
	}
	return nil, false
}

// finish consumes ModRM and immediate, and resolves groups.
func (d *insn) finish(r *row, op byte) (*row, bool) {
	if r.modrm {
		d.operand()
		if r.group != nil {
			r = &r.group[d.modrm>>3&7]
		}
	}
	switch r.imm {
	case i8:
		d.skip(1)
	case i16:
		d.skip(2)
	case iEnter:
		d.skip(3)
	case iZ:
		d.wide(d.sizeZ())
	case iV:
		if d.rex&8 != 0 {
			d.wide(8)
		} else {
			d.wide(d.sizeZ())
		}
	case iMoffs:
		if d.addr32 {
			d.wide(4)
		} else {
			d.wide(8)
		}
	case iRel8:
		d.disp = int64(int8(d.next()))
	case iRel32:
		d.skip(4)
		if !d.short {
			d.disp = int64(int32(isa.ByteOrder.Uint32(d.b[d.n-4:])))
		}
	}
	return r, r.known
}

func (d *insn) sizeZ() int {
	if d.opsize16 && d.rex&8 == 0 {
		return 2
	}
	return 4
}

// operand consumes ModRM, SIB and displacement.
//
//	ModRM  7  6 5    3 2   0        SIB  7   6 5     3 2    0
//	      | mod | reg  | rm |           | scale | index | base |
//
// rm 4 (mod != 3) brings a SIB; rm 5 with mod 0 is disp32(%rip); index 4 (without
// REX.X) is none; base 5 with mod 0 is disp32 alone (SDM 2.1.5, 2.2.1.6).
func (d *insn) operand() {
	d.modrm = d.next()
	mod, rm := d.modrm>>6, d.modrm&7
	if mod == 3 {
		return
	}
	disp := [4]int{0, 1, 4, 0}[mod]
	switch {
	case rm == 4:
		sib := d.next()
		base, index := sib&7, sib>>3&7|(d.rex&2)<<2
		d.index = index
		if index != 4 && !d.indexed {
			d.addrRegs |= isa.Set(isa.Reg(index))
		}
		if base == 5 && mod == 0 {
			disp = 4
		} else {
			d.addrRegs |= isa.Set(isa.Reg(base | (d.rex&1)<<3))
		}
	case rm == 5 && mod == 0:
		disp, d.ripRel, d.rel32 = 4, true, d.n
	default:
		d.addrRegs |= isa.Set(isa.Reg(rm | (d.rex&1)<<3))
	}
	if d.ripRel {
		d.skip(disp)
	} else {
		d.wide(disp)
	}
}

// effects turns a row and the operands into the result.
func (d *insn) effects(r *row, op byte, a isa.Addr) isa.Insn {
	i := isa.Insn{Addr: a, Len: d.n, Flow: r.flow, Traits: r.traits,
		Reads: r.reads, Writes: r.writes, Clobbers: r.clobbers}
	if i.Flow == isa.FlowUnknown {
		i.Flow = isa.FlowNone
	}
	if r.imm == iRel8 || r.imm == iRel32 {
		i.Target = i.End() + isa.Addr(d.disp)
		i.Traits |= isa.PCRel
	}
	if half := i.Writes & (rax | rdx); d.opsize16 && d.rex&8 == 0 { // 16-bit halves
		i.Clobbers |= half
		i.Writes &^= half
	}
	d.useFlags(&i, r.flags)
	if r.modrm {
		d.modrmEffects(&i, r)
	}
	if r.plus != no {
		low := d.b[d.opIndex()] & 7
		d.useReg(&i, low|(d.rex&1)<<3, r.plus, r.plusByte)
	}
	if r.acc != no {
		d.useReg(&i, byte(RAX), r.acc, false)
	}
	if r.string && (d.rep || d.repne) {
		i.Traits |= isa.Repeats
		i.Reads |= rcx
		i.Clobbers |= rcx
		if i.Writes.Has(Flags) { // zero repetitions leave the flags
			i.Writes &^= isa.Set(Flags)
			i.Clobbers |= isa.Set(Flags)
		}
	}
	i.Reads |= d.also.Reads
	i.Writes |= d.also.Writes
	if i.Traits&isa.Mem != 0 {
		i.Traits |= isa.MayFault
	}
	return d.idioms(i, op)
}

// opIndex is the index of the opcode byte of an instruction without ModRM
// whose register is in the opcode.
func (d *insn) opIndex() int {
	for k, c := range d.b {
		if c == 0x0f {
			return k + 1
		}
		if !isPrefix(c) {
			return k
		}
	}
	return 0
}

// idioms corrects nop, pause, and operations of a register with itself whose
// result does not depend on it.
func (d *insn) idioms(i isa.Insn, op byte) isa.Insn {
	if op == 0x90 && d.rex&1 == 0 { // nop, or pause with f3
		return isa.Insn{Addr: i.Addr, Len: i.Len, Flow: isa.FlowNone}
	}
	selfZero := op == 0x31 || op == 0x33 || op == 0x29 || op == 0x2b
	if selfZero && d.modrm >= 0xc0 && d.rm() == d.reg() && !d.opsize16 {
		i.Reads = 0
	}
	return i
}

// accessTraits is what an operand in memory means.
var accessTraits = [...]isa.Traits{rd: isa.Load, wr: isa.Store, rw: isa.Mem, may: isa.Mem, vrd: isa.Load, vwr: isa.Store}

func (d *insn) rm() byte  { return d.modrm&7 | (d.rex&1)<<3 }
func (d *insn) reg() byte { return d.modrm>>3&7 | (d.rex&4)<<1 }

func (d *insn) modrmEffects(i *isa.Insn, r *row) {
	if d.modrm >= 0xc0 {
		d.useReg(i, d.rm(), r.e, r.eb)
	} else {
		i.Reads |= d.addrRegs
		if d.ripRel {
			i.Traits |= isa.PCRel
			if !d.addr32 { // with 67h the address is cut to 32 bits
				i.Rel32 = d.rel32
				i.Operand = i.End() + isa.Addr(int32(isa.ByteOrder.Uint32(d.b[d.rel32:])))
			}
		}
		i.Traits |= accessTraits[r.e]
	}
	if r.g != no {
		d.useReg(i, d.reg(), r.g, r.gb)
	}
}

// useReg adds one register operand. Writing 32 or 64 bits overwrites the whole
// register; 8 or 16 bits keep the rest of it (SDM volume 1, 3.4.1.1). Without
// REX, byte registers 4 to 7 are the second bytes of 0 to 3.
func (d *insn) useReg(i *isa.Insn, n byte, a access, isByte bool) {
	if isByte && d.rex == 0 && n >= 4 && n < 8 {
		n -= 4
	}
	set := isa.Set(isa.Reg(n))
	partial := isByte || d.opsize16 && d.rex&8 == 0
	switch a {
	case rd:
		i.Reads |= set
		return
	case may:
		i.Reads |= set
		i.Clobbers |= set
		return
	case rw:
		i.Reads |= set
	case no, adr, vrd, vwr:
		return
	}
	if partial {
		i.Clobbers |= set
	} else {
		i.Writes |= set
	}
}

func (d *insn) useFlags(i *isa.Insn, f flagUse) {
	set := isa.Set(Flags)
	if f == fR || f == fRW || f == fRC {
		i.Reads |= set
	}
	if f == fW || f == fRW {
		i.Writes |= set
	}
	if f == fC || f == fRC {
		i.Clobbers |= set
	}
}
