package ktext_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/isa/amd64"
	"kerninst/agent/ktext"
	"kerninst/agent/ktext/ktexttest"
)

// synthetic is a kallsyms with aliases, a duplicate, data, a gap and modules.
const synthetic = `ffffffff81000000 T _stext
ffffffff81000000 T first
ffffffff81000000 t first_alias
ffffffff81000040 t twice
ffffffff81000080 t foo.isra.0
ffffffff810000c0 t twice
ffffffff81000100 W weak
ffffffff81000140 T last
ffffffff81000200 T _etext
ffffffff81100000 D data
ffffffffc0000100 t own	[mod]
ffffffffc0000180 t later	[mod]
ffffffffc0000000 t other	[two]
`

func noMemory(a isa.Addr, _ []byte) error { return fmt.Errorf("nothing at %v", a) }

func load(t *testing.T, kallsyms string) *ktext.Text {
	t.Helper()
	x, err := ktext.New(amd64.Arch, strings.NewReader(kallsyms), noMemory, ktext.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestFunction(t *testing.T) {
	x := load(t, synthetic)
	for _, c := range []struct {
		module, name string
		addr         isa.Addr
		size         isa.Off
	}{
		{"", "first", 0xffffffff81000000, 0x40},
		{"", "first_alias", 0xffffffff81000000, 0x40},
		{"", "weak", 0xffffffff81000100, 0x40},
		{"", "last", 0xffffffff81000140, 0xc0}, // ends at _etext
		{"mod", "own", 0xffffffffc0000100, 0x80},
		{"mod", "later", 0xffffffffc0000180, 0xe80}, // ends at its page
		{"two", "other", 0xffffffffc0000000, 0x1000},
		{"", "twice#1", 0xffffffff81000040, 0x40},
		{"", "twice#2", 0xffffffff810000c0, 0x40},
		{"", "twice@0xffffffff810000c0", 0xffffffff810000c0, 0x40},
		{"", "first@0xffffffff81000000", 0xffffffff81000000, 0x40},
	} {
		f, err := x.Function(c.module, c.name)
		if err != nil || f.Addr != c.addr || f.Size != c.size {
			t.Errorf("%s:%s = %v %#x, %v; want %v %#x", c.module, c.name, f.Addr, f.Size, err, c.addr, c.size)
		}
	}
	if f, ok := x.Locate(0xffffffff81000099); !ok || f.Name != "foo.isra.0" {
		t.Errorf("located %v, %v", f, ok)
	}
	if f, ok := x.Locate(0xffffffff80000000); ok {
		t.Errorf("located %v below everything", f)
	}
}

func TestNotFound(t *testing.T) {
	x := load(t, synthetic)
	for _, c := range []struct {
		module, name, in string
		same             int
	}{
		{"", "twice", "2 functions of the kernel are named twice: choose twice#1 or twice@0xffffffff81000", 2},
		{"", "twice", " (behind ", 2},
		{"", "twice#3", "twice#3 is none of them: 2 functions", 2},
		{"", "twice@0x81000000", "is none of them", 2},
		{"", "first#2", "first#2: the kernel has one first, at 0xffffffff81000000", 1},
		{"", "nobody#1", "no function nobody$", 0},
		{"", "foo", "there is foo.isra.0", 0},
		{"", "firs", "there is first, first_alias", 0},
		{"", "own", "the kernel has no function own; own is in mod", 0},
		{"mod", "first", "module mod has no function first; first is in the kernel itself", 0},
		{"mod", "firs", "module mod has no function firs$", 0}, // the kernel's names are not mod's
		{"mod", "ow", "module mod has no function ow; there is own", 0},
		{"ext5", "firs", "module ext5 is not loaded$", 0},
		{"ext5", "own", "module ext5 is not loaded; own is in mod", 0},
		{"", "data", "no function", 0},
		{"", "", "no function", 0},
	} {
		_, err := x.Function(c.module, c.name)
		var nf *ktext.NotFound
		if !errors.As(err, &nf) || len(nf.Same) != c.same || !strings.Contains(err.Error()+"$", c.in) {
			t.Errorf("%s:%s: %v, want %q", c.module, c.name, err, c.in)
		}
	}
}

// Labels inside a function neither end it nor are functions themselves.
func TestLabels(t *testing.T) {
	labelled := synthetic +
		"ffffffffc0000104 t .L0 \t[mod]\nffffffffc0000108 t $x\t[mod]\nffffffffc000010c t .L13^B1\t[mod]\nffffffffc000010e t L0^A\t[mod]\n"
	plain, with := load(t, synthetic), load(t, labelled)
	want, err := plain.Function("mod", "own")
	got, err2 := with.Function("mod", "own")
	if err != nil || err2 != nil || got != want {
		t.Errorf("got %v %#x, %v; want %v %#x, %v", got, got.Size, err2, want, want.Size, err)
	}
	if f, err := with.Function("mod", "$x"); err == nil {
		t.Errorf("a mark is a function: %v", f)
	}
}

func TestBadKallsyms(t *testing.T) {
	for _, c := range []struct{ text, in string }{
		{"", "no text symbols"},
		{"0000000000000000 T _stext\n0000000000000000 T _etext\n", "kptr_restrict"},
		{"ffffffff81000000 T a\n", "_stext"},
		{"xyz T a\n", "line 1"},
		{"ffffffff81000000 T\n", "line 1"},
		{"ffffffff81000000 T _stext\nffffffff8100000012 T b\n", "line 2"},
	} {
		_, err := ktext.New(amd64.Arch, strings.NewReader(c.text), noMemory, ktext.Options{})
		if err == nil || !strings.Contains(err.Error(), c.in) {
			t.Errorf("%q: %v, want %q", c.text, err, c.in)
		}
	}
}

func FuzzKallsyms(f *testing.F) {
	f.Add([]byte(synthetic))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := ktext.New(amd64.Arch, bytes.NewReader(b), noMemory, ktext.Options{})
		if (x == nil) == (err == nil) {
			t.Fatal("a view and an error, or neither")
		}
		if err == nil {
			x.Functions("", func(f ktext.Func) bool {
				if _, ok := x.Locate(f.Addr); !ok && f.Size > 0 {
					t.Fatalf("%v is not found at its own address", f)
				}
				return true
			})
		}
	})
}

// TestRecordedTables counts what the recorded stretches are known to hold.
func TestRecordedTables(t *testing.T) {
	for _, c := range []struct {
		arch  string
		class map[ktext.Class]int
	}{
		{"amd64", map[ktext.Class]int{ktext.StaticKey: 2, ktext.Exception: 2, ktext.Bug: 4}},
		{"arm64", map[ktext.Class]int{ktext.StaticKey: 3, ktext.Exception: 4, ktext.Bug: 6}},
		{"riscv64", map[ktext.Class]int{ktext.StaticKey: 7, ktext.Exception: 3, ktext.Bug: 4}},
	} {
		k := ktexttest.Load(t, c.arch)
		x := k.Text(t)
		got := map[ktext.Class]int{}
		x.Functions("", func(f ktext.Func) bool {
			if strings.HasPrefix(f.Name, "gap") {
				return true
			}
			code, err := x.Code(f)
			if err != nil {
				t.Fatal(err)
			}
			for n := 0; n < len(code); {
				i := k.Arch.Decode(code[n:], f.Addr+isa.Addr(n))
				if r, ok, err := x.Site(i.Addr, i.End()); err != nil {
					t.Fatal(err)
				} else if ok {
					got[r.Class]++
				}
				n += i.Len
			}
			return true
		})
		for class, want := range c.class {
			if got[class] != want {
				t.Errorf("%s: %d sites of class %v, want %d", c.arch, got[class], class, want)
			}
		}
	}
}

// TestBlacklistedParts: parts of a function into which the kernel lets nobody put a probe are
// refused, too, whatever they are called behind the dot; other functions with such parts are not.
func TestBlacklistedParts(t *testing.T) {
	k := ktexttest.Load(t, "amd64")
	const at = isa.Addr(0xffffffff8ec41000)
	for n, name := range []string{"barred", "barred.cold", "opened", "opened.isra.0.cold", "barredoor.cold"} {
		k.Add(name, at+isa.Addr(64*n), []byte{0x55, 0x55, 0x55, 0xc3})
	}
	x := k.TextWith(t, k.Read, ktext.Options{Blacklist: strings.NewReader("0xffffffff8ec41000-0xffffffff8ec41004\tbarred\n")})
	for name, want := range map[string]bool{"barred": true, "barred.cold": true, "opened": false, "opened.isra.0.cold": false, "barredoor.cold": false} {
		f, err := x.Function("", name)
		if err != nil {
			t.Fatal(err)
		}
		r, ok, err := x.Reserved(f, f.Addr, f.Addr+1)
		if err != nil || ok != want || want && r.Class != ktext.Blacklist {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
}

// TestReservedPart: of a function that goes on when a machine wakes, what runs before per-CPU memory
// is found is reserved and the rest is not; where its calls are not found, all of it is.
func TestReservedPart(t *testing.T) {
	const (
		nop      = "\x90"
		callWrms = "\xe8\x3b\x01\x00\x00" // native_write_msr, from the first instruction
		callMore = "\xe8\x35\x01\x00\x00" // again, from behind that and a nop
	)
	for name, c := range map[string]struct {
		code         string
		free, barred []isa.Addr // offsets
	}{
		"two calls": {callWrms + nop + callMore + nop + nop, []isa.Addr{11, 12}, []isa.Addr{0, 5, 6}},
		"a detour":  {"\x75\x0c" + "\xe8\x39\x01\x00\x00" + "\xe8\x34\x01\x00\x00" + nop + "\xc3" + nop + nop + "\xeb\xf3" + nop, []isa.Addr{12, 13}, []isa.Addr{0, 2, 14, 15, 16}},
		"one call":  {callWrms + nop + nop + nop, nil, []isa.Addr{0, 5, 7}},
	} {
		k := ktexttest.Load(t, "amd64")
		at := isa.Addr(0xffffffff8e900000)
		k.Add("restore_processor_state", at, []byte(c.code))
		k.Add("native_write_msr", at+0x140, []byte(nop+nop))
		x := k.Text(t)
		f, err := x.Function("", "restore_processor_state")
		if err != nil {
			t.Fatal(err)
		}
		for want, offsets := range map[ktext.Class][]isa.Addr{ktext.NotReserved: c.free, ktext.Entry: c.barred} {
			for _, off := range offsets {
				if r, _, err := x.Reserved(f, at+off, at+off+1); err != nil || r.Class != want {
					t.Errorf("%s: +%d is %v, %v, want %v", name, off, r.Class, err, want)
				}
			}
		}
	}
}

func TestReserved(t *testing.T) {
	k := ktexttest.Load(t, "amd64")
	x := k.TextWith(t, k.Read, ktext.Options{Blacklist: strings.NewReader("0xffffffff8ec42b00-0xffffffff8ec42b08\tsomething\n")})
	for _, c := range []struct {
		f      ktext.Func
		lo, hi isa.Addr
		want   ktext.Class
	}{
		{ktext.Func{Name: "text_poke_bp", Addr: 0xffffffff8ec42000}, 0xffffffff8ec42000, 0xffffffff8ec42001, ktext.NotReserved},
		{ktext.Func{Name: "f"}, 0xffffffff8ec42afc, 0xffffffff8ec42b00, ktext.NotReserved},
		{ktext.Func{Name: "f"}, 0xffffffff8ec42afc, 0xffffffff8ec42b01, ktext.Blacklist},
		{ktext.Func{Name: "f"}, 0xffffffff8ec42b07, 0xffffffff8ec42b10, ktext.Blacklist},
		{ktext.Func{Name: "f"}, 0xffffffff8ec42b08, 0xffffffff8ec42b10, ktext.NotReserved},
		{ktext.Func{Name: "f", Module: "m"}, 0xffffffffc0000000, 0xffffffffc0000001, ktext.Outside},
		{ktext.Func{Name: "f"}, 0xffffffff00000000, 0xffffffff00000001, ktext.Outside},
	} {
		r, ok, err := x.Reserved(c.f, c.lo, c.hi)
		if err != nil || r.Class != c.want || ok != (c.want != ktext.NotReserved) {
			t.Errorf("%v %v-%v: %v, %v; want %v", c.f, c.lo, c.hi, r, err, c.want)
		}
	}
	pfx, err := x.Function("", "__pfx_vfs_read")
	if err != nil {
		t.Fatal(err)
	}
	if r, _, _ := x.Reserved(pfx, pfx.Addr, pfx.Addr+1); r.Class != ktext.Thunk {
		t.Errorf("padding is %v", r.Class)
	}
}

// TestReservedNames: of the functions that are called like those that write text, those that
// do are reserved, and no others.
func TestReservedNames(t *testing.T) {
	k := ktexttest.Load(t, "amd64")
	f, err := k.Text(t).Function("", "ksys_read")
	if err != nil {
		t.Fatal(err)
	}
	at := f.Addr + 0x20
	for name, want := range map[string]ktext.Class{
		"text_poke_bp_batch": ktext.Patching, "ftrace_caller": ktext.Patching, "ftrace_caller_op_ptr": ktext.Patching, "ftrace_regs_call": ktext.Patching,
		"ftrace_regs_caller_jmp": ktext.Patching, "ftrace_call": ktext.Patching, "ftrace_stub_graph": ktext.Patching, "ftrace_graph_call": ktext.Patching, "return_to_handler": ktext.Patching,
		"ftrace_int3_handler": ktext.Patching, "ftrace_replace_code.cold": ktext.Patching, "ftrace_modify_all_code": ktext.Patching, "__ftrace_modify_code": ktext.Patching,
		"ftrace_make_nop": ktext.Patching, "arch_ftrace_update_code": ktext.Patching, "flush_icache_all": ktext.Patching,
		"secondary_startup_64_no_verify": ktext.Entry, "common_startup_64": ktext.Entry, "verify_cpu": ktext.Entry, "__secondary_switched": ktext.Entry, "set_cpu_boot_mode_flag": ktext.Entry, "finalise_el2": ktext.Entry, "start_secondary": ktext.NotReserved,
		"__kvm_riscv_switch_to": ktext.Entry, "__kvm_riscv_unpriv_trap": ktext.Entry, "kvm_riscv_vcpu_unpriv_read": ktext.Entry, "kvm_riscv_vcpu_run": ktext.NotReserved, "__guest_exit": ktext.Entry,
		"__x86_indirect_thunk_rax": ktext.Thunk, "__x86_return_thunk": ktext.Thunk, "__SCT__cond_resched": ktext.StaticCall,
		"ftrace_call_adjust": ktext.NotReserved, "ftrace_regs_query_register_offset": ktext.NotReserved, "ftrace_startup": ktext.NotReserved, "__ftrace_hash_move": ktext.NotReserved,
		"ftrace_graph_open": ktext.NotReserved, "arch_ftrace_update_trampoline": ktext.NotReserved, "flush_icache_pte": ktext.NotReserved, "__x86_ima_efi_boot_mode": ktext.NotReserved,
	} {
		x, err := ktext.New(k.Arch, strings.NewReader(k.Kallsyms+fmt.Sprintf("%x t %s\n", uint64(at), name)), k.Read, ktext.Options{})
		if err != nil {
			t.Fatal(err)
		}
		g, err := x.Function("", name)
		if err != nil {
			t.Fatal(err)
		}
		if r, _, err := x.Reserved(g, at, at+1); err != nil || r.Class != want {
			t.Errorf("%s: %v, %v; want %v", name, r.Class, err, want)
		}
	}
}

// TestTablesMustMakeSense breaks the tables and expects refusal, not guesses.
func TestTablesMustMakeSense(t *testing.T) {
	k := ktexttest.Load(t, "arm64")
	odd := strings.Replace(k.Kallsyms, "D __stop___ex_table", "D __stop_other", 1)
	for name, kallsyms := range map[string]string{
		"no end":  odd,
		"no keys": strings.Replace(k.Kallsyms, "__start___jump_table", "gone", 1),
	} {
		x, err := ktext.New(k.Arch, strings.NewReader(kallsyms), k.Read, ktext.Options{})
		if err != nil {
			t.Fatal(err)
		}
		lo, _ := x.Bounds()
		if _, _, err := x.Site(lo, lo+4); err == nil {
			t.Errorf("%s: the tables were taken as they are", name)
		}
	}
}

// TestStaticCalls: the sites in the kernel's table are reserved, whatever stands
// there now; static calls without a table are refused.
func TestStaticCalls(t *testing.T) {
	k := ktexttest.Load(t, "amd64")
	x := k.Text(t)
	f, err := x.Function("", "ksys_read")
	if err != nil {
		t.Fatal(err)
	}
	site := f.Addr + 0x20
	const table = isa.Addr(0xffffffff8ec52100)
	k.Write(table, isa.ByteOrder.AppendUint32(nil, uint32(site-table)))
	trampolines := k.Kallsyms + fmt.Sprintf("%x T __static_call_text_start\n%x T __static_call_text_end\n", uint64(f.Addr), uint64(f.Addr)+8)
	with := trampolines + fmt.Sprintf("%x D __start_static_call_sites\n%x D __stop_static_call_sites\n", uint64(table), uint64(table)+8)
	if x, err = ktext.New(k.Arch, strings.NewReader(with), k.Read, ktext.Options{}); err != nil {
		t.Fatal(err)
	}
	if r, ok, err := x.Site(site, site+1); err != nil || !ok || r.Class != ktext.StaticCall {
		t.Errorf("the site is %v, %v", r, err)
	}
	if l, err := x.Links(""); err != nil || !slices.Equal(l.Calls, []isa.Addr{site}) {
		t.Errorf("sites %v, %v", l, err)
	}
	if x, err = ktext.New(k.Arch, strings.NewReader(trampolines), k.Read, ktext.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := x.Site(site, site+1); err == nil {
		t.Error("static calls without a table were taken")
	}
	if _, err := x.Links(""); err == nil {
		t.Error("static calls without a table were linked")
	}
}

func TestFtraceSite(t *testing.T) {
	for _, c := range []struct {
		arch, name string
		want       int
		call       []byte // in place of the last bytes of the site
		idle       []byte // a site that calls nobody otherwise than the function's
	}{
		{"amd64", "ksys_read", 9, []byte{0xe8, 1, 2, 3, 4}, nil},                                           // behind a landing pad
		{"arm64", "ksys_read", 8, []byte{1, 2, 0, 0x94}, []byte{0x1f, 0x20, 3, 0xd5, 0x1f, 0x20, 3, 0xd5}}, // bl; two nops
		{"riscv64", "ksys_read", 8, []byte{0x97, 2, 3, 4, 0xe7, 0x82, 0x42, 0x31}, // auipc t0; jalr t0, t0
			[]byte{0x97, 2, 3, 4, 0x13, 0, 0, 0}}, // auipc t0; nop: ftrace was there
	} {
		x := ktexttest.Load(t, c.arch).Text(t)
		f, err := x.Function("", c.name)
		if err != nil {
			t.Fatal(err)
		}
		code, err := x.Code(f)
		if err != nil {
			t.Fatal(err)
		}
		if got := x.FtraceSite(f.Addr, code); got != c.want {
			t.Errorf("%s %s: site of %d bytes, want %d", c.arch, c.name, got, c.want)
		}
		if x.Traced(f.Addr, code[:ktext.MostFtrace]) {
			t.Errorf("%s %s: traced, which was idle", c.arch, c.name)
		}
		if c.idle != nil && (x.FtraceSite(f.Addr, c.idle) != c.want || x.Traced(f.Addr, c.idle)) {
			t.Errorf("%s: % x is no site, or traced", c.arch, c.idle)
		}
		traced := append(slices.Clone(code[:c.want-len(c.call)]), c.call...)
		if x.FtraceSite(f.Addr, traced) != c.want || !x.Traced(f.Addr, traced) {
			t.Errorf("%s %s: % x is not traced", c.arch, c.name, traced)
		}
		if got := x.FtraceSite(f.Addr+isa.Addr(c.want), code[c.want:]); got != 0 {
			t.Errorf("%s %s: site of %d bytes where there is none", c.arch, c.name, got)
		}
	}
}

// TestJumpingSite: since Linux 7.0 a site jumps to code that the kernel has made, and functions without a site to what they were linked with.
func TestJumpingSite(t *testing.T) {
	const lo, made, module, other = isa.Addr(0xffffffff81000000), isa.Addr(0xffffffffc0001000), isa.Addr(0xffffffffc0002000), isa.Addr(0xffffffffc0004000)
	syms := fmt.Sprintf("%x T _stext\n%x t begin\n%x T __static_call_text_start\n%x T __static_call_text_end\n%x T _etext\n%x t init\n%x B _end\n%x t bpf_trampoline_1\t[bpf]\n%x t f\t[m]\n%x t g\t[n]\n",
		uint64(lo), uint64(lo), uint64(lo+0xf00), uint64(lo+0xf08), uint64(lo+0x1000), uint64(lo+0x2000), uint64(lo+0x3000), uint64(made), uint64(module), uint64(other))
	x, err := ktext.New(amd64.Arch, strings.NewReader(syms), func(_ isa.Addr, b []byte) error { clear(b); return nil }, ktext.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		from, to isa.Addr
		begin    []byte
		want     int
	}{
		{"a trampoline", lo, made, nil, 5},
		{"a trampoline, behind a landing pad", lo, made, []byte{0xf3, 0x0f, 0x1e, 0xfa}, 9},
		{"a trampoline, behind a sealed landing pad", lo, made, []byte{0x66, 0x0f, 0x1f, 0}, 9},
		{"from a module", module, made, nil, 5},
		{"one that is newer than the symbols", lo, 0xffffffffb0000000, nil, 5},
		{"the kernel", lo, lo + 0x800, nil, 0},
		{"what is freed after boot", lo, lo + 0x2010, nil, 0},
		{"behind the kernel's last symbol", lo, lo + 0x2fff, nil, 0},
		{"from a module to the kernel", module, lo + 0x10, nil, 0},
		{"where a module was when symbols were read", lo, module + 0x10, nil, 5},
		{"from a static call's trampoline to a module", lo + 0xf00, module, nil, 0},
		{"from a module to another", module, other, nil, 0},
	} {
		at := c.from + isa.Addr(len(c.begin))
		code := slices.Concat(c.begin, []byte{0xe9}, isa.ByteOrder.AppendUint32(nil, uint32(c.to-at-5)), make([]byte, 8))
		if got := x.FtraceSite(c.from, code); got != c.want || x.Traced(c.from, code) != (c.want > 0) || x.Compiled(c.from, code) != (c.want > 0) {
			t.Errorf("%s: a site of %d bytes, traced %t, compiled %t; want %d", c.name, got, x.Traced(c.from, code), x.Compiled(c.from, code), c.want)
		}
		if sealed := x.Sealed(c.from, code); sealed > 0 != (c.want == 9 && c.begin[0] == 0x66) {
			t.Errorf("%s: %d bytes are sealed", c.name, sealed)
		}
	}
}

// TestCompiled: what begins with an ftrace site is compiled code, and what only may be one is not taken for that.
func TestCompiled(t *testing.T) {
	const at, called = isa.Addr(0xffffffff81000000), isa.Addr(0xffffffff81000100)
	call := func(to uint32) []byte {
		return append([]byte{0xf3, 0x0f, 0x1e, 0xfa, 0xe8}, isa.ByteOrder.AppendUint32(nil, to-9)...)
	}
	bl := func(words uint32) []byte {
		return isa.ByteOrder.AppendUint32([]byte{0xe9, 3, 0x1e, 0xaa}, 0x94000000|words-1)
	}
	for _, c := range []struct {
		name, arch, called string // what there is at 0x100
		code               []byte
		want               bool
	}{
		{"idle", "amd64", "f", []byte{0xf3, 0x0f, 0x1e, 0xfa, 0x0f, 0x1f, 0x44, 0, 0}, true},
		{"traced", "amd64", "ftrace_caller", call(0x100), true},
		{"traced by what was made for it", "amd64", "f", call(0x100000), true},
		{"begins with a call", "amd64", "f", call(0x100), false},
		{"begins with a call of what is ftrace's", "amd64", "ftrace_location", call(0x100), false},
		{"idle", "arm64", "f", []byte{0xe9, 3, 0x1e, 0xaa, 0x1f, 0x20, 3, 0xd5}, true},
		{"traced", "arm64", "ftrace_caller", bl(0x40), true},
		{"begins with a call", "arm64", "f", bl(0x40), false},
		{"two nops", "arm64", "f", []byte{0x1f, 0x20, 3, 0xd5, 0x1f, 0x20, 3, 0xd5}, false},
		{"idle", "riscv64", "f", []byte{0x13, 0, 0, 0, 0x13, 0, 0, 0}, true},
		{"none", "riscv64", "f", []byte{0x13, 5, 0, 0, 0x13, 0, 0, 0}, false},
	} {
		arch, err := all.Lookup(c.arch)
		if err != nil {
			t.Fatal(err)
		}
		syms := fmt.Sprintf("%x T _stext\n%x t begin\n%x t %s\n%x t end\n%x T _etext\n", uint64(at), uint64(at), uint64(called), c.called, uint64(called+0x100), uint64(called+0x200))
		x, err := ktext.New(arch, strings.NewReader(syms), func(_ isa.Addr, b []byte) error { clear(b); return nil }, ktext.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := x.Compiled(at, append(c.code, make([]byte, 8)...)); got != c.want {
			t.Errorf("%s, %s: %t", c.arch, c.name, got)
		}
	}
}

// TestTargets looks for branches of a real function among the collected ones.
func TestTargets(t *testing.T) {
	for _, arch := range []string{"arm64", "riscv64"} {
		t.Run(arch, func(t *testing.T) { testTargets(t, arch) })
	}
}

func testTargets(t *testing.T, arch string) {
	k := ktexttest.Load(t, arch)
	x := k.Text(t)
	m, err := x.Targets("")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	x.Functions("", func(f ktext.Func) bool {
		code, _ := x.Code(f)
		for o := 0; o < len(code) && !strings.HasPrefix(f.Name, "gap"); {
			i := k.Arch.Decode(code[o:], f.Addr+isa.Addr(o))
			if lo, hi := x.Bounds(); i.Target >= lo && i.Target < hi {
				n++
				if _, ok := m.First(i.Target, i.Target+2); !ok {
					t.Errorf("%v jumps to %v, which is not marked", i.Addr, i.Target)
				}
			}
			o += i.Len
		}
		return true
	})
	if n < 200 || m.Count() < 100 {
		t.Errorf("%d branches, %d targets: too few to mean anything", n, m.Count())
	}
}

// TestTableTargets points a static key at an address that no branch reaches.
func TestTableTargets(t *testing.T) {
	k := ktexttest.Load(t, "riscv64")
	x := k.Text(t)
	f, err := x.Function("", "ksys_read")
	if err != nil {
		t.Fatal(err)
	}
	free := f.Addr + 0x12
	if m, err := x.Targets(""); err != nil {
		t.Fatal(err)
	} else if a, ok := m.First(free, free+2); ok {
		t.Fatalf("something reaches %v", a)
	}
	for _, table := range []string{"__start___jump_table", "__start___ex_table"} {
		k := ktexttest.Load(t, "riscv64")
		x := k.Text(t)
		at, ok := x.Symbol(table)
		if !ok {
			t.Fatalf("no %s", table)
		}
		k.Write(at+4, isa.ByteOrder.AppendUint32(nil, uint32(free-at-4)))
		if m, err := x.Targets(""); err != nil {
			t.Fatal(err)
		} else if _, ok := m.First(free, free+2); !ok {
			t.Errorf("the target in %s is not marked", table)
		}
	}
}

// TestWordsBeforeEntry: on arm64 a function's last eight bytes belong to the
// next when that has an ftrace site.
func TestWordsBeforeEntry(t *testing.T) {
	x := ktexttest.Load(t, "arm64").Text(t)
	f, err := x.Function("", "vfs_read")
	if err != nil {
		t.Fatal(err)
	}
	if code, err := x.Code(f); err != nil || len(code) != int(f.Size)-8 {
		t.Errorf("%d bytes of %d, %v", len(code), f.Size, err)
	}
}

// TestTextSections: symbols bound them, the innermost one counts, and what no symbols
// bound, or lies elsewhere, is .text.
func TestTextSections(t *testing.T) {
	x := load(t, `ffffffff81000000 T _stext
ffffffff81000000 T first
ffffffff81000100 T __noinstr_text_start
ffffffff81000180 T __cpuidle_text_start
ffffffff810001c0 T __cpuidle_text_end
ffffffff81000200 T __noinstr_text_end
ffffffff81000200 T __lock_text_start
ffffffff81000240 T __kvm_nvhe___hyp_text_start
ffffffff81000280 T __lock_text_end
ffffffff81000280 T __kvm_nvhe___hyp_text_end
ffffffff81000280 T __empty_text_start
ffffffff81000280 T __empty_text_end
ffffffff81000300 T _etext
ffffffff81000400 T __away_text_start
ffffffff81000500 T __away_text_end
`)
	sections := x.TextSections()
	if len(sections) != 3 {
		t.Errorf("%v", sections)
	}
	for off, want := range map[isa.Addr]string{
		0: ".text", 0xff: ".text", 0x100: ".noinstr.text", 0x17f: ".noinstr.text", 0x180: ".cpuidle.text", 0x1c0: ".noinstr.text",
		0x200: ".spinlock.text", 0x250: ".spinlock.text", 0x280: ".text", 0x400: ".text",
	} {
		if got := ktext.SectionOf(sections, 0xffffffff81000000+off); got != want {
			t.Errorf("+%#x: %s, want %s", uint64(off), got, want)
		}
	}
}

// TestModuleFunctionEnds with its section, where that is known.
func TestModuleFunctionEnds(t *testing.T) {
	x, err := ktext.New(amd64.Arch, strings.NewReader(synthetic), noMemory, ktext.Options{
		Modules: strings.NewReader("mod .text 0xffffffffc0000100 0xa0\nmod .data 0xffffffffc00001a0 0x60\n")})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]isa.Off{"own": 0x80, "later": 0x20} {
		if f, err := x.Function("mod", name); err != nil || f.Size != want {
			t.Errorf("%s has %#x bytes, %v; want %#x", name, f.Size, err, want)
		}
	}
}

// TestKnown: a function of a name that others have is known by which of them it is, however it was
// chosen; one that is alone by its name.
func TestKnown(t *testing.T) {
	x := load(t, synthetic)
	for asked, want := range map[string]string{
		"twice#2": "twice#2", "twice@0xffffffff81000040": "twice#1", "first": "first", "first#1": "first", "first@0xffffffff81000000": "first",
	} {
		f, err := x.Function("", asked)
		if err != nil || f.Known() != want || x.Known(f) != f {
			t.Errorf("%s: %v, %v, or by itself %v, want %s", asked, f, err, x.Known(f), want)
		}
	}
}

// TestNamed: what matches, and by which name, is as if all names of each function were looked at.
func TestNamed(t *testing.T) {
	found := map[string]int{}
	for _, x := range []*ktext.Text{load(t, synthetic), ktexttest.Load(t, "amd64").Text(t)} {
		for _, prefix := range []string{"", "first", "vfs_", "nothing_begins_so"} {
			for end, module := range map[string]string{"": "", "s": "", "e": "", "er": "mod"} {
				wanted := func(name string) bool { return strings.HasSuffix(name, end) }
				var want []ktext.Func
				x.Functions(module, func(f ktext.Func) bool {
					for _, name := range x.Aliases(f) {
						if strings.HasPrefix(name, prefix) && wanted(name) {
							f.Name = name
							want = append(want, f)
							break
						}
					}
					return true
				})
				if got := x.Named(module, prefix, wanted); !slices.Equal(got, want) {
					t.Errorf("%q to %q of %q: %v, want %v", prefix, end, module, got, want)
				}
				found[prefix] += len(want)
			}
		}
	}
	if found["first"] == 0 || found["vfs_"] == 0 || found["nothing_begins_so"] != 0 {
		t.Errorf("found %v", found)
	}
}
