package effects

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"kerninst/agent/isa"
)

// Bar says in words why no instruction like this is ever displaced, wherever it
// stands; "" if one may be.
func Bar(i isa.Insn) string {
	if i.Flow == isa.FlowNone || i.Flow.Ends() || i.Flow == isa.FlowCond {
		if err := i.Stays(); err != nil {
			return strings.TrimSuffix(err.Error(), " "+isa.ErrStays.Error())
		}
	}
	return ""
}

// Population collects the forms of a kernel's instructions.
type Population struct {
	arch  *isa.Arch
	forms map[string][]Sample
	seen  map[string]bool
	// Barred counts the forms that are never displaced, by reason.
	Barred map[string]map[string]bool
}

// NewPopulation returns an empty one.
func NewPopulation(arch *isa.Arch) *Population {
	return &Population{arch, map[string][]Sample{}, map[string]bool{}, map[string]map[string]bool{}}
}

// keptPerForm bounds what is remembered of one form.
const keptPerForm = 400

// Add takes the instructions of a function.
func (p *Population) Add(function string, code []byte, a isa.Addr) {
	for k := 0; k < len(code); {
		i := p.arch.Decode(code[k:], a+isa.Addr(k))
		rest := code[k:]
		k += i.Len
		if i.Len > len(rest) {
			return
		}
		if n := p.pair(rest, i); n > 0 {
			j := p.arch.Decode(rest[i.Len:], i.End())
			p.add(fmt.Sprintf("auipc and jalr (%v)", j.Flow), Sample{Code: rest[:n], Addr: i.Addr, Function: function})
		}
		if p.seen[string(rest[:i.Len])] {
			continue
		}
		form := Form(p.arch, p.arch.Text(rest, i.Addr))
		if why := Bar(i); why != "" {
			if p.Barred[why] == nil {
				p.Barred[why] = map[string]bool{}
			}
			p.Barred[why][form] = true
			continue
		}
		if i.Flow != isa.FlowNone || i.Traits&isa.PCRel != 0 {
			form += fmt.Sprintf(" (%v, %d bytes)", i.Flow, i.Len)
		}
		p.add(form, Sample{Code: rest[:i.Len], Addr: i.Addr, Function: function})
	}
}

// pair is the length of a far jump or call that an instruction begins, or 0.
func (p *Population) pair(code []byte, i isa.Insn) int {
	if p.arch.Op == nil || p.arch.Far == nil || len(code) < i.Len+p.arch.MaxLen {
		return 0
	}
	x, y := p.arch.Op(code, i.Addr), p.arch.Op(code[i.Len:], i.End())
	if x.Kind != isa.OpConst || i.Traits&isa.PCRel == 0 || y.Kind != isa.OpJump || x.Dst != y.A {
		return 0
	}
	return i.Len + p.arch.Decode(code[i.Len:], i.End()).Len
}

func (p *Population) add(form string, c Sample) {
	if p.seen[string(c.Code)] {
		return
	}
	p.seen[string(c.Code)] = true
	if len(p.forms[form]) >= keptPerForm {
		return
	}
	c.Form, c.Code = form, inReach(p.arch, bytes.Clone(c.Code), c.Addr)
	p.forms[form] = append(p.forms[form], c)
}

// fixed is an operand in memory that no register but an index has a part in.
var fixed = regexp.MustCompile(`[ ,:](0x[0-9a-f]+)(\(,[^)]*\))?(,|$)`)

// inReach puts the program's memory where an instruction of amd64 has an address of
// the kernel as it is, or one behind gs, which is zero in programs.
func inReach(arch *isa.Arch, code []byte, a isa.Addr) []byte {
	if arch.Absolute == nil || arch.Decode(code, a).Traits&isa.PCRel != 0 {
		return code
	}
	address := fixed.MatchString(arch.Text(code, a))
	for _, f := range arch.Absolute(code) {
		if f.Size != 4 {
			continue
		}
		v := isa.ByteOrder.Uint32(code[f.Off:])
		if v >= 0x81000000 && v < 0xc0000000 || address { // with KASLR
			isa.ByteOrder.PutUint32(code[f.Off:], uint32(arena+page))
			address = false // what follows is an immediate
		}
	}
	return code
}

// Example is a function that has an instruction of a form.
func (p *Population) Example(form string) string { return p.forms[form][0].Function }

// Forms lists the forms, in order.
func (p *Population) Forms() []string {
	names := make([]string, 0, len(p.forms))
	for f := range p.forms {
		names = append(names, f)
	}
	sort.Strings(names)
	return names
}

// Sites lays out up to per samples of each form, at random, each in every variant,
// and samples at the edges of what displacements there are. The error tells, by form,
// why there is none of it.
func (p *Population) Sites(seed uint64, per int, variants []Variant) (sites []*Site, none map[string]error) {
	r := rand.New(rand.NewPCG(seed, 1))
	none = map[string]error{}
	for _, form := range p.Forms() {
		list := p.forms[form]
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		took := 0
		for _, c := range list {
			if took == per {
				break
			}
			made, err := p.each(r, c, variants)
			if sites = append(sites, made...); len(made) > 0 {
				took++
			} else if none[form] == nil {
				none[form] = err
			}
		}
		if took > 0 {
			delete(none, form)
		}
		if len(list) > 0 {
			for _, code := range edges(p.arch, list[0].Code) {
				c := Sample{form, code, list[0].Function, list[0].Addr, true}
				made, _ := p.each(r, c, variants)
				sites = append(sites, made...)
			}
		}
	}
	return sites, none
}

// each plans a sample in every variant; the error is the first, if any.
func (p *Population) each(r *rand.Rand, c Sample, variants []Variant) (out []*Site, first error) {
	for _, v := range variants {
		s, err := Splice(p.arch, r, c, v)
		if err == nil {
			out = append(out, s)
		} else if first == nil {
			first = err
		}
	}
	return out, first
}

// fields are the parts of instructions that hold displacements, by what the
// instructions are recognised by, and the bit of the sign. Arm ARM C4.1 and C6.2;
// unprivileged RISC-V ISA, tables of RV32/64I and of RVC.
var fields = map[string][]struct{ mask, code, field, sign uint32 }{
	"arm64": {
		{0x7c000000, 0x14000000, 0x03ffffff, 1 << 25}, // b, bl
		{0xff000010, 0x54000000, 0x00ffffe0, 1 << 23}, // b.cond
		{0x7e000000, 0x34000000, 0x00ffffe0, 1 << 23}, // cbz, cbnz
		{0x7e000000, 0x36000000, 0x0007ffe0, 1 << 18}, // tbz, tbnz
		{0x1f000000, 0x10000000, 0x60ffffe0, 1 << 23}, // adr, adrp
		{0x3b000000, 0x18000000, 0x00ffffe0, 1 << 23}, // ldr of a literal
	},
	"riscv64": {
		{0x7f, 0x63, 0xfe000f80, 1 << 31},     // branches
		{0x7f, 0x6f, 0xfffff000, 1 << 31},     // jal
		{0x7f, 0x17, 0xfffff000, 1 << 31},     // auipc
		{0xe003, 0xa001, 0x00001ffc, 1 << 12}, // c.j
		{0xe003, 0xc001, 0x00001c7c, 1 << 12}, // c.beqz
		{0xe003, 0xe001, 0x00001c7c, 1 << 12}, // c.bnez
	},
}

// edges are an instruction with the least and the greatest displacement; nothing where
// it has none.
func edges(arch *isa.Arch, code []byte) [][]byte {
	i := arch.Decode(code, 0)
	if i.Len != len(code) {
		return nil // two instructions
	}
	if arch.Name == "amd64" {
		return edgesAmd64(i, code)
	}
	var b [4]byte
	copy(b[:], code)
	w := isa.ByteOrder.Uint32(b[:])
	for _, f := range fields[arch.Name] {
		if w&f.mask != f.code {
			continue
		}
		var out [][]byte
		for _, x := range []uint32{w&^f.field | f.sign, (w | f.field) &^ f.sign} {
			out = append(out, isa.ByteOrder.AppendUint32(nil, x)[:i.Len])
		}
		return out
	}
	return nil
}

// edgesAmd64: the displacement of a branch comes last, and has one byte or four; that
// of an operand is where the decoder says.
func edgesAmd64(i isa.Insn, code []byte) [][]byte {
	at, n := i.Rel32, 4
	switch {
	case at != 0:
	case i.Flow == isa.FlowJump || i.Flow == isa.FlowCond || i.Flow == isa.FlowCall:
		if i.Len < 5 {
			n = 1
		}
		at = i.Len - n
	default:
		return nil
	}
	least, most := bytes.Clone(code), bytes.Clone(code)
	for k := at; k < at+n; k++ {
		least[k], most[k] = 0, 0xff
	}
	least[at+n-1], most[at+n-1] = 0x80, 0x7f
	return [][]byte{least, most}
}

// Outcome is what running one site showed.
type Outcome struct {
	Runs, Landed int
	Fell, Led    bool   // one run went on behind it, one where it branches to
	Differs      string // with the splice, in words; "" if nothing did
}

// Outcomes parses what the program printed, a line for each site.
func Outcomes(in io.Reader, sites []*Site) ([]Outcome, error) {
	var out []Outcome
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<16)
	for lines.Scan() {
		f := strings.SplitN(lines.Text(), " ", 5)
		bad := fmt.Errorf("equivalence: line %d: %q", len(out)+1, lines.Text())
		if len(out) == len(sites) || len(f) < 4 || f[0] != strconv.Itoa(len(out)) {
			return nil, bad
		}
		n, err1 := strconv.Atoi(f[1])
		landed, err2 := strconv.Atoi(f[2])
		mask, err3 := strconv.ParseUint(f[3], 16, 64)
		if err1 != nil || err2 != nil || err3 != nil || landed > n {
			return nil, bad
		}
		o := Outcome{Runs: n, Landed: landed}
		for k, a := range sites[len(out)].pads {
			if mask>>k&1 != 0 {
				o.Fell = o.Fell || a == sites[len(out)].Falls
				o.Led = o.Led || a == sites[len(out)].Leads
			}
		}
		if len(f) == 5 {
			o.Differs = f[4]
		}
		out = append(out, o)
	}
	if lines.Err() == nil && len(out) != len(sites) {
		return nil, fmt.Errorf("equivalence: %d lines for %d sites", len(out), len(sites))
	}
	return out, lines.Err()
}
