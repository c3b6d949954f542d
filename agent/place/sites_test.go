package place_test

import (
	"testing"

	"kerninst/agent/place"
)

// TestSites: what patches have is had by no other, and is given back with their slots; a copy of a heap has its own.
func TestSites(t *testing.T) {
	h := &place.Heap{}
	h.Add(place.NewArea(1, 0x1000, 0x2000, 4096))
	if _, limited := h.SitesLeft(); limited {
		t.Error("there is a limit, of which nobody has spoken")
	}
	h.LimitSites(place.Sites{Faults: 10, Keys: 20})
	left := func(h *place.Heap, want place.Sites) {
		t.Helper()
		if got, limited := h.SitesLeft(); got != want || !limited {
			t.Errorf("%v are left, want %v", got, want)
		}
	}
	h.Take(0x1000, 64)
	h.TakeSites(0x1000, place.Sites{Faults: 3, Keys: 1})
	left(h, place.Sites{Faults: 7, Keys: 19})
	c := h.Copy()
	c.Take(0x1040, 64)
	c.TakeSites(0x1040, place.Sites{Keys: 5})
	left(c, place.Sites{Faults: 7, Keys: 14})
	left(h, place.Sites{Faults: 7, Keys: 19})
	h.Free(0x1000, 64)
	h.Free(0x1000, 64)
	left(h, place.Sites{Faults: 10, Keys: 20})
	left(c, place.Sites{Faults: 7, Keys: 14})
}
