package amd64

import (
	"bytes"
	"encoding/hex"
	"math"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/isa/isatest"
)

func TestGolden(t *testing.T) { isatest.Golden(t, Arch, "testdata/golden.txt") }

// TestHand holds the cases where x86 is treacherous, by the manual.
func TestHand(t *testing.T) {
	isatest.Hand(t, Arch, `
f30f1efa | none |  |  |  | landing | endbr64
0f01ca | none |  |  |  | privileged | clac
0f01cb | none |  |  |  | privileged | stac
90 | none |  |  |  |  | nop
f390 | none |  |  |  |  | pause
4190 | none | rax,r8 | rax,r8 |  |  | xchg %r8d,%eax, not nop
0f1f440000 | none | rax |  |  |  | nop that forms an address
31c0 | none |  | rax,flags |  |  | xor %eax,%eax
4531c0 | none |  | r8,flags |  |  | xor %r8d,%r8d
6631c0 | none | rax | flags | rax |  | xor %ax,%ax keeps the rest
30c0 | none | rax | flags | rax |  | xor %al,%al
19c0 | none | rax,flags | rax,flags |  |  | sbb %eax,%eax reads the carry
89d8 | none | rbx | rax |  |  | 32 bits overwrite 64
88d8 | none | rbx |  | rax |  | 8 bits do not
88fc | none | rbx |  | rax |  | mov %bh,%ah
4088fc | none | rdi |  | rsp |  | with REX: mov %dil,%spl
ffc0 | none | rax | rax | flags |  | inc keeps CF
d3e0 | none | rax,rcx | rax | flags |  | shl %cl: none for 0
d1e0 | none | rax | rax,flags |  |  | shl by 1
d1c0 | none | rax | rax | flags |  | rol: CF and OF only
d1d0 | none | rax,flags | rax | flags |  | rcl
0fa3c8 | none | rax,rcx |  | flags |  | bt
480f45c1 | none | rax,rcx,flags |  | rax |  | cmovne
0f94c0 | none | flags |  | rax |  | sete
480fbcc1 | none | rax,rcx |  | rax,flags |  | bsf may keep rax
f3480fb8c1 | none | rcx | rax,flags |  |  | popcnt
48f7f1 | none | rax,rcx,rdx | rax,rdx | flags | may-fault | div
f6f1 | none | rax,rcx |  | rax,flags | may-fault | div %cl
f3a4 | none | rcx,rsi,rdi |  | rcx,rsi,rdi | load,store,may-fault,repeats | rep movsb
f3a6 | none | rcx,rsi,rdi |  | rcx,rsi,rdi,flags | load,may-fault,repeats | repz cmpsb: none for 0
a6 | none | rsi,rdi | flags | rsi,rdi | load,may-fault | cmpsb
f0480fb111 | none | rax,rcx,rdx | flags | rax | load,store,may-fault | lock cmpxchg
48c7c001000000 | none |  | rax |  |  | mov $1,%rax
66b80100 | none |  |  | rax |  | mov $1,%ax
48b80102030405060708 | none |  | rax |  |  | movabs
48a10102030405060708 | none |  | rax |  | load,may-fault | mov moffs64
488d0500000000 | none |  | rax |  | pcrel | lea 0(%rip)
488b0500000000 | none |  | rax |  | pcrel,load,may-fault | mov 0(%rip)
65488b042528000000 | none |  | rax |  | load,may-fault | %gs:0x28
4a8b04a500000000 | none | r12 | rax |  | load,may-fault | index r12, no base
498b0424 | none | r12 | rax |  | load,may-fault | base r12 through SIB
498b4500 | none | r13 | rax |  | load,may-fault | base r13 needs disp8
9c | none | rsp,flags | rsp |  | store,may-fault | pushfq
9d | none | rsp | rsp,flags |  | load,privileged,may-fault | popfq
fb | none |  |  |  | privileged,shadow | sti
c3 | return | rsp | rsp |  | load,may-fault |
f3c3 | return | rsp | rsp |  | load,may-fault | repz ret
ffe0 | indirect-jump | rax |  |  |  |
ff1500000000 | indirect-call | rsp | rsp |  | pcrel,load,store,may-fault | call *0(%rip)
2ee800000000 | call | rsp | rsp |  | pcrel,store,may-fault | cs call
e3fe | cond | rcx |  |  | pcrel | jrcxz
0f0b | trap |  |  |  |  | ud2
670fb94002 | trap | rax |  |  |  | ud1
c4e27bf6c1 | none | rcx,rdx | rax |  |  | mulx %ecx,%eax,%eax
c4e278f6c1 | unknown |  |  |  |  | mulx without its prefix
0fae00 | none | rax |  |  | store,may-fault,vector | fxsave
0f38c8c1 | none |  |  |  | vector | sha1nexte
c5f877 | none |  |  |  | vector | vzeroupper
c4e2fbf7c1 | none | rax,rcx | rax |  |  | shrx %rax,%rcx,%rax
06 | unknown |  |  |  | lost | not in 64-bit mode
4866b80100 | unknown |  |  |  | lost | REX before a prefix
66e800000000 | unknown |  |  |  | lost | length of the displacement differs by CPU
0f05 | trap |  |  |  |  | syscall
480fc709 | none | rax,rcx,rdx,rbx |  | rax,rdx,flags | load,store,may-fault | cmpxchg16b (%rcx)
660fae30 | none | rax |  |  | may-fault | clwb, not xsaveopt
480fae30 | none | rax,rdx |  |  | store,may-fault,vector | xsaveopt64
c4e2fbf6ca | none | rdx | rax,rcx |  |  | mulx %rdx,%rax,%rcx
c4e278f2c1 | none | rax,rcx | rax | flags |  | andn %ecx,%eax,%eax
c4e2f8f3d9 | none | rcx | rax | flags |  | blsi %rcx,%rax: into vvvv
660f6ef9 | none | rcx |  |  | vector | movd %ecx,%xmm7
66480f7ef8 | none |  | rax |  | vector | movq %xmm7,%rax
660fd7c1 | none |  | rax |  | vector | pmovmskb %xmm1,%eax
660f2fc1 | none |  | flags |  | vector | comisd
660f3a16c801 | none |  | rax |  | vector | pextrd $1,%xmm1,%eax
c4e2f99214c8 | none | rax |  |  | load,may-fault,vector | vgatherdpd: the index is a vector
c4e2f99204c8 | unknown |  |  |  |  | a gather into its mask
c4e2f9920cc8 | unknown |  |  |  |  | a gather into its index
c4e2f992fc | unknown |  |  |  |  | a gather out of a register
c4e27d5a00 | none | rax |  |  | load,may-fault,vector | vbroadcasti128
c4e27d5ac0 | unknown |  |  |  |  | vbroadcasti128 of a register
c4e279b0c0 | unknown |  |  |  |  | vcvtneeph2ps of a register
c4e2735ec2 | none |  |  |  | vector | tdpbssd %tmm1,%tmm2,%tmm0
c462735ec2 | unknown |  |  |  |  | tdpbssd into a ninth tile
c4e27b5ec2 | unknown |  |  |  |  | tdpbssd onto what it multiplies
c4e27b49c0 | none |  |  |  | vector | tilezero %tmm0
c4627b49c0 | unknown |  |  |  |  | tilezero of a ninth
c5fc42d1 | none |  |  |  | vector | kandnw %k1,%k0,%k2
c4c17c42d1 | unknown |  |  |  |  | a ninth mask
62f17d486fc1 | none |  |  |  | vector | vmovdqa32 %zmm1,%zmm0
62f17d486f00 | none | rax |  |  | load,may-fault,vector | vmovdqa32 (%rax),%zmm0
62a17d486f0448 | none | rax,r9 |  |  | load,may-fault,vector | X is the index's where there is one
62217d486fc1 | none |  |  |  | vector | and names one of 32 where r/m is a register
62f1fd4a7f00 | none | rax |  |  | store,may-fault,vector | vmovdqa64 %zmm0,(%rax){%k2}
62f1fdca7f00 | unknown |  |  |  |  | memory is not zeroed
62f1fdca7fc1 | none |  |  |  | vector | a register is
62f1fdc87fc1 | unknown |  |  |  |  | by a mask
62f1fd687fc1 | unknown |  |  |  |  | there are no 1024 bits
62f1fd587fc1 | unknown |  |  |  |  | nothing is rounded
62f1fd586f00 | unknown |  |  |  |  | or repeated
62f1f5486fc1 | unknown |  |  |  |  | there are two operands
62f1fd406fc1 | unknown |  |  |  |  | V' is a part of vvvv
62f17d4828c1 | unknown |  |  |  |  | vmovapd has W
62f17c486fc1 | unknown |  |  |  |  | and vmovdqa32 a prefix
62f9fd486fc1 | unknown |  |  |  | lost | a bit that is 0
62f1f9486fc1 | unknown |  |  |  | lost | a bit that is 1
62f0fd486fc1 | unknown |  |  |  | lost | there is no map 0
62f4fd486fc1 | unknown |  |  |  | lost | map 4 is that of APX
62f5fd486fc1 | unknown |  |  |  | lost | map 5 that of FP16
62f7fd486fc1 | unknown |  |  |  | lost | nor map 7
62f17558fe00 | none | rax |  |  | load,may-fault,vector | vpaddd (%rax){1to16},%zmm1,%zmm0
62f17558fec1 | unknown |  |  |  |  | a register is not repeated
62f17558fc00 | unknown |  |  |  |  | nor are bytes
62f1754964c1 | none |  |  |  | vector | vpcmpgtb into a mask, under a mask
62f175c964c1 | unknown |  |  |  |  | masks are not zeroed so
6271754864c1 | unknown |  |  |  |  | there is no ninth
62e1754864c1 | unknown |  |  |  |  | nor a seventeenth
62f27e4828c1 | none |  |  |  | vector | vpmovm2b %k1,%zmm0
62d27e4828c1 | unknown |  |  |  |  | vpmovm2b %k9
62f27e482800 | unknown |  |  |  |  | vpmovm2b from memory
62f27e4928c1 | unknown |  |  |  |  | under a mask
62f17d48e700 | none | rax |  |  | store,may-fault,vector | vmovntdq
62f17d48e7c0 | unknown |  |  |  |  | vmovntdq to a register
62f1754871e004 | none |  |  |  | vector | vpsraw
62f1754871e804 | unknown |  |  |  |  | no shift
6271754871e004 | unknown |  |  |  |  | nor R
62f3fd2800c001 | none |  |  |  | vector | vpermq of 256 bits
62f3fd0800c001 | unknown |  |  |  |  | of 128
62f2750ddcc1 | unknown |  |  |  |  | vaesenc under a mask
62f2755066c1 | unknown |  |  |  |  | vpblendmb: none that the kernels hold
62f2fd4992fc | unknown |  |  |  |  | vgatherqpd: likewise
62f17e487bc7 | unknown |  |  |  |  | vcvtusi2ss: likewise
6662f17d486fc1 | unknown |  |  |  |  | a prefix before EVEX
f062f17d486fc1 | unknown |  |  |  |  | lock before EVEX
6462f17d486f00 | none | rax |  |  | load,may-fault,vector | a segment
f3480fa7c8 | none | rax,rcx,rdx,rbx,rsi,rdi |  | rax,rcx,rdx,rsi,rdi | load,store,privileged,may-fault,repeats | xcrypt-ecb
0fa7c8 | unknown |  |  |  |  | without its prefix
0fa7c0 | none | rax,rcx,rdx,rbx,rsi,rdi |  | rax,rcx,rdx,rsi,rdi | load,store,privileged,may-fault,repeats | xstore
0f01d9 | trap |  |  |  | privileged | vmmcall
f30f01d9 | trap |  |  |  | privileged | vmgexit
660f01d9 | unknown |  |  |  |  | neither
660f78cc2d05 | unknown |  |  |  | lost | extrq, not vmread
0f2034 | unknown |  |  |  | lost | mov of a control register to memory
c738 | unknown |  |  |  | lost | xbegin in memory
c4e2f99201 | unknown |  |  |  |  | a gather without an index
660ff7c1 | none | rdi |  |  | store,may-fault,vector | maskmovdqu
dfe0 | none |  |  | rax | may-fault,vector | fnstsw %ax
d9c9 | none |  |  |  | may-fault,vector | fxch
dbe9 | none |  |  | flags | may-fault,vector | fucomi
d910 | none | rax |  |  | store,may-fault,vector | fsts
0f78c8 | none | rax,rcx | flags | rax | privileged | vmread %rcx,%rax
0f01c1 | trap |  |  |  | privileged | vmcall
f20f01ff | none | rax,rcx,rdx |  | rax,flags | load,store,privileged,may-fault | pvalidate
cb | indirect-jump | rsp | rsp |  | load,privileged,may-fault | lret
ff28 | indirect-jump | rax |  |  | load,privileged,may-fault | ljmp *(%rax)
f20f38f1c1 | none | rax,rcx | rax |  |  | crc32l %ecx,%eax
66f20f38f1c1 | none | rax,rcx | rax |  |  | crc32w %cx,%eax overwrites all of it
660f38820a | none | rcx,rdx |  |  | load,privileged,serialising,may-fault | invpcid
0fa2 | none | rax,rcx | rax,rcx,rdx,rbx |  | privileged,serialising | cpuid
66c5f877 | unknown |  |  |  |  | a prefix before VEX
66750a | unknown |  |  |  |  | jne: AMD cuts the address to 16 bits, Intel does not
66eb0a | unknown |  |  |  |  | jmp likewise
66e30a | unknown |  |  |  |  | jrcxz likewise
66e20a | unknown |  |  |  |  | loop likewise
660f8500000000 | unknown |  |  |  | lost | jne with 32 bits likewise
66e900000000 | unknown |  |  |  | lost | jmp with 32 bits likewise
66c3 | unknown |  |  |  |  | ret likewise
66ffe0 | unknown |  |  |  |  | jmp *%rax likewise
66ffd0 | unknown |  |  |  |  | call *%rax likewise
66c9 | unknown |  |  |  |  | leave that keeps the upper half of rbp
66fff0 | none | rax,rsp | rsp |  | store,may-fault | push %ax, the same for both
6690 | none |  |  |  |  | xchg %ax,%ax
2e750a | cond | flags |  |  | pcrel | a hint
f075fe | unknown |  |  |  |  | lock jne
f090 | unknown |  |  |  |  | lock nop
f0c3 | unknown |  |  |  |  | lock ret
f08b00 | unknown |  |  |  |  | lock mov
f08900 | unknown |  |  |  |  | lock mov to memory
f00100 | none | rax | flags |  | load,store,may-fault | lock add %eax,(%rax)
f001c0 | unknown |  |  |  |  | lock add of a register
f00300 | unknown |  |  |  |  | lock add from memory
f03900 | unknown |  |  |  |  | lock cmp
f0833800 | unknown |  |  |  |  | lock cmpl $0,(%rax)
f083040400 | none | rax,rsp | flags |  | load,store,may-fault | lock addl $0,(%rsp,%rax)
f0f710 | none | rax |  |  | load,store,may-fault | lock notl
f0f720 | unknown |  |  |  |  | lock mull
f0ff00 | none | rax |  | flags | load,store,may-fault | lock incl
f0ff10 | unknown |  |  |  |  | lock call
f08700 | none | rax | rax |  | load,store,may-fault | lock xchg
f00fba2001 | unknown |  |  |  |  | lock bt
f00fba2801 | none | rax |  | flags | load,store,may-fault | lock bts
f00fa300 | unknown |  |  |  |  | lock bt
f00fab00 | none | rax |  | flags | load,store,may-fault | lock bts
f00fc108 | none | rax,rcx | rcx,flags |  | load,store,may-fault | lock xadd
f00faf00 | unknown |  |  |  |  | lock imul
f00fc730 | unknown |  |  |  |  | lock vmptrld
f0c5f877 | unknown |  |  |  |  | lock before VEX
f0480fc709 | none | rax,rcx,rdx,rbx |  | rax,rdx,flags | load,store,may-fault | lock cmpxchg16b
8ec8 | unknown |  |  |  |  | mov to cs
8cf0 | unknown |  |  |  |  | there is no seventh segment register
0f20c8 | unknown |  |  |  |  | nor cr1
440f20c0 | none |  | rax |  | privileged | mov %cr8,%rax
0f23e0 | unknown |  |  |  |  | db4
660fc300 | unknown |  |  |  |  | movnti has no prefix
660f77 | unknown |  |  |  |  | nor has emms
f30f01fa | unknown |  |  |  |  | mcommit, not monitorx
f30f38dc00 | unknown |  |  |  |  | aesenc128kl changes the flags
660f38dcc1 | none |  |  |  | vector | aesenc
f30ffcc1 | unknown |  |  |  |  | paddb has no such form
0ffcc1 | none |  |  |  | vector | paddb
660f71c001 | unknown |  |  |  |  | no shift
660f71f001 | none |  |  |  | vector | psllw
c5f8ae18 | none | rax |  |  | store,may-fault,vector | vstmxcsr
c5f8ae10 | none | rax |  |  | load,may-fault,vector | vldmxcsr
c5f8ae20 | unknown |  |  |  |  | neither
c4e2794900 | none | rax |  |  | store,may-fault,vector | sttilecfg
c4e2784900 | none | rax |  |  | load,may-fault,vector | ldtilecfg
c4e27a4b0408 | none | rax,rcx |  |  | store,may-fault,vector | tilestored
c4e27b4b0408 | none | rax,rcx |  |  | load,may-fault,vector | tileloadd
c4e27b4bc0 | unknown |  |  |  |  | tiles are loaded from memory
c5fafcc1 | unknown |  |  |  |  | vpaddb has no such form
c5f86fc1 | unknown |  |  |  |  | nor has vmovdqu
c5fa6fc1 | none |  |  |  | vector | vmovdqu
c5f26fc1 | unknown |  |  |  |  | it has two operands
c5f210c1 | none |  |  |  | vector | vmovss between registers has three
c5f21000 | unknown |  |  |  |  | and from memory two
c5fa1000 | none | rax |  |  | load,may-fault,vector | vmovss (%rax),%xmm0
c5fd6ec0 | unknown |  |  |  |  | vmovd has 128 bits
c5f96ec0 | none | rax |  |  | vector | vmovd %eax,%xmm0
c4e27916c1 | unknown |  |  |  |  | vpermps has 256
c4e27d16c1 | none |  |  |  | vector | vpermps
c4e2fd16c1 | unknown |  |  |  |  | and elements of 32
c5f841c1 | unknown |  |  |  |  | kandw has L
c5fc41c1 | none |  |  |  | vector | kandw
c57c41c1 | unknown |  |  |  |  | there is no ninth mask
c5f892c0 | none | rax |  |  | vector | kmovw %eax,%k0
c5f89200 | unknown |  |  |  |  | no such kmovw
c4e373f0c001 | unknown |  |  |  |  | rorx has two operands
c4e37bf0c001 | none | rax | rax |  |  | rorx $1,%eax,%eax
c4e3fbf0c001 | none | rax | rax |  |  | rorx $1,%rax,%rax
`)
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
	b, err := Call(a, a-0x1000)
	if i := Decode(b, a); err != nil || i.Flow != isa.FlowCall || i.Target != a-0x1000 || i.Len != len(b) {
		t.Errorf("call: %x, %v decodes as %+v", b, err, i)
	}
	if b, err := Call(a, a+1<<33); err == nil {
		t.Errorf("call out of reach encoded as %x", b)
	}
	for d := isa.Addr(0); d < 256; d++ {
		to := a + 2 - 128 + d
		b, err := ShortJump(a, to)
		if i := Decode(b, a); err != nil || i.Flow != isa.FlowJump || i.Target != to || i.Len != ShortJumpLen {
			t.Errorf("short jump to %v: %x, %v", to, b, err)
		}
	}
	for _, to := range []isa.Addr{a + 2 + 128, a + 2 - 129, 0} {
		if b, err := ShortJump(a, to); err == nil {
			t.Errorf("short jump to %v encoded as %x", to, b)
		}
	}
	b, err = LockInc(a, a+0x10000)
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

// TestLocal: per-CPU memory is added to by one instruction, without a lock, at an address
// that has no register in it.
func TestLocal(t *testing.T) {
	inc, err := LocalInc(0x1f008)
	add, err2 := LocalAdd(R12, 0x1f010)
	imm, err3 := LocalAddImm(-2, 0x1f018)
	for want, got := range map[string][]byte{
		"6548ff042508f00100":         inc, // incq %gs:0x1f008
		"654c01242510f00100":         add, // add %r12,%gs:0x1f010
		"654881042518f00100feffffff": imm, // addq $-2,%gs:0x1f018
	} {
		i := Decode(got, 0x1000)
		if hex.EncodeToString(got) != want || i.Len != len(got) || i.Flow != isa.FlowNone || i.Rel32 != 0 || !i.Clobbers.Has(Flags) && !i.Writes.Has(Flags) {
			t.Errorf("%x, want %s: %+v", got, want, i)
		}
	}
	if err != nil || err2 != nil || err3 != nil {
		t.Error(err, err2, err3)
	}
	for _, a := range []isa.Addr{1 << 31, 1<<32 + 8, 1 << 47} {
		if b, err := LocalInc(a); err == nil {
			t.Errorf("%v was encoded as %x", a, b)
		}
	}
}

// TestStoreImm: a constant goes to any base and index as text and decoder say.
func TestStoreImm(t *testing.T) {
	for want, b := range map[string][]byte{
		"movq $0x12340000,0x40(%rax,%rcx)": StoreImmIndexed(RAX, RCX, 64, 0x12340000),
		"movq $-0x10000,-0x8(%r13,%r12)":   StoreImmIndexed(R13, R12, -8, -0x10000),
		"movq $0x1,(%rsp,%rbp)":            StoreImmIndexed(RSP, RBP, 0, 1),
	} {
		if i := Decode(b, 0); Text(b, 0) != want || i.Len != len(b) || i.Writes != 0 || i.Flow != isa.FlowNone {
			t.Errorf("%x: %s, %+v; want %s", b, Text(b, 0), i, want)
		}
	}
}

// TestScan looks for targets of every kind, at the piece's last byte too.
func TestScan(t *testing.T) {
	const a isa.Addr = 0xffffffff81000000
	far := func(code string, at, to isa.Addr) string {
		return code + string(isa.ByteOrder.AppendUint32(nil, uint32(to-at-isa.Addr(len(code))-4)))
	}
	b := far("\xe8", a, a+0x1100) + far("\xe9", a+5, a+0x1200) + far("\x0f\x80", a+10, a+0x1300) +
		far("\x48\x8d\x3d", a+16, a+0x1400) + "\xeb\x7f\x74\x80" + far("\x0f\x8f", a+27, a+0x1500)
	m := isa.NewMarks(a, a+0x2000, 1)
	n := 27 + 1 // the last target begins where this piece ends
	Scan([]byte(b)[:n+ScanTail], a, m)
	for _, want := range []isa.Addr{0x1100, 0x1200, 0x1300, 0x1400, 0x1500} {
		if _, ok := m.First(a+want, a+want+1); !ok {
			t.Errorf("%v was not found", a+want)
		}
	}
	if m.Count() != 5 {
		t.Errorf("%d targets", m.Count())
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
