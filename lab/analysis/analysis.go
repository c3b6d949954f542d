// Package analysis prints what is known of a kernel's code: the totals, as the
// KernInst paper has them, and listings and graphs of single functions.
package analysis

import (
	"crypto/sha256"
	"fmt"
	"io"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/ktext"
	"kerninst/agent/live"
)

// Kernel is one analysed kernel.
type Kernel struct {
	Text   *ktext.Text
	Graph  *cfg.Graph
	Live   *live.Live
	Totals Totals

	dump [sha256.Size]byte // its hash
}

// Totals is the document that lab analyze prints; keys are a contract.
type Totals struct {
	Schema       int    `json:"schema"`
	Arch         string `json:"arch"`
	Kernel       string `json:"kernel"`
	Modules      int    `json:"modules"` // loaded ones
	Functions    int    `json:"functions"`
	Blocks       int    `json:"blocks"` // a call does not end one
	Instructions int    `json:"instructions"`
	Bytes        int    `json:"bytes"`     // of instructions
	Padding      int    `json:"padding"`   // bytes between functions
	Data         int    `json:"data"`      // bytes among them that are no instructions
	Undecoded    int    `json:"undecoded"` // instructions
	// UndecodedIn names the functions that hold those, with how many each.
	UndecodedIn  string `json:"undecoded_in,omitempty"`
	JumpTables   int    `json:"jump_tables"`
	Unanalysable int    `json:"unanalysable_jumps"`
	Unreached    int    `json:"unreached_blocks"`   // that nothing is seen to lead to
	Misaligned   int    `json:"misaligned_targets"` // inside other instructions
	Outside      int    `json:"outside_targets"`    // not in the text: code that is freed after boot
	OddSymbols   int    `json:"odd_symbols"`        // at addresses where no instruction can begin
	Overruns     int    `json:"overruns"`           // functions whose last instruction does not end in them
	Edges        int    `json:"edges"`
	Calls        int    `json:"calls"` // direct
	NoReturn     int    `json:"functions_without_return"`
	// FreeRegisters is the mean over all instructions; FreeFlags the share of
	// them where the flags are free.
	FreeRegisters float64 `json:"average_free_registers"`
	FreeFlags     float64 `json:"free_flags"`
	Seconds       Seconds `json:"seconds"`
}

// Seconds is how long each step took on this host.
type Seconds struct {
	Symbols float64 `json:"symbols"`
	CFG     float64 `json:"cfg"`
	Live    float64 `json:"live"`
	Total   float64 `json:"total"`
	Cached  float64 `json:"cached"` // to read it all from the index; 0: it was made
}

// Analyse makes everything anew from a dump.
func Analyse(d *ktext.Dump) (*Kernel, error) {
	start := time.Now()
	arch, err := all.Lookup(d.Arch)
	if err != nil {
		return nil, err
	}
	k := &Kernel{dump: d.Sum}
	if k.Text, err = d.Text(arch); err != nil {
		return nil, err
	}
	symbols := time.Now()
	if k.Graph, err = cfg.Build(k.Text, cfg.Options{Workers: runtime.GOMAXPROCS(0)}); err != nil {
		return nil, err
	}
	built := time.Now()
	if k.Live, err = live.Solve(k.Graph, k.Text, live.Options{Workers: runtime.GOMAXPROCS(0)}); err != nil {
		return nil, err
	}
	k.sum(d)
	k.Totals.Seconds = Seconds{
		Symbols: symbols.Sub(start).Seconds(), CFG: built.Sub(symbols).Seconds(),
		Live: time.Since(built).Seconds(), Total: time.Since(start).Seconds(),
	}
	return k, nil
}

// sum fills the totals.
func (k *Kernel) sum(d *ktext.Dump) {
	s := k.Graph.Stats
	k.Totals = Totals{
		Schema: 1, Arch: d.Arch, Kernel: d.Release,
		Modules: s.Modules, Functions: s.Functions, Blocks: s.Blocks, Instructions: s.Instructions, Bytes: s.Bytes,
		Padding: s.Padding, Data: s.Data, UndecodedIn: k.undecodedIn(), Undecoded: s.Undecoded, JumpTables: s.JumpTables, Unanalysable: s.Unanalysable,
		Unreached: s.Orphans, Misaligned: s.Misaligned, Outside: s.Outside, OddSymbols: s.OddSymbols, Overruns: s.Overruns,
		Edges: s.Edges, Calls: s.Calls, NoReturn: s.NoReturn,
	}
}

// undecodedIn lists where instructions did not decode.
func (k *Kernel) undecodedIn() string {
	count := map[string]int{}
	var names []string
	for b := range cfg.Block(k.Graph.Blocks()) {
		if k.Graph.Marks(b)&cfg.Unknown == 0 || k.Graph.Kind(b) == cfg.KindPad {
			continue
		}
		k.Graph.Insns(b, func(i isa.Insn) {
			if i.Flow != isa.FlowUnknown {
				return
			}
			f, _ := k.Text.Locate(i.Addr)
			if count[f.String()]++; count[f.String()] == 1 {
				names = append(names, f.String())
			}
		})
	}
	var out []string
	for n, name := range names {
		if n == maxUndecodedIn {
			out = append(out, fmt.Sprintf("%d more functions", len(names)-n))
			break
		}
		out = append(out, fmt.Sprintf("%s %d", name, count[name]))
	}
	return strings.Join(out, ", ")
}

// maxUndecodedIn is how many functions with such instructions are named.
const maxUndecodedIn = 10

// Average adds the means over all instructions, which takes about as long as the
// analysis.
func (k *Kernel) Average() { k.Totals.FreeRegisters, k.Totals.FreeFlags = k.Live.AverageFree() }

// paper is figures 2 and 3 of the KernInst paper: Solaris 2.5.1 on a 167 MHz
// UltraSPARC 1, in the order of rows; "" where it says nothing.
var rows = []struct {
	name, paper string
	value       func(Totals) string
}{
	{"modules", "77", func(t Totals) string { return fmt.Sprint(t.Modules) }},
	{"functions", "8,457", func(t Totals) string { return count(t.Functions) }},
	{"basic blocks", "107,976", func(t Totals) string { return count(t.Blocks) }},
	{"instructions", "", func(t Totals) string { return count(t.Instructions) }},
	{"instruction bytes", "2.59 MB", func(t Totals) string { return fmt.Sprintf("%.2f MB", float64(t.Bytes)/1e6) }},
	{"bytes of data in text", "", func(t Totals) string { return count(t.Data) }},
	{"undecoded instructions", "", func(t Totals) string { return count(t.Undecoded) }},
	{"jump tables", "", func(t Totals) string { return count(t.JumpTables) }},
	{"unanalysable jumps", "", func(t Totals) string { return count(t.Unanalysable) }},
	{"blocks nothing is seen to reach", "", func(t Totals) string { return count(t.Unreached) }},
	{"free registers, mean", "", func(t Totals) string { return fmt.Sprintf("%.1f", t.FreeRegisters) }},
	{"flags free", "", func(t Totals) string { return fmt.Sprintf("%.0f %%", 100*t.FreeFlags) }},
	{"symbols", "0.5 s", func(t Totals) string { return fmt.Sprintf("%.2f s", t.Seconds.Symbols) }},
	{"control-flow graph", "6.5 s", func(t Totals) string { return fmt.Sprintf("%.2f s", t.Seconds.CFG) }},
	{"live registers", "8.5 s", func(t Totals) string { return fmt.Sprintf("%.2f s", t.Seconds.Live) }},
	{"total", "15.5 s", func(t Totals) string { return fmt.Sprintf("%.2f s", t.Seconds.Total) }},
	{"read from the index instead", "", func(t Totals) string { return fmt.Sprintf("%.2f s", t.Seconds.Cached) }},
}

// count writes a number with commas.
func count(n int) string {
	s := fmt.Sprint(n)
	for k := len(s) - 3; k > 0; k -= 3 {
		s = s[:k] + "," + s[k:]
	}
	return s
}

// Table prints kernels beside the paper's.
func Table(w io.Writer, kernels []Totals) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "\tSolaris 2.5.1, 1999\t")
	for _, t := range kernels {
		fmt.Fprintf(tw, "%s\t", t.Kernel)
	}
	fmt.Fprintln(tw)
	for _, r := range rows {
		fmt.Fprintf(tw, "%s\t%s\t", r.name, r.paper)
		for _, t := range kernels {
			fmt.Fprintf(tw, "%s\t", r.value(t))
		}
		fmt.Fprintln(tw)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, t := range kernels {
		if t.UndecodedIn != "" {
			fmt.Fprintf(w, "%s: did not decode in %s\n", t.Kernel, t.UndecodedIn)
		}
	}
	return nil
}
