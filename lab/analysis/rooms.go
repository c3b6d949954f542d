package analysis

import (
	"slices"

	"kerninst/agent/ktext"
	"kerninst/agent/pad"
	"kerninst/agent/place"
	"kerninst/agent/plan"
)

// Room is space for springboards of one kind, as in figure 10 of the KernInst paper.
type Room struct {
	Where  string `json:"where"`
	Bytes  uint64 `json:"bytes"`
	Pieces int    `json:"pieces"`
}

// rooms are where a kernel has room for springboards, of its own and in its modules; none
// on an ISA that needs none. Functions that are moved away leave all of their bodies but
// a jump.
func rooms(text *ktext.Text, padding *pad.Finder) ([]Room, error) {
	if !slices.Contains(plan.Ladder(text.Arch.Name), plan.Springboard) {
		return []Room{}, nil
	}
	lo, hi := text.Bounds()
	own := []ktext.Run{{Lo: lo, Hi: hi}}
	var modules []ktext.Run
	for _, m := range text.Modules() {
		for _, s := range text.Sections(m) {
			if s.Text() && s.Size > 0 {
				modules = append(modules, ktext.Run{Module: m, Lo: s.Addr, Hi: s.End()})
			}
		}
	}
	f := finder{text, padding}
	out := []Room{}
	for _, k := range []struct {
		where string
		runs  []ktext.Run
		find  func(ktext.Run) ([]place.Window, error)
	}{
		{"padding in front of the kernel's functions", own, f.padded},
		{"padding in front of modules' functions", modules, f.padded},
		{"behind the kernel's text", own, f.idle},
		{"functions that modules are left by", modules, f.idle},
		{"the kernel's functions that can be moved away", own, f.leaves},
		{"modules' functions that can be moved away", modules, f.leaves},
	} {
		r := Room{Where: k.where}
		for _, run := range k.runs {
			list, err := k.find(run)
			if err != nil {
				return nil, err
			}
			for _, w := range list {
				r.Bytes, r.Pieces = r.Bytes+w.Size(), r.Pieces+1
			}
		}
		if r.Pieces > 0 {
			out = append(out, r)
		}
	}
	return out, nil
}

// finder finds room in runs of code.
type finder struct {
	text    *ktext.Text
	padding *pad.Finder
}

func (f finder) padded(r ktext.Run) (out []place.Window, err error) {
	gaps, err := f.padding.Near(r.Lo, r.Lo, r.Hi)
	for _, g := range gaps {
		out = append(out, place.Window{Lo: g.Lo, Hi: g.Hi})
	}
	return out, err
}

// idle counts what a module is left by once, with the section that it is in.
func (f finder) idle(r ktext.Run) ([]place.Window, error) {
	all, err := plan.Idle(f.text, r.Module)
	return slices.DeleteFunc(all, func(w place.Window) bool {
		return w.Empty() || r.Module != "" && (w.Lo < r.Lo || w.Lo >= r.Hi)
	}), err
}

func (f finder) leaves(r ktext.Run) (out []place.Window, err error) {
	if !plan.Evicts(f.text.Arch.Name) {
		return nil, nil
	}
	err = f.padding.Leaves(r.Lo, r.Lo, r.Hi, nil, func(l pad.Leaf) (found, spent bool) {
		if w := plan.LeafRoom(l); !w.Empty() {
			out = append(out, w)
		}
		return false, false
	})
	return out, err
}
