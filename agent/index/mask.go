package index

import (
	"fmt"
	"hash/crc32"
	"sort"
	"sync"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
)

// What is live in a function depends on the text of others: of all that it calls
// and that call it. So whoever relies on it has to know that no instruction of
// the kernel is another than was analysed. Decoding all of them again would take
// as long as the analysis. The index keeps sums of the text instead, in which is
// masked what differs from boot to boot, or while the kernel runs, and changes
// neither flow nor registers.

// textChunk is how much of the text one sum covers, in bytes.
const textChunk = 64 << 10

// mask is a stretch of text that is not summed up as it is. It lies within one
// chunk.
type mask struct {
	off  isa.Off // from _stext
	size isa.Off // below 1<<24
	kind maskKind
}

type maskKind uint8

const (
	maskBytes   maskKind = iota // all of it
	maskImm16                   // bits 20:5 of a word: arm64's move wide (immediate)
	maskImm12                   // bits 21:10 of a word: arm64's add (immediate)
	maskLock                    // amd64's lock prefix, or what is there with one CPU
	maskImmR                    // bits 21:16 of a word: arm64's shift right
	maskImmS                    // bits 15:10 of a word: arm64's rotation
	maskLogical                 // bits 22:10 of a word: arm64's and (immediate)
	maskShamt                   // bits 24:20 of a word: riscv64's shift right
	maskKinds
)

// wordMasks are the bits of a word that masks hide; others are no words.
var wordMasks = [maskKinds]uint32{maskImm16: 0xffff << 5, maskImm12: 0xfff << 10, maskImmR: 0x3f << 16, maskImmS: 0x3f << 10, maskLogical: 0x1fff << 10, maskShamt: 0x1f << 20}

const maskWidth = 8

func (m mask) append(b []byte) []byte {
	b = order.AppendUint32(b, uint32(m.off))
	return order.AppendUint32(b, uint32(m.size)|uint32(m.kind)<<24)
}

func decodeMask(b []byte) mask {
	v := order.Uint32(b[4:])
	return mask{isa.Off(order.Uint32(b)), isa.Off(v & (1<<24 - 1)), maskKind(v >> 24)}
}

// cover masks its part of a chunk that begins at off.
func (m mask) cover(code []byte, off isa.Off) {
	part := code[m.off-off : m.off-off+m.size]
	switch bits := wordMasks[m.kind]; {
	case bits != 0:
		order.PutUint32(part, order.Uint32(part)&^bits)
	case m.kind == maskLock:
		if p := bootPrefixes["amd64"]; part[0] == p.now {
			part[0] = p.then
		}
	default:
		clear(part)
	}
}

// maskSizes are the sizes of masks that cannot have any, in bytes.
var maskSizes = [maskKinds]isa.Off{maskImm16: 4, maskImm12: 4, maskLock: 1, maskImmR: 4, maskImmS: 4, maskLogical: 4, maskShamt: 4}

// masks lists what is masked, in order of place.
func (m *maker) masks() []mask {
	runs := make([][]mask, max(m.Workers, 1)*8)
	m.parallel(len(runs), func(k int) {
		for b := m.blocks * k / len(runs); b < m.blocks*(k+1)/len(runs); b++ {
			runs[k] = append(runs[k], m.maskBlock(cfg.Block(b))...)
		}
	})
	var out []mask
	for _, r := range runs {
		out = append(out, r...)
	}
	for _, f := range m.list {
		switch first := m.info[f.First]; {
		case first.Marks&cfg.Pinned != 0: // whatever is written there, it is known what it does
			out = append(out, mask{off: f.Start, size: f.Size})
		case f.Skip > 0:
			out = append(out, mask{off: f.Start, size: f.Skip})
		}
	}
	out = split(append(out, m.maskHead()...))
	sort.SliceStable(out, func(i, j int) bool { return out[i].off < out[j].off })
	return out
}

// headText is from where to where amd64's kernel runs before it is where it is linked to be,
// and mostHead how long that is at most. Linux 6.1 has constants there that are made of
// addresses, and look like none: those of page tables less where the kernel is linked to.
var headText = [2]string{"startup_64", "asm_cpu_bringup_and_idle"}

const mostHead = 16 << 10

// maskHead masks it as a whole: its code is the same in all boots of a kernel.
func (m *maker) maskHead() []mask {
	lo, err1 := m.Text.Function("", headText[0])
	hi, err2 := m.Text.Function("", headText[1])
	if m.Graph.Arch.Name != "amd64" || err1 != nil || err2 != nil || lo.Addr < m.kernel.Addr || hi.Addr-lo.Addr > mostHead {
		return nil
	}
	return []mask{{off: isa.Off(lo.Addr - m.kernel.Addr), size: isa.Off(hi.Addr - lo.Addr)}}
}

// split cuts masks where chunks end. Of a word that is cut, as of riscv64 one may be, all is masked.
func split(list []mask) (out []mask) {
	for _, x := range list {
		for x.size > 0 {
			n := min(x.size, textChunk-x.off%textChunk)
			if n < x.size {
				x.kind = maskBytes
			}
			out = append(out, mask{x.off, n, x.kind})
			x.off, x.size = x.off+n, x.size-n
		}
	}
	return out
}

// maskBlock lists the masks of one block.
func (m *maker) maskBlock(b cfg.Block) (out []mask) {
	i := &m.info[b]
	lo, hi := m.Graph.Bounds(b)
	switch {
	case !i.holdsCode():
		return []mask{{off: isa.Off(lo), size: isa.Off(hi - lo)}}
	case i.Odd:
		return nil
	}
	m.Graph.Insns(b, func(insn isa.Insn) {
		at := isa.Off(insn.Addr - m.kernel.Addr)
		if i.Site && at+isa.Off(insn.Len) == isa.Off(hi) {
			out = append(out, mask{off: at, size: isa.Off(insn.Len)})
			return
		}
		out = m.maskInsn(out, at, m.kernel.Code[at:at+isa.Off(insn.Len)], insn)
	})
	return out
}

// maskInsn adds the masks of an instruction: operands that may hold addresses, and
// what the kernel writes as constants into its own code when it starts.
func (m *maker) maskInsn(out []mask, at isa.Off, code []byte, i isa.Insn) []mask {
	if m.Graph.Arch.Name == "riscv64" {
		return maskRiscv(out, at, m.kernel.Code[at:])
	}
	if m.Graph.Arch.Absolute == nil {
		if kind, ok := maskWord(m.Graph.Arch.Name, code); ok {
			out = append(out, mask{at, 4, kind})
		}
		return out
	}
	if p, ok := bootPrefixes[m.Graph.Arch.Name]; ok && (code[0] == p.now || code[0] == p.then) {
		out = append(out, mask{at, 1, maskLock})
	}
	if i.Flow != isa.FlowNone {
		return out
	}
	if shiftsByConstant(code) {
		out = append(out, mask{at + isa.Off(len(code)) - 1, 1, maskBytes})
	}
	for _, f := range m.Graph.Arch.Absolute(code) {
		out = append(out, mask{off: at + isa.Off(f.Off), size: isa.Off(f.Size)})
	}
	if i.Rel32 > 0 {
		out = append(out, mask{off: at + isa.Off(i.Rel32), size: 4})
	}
	return out
}

// shiftsByConstant reports whether amd64's instruction is shr $imm8,%r32, by as many bits as the sizes of hash tables have it,
// which are of the memory that there is (runtime_const_shift_right_32). SDM Vol. 2B, SAL/SAR/SHL/SHR.
func shiftsByConstant(code []byte) bool {
	if len(code) == 4 && code[0]&0xf8 == 0x40 { // REX without W
		code = code[1:]
	}
	return len(code) == 3 && code[0] == 0xc1 && code[1]&0xf8 == 0xe8
}

// maskWord finds arm64's instructions into which the kernel writes what it has
// made up when it started: addresses, and shifts by the sizes of tables (runtime_const_ptr,
// runtime_const_shift_right_32), and where the hypervisor sees the kernel (kvm_update_va_mask: and, ror, add, add, ror
// of one register). Arm ARM C4.1.93.
func maskWord(arch string, code []byte) (maskKind, bool) {
	if arch != "arm64" || len(code) < 4 {
		return 0, false
	}
	w := order.Uint32(code)
	own := w&31 == w>>5&31 // of a register to itself
	switch {
	case w>>23&0x3f == 0x25: // movn, movz, movk
		return maskImm16, true
	case w>>23&0xff == 0x22 && own: // add xd, xd, #imm
		return maskImm12, true
	case w>>22 == 0x14c && w>>10&0x3f == 31: // lsr wd, wn, #imm
		return maskImmR, true
	case w>>23 == 0x124 && own: // and xd, xd, #imm
		return maskLogical, true
	case w>>21 == 0x49e && own && w>>16&31 == w&31: // ror xd, xd, #imm
		return maskImmS, true
	}
	return 0, false
}

// maskRiscv adds the masks of riscv64's instruction at the begin of code, into which since Linux 6.16 the kernel writes
// pointers and shifts when it starts (arch/riscv/include/asm/runtime-const.h).
func maskRiscv(out []mask, at isa.Off, code []byte) []mask {
	switch {
	case loadsPointer(code):
		return append(out, mask{off: at, size: pointerLen})
	case len(code) >= 4 && order.Uint32(code)&0xfe00707f == 0x501b: // srliw: Unprivileged ISA, 34
		return append(out, mask{at, 4, maskShamt})
	}
	return out
}

// pointerLen is how long the instructions are that load the halves of a pointer, in bytes.
const pointerLen = 16

// loadsPointer reports whether code begins as runtime_const_ptr does: lui a; lui b; addiw a, a; addiw b, b. What would do
// nothing is a nop, and addiw without lui adds to nothing. Unprivileged ISA, 34.
func loadsPointer(code []byte) bool {
	if len(code) < pointerLen {
		return false
	}
	var of [2]uint32 // which registers
	for k := range of {
		lui, addiw := order.Uint32(code[4*k:]), order.Uint32(code[8+4*k:])
		rd := lui >> 7 & 31
		if lui == nopRiscv {
			rd = addiw >> 7 & 31
		}
		high := lui == nopRiscv || lui&0x7f == 0x37
		low := addiw == nopRiscv || addiw&0x707f == 0x1b && addiw>>7&31 == rd && (addiw>>15&31 == rd || lui == nopRiscv && addiw>>15&31 == 0)
		if !high || !low || rd == 0 || lui == addiw {
			return false
		}
		of[k] = rd
	}
	return of[0] != of[1]
}

// nopRiscv is addi x0, x0, 0.
const nopRiscv = 0x13

// maskTables writes masks, and the sums of the text beneath them.
func (m *maker) maskTables() (masks, sums []byte) {
	list := m.masks()
	for _, x := range list {
		masks = x.append(masks)
	}
	code := append([]byte(nil), m.kernel.Code...)
	for _, x := range list {
		x.cover(code, 0)
	}
	for len(code) > 0 {
		n := min(len(code), textChunk)
		sums = order.AppendUint32(sums, crc32.Checksum(code[:n], crcTable))
		code = code[n:]
	}
	return masks, sums
}

// Changed says that a kernel's text is not the one that was analysed.
type Changed struct {
	Lo, Hi isa.Addr // somewhere in there
	Func   string   // the first function that differs; "" if none does by itself
}

func (e *Changed) Error() string {
	if e.Func != "" {
		return fmt.Sprintf("index: %s is not as it was analysed", e.Func)
	}
	return fmt.Sprintf("index: the text from %v to %v is not as it was analysed", e.Lo, e.Hi)
}

// whole is what is known of the whole text.
type whole struct {
	once sync.Once
	err  error
	sums []uint32 // of each function's bytes, as they were when they were compared
}

// Whole compares all of the kernel's text with what was analysed, once. The error
// is a *Changed, or a *Damaged of the index.
func (v *View) Whole() error {
	v.whole.once.Do(func() { v.whole.err = v.compare() })
	return v.whole.err
}

func (v *View) compare() error {
	masks, err := v.x.table(tableMasks)
	if err != nil {
		return err
	}
	sums, err := v.x.table(tableTexts)
	if err != nil {
		return err
	}
	size := v.x.TextSize()
	if want := (size + textChunk - 1) / textChunk * 4; isa.Off(len(sums)) != want {
		return damaged("%d bytes of sums of the text, not %d", len(sums), want)
	}
	lo, _ := v.t.Bounds()
	buf := make([]byte, textChunk)
	each := summer{x: v.x, sums: make([]uint32, v.x.Funcs())}
	for off := isa.Off(0); off < size; off += textChunk {
		code := buf[:min(textChunk, size-off)]
		if err := v.t.Read(lo+isa.Addr(off), code); err != nil {
			return err
		}
		if err := each.add(code, off); err != nil {
			return err
		}
		if masks, err = cover(masks, code, off); err != nil {
			return err
		}
		if crc32.Checksum(code, crcTable) != order.Uint32(sums[off/textChunk*4:]) {
			return v.changed(lo+isa.Addr(off), lo+isa.Addr(off)+isa.Addr(len(code)))
		}
	}
	v.whole.sums = each.sums
	return nil
}

// cover masks a chunk that begins at off, and returns the masks behind it.
func cover(masks, code []byte, off isa.Off) ([]byte, error) {
	for ; len(masks) > 0; masks = masks[maskWidth:] {
		m := decodeMask(masks)
		if m.off >= off+isa.Off(len(code)) {
			break
		}
		if m.off < off || m.off-off+m.size > isa.Off(len(code)) || m.kind >= maskKinds || maskSizes[m.kind] != 0 && m.size != maskSizes[m.kind] {
			return nil, damaged("a mask of %d bytes at %#x, of kind %d", m.size, uint64(m.off), m.kind)
		}
		m.cover(code, off)
	}
	return masks, nil
}

// changed finds who is different between two addresses.
func (v *View) changed(lo, hi isa.Addr) error {
	e := &Changed{Lo: lo, Hi: hi}
	var failed error
	for a := lo; a < hi; {
		f, ok := v.t.Locate(a)
		if !ok {
			break
		}
		fn, err := v.Function(f)
		if err != nil {
			failed = err
			break
		}
		if fn.How == Differs {
			e.Func = f.String()
			break
		}
		a = f.End()
	}
	if failed != nil {
		return failed
	}
	return e
}
