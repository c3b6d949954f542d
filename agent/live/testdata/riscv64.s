# x0 is no register
zero: #? dead a5
 add a5, zero, a1
 sd a5, 0(a1)
 ret
discard: #? live a1
 add zero, a1, a2
 mv a0, a1
 ret
# compressed forms
compressed: #? live a0,a1 dead a2
 c.mv a2, a1
 c.add a0, a2
 c.jr ra
# across a direct call: leaf overwrites t3, not t4
leaf: #? dead t3
 li t3, 7
 add a0, a0, t3
 ret
keeper: #? live t4,ra dead t3
 addi sp, sp, -16
 sd ra, 8(sp)
 jal leaf #? live t4,sp dead t3,ra
 add a0, a0, t4
 add a0, a0, t3
 ld ra, 8(sp)
 addi sp, sp, 16
 ret
# a far call is two instructions: auipc and jalr
farkeeper: #? live t4,ra dead t3
 addi sp, sp, -16
 sd ra, 8(sp)
1: auipc ra, %pcrel_hi(leaf)
 jalr ra, %pcrel_lo(1b)(ra) #? live t4 dead t3
 add a0, a0, t4
 ld ra, 8(sp)
 addi sp, sp, 16
 ret
unknown: #? live s1,a5,ra
 addi sp, sp, -16
 sd ra, 8(sp)
 sd s1, 0(sp)
 mv s1, a1 #? dead t0,t6
 jalr a5 #? live s1,a5,a0,a7 dead t0,t6,ra
 add a0, a0, s1 #? live s1,a0 dead t0
 ld s1, 0(sp)
 ld ra, 8(sp)
 addi sp, sp, 16
 ret
tail: #? live a3,t5 dead t0
 j tail2
tail2: #? live a3,t5
 add a0, a3, t5
 ret
jumps: #? live a0,t6
 jr a0
gate: #? live a0,t6
 ecall
 ret
exits: #? live a0,t6
 sret
dies: #? dead a0,t6
.Lbug: ebreak
callsdies: #? dead t6
 beqz a0, 1f
 li a0, 0
 ret
1: jal dies
hot: #? live a2
 bnez a0, hot.cold
hotback: #? live a2 dead a3
 mv a0, a2
 ret
hot.cold: #? live a2,a3 dead a0
 mv a0, a3
 sd a0, 0(a2)
 j hotback
# a jump table of distances from itself
table: #? live a1,a3,t4 dead a4,a5
 li a5, 2
 bltu a5, a0, 3f
0: auipc a4, %pcrel_hi(tab)
 addi a4, a4, %pcrel_lo(0b)
 slli a0, a0, 2
 add a0, a0, a4
 lw a0, 0(a0)
 add a0, a0, a4
 jr a0
1: mv a0, a1
 ret
2: add a0, a3, t4
 ret
3: li a0, 6
 ret
 .balign 4
tab: 
 .word 1b-tab, 2b-tab, 1b-tab
# a table in a loop: address and bound are made before it, and what the table leads
# to leads back. The index, a byte, is compared with less than bytes can be.
looped: #? live a0,a1,t4 dead t3,a5
 li s3, 2
4: auipc s2, %pcrel_hi(looptab)
 addi s2, s2, %pcrel_lo(4b)
5: lbu a5, 0(a0)
 bltu s3, a5, 9f
 slli a5, a5, 2
 add a5, a5, s2
 lw a5, 0(a5)
 add a5, a5, s2
 jr a5
6: addi a0, a0, 1
 j 5b
7: add a1, a1, t4 #? live a0,a1,t4 dead t3
 j 5b
9: mv a0, a1
 ret
 .balign 4
looptab: 
 .word 6b-looptab, 7b-looptab, 6b-looptab, 0x7fffffff
# one whose bound is changed behind it is none
refuted: #? live a0,a1,t3
 li s3, 2
4: auipc s2, %pcrel_hi(refutedtab)
 addi s2, s2, %pcrel_lo(4b)
5: lbu a5, 0(a0)
 bltu s3, a5, 9f
 slli a5, a5, 2
 add a5, a5, s2
 lw a5, 0(a5)
 add a5, a5, s2
 jr a5
6: li s3, 3
 j 5b
9: mv a0, a1
 ret
 .balign 4
refutedtab: 
 .word 6b-refutedtab, 6b-refutedtab, 6b-refutedtab, 0x7fffffff
# the low half is compared, and the low half is the index
lowhalf: #? live a0,a1,t4 dead t3,a5
 sext.w a5, a0
 li a4, 1
 bltu a4, a5, 9f
4: auipc a4, %pcrel_hi(lowtab)
 addi a4, a4, %pcrel_lo(4b)
 slli a5, a0, 32
 srli a0, a5, 30
 add a0, a0, a4
 lw a0, 0(a0)
 add a0, a0, a4
 jr a0
6: mv a0, a1
 ret
7: add a0, a1, t4
9: ret
 .balign 4
lowtab: 
 .word 6b-lowtab, 7b-lowtab
# the low half is compared, the whole is the index: that is no bound
highhalf: #? live a0,t3
 sext.w a5, a0
 li a4, 1
 bltu a4, a5, 9f
4: auipc a4, %pcrel_hi(hightab)
 addi a4, a4, %pcrel_lo(4b)
 slli a0, a0, 2
 add a0, a0, a4
 lw a0, 0(a0)
 add a0, a0, a4
 jr a0
6: mv a0, a1
9: ret
 .balign 4
hightab: 
 .word 6b-hightab, 6b-hightab
# a breakpoint that no table lists is a kprobe's: behind it the code goes on
probed: #? live a0,t6
 ebreak
 ret
callsprobed: #? live t6
 jal probed
 mv a0, t6
 ret
_etext: 
 .balign 4
__start___bug_table: 
 .long .Lbug - ., 0, 0
__stop___bug_table: 
