# w registers overwrite the x register whole; movk does not
whole: #? dead x0
 mov w0, #1
 str x0, [x1]
 ret
movk: #? live x0
 movk x0, #1
 ret
# the zero register is no register, the stack pointer is one
zero: #? dead x2
 add x2, xzr, x1
 str x2, [x1]
 ret
discard: #? dead x3,flags
 subs xzr, x0, x1
 cset x3, eq
 mov x0, x3
 ret
# csel reads both; ccmp reads the flags
csel: #? live x1,x2,flags dead x0
 csel x0, x1, x2, eq
 ret
ccmp: #? live flags,x0
 ccmp x0, #0, #0, eq
 cset x0, eq
 ret
# across a direct call: leaf overwrites x9 and the flags, not x10
leaf: #? dead x9
 mov x9, #7
 adds x0, x0, x9
 ret
keeper: #? live x10,x30,x29 dead x9,flags
 stp x29, x30, [sp, #-16]!
 bl leaf #? live x10,sp dead x9,x30
 add x0, x0, x10
 add x0, x0, x9
 ldp x29, x30, [sp], #16
 ret
# across an unknown call
unknown: #? live x19,x30
 stp x19, x30, [sp, #-16]!
 mov x19, x1 #? dead x9,x17
 blr x8 #? live x19,x8,x0,x7 dead x9,x17,flags,x30
 add x0, x0, x19 #? live x0,x19 dead x9
 ldp x19, x30, [sp], #16
 ret
# a load that writes its base back
writeback: #? live x1
 ldr x0, [x1], #8
 str x0, [x1]
 ret
# exclusives: the store's status register is overwritten
exclusive: #? dead x9,x10 live x0,x1
 ldxr x9, [x0]
 add x9, x9, x1
 stxr w10, x9, [x0]
 cbnz w10, exclusive
 ret
tail: #? live x3,x11 dead x9
 b tail2
tail2: #? live x3,x11
 add x0, x3, x11
 ret
jumps: #? live x0,x9,x17
 br x0
gate: #? live x4,x18
 hvc #0
 ret
exits: #? live x0,x17
 eret
dies: #? dead x0,x9
 brk #0x800
callsdies: #? dead x9
 cbz x0, 1f
 mov x0, #0
 ret
1: bl dies
hot: #? live x2
 cbnz x0, hot.cold
hotback: #? live x2 dead x3
 mov x0, x2
 ret
hot.cold: #? live x2,x3 dead x0
 mov x0, x3
 str x0, [x2]
 b hotback
# the words in front of an ftrace site are no code, and nothing falls through them
beforewords: #? live x0 dead x9
 ret #? dead x11
 .balign 8
 .quad 0xffff800081234560
traced: #? live x1 dead x11,flags
 mov x9, x30
 nop
 mov x0, x1 #? live x1 dead x0,x11
 ret
 .balign 8
 .quad 0xffff800081234560
traced2: #? live x1 dead x9
 mov x9, x30
 nop
 mov x0, x1
 ret
# who traces it reads all arguments
callstraced: #? live x1,x3,x7,x8 dead x9
 bl traced2 #? live x3,x7,x8 dead x9
 mov x0, #1
 ret
# a probe's trampoline is entered by a return, whose caller keeps what it likes
__kretprobe_trampoline: #? live x9,x17,flags dead x0
 mov x0, sp
 ret
# a jump table of distances
table: #? live x1,x3,x4 dead x9
 cmp w0, #2
 b.hi 3f
 adrp x9, .
 adr x9, tab
 ldrb w0, [x9, w0, uxtw]
 adr x10, 1f
 add x0, x10, w0, sxtb #2
 br x0
1: mov x0, x1
 ret
2: add x0, x3, x4
 ret
3: mov x0, #6
 ret
tab: 
 .byte 0,2,4,0
# an interpreter's table, of addresses
interprets: #? live x0,x1,x3 dead x4,x9,x10
 adrp x9, .
 adr x9, opcodes
1: ldrb w10, [x0]
 cmp w10, #1
 b.hi 3f
 ldr x11, [x9, w10, sxtw #3]
 br x11
2: add x0, x0, #1
 b 1b
3: add x0, x1, x3
 ret
 .balign 8
opcodes: 
 .quad 2b, 3b, 5
# cut to five bits, and compared with less
masked: #? live x0,x1 dead x4,x9
 and w0, w0, #0x1f
 cmp w0, #1
 b.hi 3f
 adr x9, short
 ldrb w0, [x9, w0, uxtw]
 adr x10, 1f
 add x0, x10, w0, sxtb #2
 br x0
1: mov x0, x1
 ret
3: mov x0, #6
 ret
short: 
 .byte 0,0,0x7f,0x7f
# a load whose handler reads another register than the instruction does
zeropad: #? live x1,x4 dead x9
.Lpad: ldr x0, [x1]
.Lpadded: ret #? dead x4
# a breakpoint of a kprobe's: behind it the code goes on
probed: #? live x4,x17
 brk #4
 ret
callsprobed: #? live x17
 stp x29, x30, [sp, #-16]!
 bl probed
 mov x0, x17
 ldp x29, x30, [sp], #16
 ret
_etext: 
 .balign 4
__start___ex_table: 
 .long .Lpad - ., .Lpadded - .
 .short 4, 4 << 5
__stop___ex_table: 
