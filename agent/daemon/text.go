package daemon

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"kerninst/agent/near"
	"kerninst/agent/wire"
)

// maxRanges is how many differing ranges a comparison reports.
const maxRanges = 64

// gap is how many equal bytes end a differing range: two words of the widest
// instruction, so that one rewritten instruction is one range.
const gap = 16

// stretch is a copy of kernel text.
type stretch struct {
	at   addr
	text []byte
}

// stretches copies the kernel's own text, and the code of modules, as they are now.
func (d *Daemon) stretches(modules []string) ([]stretch, error) {
	if err := d.seeModules(modules); err != nil {
		return nil, err
	}
	all := []stretch{{d.info.TextStart, make([]byte, d.text.GapEnd()-d.info.TextStart)}} // springboards may be in the gap
	for _, m := range modules {
		n := len(all)
		for _, s := range d.text.Sections(m) {
			if s.Text() {
				all = append(all, stretch{s.Addr, make([]byte, s.Size)})
			}
		}
		if len(all) == n {
			return nil, fmt.Errorf("no code of a module %s is known: it is not loaded", m)
		}
	}
	for _, s := range all {
		if err := d.dev.Read(s.at, s.text); err != nil {
			return nil, fmt.Errorf("kernel text: %w", err)
		}
	}
	return all, nil
}

// snapshot reads all kernel text, keeps it under the step's name, and compares
// it with an earlier one if asked.
func (d *Daemon) snapshot(name string, s *wire.Snapshot, res *wire.Result) error {
	now, err := d.stretches(s.Modules)
	if err != nil {
		return err
	}
	d.snapshots[name], res.Text = now, &wire.TextDiff{}
	for _, n := range now {
		res.Text.Bytes += uint64(len(n.text))
	}
	if s.Against == "" {
		return nil
	}
	before, ok := d.snapshots[s.Against]
	if !ok {
		return fmt.Errorf("no snapshot %q to compare with", s.Against)
	}
	same := func(a, b stretch) bool { return a.at == b.at && len(a.text) == len(b.text) }
	if !slices.EqualFunc(before, now, same) {
		return fmt.Errorf("snapshot %q is of other text", s.Against)
	}
	for k := range now {
		if err := d.compare(before[k], now[k], res.Text); err != nil {
			return err
		}
	}
	return d.settled(before[0], now[0], res.Text)
}

// turning is how long it takes to turn a static key, at the most: on a slow host all CPUs of a guest are told.
const turning = 20 * time.Millisecond

// settled adds to out the sites of the kernel's own text that it rewrites itself, and that are not as its state demands.
func (d *Daemon) settled(before, now stretch, out *wire.TextDiff) error {
	wrong, err := d.text.Unsettled(func() { time.Sleep(turning) }) // of what the kernel writes in text nothing tells
	for _, a := range wrong[:min(len(wrong), maxRanges-len(out.Differing))] {
		at := int(a - now.at)
		end := at + d.text.Arch.Decode(now.text[at:], a).Len
		out.Differing = append(out.Differing, &wire.Range{Address: uint64(a), Before: before.text[at:end], After: now.text[at:end]})
	}
	return err
}

// compare adds to out in what two copies of one stretch differ. What the kernel rewrites itself is told byte by byte:
// beside it may be what it does not.
func (d *Daemon) compare(before, now stretch, out *wire.TextDiff) error {
	var all []span
	for k := range differences(before.text, now.text) {
		kernels, err := d.text.Rewrites(now.at+addr(k), now.at, before.text)
		if err != nil {
			return err
		}
		if kernels {
			out.RuntimeBytes++
		} else {
			all = extended(all, k)
		}
	}
	for _, r := range all {
		if len(out.Differing) == maxRanges {
			break
		}
		out.Differing = append(out.Differing, &wire.Range{
			Address: uint64(now.at + addr(r.lo)), Before: before.text[r.lo:r.hi], After: now.text[r.lo:r.hi],
		})
	}
	return nil
}

// span is [lo, hi) in bytes.
type span struct{ lo, hi int }

// page is how much is compared at once: nearly all pages are equal.
const page = 4096

// differences are the bytes in which two texts of one length differ, in order.
func differences(a, b []byte) iter.Seq[int] {
	return func(yield func(int) bool) {
		for lo := 0; lo < len(a); lo += page {
			hi := min(lo+page, len(a))
			if bytes.Equal(a[lo:hi], b[lo:hi]) {
				continue
			}
			for i := lo; i < hi; i++ {
				if a[i] != b[i] && !yield(i) {
					return
				}
			}
		}
	}
}

// extended adds a byte behind all spans to the last of them, if it is near.
func extended(all []span, k int) []span {
	if n := len(all); n > 0 && k-all[n-1].hi < gap {
		all[n-1].hi = k + 1
		return all
	}
	return append(all, span{k, k + 1})
}

// symbol is the address of the kernel's or a module's one symbol of a name, data or code.
func (d *Daemon) symbol(name string) (uint64, error) {
	found := uint64(0)
	for rest := d.kallsyms; ; {
		k := bytes.Index(rest, []byte(" "+name))
		if k < 0 {
			break
		}
		begin, end := bytes.LastIndexByte(rest[:k], '\n')+1, k+1+len(name)
		line := rest[begin:end]
		rest = rest[end:]
		if len(rest) > 0 && rest[0] != '\n' && rest[0] != '\t' {
			continue // a longer name
		}
		digits, _, _ := bytes.Cut(line, []byte(" "))
		a, err := strconv.ParseUint(string(digits), 16, 64)
		if err != nil || a == 0 {
			return 0, fmt.Errorf("sym(%q): the kernel does not say where it is", name)
		}
		if found != 0 && found != a {
			return 0, fmt.Errorf("sym(%q): several symbols have that name", name)
		}
		found = a
	}
	if found == 0 {
		return 0, fmt.Errorf("sym(%q): the kernel has no symbol of that name%s", name, near.Hint(name, d.symbolsLike(name)))
	}
	return found, nil
}

// symbolsLike are the kernel's own symbols of about the length of a name: what is far from it in
// that is not near it, and to compare all of them takes a slow guest seconds.
func (d *Daemon) symbolsLike(name string) (out []string) {
	for line := range bytes.Lines(d.kallsyms) {
		_, rest, _ := bytes.Cut(line, []byte(" "))
		_, other, _ := bytes.Cut(bytes.TrimRight(rest, "\n"), []byte(" "))
		if more := len(other) - len(name); bytes.IndexByte(other, '\t') < 0 && max(more, -more) <= max(1, len(name)/3) {
			out = append(out, string(other))
		}
	}
	return out
}
