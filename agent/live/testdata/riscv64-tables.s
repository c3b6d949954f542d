# Indices of tables, followed path by path to what was compared (agent/cfg/trail.go). Of a jump that
# is not resolved everything is live before it.
_stext: 
.macro through tab index
0: auipc a4, %pcrel_hi(\tab)
 addi a4, a4, %pcrel_lo(0b)
 slli \index, \index, 2
 add \index, \index, a4
 lw \index, 0(\index)
 add \index, \index, a4
 jr \index
.endm
# what was compared was loaded, and is loaded again
reload: #? live a0,a1,a2 dead a3,a4,a5,t3
 lw a5, 0(a0)
 li a4, 1
 bltu a4, a5, 9f
 lwu a3, 0(a0)
 through reloadtab a3
6: mv a0, a1
 ret
7: mv a0, a2
 ret
9: ret
 .balign 4
reloadtab: 
 .word 6b-reloadtab, 7b-reloadtab
# between the two something is stored, which may be there
stored: #? live t3
 lw a5, 0(a0)
 li a4, 1
 bltu a4, a5, 9f
 sw a2, 0(a1)
 lwu a3, 0(a0)
 through storedtab a3
6: mv a0, a1
9: ret
 .balign 4
storedtab: 
 .word 6b-storedtab, 6b-storedtab
# between the two a register is saved that the function has to keep
saved: #? live a0,a1,s1 dead a3,a5,t3
 lw a5, 0(a0)
 li a4, 1
 bltu a4, a5, 9f
 sd s1, 8(sp)
 lwu a3, 0(a0)
 through savedtab a3
6: mv a0, a1
 ld s1, 8(sp)
9: ret
 .balign 4
savedtab: 
 .word 6b-savedtab, 6b-savedtab
# the register by which it was loaded is another one then
elsewhere: #? live t3
 lw a5, 0(a0)
 li a4, 1
 bltu a4, a5, 9f
 addi a0, a0, 8
 lwu a3, 0(a0)
 through elsewheretab a3
6: mv a0, a1
9: ret
 .balign 4
elsewheretab: 
 .word 6b-elsewheretab, 6b-elsewheretab
# what was compared was loaded by another register
otherwise: #? live t3
 lw a5, 0(a1)
 li a4, 1
 bltu a4, a5, 9f
 lwu a3, 0(a0)
 through otherwisetab a3
6: mv a0, a1
9: ret
 .balign 4
otherwisetab: 
 .word 6b-otherwisetab, 6b-otherwisetab
# more is loaded the second time
wider: #? live t3
 lhu a5, 0(a0)
 li a4, 1
 bltu a4, a5, 9f
 lwu a3, 0(a0)
 through widertab a3
6: mv a0, a1
9: ret
 .balign 4
widertab: 
 .word 6b-widertab, 6b-widertab
# both times at an address that is counted from there
global: #? live a1 dead a0,a3,t3
4: auipc a5, %pcrel_hi(somewhere)
 lw a5, %pcrel_lo(4b)(a5)
 li a4, 1
 bltu a4, a5, 9f
5: auipc a3, %pcrel_hi(somewhere)
 lwu a3, %pcrel_lo(5b)(a3)
 through globaltab a3
6: mv a0, a1
 ret
9: li a0, 0
 ret
 .balign 4
globaltab: 
 .word 6b-globaltab, 6b-globaltab
somewhere: 
 .word 0
# sixteen bits of a register, taken twice
half: #? live a0,a1 dead a2,a3,a5,t3
 addiw a5, a0, -7
 slli a2, a5, 0x30
 srli a2, a2, 0x30
 li a4, 1
 bltu a4, a2, 9f
 slli a3, a5, 0x30
 srli a3, a3, 0x30
 through halftab a3
6: mv a0, a1
9: ret
 .balign 4
halftab: 
 .word 6b-halftab, 6b-halftab
# eight bits of it, taken twice; in between come blocks that others lead to
twice: #? live a0,a1,a2 dead a3,a5,t3
 andi a5, a0, 255
 li a4, 1
 bltu a4, a5, 9f
 beqz a2, 5f
 addi a1, a1, 1
5: andi a3, a0, 255
 through twicetab a3
6: mv a0, a1
9: ret
 .balign 4
twicetab: 
 .word 6b-twicetab, 6b-twicetab
# eight bits are compared, all are the index
narrow: #? live t3
 andi a5, a0, 255
 li a4, 1
 bltu a4, a5, 9f
 mv a3, a0
 through narrowtab a3
6: mv a0, a1
9: ret
 .balign 4
narrowtab: 
 .word 6b-narrowtab, 6b-narrowtab
# one of two ways to the jump has no comparison
around: #? live t3
 beqz a2, 5f
 li a4, 1
 bltu a4, a0, 9f
5: mv a3, a0
 through aroundtab a3
6: mv a0, a1
9: ret
 .balign 4
aroundtab: 
 .word 6b-aroundtab, 6b-aroundtab
# a call lies between, which may leave anything in the register
called: #? live t3
 addi sp, sp, -16
 sd ra, 8(sp)
 li a4, 1
 bltu a4, a0, 9f
 jal leaf
 through calledtab a0
6: mv a0, a1
9: ld ra, 8(sp)
 addi sp, sp, 16
 ret
 .balign 4
calledtab: 
 .word 6b-calledtab, 6b-calledtab
leaf: 
 li a0, 5
 ret
# a call lies between, which has to keep the register
kept: #? live s2,a1 dead t3
 addi sp, sp, -16
 sd ra, 8(sp)
 li a4, 1
 bltu a4, s2, 9f
 jal leaf
 mv a3, s2
 through kepttab a3
6: mv a0, s2
9: ld ra, 8(sp)
 addi sp, sp, 16
 ret
 .balign 4
kepttab: 
 .word 6b-kepttab, 6b-kepttab
_etext: 
