package place

import "kerninst/agent/isa"

// Sites are places in patches that the kernel's side knows by their addresses, of which it has so many: those that may
// fault, and those of static keys.
type Sites struct{ Faults, Keys int }

func (s Sites) add(o Sites) Sites { return Sites{s.Faults + o.Faults, s.Keys + o.Keys} }

// LimitSites says how many there may be in all patches together, and of both in one. Else there may be any number.
func (h *Heap) LimitSites(most Sites, piece int) { h.sites = sites{most, piece, map[isa.Addr]Sites{}} }

// sites are those that there may be, and those of patches.
type sites struct {
	most  Sites
	piece int // in one; 0: any number
	taken map[isa.Addr]Sites
}

// SitesLeft is how many more a patch may have of each and, as far as the others go, of both; false: any number.
func (h *Heap) SitesLeft() (left Sites, both int, limited bool) {
	if h.sites.piece == 0 {
		return Sites{}, 0, false
	}
	left = h.sites.most
	for _, s := range h.sites.taken {
		left = left.add(Sites{-s.Faults, -s.Keys})
	}
	return left, h.sites.piece, true
}

// TakeSites has a patch have some. They are given back with its slot.
func (h *Heap) TakeSites(patch isa.Addr, s Sites) {
	if h.sites.piece > 0 && s != (Sites{}) {
		h.sites.taken[patch] = s
	}
}
