package amd64

import "kerninst/agent/isa"

// Mandatory prefixes, in the order in which VEX and EVEX number them (pp).
const (
	pNone = iota
	p66
	pF3
	pF2
	pAny
)

// mandatory is the prefix that chooses among the meanings of an opcode.
func (d *insn) mandatory() byte {
	switch {
	case d.repne:
		return pF2
	case d.rep:
		return pF3
	case d.opsize16:
		return p66
	}
	return pNone
}

// exact lists instructions of the 0f map that ModRM as a whole, with or without
// a mandatory prefix, tells from others of their opcode.
var exact = []struct {
	op, modrm, prefix byte
	row               row
}{
	{0x01, 0xc1, pNone, row{flow: isa.FlowTrap, traits: priv}},                                                              // vmcall
	{0x01, 0xc2, pNone, row{flow: isa.FlowTrap, traits: priv}},                                                              // vmlaunch
	{0x01, 0xc3, pNone, row{flow: isa.FlowTrap, traits: priv}},                                                              // vmresume
	{0x01, 0xc4, pNone, row{flags: fC, traits: priv}},                                                                       // vmxoff
	{0x01, 0xc8, pNone, row{reads: rax | rcx | rdx, traits: priv}},                                                          // monitor
	{0x01, 0xc9, pNone, row{reads: rax | rcx, traits: priv}},                                                                // mwait
	{0x01, 0xca, pNone, row{traits: priv}},                                                                                  // clac
	{0x01, 0xcb, pNone, row{traits: priv}},                                                                                  // stac
	{0x01, 0xcc, p66, row{flow: isa.FlowTrap, traits: priv}},                                                                // tdcall
	{0x01, 0xcf, p66, row{flow: isa.FlowTrap, traits: priv}},                                                                // seamcall
	{0x01, 0xcf, pNone, row{flags: fC, reads: rax | rbx | rcx | rdx, clobbers: rax | rbx | rcx | rdx, traits: priv | both}}, // encls
	{0x01, 0xd0, pNone, row{reads: rcx, writes: rax | rdx, traits: isa.MayFault}},                                           // xgetbv
	{0x01, 0xd1, pNone, row{reads: rax | rcx | rdx, traits: priv | ser | isa.MayFault}},                                     // xsetbv
	{0x01, 0xd8, pNone, row{flow: isa.FlowTrap, traits: priv}},                                                              // vmrun
	{0x01, 0xd9, pNone, row{flow: isa.FlowTrap, traits: priv}},                                                              // vmmcall
	{0x01, 0xd9, pF3, row{flow: isa.FlowTrap, traits: priv}},                                                                // vmgexit
	{0x01, 0xd9, pF2, row{flow: isa.FlowTrap, traits: priv}},                                                                // likewise
	{0x01, 0xda, pNone, row{reads: rax, traits: base}},                                                                      // vmload
	{0x01, 0xdb, pNone, row{reads: rax, traits: priv}},                                                                      // vmsave
	{0x01, 0xdc, pNone, row{traits: priv}},                                                                                  // stgi
	{0x01, 0xdd, pNone, row{traits: priv}},                                                                                  // clgi
	{0x01, 0xdf, pNone, row{reads: rax | rcx, traits: priv}},                                                                // invlpga
	{0x01, 0xe8, pNone, row{traits: ser}},                                                                                   // serialize
	{0x01, 0xe8, pF3, row{traits: priv | both}},                                                                             // setssbsy
	{0x01, 0xee, pNone, row{reads: rcx, writes: rax | rdx, traits: isa.MayFault}},                                           // rdpkru
	{0x01, 0xef, pNone, row{reads: rax | rcx | rdx, traits: priv | isa.MayFault}},                                           // wrpkru
	{0x01, 0xf8, pNone, row{traits: base}},                                                                                  // swapgs
	{0x01, 0xf9, pNone, row{writes: rax | rcx | rdx}},                                                                       // rdtscp
	{0x01, 0xfa, pNone, row{reads: rax | rcx | rdx, traits: priv}},                                                          // monitorx
	{0x01, 0xfb, pNone, row{reads: rax | rbx | rcx, traits: priv}},                                                          // mwaitx
	{0x01, 0xfc, pNone, row{reads: rax, traits: stor}},                                                                      // clzero
	{0x01, 0xfe, pF3, row{reads: rax | rcx | rdx, clobbers: rax, flags: fC, traits: priv | both}},                           // rmpadjust
	{0x01, 0xfe, pF2, row{reads: rax | rcx, clobbers: rax, flags: fC, traits: priv | both}},                                 // rmpupdate
	{0x01, 0xff, pF3, row{reads: rax, clobbers: rax, flags: fC, traits: priv | both}},                                       // psmash
	{0x01, 0xff, pF2, row{reads: rax | rcx | rdx, clobbers: rax, flags: fC, traits: priv | both}},                           // pvalidate
	{0xae, 0xe8, pNone, row{traits: ser}},                                                                                   // lfence
	{0xae, 0xf0, pNone, row{traits: ser}},                                                                                   // mfence
	{0xae, 0xf8, pNone, row{traits: ser}},                                                                                   // sfence
	{0x1e, 0xfa, pF3, row{traits: isa.Landing}},                                                                             // endbr64
	{0x1e, 0xfb, pF3, row{traits: isa.Landing}},                                                                             // endbr32
}

// direct lists instructions with a register operand that share opcode and
// ModRM.reg with others.
var direct = []struct {
	op, reg, prefix byte
	row             row
}{
	{0x00, 6, pF2, row{e: rd, traits: base}},                              // lkgs
	{0x01, 4, pNone, row{e: wr, traits: priv}},                            // smsw
	{0x01, 6, pNone, row{e: rd, traits: base | ser}},                      // lmsw
	{0xae, 0, pF3, row{e: wr}},                                            // rdfsbase
	{0xae, 1, pF3, row{e: wr}},                                            // rdgsbase
	{0xae, 2, pF3, row{e: rd, traits: base | isa.MayFault}},               // wrfsbase
	{0xae, 3, pF3, row{e: rd, traits: base | isa.MayFault}},               // wrgsbase
	{0xae, 6, p66, row{e: rd, reads: rax | rdx, flags: fW, traits: priv}}, // tpause
	{0xae, 6, pF2, row{e: rd, reads: rax | rdx, flags: fW, traits: priv}}, // umwait
	{0xae, 6, pF3, row{e: rd, traits: priv}},                              // umonitor
	{0xc7, 6, pNone, row{e: wr, flags: fW}},                               // rdrand
	{0xc7, 6, p66, row{e: wr, flags: fW}},
	{0xc7, 7, pNone, row{e: wr, flags: fW}}, // rdseed
	{0xc7, 7, p66, row{e: wr, flags: fW}},
	{0xc7, 7, pF3, row{e: wr}}, // rdpid
}

// prefixed lists opcodes of the 0f map that a mandatory prefix turns into
// something else.
var prefixed = []struct {
	op, prefix byte
	row        row
}{
	{0x09, pF3, row{traits: priv | ser}},                   // wbnoinvd
	{0xb8, pF3, row{modrm: true, g: wr, e: rd, flags: fW}}, // popcnt
}

// rowPadlock is VIA's unit for cryptography and random numbers: everything that
// any of its instructions uses.
var rowPadlock = row{known: true, modrm: true, reads: rax | rcx | rdx | rbx | rsi | rdi,
	clobbers: rax | rcx | rdx | rsi | rdi, traits: priv | both | isa.Repeats}

// rowClwb has the opcode of xsaveopt, with 66.
var rowClwb = row{known: true, modrm: true, e: adr, traits: isa.MayFault}

func init() {
	for k := range exact {
		exact[k].row.known = true
	}
	for k := range direct {
		direct[k].row.known, direct[k].row.modrm = true, true
	}
	for k := range prefixed {
		prefixed[k].row.known = true
	}
}

// unprefixed are opcodes whose operands in memory mean nothing, or something
// else, with a mandatory prefix.
func (d *insn) unprefixed(op byte) bool {
	reg, p := d.modrm>>3&7, d.mandatory()
	switch op {
	case 0xae:
		return p == pNone || p == p66 && reg == 7 // clflushopt
	case 0xc7:
		return p == pNone || reg == 1 || p != pF2 && reg == 6 // vmclear, vmxon
	}
	return true
}

// system finds the row of an instruction of the 0f map that its opcode alone
// does not determine. known is false where nothing is known but the length.
func (d *insn) system(op byte, r *row, known bool) (*row, bool) {
	p := d.mandatory()
	isDirect := d.modrm >= 0xc0
	switch op {
	case 0x00, 0x01, 0x1e, 0xae, 0xc7:
		if isDirect {
			return d.systemDirect(op, p, r, known)
		}
		if op == 0xae && p == p66 && d.modrm>>3&7 == 6 {
			return &rowClwb, true
		}
		return r, known && d.unprefixed(op)
	case 0x09, 0xb8:
		for k := range prefixed {
			if x := &prefixed[k]; x.op == op && x.prefix == p {
				return &x.row, true
			}
		}
		return r, known && op == 0x09
	case 0xbc, 0xbd: // bsf, bsr, tzcnt, lzcnt
		return r, known && !d.repne
	case 0x0d, 0xc3: // prefetch, movnti
		return r, known && !isDirect
	case 0x20, 0x21, 0x22, 0x23:
		if !isDirect { // its registers are named even so: there is no displacement
			d.n = 1
		}
		return r, known && isDirect
	case 0x78, 0x79:
		d.opsize16 = false
		if p != pNone { // extrq and insertq have two immediates
			d.n = 1
		}
		return r, known && p == pNone
	case 0xa6, 0xa7:
		return &rowPadlock, d.padlock(op)
	case 0x1a, 0x1b: // bound registers are not tracked
		return r, false
	}
	return r, known
}

// padlock says whether the instruction is one of VIA's: they count in rcx and begin
// with f3, but for xstore, which may.
func (d *insn) padlock(op byte) bool {
	if d.lock || d.opsize16 || d.repne || d.modrm&7 != 0 {
		return false
	}
	if op == 0xa7 {
		return d.modrm == 0xc0 || d.rep && d.modrm >= 0xc8 && d.modrm <= 0xe8
	}
	return d.rep && d.modrm >= 0xc0 && d.modrm <= 0xd0
}

func (d *insn) systemDirect(op, p byte, r *row, known bool) (*row, bool) {
	for k := range exact {
		if x := &exact[k]; x.op == op && x.modrm == d.modrm && x.prefix == p {
			d.opsize16 = false
			return &x.row, true
		}
	}
	for k := range direct {
		if x := &direct[k]; x.op == op && x.reg == d.modrm>>3&7 && x.prefix == p {
			d.opsize16 = d.opsize16 && op == 0xc7
			return &x.row, true
		}
	}
	switch op {
	case 0x00: // sldt … verw
		return r, known && d.modrm>>3&7 < 6
	case 0x1e: // shadow-stack reads
		return r, known && !d.rep
	}
	return r, false
}
