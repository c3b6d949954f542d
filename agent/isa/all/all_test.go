package all_test

import (
	"math/rand/v2"
	"sync"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
)

// TestConcurrent has several goroutines decode and print the same bytes at once:
// each gets what one alone does. Run with -race, it finds what they share.
func TestConcurrent(t *testing.T) {
	for _, arch := range all.Arches() {
		t.Run(arch.Name, func(t *testing.T) {
			const goroutines, count = 4, 20_000
			r := rand.New(rand.NewPCG(1, 2))
			code := make([]byte, count*arch.MinLen+arch.MaxLen)
			for k := range code {
				code[k] = byte(r.Uint32())
			}
			var want []answer
			for k := range count {
				want = append(want, ask(arch, code[k*arch.MinLen:], k))
			}
			var wg sync.WaitGroup
			for range goroutines {
				wg.Add(1)
				go func() {
					defer wg.Done()
					for k := range count {
						if got := ask(arch, code[k*arch.MinLen:], k); got != want[k] {
							t.Errorf("%x is %+v, was %+v", code[k*arch.MinLen:][:arch.MaxLen], got, want[k])
							return
						}
					}
				}()
			}
			wg.Wait()
			t.Logf("proof race %s %d", arch.Name, goroutines*count)
		})
	}
}

// answer is what an ISA says of an instruction.
type answer struct {
	insn isa.Insn
	op   isa.Op
	text string
}

func ask(arch *isa.Arch, b []byte, k int) (a answer) {
	b = b[:arch.MaxLen]
	at := isa.Addr(0xffffffff81000000) + isa.Addr(k*arch.MinLen)
	a.insn = arch.Decode(b, at)
	if arch.Op != nil {
		a.op = arch.Op(b, at)
	}
	if k%8 == 0 {
		a.text = arch.Text(b, at)
	}
	if arch.Far != nil {
		arch.Far(b, at)
	}
	if arch.Absolute != nil {
		arch.Absolute(b)
	}
	return a
}
