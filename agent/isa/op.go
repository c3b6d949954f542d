package isa

// Op is what an instruction computes, where that is simple enough to follow an
// address or the index of a table through it. On registers of 64 bits unless
// Size says otherwise.
type Op struct {
	Kind      OpKind
	Dst, A, B Reg
	Imm       int64
	Shift     uint8 // B, or A if there is no B, is shifted left by so much
	Size      uint8 // bytes of a load; of the low part of B (of A) that is used; 0: all eight
	Signed    bool  // that part, or what is loaded, is sign-extended
}

// OpKind tells the operations apart.
type OpKind uint8

const (
	OpNone      OpKind = iota // nothing that can be followed
	OpConst                   // Dst = Imm
	OpAdd                     // Dst = extend(A) << Shift + Imm
	OpAddReg                  // Dst = A + extend(B) << Shift
	OpAnd                     // Dst = A & Imm
	OpShr                     // Dst = uint64(A) >> Imm
	OpLoad                    // Dst = memory of Size bytes at A + Imm
	OpLoadReg                 // Dst = memory of Size bytes at A + extend32(B) << Shift; Imm 4 when B is cut to 32 bits
	OpCmp                     // flags = A - Imm, on Size bytes
	OpBranch                  // conditional on flags: Cond
	OpCmpBranch               // conditional on A against B: Cond
	OpJump                    // to A + Imm
)

// Conditions of OpBranch and OpCmpBranch, in Imm: the branch is taken if A is
// so compared with Imm or B, unsigned. Others are 0.
const (
	CondOther int64 = iota
	CondAbove
	CondAboveEqual
	CondBelow
	CondBelowEqual
)
