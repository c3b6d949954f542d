package check

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// What is tried again and again loses, if it loses anything, as much each time. Of the kernel's sums an object of some bytes makes no
// difference then, as it takes memory by pages: so objects are counted, by their sizes.

// Held is what the kernel holds at a moment.
type Held struct {
	kept, objects map[string]int
	of            []cache
}

// Hold is what it holds now.
func Hold() (h Held, err error) {
	if h.of, err = caches(); err != nil {
		return h, err
	}
	return h.now()
}

// now is what it holds when that is over.
func (h Held) now() (Held, error) {
	kept, err := Kept()
	out := Held{kept, map[string]int{}, h.of}
	for _, c := range h.of {
		var cacheErr error
		out.objects[c.name], cacheErr = c.objects()
		err = errors.Join(err, cacheErr)
	}
	return out, err
}

// cache has objects that are asked for by their size. Its files are kept open: what the kernel has for who opens one is of some size,
// and given back seconds later.
type cache struct {
	name          string
	count, shrink *os.File
}

// caches are all but those of which objects are counted as some user's, or are given back when memory is short: not the module's.
func caches() (out []cache, err error) {
	const all = "/sys/kernel/slab/kmalloc-*"
	dirs, err := filepath.Glob(all)
	for _, dir := range dirs {
		c := cache{name: filepath.Base(dir)}
		if strings.Contains(c.name, "-cg-") || strings.Contains(c.name, "-rcl-") {
			continue
		}
		var countErr, shrinkErr error
		c.count, countErr = os.Open(dir + "/objects")
		c.shrink, shrinkErr = os.OpenFile(dir+"/shrink", os.O_WRONLY, 0)
		err = errors.Join(err, countErr, shrinkErr)
		out = append(out, c)
	}
	if err == nil && len(out) == 0 {
		err = errors.New(all + ": nobody counts objects")
	}
	return out, err
}

// askings: what CPUs have aside of a cache is counted as objects until it is asked to take that back, and again when they have got
// some more. So it is asked so often, and has as many as it had at the least.
const askings = 3

func (c cache) objects() (int, error) {
	least := math.MaxInt
	for range askings {
		if _, err := c.shrink.WriteAt([]byte("1"), 0); err != nil {
			return 0, err
		}
		b := make([]byte, 256)
		n, err := c.count.ReadAt(b, 0)
		if n == 0 {
			return 0, err
		}
		all, _, _ := strings.Cut(strings.TrimSpace(string(b[:n])), " ") // and behind that, by where they are
		if n, err = strconv.Atoi(all); err != nil {
			return 0, err
		}
		least = min(least, n)
	}
	return least, nil
}

// mayHold is by how much what the kernel holds may differ, likewise, when nobody else does much: KiB, and pieces of virtual memory.
var mayHold = map[string]int{slabs: 256, "VmallocUsed": 256, "Percpu": 64, "pieces": 0}

// more is what is more than before, and what of that is more than it may be behind something that was done so many times. Half as many
// objects of a size as that are others'.
func (h Held) more(before Held, times int) (more, lost map[string]int) {
	more, lost = map[string]int{}, map[string]int{}
	add := func(what string, n, may int) {
		if n > 0 {
			more[what] = n
		}
		if n > may {
			lost[what] = n
		}
	}
	for what, may := range mayHold {
		if what != slabs || !LooksForLeaks() {
			add(what, h.kept[what]-before.kept[what], may)
		}
	}
	for size, n := range h.objects {
		if !LooksForLeaks() {
			add(size, n-before.objects[size], times/2)
		}
	}
	return more, lost
}

// freeing is how long the kernel has to free what it frees in its own time: what waits for a grace period is collected for five
// seconds before (kernel/rcu/tree.c, KFREE_DRAIN_JIFFIES).
const freeing = 20 * time.Second

// Returned is a check that the kernel holds no more behind something that was done so many times.
func (h Held) Returned(what string, times int) error {
	for end := time.Now().Add(freeing); ; time.Sleep(time.Second) {
		now, err := h.now()
		if err != nil {
			return err
		}
		more, lost := now.more(h, times)
		if len(lost) == 0 || time.Now().After(end) {
			Report("kernel memory that is not given back: "+what, times, len(lost) == 0, "%v, more %v", lost, more)
			return h.close()
		}
	}
}

func (h Held) close() (err error) {
	for _, c := range h.of {
		err = errors.Join(err, c.count.Close(), c.shrink.Close())
	}
	return err
}
