package daemon

import (
	"bytes"
	"fmt"

	"kerninst/agent/isa"
	"kerninst/agent/wire"
)

// maxRanges is how many differing ranges a comparison reports.
const maxRanges = 64

// gap is how many equal bytes end a differing range: two words of the widest
// instruction, so that one rewritten instruction is one range.
const gap = 16

// snapshot reads all kernel text, keeps it under the step's name, and compares
// it with an earlier one if asked.
func (d *Daemon) snapshot(name string, s *wire.Snapshot, res *wire.Result) error {
	lo, hi := d.info.TextStart, d.info.TextEnd
	now := make([]byte, hi-lo)
	if err := d.dev.Read(lo, now); err != nil {
		return fmt.Errorf("kernel text: %w", err)
	}
	d.snapshots[name] = now
	res.Text = &wire.TextDiff{Bytes: uint64(len(now))}
	if s.Against == "" {
		return nil
	}
	before, ok := d.snapshots[s.Against]
	if !ok {
		return fmt.Errorf("no snapshot %q to compare with", s.Against)
	}
	for _, r := range differences(before, now) {
		at := lo + isa.Addr(r.lo)
		kernels, err := d.runtimeSite(at, at+isa.Addr(r.hi-r.lo))
		if err != nil {
			return err
		}
		if kernels {
			res.Text.RuntimeBytes += uint64(r.hi - r.lo)
		} else if len(res.Text.Differing) < maxRanges {
			res.Text.Differing = append(res.Text.Differing, &wire.Range{
				Address: uint64(at), Before: before[r.lo:r.hi], After: now[r.lo:r.hi],
			})
		}
	}
	return nil
}

// span is [lo, hi) in bytes.
type span struct{ lo, hi int }

// page is how much is compared at once: nearly all pages are equal.
const page = 4096

// differences lists the spans in which two texts of one length differ.
func differences(a, b []byte) []span {
	var out []span
	for lo := 0; lo < len(a); lo += page {
		hi := min(lo+page, len(a))
		if bytes.Equal(a[lo:hi], b[lo:hi]) {
			continue
		}
		for i := lo; i < hi; i++ {
			if a[i] == b[i] {
				continue
			}
			if n := len(out); n > 0 && i-out[n-1].hi < gap {
				out[n-1].hi = i + 1
			} else {
				out = append(out, span{i, i + 1})
			}
		}
	}
	return out
}
