package place

import "kerninst/agent/isa"

// Sites are places in patches that the kernel's side knows by their addresses, of which it has so many: those that may
// fault, and those of static keys.
type Sites struct{ Faults, Keys int }

func (s Sites) add(o Sites) Sites { return Sites{s.Faults + o.Faults, s.Keys + o.Keys} }

// LimitSites says how many there may be in all patches together. Else there may be any number.
func (h *Heap) LimitSites(most Sites) { h.sites = sites{most, map[isa.Addr]Sites{}} }

// sites are those that there may be, and those of patches; nil: there may be any number.
type sites struct {
	most  Sites
	taken map[isa.Addr]Sites
}

// SitesLeft is how many more patches may have; false: any number.
func (h *Heap) SitesLeft() (left Sites, limited bool) {
	left = h.sites.most
	for _, s := range h.sites.taken {
		left = left.add(Sites{-s.Faults, -s.Keys})
	}
	return left, h.sites.taken != nil
}

// TakeSites has a patch have some. They are given back with its slot.
func (h *Heap) TakeSites(patch isa.Addr, s Sites) {
	if h.sites.taken != nil && s != (Sites{}) {
		h.sites.taken[patch] = s
	}
}
