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
 .byte 0x0f,0x1f,0x44,0x00,0x00 #? live rdi,rsi,rdx,rcx,r8,r9,rax,r10 dead r11
 movq %r10,%rax #? live r10
 ret
_etext:
 .balign 4
__start_static_call_sites:
 .long scalled + 5 - ., 0
__stop_static_call_sites:
