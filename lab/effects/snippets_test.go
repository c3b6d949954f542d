package effects

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/isa/amd64"
	"kerninst/agent/isa/arm64"
	"kerninst/agent/isa/riscv64"
	"kerninst/agent/snippet"
	"kerninst/agent/snippet/snippettest"
	"kerninst/lab/sweep"
)

// What the program that runs patches (guest/bench/snips.c) puts where, in bytes.
const (
	snipPage   = isa.Addr(0x20000000)
	snipLoads  = isa.Addr(0x20020000) // what stands in for the module's loads
	snipData   = 0x20010000           // what can be loaded: a page
	snipSize   = 4096
	snipTask   = isa.Addr(0x20020ff8) // amd64: where the address of the task is, which is that page
	snipNow    = 0x12340000           // what the time is
	snipPoint  = 64
	snipPatch  = 128
	snipRegion = 8192
	snipCell   = snipPage + snipPatch + snipRegion
	snipRegs   = 34
)

// snipBatch is how many cases a program runs: of what it writes a MiB is kept.
const snipBatch = 150

// nops are what a point of the tests displaces: as long as the jump to the patch.
var nops = map[string]string{"amd64": "0f1f440000", "arm64": "1f2003d5", "riscv64": "13000000"}

var flagBits = map[string]uint64{"amd64": 0x8d5, "arm64": 0xf0000000}

// snipCase is a snippet, as a patch, with what it starts from.
type snipCase struct {
	s      snippet.Snippet
	free   isa.RegSet
	regs   [snipRegs]uint64
	flags  uint64
	cells  []uint64
	out    gen.Output
	code   []byte
	behind []uint64     // what is behind the cells: a ring, and clocks;
	inRing snippet.Cell // the cell that leads to the ring
	tally  tally
}

// tally is what things come to when a case is checked.
type tally struct{ loaded, faults, records, full, clocks int }

func (t *tally) add(u tally) {
	t.loaded, t.faults = t.loaded+u.loaded, t.faults+u.faults
	t.records, t.full = t.records+u.records, t.full+u.full
	t.clocks += u.clocks
}

func entry(arch *isa.Arch, from, to isa.Addr) ([]byte, error) {
	switch arch.Name {
	case "amd64":
		return amd64.Jump(from, to)
	case "arm64":
		return arm64.Jump(from, to)
	}
	return riscv64.Jump(from, to)
}

// make turns a snippet into a case that starts from random registers.
func (c *snipCase) make(arch *isa.Arch, r *rand.Rand) error {
	nop, err := hex.DecodeString(nops[arch.Name])
	if err != nil {
		return err
	}
	c.bind(arch, r)
	point := snipPage + snipPoint
	in := gen.Input{Snippet: c.s, Patch: snipPage + snipPatch, Cell: snipCell,
		Displaced: []isa.Insn{arch.Decode(nop, point)}, Bytes: nop, Back: point + isa.Addr(len(nop)),
		Free: []isa.RegSet{c.free, c.free}, Features: gen.Features{LSE: true, Preempted: r.IntN(2) == 0}, Loads: snipLoads, Task: snipTask}
	if c.out, err = gen.Patch(arch, in); err != nil {
		return err
	}
	jump, err := entry(arch, point, in.Patch)
	if err != nil {
		return err
	}
	foretell(arch, c.out.Code)
	c.code = make([]byte, snipPatch, snipPatch+len(c.out.Code))
	copy(c.code[snipPoint:], jump)
	c.code = append(c.code, c.out.Code...)
	for k := range c.regs {
		c.regs[k] = word(r)
	}
	if arch.Name == "riscv64" {
		c.regs[0] = 0
	}
	c.flags = r.Uint64() & flagBits[arch.Name]
	c.cells = append(c.s.Starts(), c.behind...)
	if r.IntN(2) == 0 {
		return c.used(arch, r)
	}
	return nil
}

// bind puts the ring, which may be as good as full, and about to go round, behind the cells,
// and the clocks behind that.
func (c *snipCase) bind(arch *isa.Arch, r *rand.Rand) {
	cell := c.the(snippet.InRing)
	at := uint64(snipCell) + 8*uint64(c.s.Words())
	cell.Ring = snippet.Ring{At: at, Tag: uint16(1 + r.IntN(1<<16-1))}
	c.inRing = gen.Form(arch, *cell)
	c.behind = make([]uint64, cell.RingWords())
	c.inRing.StartRing(c.behind, r.Uint64N(5))
	c.behind[0] += uint64(r.IntN(cell.Records+2)) * c.inRing.Step()
	cell = c.the(snippet.Clocks)
	cell.Ring.At = at + 8*uint64(len(c.behind))
	for range cell.Records {
		c.behind = append(c.behind, word(r))
	}
}

// the cell of a kind of which there is one.
func (c *snipCase) the(kind snippet.Kind) *snippet.Cell {
	return &c.s.Cells[slices.IndexFunc(c.s.Cells, func(c snippet.Cell) bool { return c.Kind == kind })]
}

// foretell has code find a time that is known, where it looks at the clock, and arm64's
// the task, which is in a register of the kernel's. Stamps of amd64's rings stay what they are.
func foretell(arch *isa.Arch, code []byte) {
	if arch.Name == "amd64" { // rdtsc; shl $32, %rdx; or %rdx, %rax: or $-1, %edx; mov $now, %eax; nop
		now := []byte{0x83, 0xca, 0xff, 0xb8, 0, 0, 0, 0, 0x90}
		binary.LittleEndian.PutUint32(now[4:], snipNow)
		copy(code, bytes.ReplaceAll(code, []byte("\x0f\x31\x48\xc1\xe2\x20\x48\x09\xd0"), now))
		return
	}
	for k := 0; k < len(code); k += arch.Decode(code[k:], 0).Len {
		for _, x := range foretold[arch.Name] {
			if insn := code[k:]; len(insn) >= 4 && binary.LittleEndian.Uint32(insn)&^x.to == x.is {
				binary.LittleEndian.PutUint32(insn, x.becomes|binary.LittleEndian.Uint32(insn)&x.to)
			}
		}
	}
}

// foretold are instructions, but for the register that they write to, and what becomes of them.
var foretold = map[string][]struct{ is, to, becomes uint32 }{
	"arm64": {
		{0xd53be040, 31, 0xd2a00000 | snipNow>>16<<5},  // mrs xN, cntvct_el0: movz xN, #, lsl #16
		{0xd5384100, 31, 0xd2a00000 | snipData>>16<<5}, // mrs xN, sp_el0: likewise
	},
	"riscv64": {{0xc0102073, 31 << 7, 0x37 | snipNow}}, // rdtime: lui
}

// unstamp checks the tags in a ring that a snippet has written to, and makes its stamps those
// of another, since nobody knows the time.
func (c *snipCase) unstamp(ring, like []uint64) error {
	for at := snippet.RingHead; at < c.inRing.RingWords(); at += c.inRing.Stride() {
		if ring[at] != 0 && like[at] != 0 {
			tag := uint16(ring[at] >> 48)
			if c.inRing.Fields == 0 {
				tag = snippet.Tag(ring[at])
			}
			if tag != c.inRing.Ring.Tag {
				return fmt.Errorf("the record at word %d has the stamp %#x, not of tag %#x", at, ring[at], c.inRing.Ring.Tag)
			}
			ring[at] = like[at]
		}
	}
	return nil
}

// loadable is what the program lets a snippet load.
func loadable(addr uint64, n int) (v uint64, ok bool) {
	if addr < snipData || addr > snipData+snipSize-uint64(n) {
		return 0, false
	}
	for k := range n {
		v |= uint64(uint8(7*(addr-snipData+uint64(k))+3)) << (8 * k)
	}
	return v, true
}

// word is any number, or one near where comparisons turn over or what can be loaded ends.
func word(r *rand.Rand) uint64 {
	near := []uint64{snipData, snipData + snipSize, 0, 1 << 7, 1 << 15, 1 << 31, 1 << 32, 1 << 63}
	if r.IntN(2) == 0 {
		return r.Uint64()
	}
	return near[r.IntN(len(near))] + r.Uint64N(5) - 2
}

func (c *snipCase) encode(back int) []byte {
	b := binary.LittleEndian
	var out []byte
	code := append(slices.Clone(c.code), make([]byte, -len(c.code)&7)...)
	for _, w := range []uint64{uint64(len(c.code)), uint64(back), snipPatch, uint64(len(c.cells))} {
		out = b.AppendUint64(out, w)
	}
	for _, w := range append(c.regs[:], c.flags) {
		out = b.AppendUint64(out, w)
	}
	out = append(out, code...)
	for _, w := range c.cells {
		out = b.AppendUint64(out, w)
	}
	return out
}

// check compares what a case ended with, as the program wrote it, with what the
// snippet says, and returns the rest.
func (c *snipCase) check(arch *isa.Arch, sp uint64, ended []byte) (rest []byte, err error) {
	n := snipRegs + 1 + len(c.cells)
	if len(ended) < 8*n {
		return nil, fmt.Errorf("the program ended before")
	}
	words := make([]uint64, n)
	for k := range words {
		words[k] = binary.LittleEndian.Uint64(ended[8*k:])
	}
	regs, flags, cells := words[:snipRegs], words[snipRegs], words[snipRegs+1:]
	want := slices.Clone(c.cells)
	c.tally = tally{}
	if err := c.s.Eval(c.env(arch, sp, want[c.s.Words():]), want[:c.s.Words()]); err != nil {
		return nil, err
	}
	if err := c.unstamp(cells[c.s.Words():], want[c.s.Words():]); err != nil {
		return nil, err
	}
	unit := gen.Unit(arch, c.s, snipCell)
	for k := range cells {
		cells[k] = gen.Hits(cells[k], unit)
	}
	if !slices.Equal(want, cells) {
		return nil, fmt.Errorf("cells hold %x, not %x", cells, want)
	}
	for _, r := range (arch.All &^ c.free &^ isa.Set(arch.Flags) &^ kept[arch.Name]).Regs() {
		if regs[r] != c.regs[r] {
			return nil, fmt.Errorf("%s is %#x afterwards, not %#x", arch.RegName(r), regs[r], c.regs[r])
		}
	}
	if flagBits[arch.Name] != 0 && !c.free.Has(arch.Flags) && flags != c.flags {
		return nil, fmt.Errorf("flags are %#x afterwards, not %#x", flags, c.flags)
	}
	return ended[8*n:], nil
}

// env is what the snippet sees.
func (c *snipCase) env(arch *isa.Arch, sp uint64, behind []uint64) snippet.Env {
	ring, clocks := behind[:c.inRing.RingWords()], behind[c.inRing.RingWords():]
	return snippet.Env{
		Cycles:  func() uint64 { return snipNow },
		Current: func() uint64 { return snipData },
		Task: func(off, n int) uint64 {
			v, _ := loadable(snipData+uint64(off), n)
			return v
		},
		Clocks: func(int) []uint64 {
			c.tally.clocks++
			return clocks
		},
		Append: func(_ int, fields []uint64) {
			if c.inRing.Append(ring, 1, fields) {
				c.tally.records++
			} else {
				c.tally.full++
			}
		},
		Arg: func(k int) uint64 { return c.regs[gen.Argument(arch, k)] },
		Ret: func() uint64 { return c.regs[gen.Result(arch)] },
		Reg: func(name string) (uint64, bool) {
			for _, r := range arch.All.Regs() {
				if arch.RegName(r) == name {
					if kept[arch.Name].Has(r) {
						return sp, true
					}
					return c.regs[r], true
				}
			}
			return 0, false
		},
		Load: func(addr uint64, n int) (uint64, bool) {
			v, ok := loadable(addr, n)
			if ok {
				c.tally.loaded++
			} else {
				c.tally.faults++
			}
			return v, ok
		},
	}
}

// used fills the maps as if the snippet had run, and often others: their records have the
// keys that it will look for, nearly those, or are being written.
func (c *snipCase) used(arch *isa.Arch, r *rand.Rand) error {
	after := slices.Clone(c.cells[:c.s.Words()])
	if err := c.s.Eval(c.env(arch, 0, slices.Clone(c.behind)), after); err != nil {
		return err
	}
	for k, cell := range c.s.Cells {
		if cell.Kind != snippet.Map {
			continue
		}
		at := c.s.Word(k)
		copy(c.cells[at:], after[at:at+cell.Words()])
		for n := range cell.Records {
			switch rec := c.cells[at+n*cell.Stride():]; r.IntN(6) {
			case 0:
				rec[1+r.IntN(2)]++
			case 1:
				rec[0] = snippet.Claimed
			}
		}
	}
	return nil
}

// snipCases makes n snippets at random, with as many registers free as chance has it.
func snipCases(t *testing.T, arch *isa.Arch, n int) (out []*snipCase) {
	t.Helper()
	r := rand.New(rand.NewPCG(*drawn, 0))
	var names []string
	for _, reg := range (arch.All &^ isa.Set(arch.Flags)).Regs() {
		if !kept[arch.Name].Has(reg) || arch.RegName(reg) == "sp" || arch.RegName(reg) == "rsp" {
			names = append(names, arch.RegName(reg))
		}
	}
	for len(out) < n {
		c := &snipCase{s: snippettest.Random(r, names, []uint64{snipData + 16, snipData + snipSize/2, snipData + snipSize})}
		for _, reg := range (arch.All &^ kept[arch.Name] &^ arch.NeverUse).Regs() {
			if r.IntN(4) < len(out)%5 { // from none to all
				c.free |= isa.Set(reg)
			}
		}
		switch err := c.make(arch, r); {
		case err != nil:
			t.Fatalf("%v\n%v", err, c.s)
		default:
			out = append(out, c)
		}
	}
	return out
}

// checkSnips checks what a program wrote that ran some cases, of which the first has a number.
func checkSnips(t *testing.T, arch *isa.Arch, first int, cases []*snipCase, ended []byte) {
	t.Helper()
	if len(ended) < 8 {
		t.Fatal("the program said nothing")
	}
	sp, rest := binary.LittleEndian.Uint64(ended), ended[8:]
	for k, c := range cases {
		var err error
		if rest, err = c.check(arch, sp, rest); err != nil {
			t.Fatalf("case %d: %v\nfree %s\n%v\n%s", first+k, err, arch.Names(c.free), c.s, listing(arch, c.out.Code))
		}
	}
	if len(rest) != 0 {
		t.Errorf("%d bytes too many", len(rest))
	}
}

// sumUp says what was checked, and that there was enough of each kind.
func sumUp(t *testing.T, arch *isa.Arch, cases []*snipCase) {
	spilled, insns, all := 0, 0, tally{}
	for _, c := range cases {
		spilled += min(1, c.out.Spilled)
		insns += c.out.Added
		all.add(c.tally)
	}
	t.Logf("proof snippets %s %d patches of %d instructions, %d that save registers; %d loads of something, %d of nothing; %d records, %d without room; %d looks at clocks",
		arch.Name, len(cases), insns, spilled, all.loaded, all.faults, all.records, all.full, all.clocks)
	if all.records < len(cases)/20 || all.full < len(cases)/50 {
		t.Errorf("%d records, %d without room: both kinds are wanted", all.records, all.full)
	}
	if all.loaded < len(cases)/20 || all.faults < len(cases)/20 {
		t.Errorf("%d loads of something, %d of nothing: both kinds are wanted", all.loaded, all.faults)
	}
	if all.clocks < len(cases)/4 {
		t.Errorf("%d looks at clocks: more are wanted", all.clocks)
	}
	if spilled == 0 || spilled == len(cases) {
		t.Errorf("%d of %d patches save registers: both kinds are wanted", spilled, len(cases))
	}
}

func listing(arch *isa.Arch, code []byte) string {
	var b bytes.Buffer
	for k := 0; k < len(code); {
		a := snipPage + snipPatch + isa.Addr(k)
		fmt.Fprintf(&b, "%v: %s\n", a, arch.Text(code[k:], a))
		k += arch.Decode(code[k:], a).Len
	}
	return b.String()
}

// prepareSnippets makes patches of random snippets: cells are as the interpreter leaves
// them, and what was not free is as it was.
func prepareSnippets(t *testing.T, arch *isa.Arch, _ machine, _ []sweep.Piece) (inputs [][]byte, check func(*testing.T, [][]byte)) {
	n := 300
	if *full {
		n = 1500
	}
	cases := snipCases(t, arch, n)
	for part := range slices.Chunk(cases, snipBatch) {
		var data []byte
		for _, c := range part {
			data = append(data, c.encode(snipPoint+len(nops[arch.Name])/2)...)
		}
		inputs = append(inputs, data)
	}
	return inputs, func(t *testing.T, outputs [][]byte) {
		for k, ended := range outputs {
			checkSnips(t, arch, k*snipBatch, cases[k*snipBatch:min(len(cases), (k+1)*snipBatch)], ended)
		}
		sumUp(t, arch, cases)
	}
}
