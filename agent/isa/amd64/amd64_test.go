package amd64

import (
	"bytes"
	"math"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/isa/isatest"
)

func TestGolden(t *testing.T) { isatest.Golden(t, Arch, "testdata/golden.txt") }

// TestHand holds the cases where x86 is treacherous, by the manual.
func TestHand(t *testing.T) {
	isatest.Hand(t, Arch, []isatest.Want{
		{"f30f1efa", isa.FlowNone, "", "", "", isa.Landing},                           // endbr64
		{"0f01ca", isa.FlowNone, "", "", "", isa.Privileged},                          // clac
		{"0f01cb", isa.FlowNone, "", "", "", isa.Privileged},                          // stac
		{"90", isa.FlowNone, "", "", "", 0},                                           // nop
		{"f390", isa.FlowNone, "", "", "", 0},                                         // pause
		{"4190", isa.FlowNone, "rax,r8", "rax,r8", "", 0},                             // xchg %r8d,%eax, not nop
		{"0f1f440000", isa.FlowNone, "rax", "", "", 0},                                // nop that forms an address
		{"31c0", isa.FlowNone, "", "rax,flags", "", 0},                                // xor %eax,%eax
		{"4531c0", isa.FlowNone, "", "r8,flags", "", 0},                               // xor %r8d,%r8d
		{"6631c0", isa.FlowNone, "rax", "flags", "rax", 0},                            // xor %ax,%ax keeps the rest
		{"30c0", isa.FlowNone, "rax", "flags", "rax", 0},                              // xor %al,%al
		{"19c0", isa.FlowNone, "rax,flags", "rax,flags", "", 0},                       // sbb %eax,%eax reads the carry
		{"89d8", isa.FlowNone, "rbx", "rax", "", 0},                                   // 32 bits overwrite 64
		{"88d8", isa.FlowNone, "rbx", "", "rax", 0},                                   // 8 bits do not
		{"88fc", isa.FlowNone, "rbx", "", "rax", 0},                                   // mov %bh,%ah
		{"4088fc", isa.FlowNone, "rdi", "", "rsp", 0},                                 // with REX: mov %dil,%spl
		{"ffc0", isa.FlowNone, "rax", "rax", "flags", 0},                              // inc keeps CF
		{"d3e0", isa.FlowNone, "rax,rcx", "rax", "flags", 0},                          // shl %cl: none for 0
		{"d1e0", isa.FlowNone, "rax", "rax,flags", "", 0},                             // shl by 1
		{"d1c0", isa.FlowNone, "rax", "rax", "flags", 0},                              // rol: CF and OF only
		{"d1d0", isa.FlowNone, "rax,flags", "rax", "flags", 0},                        // rcl
		{"0fa3c8", isa.FlowNone, "rax,rcx", "", "flags", 0},                           // bt
		{"480f45c1", isa.FlowNone, "rax,rcx,flags", "", "rax", 0},                     // cmovne
		{"0f94c0", isa.FlowNone, "flags", "", "rax", 0},                               // sete
		{"480fbcc1", isa.FlowNone, "rax,rcx", "", "rax,flags", 0},                     // bsf may keep rax
		{"f3480fb8c1", isa.FlowNone, "rcx", "rax,flags", "", 0},                       // popcnt
		{"48f7f1", isa.FlowNone, "rax,rcx,rdx", "rax,rdx", "flags", 0},                // div
		{"f6f1", isa.FlowNone, "rax,rcx", "", "rax,flags", 0},                         // div %cl
		{"f3a4", isa.FlowNone, "rcx,rsi,rdi", "", "rcx,rsi,rdi", isa.Mem},             // rep movsb
		{"f3a6", isa.FlowNone, "rcx,rsi,rdi", "", "rcx,rsi,rdi,flags", isa.Mem},       // repz cmpsb: none for 0
		{"a6", isa.FlowNone, "rsi,rdi", "flags", "rsi,rdi", isa.Mem},                  // cmpsb
		{"f0480fb111", isa.FlowNone, "rax,rcx,rdx", "flags", "rax", isa.Mem},          // lock cmpxchg
		{"48c7c001000000", isa.FlowNone, "", "rax", "", 0},                            // mov $1,%rax
		{"66b80100", isa.FlowNone, "", "", "rax", 0},                                  // mov $1,%ax
		{"48b80102030405060708", isa.FlowNone, "", "rax", "", 0},                      // movabs
		{"48a10102030405060708", isa.FlowNone, "", "rax", "", isa.Mem},                // mov moffs64
		{"488d0500000000", isa.FlowNone, "", "rax", "", isa.PCRel},                    // lea 0(%rip)
		{"488b0500000000", isa.FlowNone, "", "rax", "", isa.PCRel | isa.Mem},          // mov 0(%rip)
		{"65488b042528000000", isa.FlowNone, "", "rax", "", isa.Mem},                  // %gs:0x28
		{"4a8b04a500000000", isa.FlowNone, "r12", "rax", "", isa.Mem},                 // index r12, no base
		{"498b0424", isa.FlowNone, "r12", "rax", "", isa.Mem},                         // base r12 through SIB
		{"498b4500", isa.FlowNone, "r13", "rax", "", isa.Mem},                         // base r13 needs disp8
		{"9c", isa.FlowNone, "rsp,flags", "rsp", "", isa.Mem},                         // pushfq
		{"9d", isa.FlowNone, "rsp", "rsp,flags", "", isa.Mem | isa.Privileged},        // popfq
		{"fb", isa.FlowNone, "", "", "", isa.Privileged | isa.Shadow},                 // sti
		{"c3", isa.FlowReturn, "rsp", "rsp", "", 0},                                   //
		{"f3c3", isa.FlowReturn, "rsp", "rsp", "", 0},                                 // repz ret
		{"ffe0", isa.FlowIndirectJump, "rax", "", "", 0},                              //
		{"ff1500000000", isa.FlowIndirectCall, "rsp", "rsp", "", isa.PCRel | isa.Mem}, // call *0(%rip)
		{"2ee800000000", isa.FlowCall, "rsp", "rsp", "", isa.PCRel},                   // cs call
		{"e3fe", isa.FlowCond, "rcx", "", "", isa.PCRel},                              // jrcxz
		{"0f0b", isa.FlowTrap, "", "", "", 0},                                         // ud2
		{"670fb94002", isa.FlowTrap, "rax", "", "", 0},                                // ud1
		{"0fae00", isa.FlowUnknown, "", "", "", 0},                                    // fxsave
		{"0f38c8c1", isa.FlowUnknown, "", "", "", 0},                                  // sha1nexte
		{"c5f877", isa.FlowUnknown, "", "", "", 0},                                    // vzeroupper
		{"c4e2fbf7c1", isa.FlowNone, "rax,rcx", "rax", "", 0},                         // shrx %rax,%rcx,%rax
		{"62f17c48100400", isa.FlowUnknown, "", "", "", 0},                            // EVEX
		{"06", isa.FlowUnknown, "", "", "", isa.Lost},                                 // not in 64-bit mode
		{"4866b80100", isa.FlowUnknown, "", "", "", isa.Lost},                         // REX before a prefix
		{"66e800000000", isa.FlowUnknown, "", "", "", 0},                              // length of the displacement differs by CPU
		{"0f05", isa.FlowTrap, "", "", "", 0},                                         // syscall
		{"480fc709", isa.FlowNone, "rax,rcx,rdx,rbx", "", "rax,rdx,flags", isa.Mem},   // cmpxchg16b (%rcx)
	})
}

func TestEncode(t *testing.T) {
	var a isa.Addr = 0xffffffff01000000
	for _, to := range []isa.Addr{a, a + 5, a + 5 + math.MaxInt32, a + 5 - 1<<31, 0xffffffff7ffffff0} {
		b, err := Jump(a, to)
		if err != nil {
			t.Errorf("jump to %v: %v", to, err)
			continue
		}
		if i := Decode(b, a); i.Flow != isa.FlowJump || i.Target != to || i.Len != JumpLen {
			t.Errorf("jump to %v decodes as %+v", to, i)
		}
	}
	for _, to := range []isa.Addr{a + 6 + math.MaxInt32, a + 4 - 1<<31, 0} {
		if b, err := Jump(a, to); err == nil {
			t.Errorf("jump to %v encoded as %x", to, b)
		}
	}
	b, err := LockInc(a, a+0x10000)
	if err != nil || !bytes.Equal(b, []byte{0xf0, 0x48, 0xff, 0x05, 0xf8, 0xff, 0, 0}) {
		t.Errorf("lock incq = %x, %v", b, err)
	}
	if i := Decode(b, a); i.Flow != isa.FlowNone || i.Len != len(b) || i.Clobbers != isa.Set(Flags) || i.Writes != 0 {
		t.Errorf("lock incq decodes as %+v", i)
	}
	if _, err := LockInc(a, a+1<<33); err == nil {
		t.Error("lock incq out of reach was encoded")
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{"\x90", "\x0f\x1f\x44\x00\x00", "\xc4\xe2\xfb\xf7\xc1", "\x66\x66\x66\x66", ""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) { isatest.Contract(t, Arch, b) })
}

func BenchmarkDecode(b *testing.B) {
	code := []byte{0x48, 0x8b, 0x44, 0x24, 0x08, 0x48, 0x89, 0xc3}
	for b.Loop() {
		Decode(code, 0)
	}
}
