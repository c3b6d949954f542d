package main

import (
	"fmt"
	"os"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/ktext"
	"kerninst/agent/live"
)

func main() {
	arch, _ := all.Lookup(os.Args[1])
	b, _ := os.ReadFile(os.Args[2])
	dump, err := ktext.ReadDump(b)
	if err != nil {
		panic(err)
	}
	text, err := dump.Text(arch)
	if err != nil {
		panic(err)
	}
	g, err := cfg.Build(text, cfg.Options{Workers: 1})
	if err != nil {
		panic(err)
	}
	l, err := live.Solve(g, text, live.Options{Workers: 1})
	if err != nil {
		panic(err)
	}
	n, none, kinds := 0, 0, map[cfg.Kind]int{}
	for b := cfg.Block(0); int(b) < g.Blocks(); b++ {
		kinds[g.Kind(b)]++
		if g.Kind(b) == cfg.KindPad {
			continue
		}
		l.Each(b, func(i isa.Insn, before, behind isa.RegSet) {
			n++
			free := arch.All &^ before &^ arch.NeverUse
			// ra is free but is no scratch for a jump? count without it too
			if free&^(1<<1) == 0 {
				none++
			}
		})
	}
	r, f := l.AverageFree()
	fmt.Println("insns", n, "without a free register but ra", none, "average", r, f, "blocks", g.Blocks(), "tables", kinds[cfg.KindTable], "unknown", kinds[cfg.KindIndirectJump])
}
