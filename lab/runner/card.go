package runner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/ktext"
	"kerninst/agent/wire"
	"kerninst/lab/card"
	"kerninst/lab/postmortem"
	"kerninst/lab/session"
)

// registersFile holds the registers of a guest that hung or died.
const registersFile = "registers"

// Card describes a guest that did not pass; its commands are still to be added.
// It may start a guest, to dump the kernel's symbols: not to be called by who
// holds one of the runner's slots.
func (r *Runner) Card(g *Guest, scenario string) *card.Card {
	o := g.Outcome
	c := &card.Card{
		Arch: r.Image.Arch, Scenario: scenario, Guest: g.Request.Name,
		Status: o.Status, Kind: string(o.Kind), Summary: g.Request.Name + ": " + o.Summary,
		Console: o.ConsoleTail, Step: lastStep(o),
	}
	r.explain(c, o)
	if of, err := r.lines(); err != nil {
		c.Notes = append(c.Notes, fmt.Sprintf("no lines of the source: %v", err))
	} else if of != nil {
		c.Tell(of)
	}
	if g.ByHand != "" {
		c.Commands = append(c.Commands, card.Command{To: "boot this guest without the lab", Line: g.ByHand})
	}
	return c
}

// explain adds what the evidence says, with symbols if there are any.
func (r *Runner) explain(c *card.Card, o *session.Outcome) {
	e := o.Evidence
	if e == nil {
		c.Notes = append(c.Notes, "no registers: the machine had ended by itself before it could be looked into")
		return
	}
	c.Notes = append(c.Notes, e.Notes...)
	view, err := r.view(e, o)
	if err != nil {
		c.Notes = append(c.Notes, fmt.Sprintf("no symbols: %v", err))
	}
	c.CPUs = postmortem.Explain(e, view)
	if hung := o.Kind == session.Hang || o.Kind == session.HangAtPowerOff; hung {
		c.Hang = postmortem.Classify(e, view, o.Hello != nil && o.Done == nil)
	}
}

// view is the kernel's symbols where this guest had them.
func (r *Runner) view(e *postmortem.Evidence, o *session.Outcome) (*postmortem.View, error) {
	if len(e.CPUs) == 0 {
		return nil, postmortem.ErrNoPlace
	}
	symbols, err := r.symbols()
	if err != nil {
		return nil, err
	}
	var start uint64
	if o.Hello != nil {
		start = o.Hello.TextStart
	}
	v, err := symbols.View(e, start)
	if err == nil {
		v.Patches = patches(r.Image.Arch, o.Records)
		v.Modules, err = ktext.ReadModuleFunctions(o.Hello.GetModuleFunctions())
	}
	return v, err
}

// patches are those that the daemon said it made, and springboards: where a point's jump
// leads to, which may be a copy of the patch.
func patches(arch string, records []*wire.Record) (out []postmortem.Patch) {
	a, err := all.Lookup(arch)
	for _, rec := range records {
		for _, p := range rec.GetResult().GetPoints() {
			of := fmt.Sprintf("%s+%#x", p.Symbol, p.Offset)
			if p.PatchAddress != 0 {
				out = append(out, postmortem.Patch{Addr: isa.Addr(p.PatchAddress), Size: len(p.PatchBytes), Of: of})
			}
			if p.AnnexAddress != 0 {
				out = append(out, postmortem.Patch{Addr: isa.Addr(p.AnnexAddress), Size: len(p.AnnexBytes), Of: of})
			}
			if len(p.BoardBytes) == 0 || len(p.NewBytes) == 0 || err != nil {
				continue
			}
			if board := a.Decode(p.NewBytes, isa.Addr(p.WrittenAt)).Target; board != 0 {
				out = append(out, postmortem.Patch{Addr: board, Size: len(p.BoardBytes), Of: of})
			}
		}
	}
	return out
}

// readSymbols takes the kernel's symbols from its dump. The context is of its own:
// a run that was interrupted has no cards.
func (r *Runner) readSymbols() (*postmortem.Symbols, error) {
	// Any boot of this kernel will do, so it is one whose dump others use, too.
	any := New(Runner{Image: r.Image, Backend: r.Backend, Through: r.Through, Seed: 1, Jobs: 1, Progress: r.Progress})
	d, err := any.Dump(context.Background(), "")
	if err != nil {
		return nil, err
	}
	return postmortem.NewSymbols(d)
}

// readLines takes the lines of the source from whoever knows them.
func (r *Runner) readLines() (card.Source, error) {
	if r.Lines == nil {
		return nil, nil
	}
	return r.Lines(func() (*ktext.Dump, error) {
		s, err := r.symbols()
		if err != nil {
			return nil, err
		}
		return s.Dump(), nil
	})
}

// lastStep is the last step of a job that the daemon said it began.
func lastStep(o *session.Outcome) (step string) {
	for _, rec := range o.Records {
		if name, ok := strings.CutPrefix(rec.GetLog().GetText(), wire.StepBegun); ok {
			step = name
		}
	}
	return step
}

// KeepCard writes a guest's card and registers beside its other files, and adds
// their names to the card.
func (r *Runner) KeepCard(c *card.Card) error {
	if r.Dir == "" || c.Guest == "" {
		return nil
	}
	dir := filepath.Join(r.Dir, c.Guest)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var registers strings.Builder
	for _, cpu := range c.CPUs {
		fmt.Fprintf(&registers, "CPU#%d\n%s\n\n", cpu.Number, strings.Join(cpu.Registers, "\n"))
	}
	if registers.Len() > 0 {
		if err := os.WriteFile(filepath.Join(dir, registersFile), []byte(registers.String()), 0o644); err != nil {
			return err
		}
	}
	for _, name := range []string{consoleFile, "agent.log", argvFile, registersFile, memoryFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			c.Files = append(c.Files, filepath.Join(filepath.Base(r.Dir), c.Guest, name))
		}
	}
	return os.WriteFile(filepath.Join(dir, card.TextFile), []byte(c.Text()), 0o644)
}

// memoryFile is the memory of a guest that hung or died, if it was asked for.
const memoryFile = "memory.core"
