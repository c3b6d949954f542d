package sweep

import (
	"strings"

	"kerninst/agent/isa"
)

var bookOfX86 = &book{regs: x86Regs(), effect: x86Effect}

// narrow registers keep the rest of the full one when they are written.
var narrow = map[string]bool{}

func x86Regs() map[string]isa.Reg {
	out := map[string]isa.Reg{}
	for n, r := range strings.Fields("ax cx dx bx sp bp si di") {
		out["r"+r], out["e"+r], out[r] = isa.Reg(n), isa.Reg(n), isa.Reg(n)
		narrow[r] = true
		low := r + "l"
		if strings.HasSuffix(r, "x") {
			low = r[:1] + "l"
			out[r[:1]+"h"] = isa.Reg(n)
			narrow[r[:1]+"h"] = true
		}
		out[low] = isa.Reg(n)
		narrow[low] = true
	}
	for n := 8; n < 16; n++ {
		r := "r" + string([]byte{byte('0' + n/10), byte('0' + n%10)})
		r = strings.Replace(r, "r0", "r", 1)
		for _, suffix := range []string{"", "d", "w", "b"} {
			out[r+suffix] = isa.Reg(n)
			narrow[r+suffix] = suffix == "w" || suffix == "b"
		}
	}
	return out
}

const (
	xAX isa.RegSet = 1 << iota
	xCX
	xDX
	xBX
	xSP
	xBP
	xSI
	xDI
	x11    isa.RegSet = 1 << 11
	xFlags isa.RegSet = 1 << 16
)

// form says how a mnemonic uses its operands. The last one is the destination
// in AT&T order.
type form struct {
	last    string // r read, w written, rw both, m read and perhaps written, a only its address
	others  string // r, rw, or w; empty is r
	flags   string // r read, w all overwritten, c some or sometimes; rw, rc both
	implied effect
}

// x86Forms by mnemonic without size suffix; x86Suffixes may follow.
var x86Forms = forms(map[string]form{
	"mov movabs movz movs movsl movnti movbe": {last: "w"},
	"lea":                              {last: "w", others: "a"},
	"add sub and or xor":               {last: "rw", flags: "w"},
	"adc sbb":                          {last: "rw", flags: "rw"},
	"cmp test":                         {last: "r", flags: "w"},
	"inc dec":                          {last: "rw", flags: "c"},
	"neg":                              {last: "rw", flags: "w"},
	"not bswap":                        {last: "rw"},
	"shl shr sar rol ror shld shrd":    {last: "rw", flags: "c"},
	"rcl rcr":                          {last: "rw", flags: "rc"},
	"xchg":                             {last: "rw", others: "rw"},
	"xadd":                             {last: "rw", others: "rw", flags: "w"},
	"cmpxchg":                          {last: "m", flags: "w", implied: effect{reads: xAX, clobbers: xAX}},
	"cmpxchg16b":                       {last: "r", flags: "c", implied: effect{reads: xAX | xBX | xCX | xDX, clobbers: xAX | xDX, mem: isa.Store}},
	"bt":                               {last: "r", flags: "c"},
	"bts btr btc":                      {last: "rw", flags: "c"},
	"bsf bsr tzcnt lzcnt":              {last: "m", flags: "c"},
	"popcnt":                           {last: "w", flags: "w"},
	"andn bzhi blsr blsi blsmsk bextr": {last: "w", flags: "c"},
	"shlx shrx sarx rorx pdep pext":    {last: "w"},
	"adcx adox":                        {last: "rw", flags: "rc"},
	"kmovb kmovw kmovd kmovq":          {last: "w"},
	"enqcmd enqcmds":                   {last: "r", flags: "w", implied: effect{mem: isa.Store}},
	"movdir64b":                        {last: "r", implied: effect{mem: isa.Store}},
	"movdiri":                          {last: "w"},
	"fnstcw fnstsw":                    {last: "w"},
	"crc32":                            {last: "rw"},
	"rdrand rdseed":                    {last: "w", flags: "w"},
	"push":                             {last: "r", implied: effect{reads: xSP, writes: xSP, mem: isa.Store}},
	"pop":                              {last: "w", implied: effect{reads: xSP, writes: xSP, mem: isa.Load}},
	"nop prefetcht0 prefetcht1 prefetcht2 prefetchnta prefetchw prefetch": {last: "a"},
	"verw verr": {last: "r", flags: "c"},
	"lar lsl":   {last: "m", flags: "c"},
	"invpcid":   {last: "r"}, "invept invvpid": {last: "r", flags: "w"}, "invlpg clflush clflushopt clwb": {last: "a"},
	"ldmxcsr lgdt lidt fxrstor fxrstor64 fildl":  {last: "r"},
	"stmxcsr sgdt sidt fxsave fxsave64":          {last: "w"},
	"lldt ltr lmsw lkgs wrfsbase wrgsbase":       {last: "r"},
	"sldt str smsw rdfsbase rdgsbase":            {last: "w"},
	"xsave xsave64 xsaves64 xsaveopt64 xsavec64": {last: "w", implied: effect{reads: xAX | xDX}},
	"xrstor64 xrstors64":                         {last: "r", implied: effect{reads: xAX | xDX}},
	"wruss wrss":                                 {last: "w"},
	"vmread":                                     {last: "w", flags: "w"},
	"vmwrite vmptrld vmclear vmxon":              {last: "r", flags: "w"},
	"encls":                                      {flags: "c", implied: effect{reads: xAX | xBX | xCX | xDX, clobbers: xAX | xBX | xCX | xDX, mem: isa.Mem}},
	"tpause umwait":                              {last: "r", flags: "w", implied: effect{reads: xAX | xDX}},
})

// x86Fixed have no operands, or none that count.
var x86Fixed = fixed(map[string]effect{
	"cltq cwtl": {reads: xAX, writes: xAX}, "cbtw": {reads: xAX, clobbers: xAX},
	"cltd cqto": {reads: xAX, writes: xDX}, "cwtd": {reads: xAX, clobbers: xDX},
	"pushf": {reads: xSP | xFlags, writes: xSP, mem: isa.Store}, "popf": {reads: xSP, writes: xSP | xFlags, mem: isa.Load},
	"lahf": {reads: xFlags, clobbers: xAX}, "sahf": {reads: xAX, clobbers: xFlags},
	"leave":   {reads: xBP, writes: xSP | xBP, mem: isa.Load},
	"clc stc": {clobbers: xFlags}, "cmc": {reads: xFlags, clobbers: xFlags},
	"cli sti cld std clac stac nop pause endbr64 lfence mfence sfence swapgs clts fninit fnclex fwait emms vzeroupper vzeroall wbinvd wbnoinvd invd hlt serialize tilerelease clui stui": {},
	"rdtsc": {writes: xAX | xDX}, "rdtscp": {writes: xAX | xCX | xDX}, "rdpmc": {reads: xCX, writes: xAX | xDX},
	"rdmsr": {reads: xCX, writes: xAX | xDX}, "wrmsr wrmsrns": {reads: xAX | xCX | xDX},
	"cpuid": {reads: xAX | xCX, writes: xAX | xBX | xCX | xDX}, "xgetbv": {reads: xCX, writes: xAX | xDX}, "xsetbv": {reads: xAX | xCX | xDX},
	"rdpkru": {reads: xCX, writes: xAX | xDX}, "wrpkru": {reads: xAX | xCX | xDX},
	"monitor monitorx": {reads: xAX | xCX | xDX}, "mwait": {reads: xAX | xCX}, "mwaitx": {reads: xAX | xBX | xCX},
	"vmxoff": {clobbers: xFlags}, "stgi clgi": {}, "vmload vmsave": {reads: xAX}, "invlpga": {reads: xAX | xCX},
	"xstore-rng": padlock, "xcrypt-ecb xcrypt-cbc xcrypt-ctr xcrypt-cfb xcrypt-ofb xsha1 xsha256 montmul": padlock,
	"pvalidate": {reads: xAX | xCX | xDX, clobbers: xAX | xFlags, memUnknown: true}, "rmpadjust": {reads: xAX | xCX | xDX, clobbers: xAX | xFlags, memUnknown: true},
	"rmpupdate": {reads: xAX | xCX, clobbers: xAX | xFlags, memUnknown: true}, "psmash": {reads: xAX, clobbers: xAX | xFlags, memUnknown: true},
})

// padlock is VIA's unit for cryptography and random numbers: everything that any
// of its instructions uses.
var padlock = effect{reads: xAX | xCX | xDX | xBX | xSI | xDI, clobbers: xAX | xCX | xDX | xSI | xDI, mem: isa.Mem}

// x86Flow gives what is not none and no conditional jump. Operands of calls and
// jumps are looked at.
var x86Flow = map[string]isa.Flow{
	"call": isa.FlowCall, "jmp": isa.FlowJump, "ret": isa.FlowReturn, "lret": isa.FlowIndirectJump, "lretq": isa.FlowIndirectJump,
	"ljmp": isa.FlowIndirectJump, "lcall": isa.FlowIndirectCall,
	"int3": isa.FlowTrap, "int": isa.FlowTrap, "int1": isa.FlowTrap, "ud2": isa.FlowTrap, "ud1": isa.FlowTrap, "ud0": isa.FlowTrap,
	"syscall": isa.FlowTrap, "sysenter": isa.FlowTrap, "iret": isa.FlowTrap, "iretq": isa.FlowTrap,
	"sysretl": isa.FlowTrap, "sysretq": isa.FlowTrap, "sysexitl": isa.FlowTrap, "sysexitq": isa.FlowTrap,
	"vmcall": isa.FlowTrap, "vmmcall": isa.FlowTrap, "vmgexit": isa.FlowTrap, "tdcall": isa.FlowTrap, "seamcall": isa.FlowTrap,
	"vmlaunch": isa.FlowTrap, "vmresume": isa.FlowTrap, "vmrun": isa.FlowTrap, "skinit": isa.FlowTrap,
	"rsm": isa.FlowTrap, "eretu": isa.FlowTrap, "erets": isa.FlowTrap, "enclu": isa.FlowTrap,
}

// x86String are the string instructions; a repetition counts in rcx.
var x86String = map[string]effect{
	"movs": {reads: xSI | xDI, clobbers: xSI | xDI, mem: isa.Mem},
	"cmps": {reads: xSI | xDI, clobbers: xSI | xDI, writes: xFlags, mem: isa.Load},
	"stos": {reads: xAX | xDI, clobbers: xDI, mem: isa.Store},
	"lods": {reads: xSI, clobbers: xSI | xAX, mem: isa.Load},
	"scas": {reads: xAX | xDI, clobbers: xDI, writes: xFlags, mem: isa.Load},
	"ins":  {reads: xDI | xDX, clobbers: xDI, mem: isa.Store},
	"outs": {reads: xSI | xDX, clobbers: xSI, mem: isa.Load},
}

func forms(in map[string]form) map[string]form {
	out := map[string]form{}
	for names, f := range in {
		for _, n := range strings.Fields(names) {
			out[n] = f
		}
	}
	return out
}

func fixed(in map[string]effect) map[string]effect {
	out := map[string]effect{}
	for names, e := range in {
		for _, n := range strings.Fields(names) {
			out[n] = e
		}
	}
	return out
}

func x86Effect(b *book, l *Line) (e effect, ok bool) {
	words := strings.Fields(l.Mnemonic)
	m, ops := words[len(words)-1], operands(l.Operands)
	rep := strings.Contains(" "+l.Mnemonic, " rep")
	if f, ok := x86Flow[m]; ok {
		return x86Branch(b, m, f, ops)
	}
	switch {
	case strings.HasPrefix(m, "j"), strings.HasPrefix(m, "loop"):
		e = effect{flow: isa.FlowCond, target: address(ops), reads: xFlags}
		if m == "jrcxz" || m == "jecxz" {
			e.reads = xCX
		} else if m[0] == 'l' {
			e.reads, e.clobbers = xCX|map[bool]isa.RegSet{true: xFlags}[m != "loop"], xCX
		}
		return e, true
	case m == "xchg" && l.Operands == "%ax,%ax": // a nop of two bytes
		return effect{flow: isa.FlowNone}, true
	case m == "in":
		return effect{flow: isa.FlowNone, reads: b.named(ops[0]), clobbers: xAX}, true
	case m == "out":
		return effect{flow: isa.FlowNone, reads: b.named(l.Operands)}, true
	}
	if e, ok := x86Fixed[m]; ok {
		e.flow = isa.FlowNone
		return e, true
	}
	if s, ok := x86StringForm(m, ops); ok {
		s.flow = isa.FlowNone
		if rep {
			s.reads |= xCX
			s.clobbers |= xCX
			s.clobbers |= s.writes & xFlags
			s.writes &^= xFlags
		}
		return s, true
	}
	f, ok := x86Find(m)
	if !ok {
		return x86Vector(b, m, ops)
	}
	return f.apply(b, m, ops)
}

// x86StringForm tells string instructions by their operands: (%rsi) with ds or
// (%rdi) with es.
func x86StringForm(m string, ops []string) (e effect, ok bool) {
	text := strings.Join(ops, ",")
	if !strings.Contains(text, "%es:(%rdi)") && !strings.Contains(text, "%ds:(%rsi)") && !strings.Contains(text, ":(%rsi),%dx") {
		return e, false
	}
	e, ok = x86String[m]
	if !ok && len(m) > 1 {
		e, ok = x86String[m[:len(m)-1]]
	}
	return e, ok
}

// x86Find looks a mnemonic up, then without its size suffixes.
func x86Find(m string) (form, bool) {
	if strings.HasPrefix(m, "cmov") {
		return form{last: "m", flags: "r"}, true
	}
	if strings.HasPrefix(m, "set") {
		return form{last: "w", flags: "r"}, true
	}
	for n := 0; n <= 2 && n < len(m); n++ {
		if f, ok := x86Forms[m[:len(m)-n]]; ok && strings.Trim(m[len(m)-n:], "bwlq") == "" {
			return f, true
		}
	}
	_, ok := x86Product(m)
	return form{}, ok
}

func x86Branch(b *book, m string, f isa.Flow, ops []string) (e effect, ok bool) {
	e.flow = f
	text := strings.Join(ops, ",")
	indirect := strings.HasPrefix(text, "*")
	inMemory := indirect && (strings.Contains(text, "(") || !strings.Contains(text, "%") || strings.Contains(text, ":"))
	switch {
	case m == "call" && indirect:
		e.flow, e.reads, e.writes, e.mem = isa.FlowIndirectCall, xSP|b.named(text), xSP, isa.Store
	case m == "call":
		e.target, e.reads, e.writes, e.mem = address(ops), xSP, xSP, isa.Store
	case m == "jmp" && indirect:
		e.flow, e.reads = isa.FlowIndirectJump, b.named(text)
	case m == "jmp":
		e.target = address(ops)
	case m == "ret", m == "lret", m == "lretq":
		e.reads, e.writes, e.mem = xSP, xSP, isa.Load
	case m == "ljmp", m == "lcall":
		e.reads = b.named(text)
		if m == "lcall" {
			e.reads, e.writes, e.mem = e.reads|xSP, xSP, isa.Store
		}
	case m == "ud1", m == "ud0":
		if strings.Contains(text, "(") { // some CPUs look at the operand first
			e.reads = b.named(text)
		}
		return e, true
	}
	if inMemory {
		e.mem |= isa.Load
	}
	return e, true
}

// apply turns a form and operands into an effect.
func (f form) apply(b *book, m string, ops []string) (e effect, ok bool) {
	e = f.implied
	e.flow = isa.FlowNone
	if base, ok := x86Product(m); ok {
		return x86Multiply(b, m, base, ops)
	}
	if len(ops) > 0 && ops[0] == "$1" && (strings.HasPrefix(m, "sh") || strings.HasPrefix(m, "sa")) && f.flags == "c" {
		f.flags = "w" // by one
	}
	for k, o := range ops {
		use := f.others
		if k == len(ops)-1 {
			use = f.last
		} else if use == "" {
			use = "r"
		}
		b.use(&e, o, use)
	}
	if len(ops) == 2 && ops[0] == ops[1] && (strings.HasPrefix(m, "xor") || strings.HasPrefix(m, "sub")) && !narrow[strings.TrimPrefix(ops[0], "%")] {
		e.reads = 0 // the result does not depend on the register
	}
	for _, c := range f.flags {
		switch c {
		case 'r':
			e.reads |= xFlags
		case 'w':
			e.writes |= xFlags
		case 'c':
			e.clobbers |= xFlags
		}
	}
	return e, true
}

// use adds one operand.
func (b *book) use(e *effect, o, use string) {
	set := b.named(o)
	if strings.HasPrefix(o, "$") {
		return
	}
	if !strings.HasPrefix(o, "%") || strings.Contains(o, ":") { // memory
		e.reads |= set
		switch use {
		case "r":
			e.mem |= isa.Load
		case "w":
			e.mem |= isa.Store
		case "rw", "m":
			e.mem |= isa.Mem
		}
		return
	}
	if use == "r" || use == "rw" || use == "m" || use == "a" || use == "i" {
		e.reads |= set
	}
	switch {
	case use == "m", (use == "w" || use == "rw") && narrow[o[1:]]:
		e.clobbers |= set
	case use == "w", use == "rw":
		e.writes |= set
	}
}

// x86Product tells multiplications and divisions, with or without a suffix.
func x86Product(m string) (base string, ok bool) {
	for _, base := range []string{"mul", "imul", "div", "idiv"} {
		if rest, ok := strings.CutPrefix(m, base); ok && (rest == "" || len(rest) == 1 && strings.Contains("bwlq", rest)) {
			return base, true
		}
	}
	return "", false
}

// x86Multiply: with one operand, rdx:rax is the other and the result.
func x86Multiply(b *book, m, base string, ops []string) (e effect, ok bool) {
	e.flow, e.clobbers = isa.FlowNone, xFlags
	if len(ops) > 1 {
		last := ops[len(ops)-1]
		for _, o := range ops[:len(ops)-1] {
			b.use(&e, o, "r")
		}
		use := "w"
		if len(ops) == 2 {
			use = "rw"
		}
		b.use(&e, last, use)
		return e, true
	}
	b.use(&e, ops[0], "r")
	name := strings.TrimPrefix(ops[0], "%")
	isByte := strings.HasSuffix(m, "b") || len(name) > 1 && narrow[name] && (strings.HasSuffix(name, "l") || strings.HasSuffix(name, "h") || strings.HasSuffix(name, "b"))
	isWord := strings.HasSuffix(m, "w") || narrow[name] && !isByte
	division := strings.HasSuffix(base, "div")
	e.reads |= xAX
	result := xAX | xDX
	if isByte {
		result = xAX
	} else if division {
		e.reads |= xDX
	}
	if isByte || isWord {
		e.clobbers |= result
	} else {
		e.writes |= result
	}
	return e, true
}

// x86Compares are vector instructions whose result is flags.
var x86Compares = words("comiss comisd ucomiss ucomisd ptest testps testpd")

// x86Vector: what is left and names a vector register, or is x87. General
// registers are sources, but for the moves out of a vector register.
func x86Vector(b *book, m string, ops []string) (e effect, ok bool) {
	text := strings.Join(ops, ",")
	if m == "mulx" { // rdx times the first operand, into the other two
		e = effect{flow: isa.FlowNone, reads: xDX, writes: b.named(ops[1]) | b.named(ops[2])}
		b.use(&e, ops[0], "r")
		return e, true
	}
	if !strings.Contains(text, "mm") && !strings.HasPrefix(m, "cvt") && !strings.HasPrefix(m, "vcvt") || len(ops) == 0 {
		return e, false
	}
	e.flow = isa.FlowNone
	compares := x86Compares[strings.TrimPrefix(m, "v")]
	if compares {
		e.writes = xFlags
	}
	for k, o := range ops {
		use := "r"
		if k == len(ops)-1 && !compares {
			use = "w"
		}
		if !strings.Contains(o, "mm") {
			b.use(&e, o, use)
		}
	}
	return e, true
}
