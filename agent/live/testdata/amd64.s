# partial writes: movb keeps the rest of rax; movl overwrites it whole
partial: #? live rax,rcx
 movb $1,%al
 movq %rax,(%rcx)
 ret
whole: #? dead rax
 movl $1,%eax
 movq %rax,(%rcx)
 ret
# the flags: a comparison makes them dead before it, inc keeps the carry
compared: #? dead flags
 cmpq %rdi,%rsi
 sete %al
 ret
carry: #? live flags
 incq %rdi
 adcq %rsi,%rdi
 ret
shifted: #? live flags
 shlq %cl,%rdi
 jc 1f
 ret
1: xorl %eax,%eax
 ret
# setcc writes one byte, cmov only sometimes
setcc: #? live rax dead flags
 testq %rdi,%rdi
 setne %al
 ret
cmov: #? live rax,rdi
 testq %rsi,%rsi
 cmovne %rdi,%rax
 ret
# xor of a register with itself does not read it
zeroed: #? dead rax,flags
 xorl %eax,%eax
 ret
# across a direct call: leaf overwrites rcx and flags, but not rdx, r10
leaf: #? dead rcx,r9
 movl $7,%ecx
 addl %ecx,%edi
 movl %edi,%eax
 ret
keeper: #? live rdx,r10 dead rcx,flags
 call leaf #? live rdx,r10 dead rcx,rax
 addq %rdx,%rax
 addq %r10,%rax
 addq %rcx,%rax
 ret
# what callers want: r11 is live in leaf2 although leaf2 never reads it
leaf2: #? live r11
 nop
 xorl %eax,%eax #? live r11 dead rax,rcx
 ret
wants: #? live r11
 call leaf2
 movq %r11,%rax
 ret
# across an unknown call: C keeps rbx, loses rcx, r10 and the flags
unknown: #? live rdi,rsi,rax
 pushq %rbx
 movq %rdi,%rbx #? dead rbx,r10
 call *%rax #? live rbx,rdi,r9,rsp dead r10,r11,flags
 addq %rbx,%rax #? live rax,rbx dead rcx,flags
 popq %rbx
 ret
# recursion: rcx is overwritten on every path that returns
recurse: #? live rdi dead rcx
 testq %rdi,%rdi
 je 1f
 decq %rdi
 call recurse #? dead rcx
 addq %rcx,%rax
 ret
1: movl $1,%ecx
 ret
rcaller: #? dead rcx live r8
 call recurse
 movq %rcx,%rax
 addq %r8,%rax
 ret
# never returns: nothing behind the call counts
dies: #? dead rax,rcx
 ud2
callsdies: #? dead r9
 testq %rdi,%rdi
 je 1f
 xorl %eax,%eax
 ret
1: call dies
# cold half in another symbol, which jumps back into the middle
hot: #? live rdi,rdx
 testq %rdi,%rdi
 jne hot.cold
hotback: #? live rdx dead rcx
 movq %rdx,%rax
 ret
hot.cold: #? live rdx,rcx dead rdi
 movq %rcx,%rdi
 movq %rdi,(%rdx)
 jmp hotback
# tail call: what the target reads is read
tail: #? live rdx,r10 dead rcx
 jmp leaf3
leaf3: #? live rdx,r10
 leaq (%rdx,%r10),%rax
 ret
# thunks: an indirect call through a register, and a return
viathunk: #? live rax,rdi,rbx dead r10,flags
 call __x86_indirect_thunk_rax #? live rax,rdi,rbx dead r10,r11
 movq %rbx,%rax
 jmp __x86_return_thunk
__x86_indirect_thunk_rax: 
 call 1f
 int3
1: movq %rax,(%rsp)
 ret
viathunk10: #? live r10,rdi dead r11
 call __x86_indirect_thunk_r10
 ret
__x86_indirect_thunk_r10: 
 jmp *%r10
 int3
__x86_return_thunk: 
 ret
 int3
# inside the range of one instruction, nothing begins
prefixed: #? live rdi
 rep movsb
 ret
# everything is live before what is not understood, and before iret
gate: #? live rax,rcx,rdx,rbx,rbp,rsi,rdi,r8,r9,r10,r11,r12,r13,r14,r15
 vmcall
 ret
exits: #? live rax,rbx,r10
 iretq
jumps: #? live rax,rbx,r10
 jmp *%rax
# a static call that is off: what the kernel writes there later reads arguments,
# and may leave every register as it is
scalled: #? live rsi,rcx,r10 dead rdi,rax
 movq %rbx,%rdi
 xorl %eax,%eax
.Lcall: .byte 0x0f,0x1f,0x44,0x00,0x00 #? live rdi,rsi,rdx,rcx,r8,r9,rax,r10 dead r11
 movq %r10,%rax #? live r10
 ret
# one that is the last thing a function does jumps elsewhere now; that says nothing
scalltail: #? live rdi,rsi,r9,rax dead r11,flags
.Ljump: .byte 0xe9
 .long leaf - . - 4
# a call through memory is paravirt's, which keeps what it likes
throughmemory: #? live r10,r11,flags,rcx
 call *8(%rax)
 ret
# a conditional tail call
condtail: #? live rdi,rdx,r10
 testq %rdi,%rdi
 jne leaf3
 xorl %eax,%eax
 ret
# a static key that is off now: both sides count
keyed: #? live rsi,r10
.Lkey: .byte 0x66,0x90
 movq %rsi,%rax #? dead r10
 ret
.Lkeyed: movq %r10,%rax #? live r10 dead rsi
 ret
# what faults has not overwritten anything: the fixup reads what was there
faults: #? live rdi,rcx,r11
.Lfault: movq (%rdi),%rcx
 movq %rcx,%rax #? live rcx dead r11
 ret
.Lfixup: leaq (%rcx,%r11),%rax
 ret
callsfaults: #? live rdi,rcx,r11
 call faults
 ret
faultsalone: #? live rdi,r9
.Lalone: movq (%rdi),%r9
 ret
.Lnothing: ret #? live r9
wantsfault: #? live r9
 call faultsalone
 movq %r9,%rax
 ret
# this handler computes rcx from rcx and the register that its entry names, r8
copies: #? live rsi,rcx,r8
.Lcopy: movb (%rsi),%al
 xorl %eax,%eax #? dead rcx,r8
 ret
.Lcopied: movl $1,%eax #? dead rcx,r8
 ret
callscopies: #? live rsi,rcx,r8
 call copies
 ret
# behind a warning the code goes on, behind a bug it does not
warns: #? live rcx dead rax
.Lwarn: ud2
 movq %rcx,%rax
 ret
bugs: #? dead rcx,rax
.Lbug: ud2
 movq %rcx,%rax
 ret
# what is read behind an unknown call and what C would have lost: it is not C
keepsmore: #? live r8,r9,r11
 call *%rbx #? live r8,r11,flags
 movq %r8,%rax
 ret
# what C loses, an unknown callee's caller does not keep for its own
loses: #? dead r11
 call *%rbx
 ret
wantslost: #? dead r11
 call loses
 movq %r11,%rax
 ret
# known by its name: inline assembly calls it, and only counts on what it says
__sw_hweight64: #? live rcx,r11
 movl $1,%eax #? live rcx,r11 dead rax
 ret
# a function that begins with a call, of anything but ftrace, need not be C
begins: #? live r11
 call leaf2 #? live r11
 movq %r11,%rax
 ret
callsbegins: #? live r11
 call begins
 ret
# one that calls what is not in the text is C: an ftrace site that is on
traced:
 call traced - 0x100000
 movq %r11,%rax
 ret
callstraced: #? dead r11
 call traced
 ret
# Xen's prefix for an instruction that it emulates goes on
xenprefix: #? live rax,rbx,rcx,r11
 ud2
 .ascii "xen"
 cpuid
 ret
# a breakpoint in the middle is a kprobe's: behind it the code goes on
probed: #? live rax,r11
 int3
 .byte 0x89,0xd8 # what was behind the first byte of mov %rbx,%rax
 ret
callsprobed: #? live r11
 call probed
 movq %r11,%rax
 ret
# assembly's jump through a thunk may lead back into the function, C's leads to C
computed: #? live rax,r10,r11
 jmp __x86_indirect_thunk_rax
callscomputed: #? live r11
 call computed
 movq %r11,%rax
 ret
tracedtail: 
 call traced - 0x100000
 jmp __x86_indirect_thunk_rax #? live rax,rdi dead r10,r11
# padding is none
padded: #? dead r11
 call dies
 int3
 int3
_etext:
 .balign 4
__start_static_call_sites:
 .long .Lcall - ., 0
 .long .Ljump - ., 0
__stop_static_call_sites:
__start___jump_table:
 .long .Lkey - ., .Lkeyed - ., 0, 0
__stop___jump_table:
__start___ex_table:
 .long .Lfault - ., .Lfixup - ., 1
 .long .Lcopy - ., .Lcopied - ., 19 + (8 << 8)
 .long .Lalone - ., .Lnothing - ., 1
__stop___ex_table:
__start___bug_table:
 .long .Lwarn - ., 0, 1 << 16
 .long .Lbug - ., 0, 0
__stop___bug_table:
