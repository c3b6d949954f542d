package main

import (
	"fmt"
	"os"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/ktext"
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
	tables, orphans := 0, 0
	for b := cfg.Block(0); int(b) < g.Blocks(); b++ {
		if g.Kind(b) == cfg.KindTable {
			tables++
		}
		if g.Marks(b)&cfg.Orphan != 0 {
			orphans++
		}
		if g.Kind(b) != cfg.KindIndirectJump {
			continue
		}
		lo, hi := g.Bounds(b)
		f, _ := text.Locate(g.Start(b))
		fi := g.FuncAt(lo)
		traced := fi >= 0 && g.Marks(g.At(g.Entries()[fi]))&cfg.Traced != 0
		fmt.Printf("== %s+%#x traced %v\n", f.Name, uint64(g.Start(b)-f.Addr), traced)
		_ = hi
		var list []isa.Insn
		for x := b; x+12 > b && x > 0; x-- {
			var l []isa.Insn
			g.Insns(x, func(i isa.Insn) { l = append(l, i) })
			list = append(l, list...)
		}
		if len(list) > 26 {
			list = list[len(list)-26:]
		}
		for _, i := range list {
			p, _ := g.Pos(i.Addr)
			fmt.Printf("   %#x %s\n", uint64(i.Addr), arch.Text(g.Code(p), i.Addr))
		}
	}
	fmt.Println("tables", tables, "orphans", orphans, "blocks", g.Blocks())
}
