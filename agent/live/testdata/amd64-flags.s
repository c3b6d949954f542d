# An emulator hands flags to something unknown: that may be any function here, and
# what it leaves in flags and registers is wanted.
hands: #? live rsi,rdi dead flags
 pushq %rdi
 popfq
 call *%rsi #? live flags,r8,r11
 setc %al
 ret
called: #? live rax,rdx,rcx,r8,r11
 addb %dl,%al #? dead flags
 ret #? live flags,rcx,r11
# flags of its own making are nobody's
compares: #? live rsi,rdi dead flags
 pushq %rdi
 popfq
 testq %rdi,%rdi
 call *%rsi #? dead flags
 xorl %eax,%eax
 ret
# flags that only the callee reads
given: #? live rsi,rdi dead flags
 pushq %rdi
 popfq
 call *%rsi #? live flags
 movzbl %al,%eax
 ret
