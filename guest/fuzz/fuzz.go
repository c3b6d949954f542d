package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kerninst/agent/isa/all"
	"kerninst/agent/kdev"
	"kerninst/agent/place"
	"kerninst/guest/check"
)

// area is one that the module has given.
type area struct {
	id, addr, offset, cells, kind uint64
	len                           int
}

// fuzzer is one who calls. Several may have the same descriptor, and know nothing of what the
// others have.
type fuzzer struct {
	elsewhere bool // the call is of a splice that is misplaced
	right     bool // the call is of a batch of which all is right
	k         *kernel
	fd        int
	stream    int // which of those who call at once
	rng       *rand.Rand
	reach     place.Window // where areas are asked for

	arena              []byte
	readOnly, noAccess uint64

	areas []*area
	ids   []uint32 // of splices, in order
	maps  [mostMappings]mapping

	openErrno error // what opening the device once more is answered
	tally
}

// newFuzzer has an arena behind whose end nothing is, and pages that may not be written or
// not be touched.
func newFuzzer(k *kernel, fd int, seed uint64, stream int, openErrno error) (*fuzzer, error) {
	f := &fuzzer{k: k, fd: fd, stream: stream, rng: rand.New(rand.NewPCG(seed, uint64(stream))), openErrno: openErrno, tally: newTally()}
	b, err := unix.Mmap(-1, 0, arenaLen+4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, err
	}
	if err := unix.Mprotect(b[arenaLen:], unix.PROT_NONE); err != nil {
		return nil, err
	}
	ro, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, err
	}
	f.arena, f.readOnly, f.noAccess = b[:arenaLen:arenaLen], addrOf(ro), addrOf(b)+arenaLen
	w := place.Reach(k.arch, k.Info.TextStart, k.Info.TextEnd)
	f.reach = place.Window{Lo: max(w.Lo, k.Info.AreaLo), Hi: min(w.Hi, k.Info.AreaHi)}
	return f, nil
}

func (f *fuzzer) victim() victim { return f.k.Victims[f.rng.IntN(len(f.k.Victims))] }

// run makes so many calls, and plays in between. Some mappings stay, for the end of the process.
func (f *fuzzer) run(n int) {
	for k := range n {
		f.once()
		if k%16 == 0 {
			f.play()
		}
		if k%64 == 0 {
			f.others()
		}
	}
	for slot := range f.maps {
		if m := &f.maps[slot]; m.p != nil {
			f.touch(slot)
			if f.rng.IntN(2) == 0 {
				m.unmap()
			}
		}
	}
}

// threads call at once.
const threads = 2

// together has so many of them do something at once, and adds up what they were answered. They share a descriptor,
// if there is one.
func together(k *kernel, fd, threads int, seed uint64, openErrno error, do func(*fuzzer)) (sum tally, err error) {
	sum = newTally()
	var all []*fuzzer
	for t := range threads {
		f, err := newFuzzer(k, fd, seed, t, openErrno)
		if err != nil {
			return sum, err
		}
		all = append(all, f)
	}
	var wait sync.WaitGroup
	for _, f := range all {
		wait.Go(func() { do(f) })
	}
	wait.Wait()
	for _, f := range all {
		sum.add(f.tally)
	}
	return sum, nil
}

// rounds is how often the device is opened for a part of the calls, and closed: the last half
// of them is compared with the first in what the kernel holds.
const rounds = 8

// everything is one caller after the other: two threads of root's, and two of nobody's, who
// has the device of root; and between the rounds those who want it at once.
func everything(calls int, seed uint64) error {
	if calls%(2*rounds*threads) != 0 {
		return fmt.Errorf("%d calls cannot be made by %d threads, as two users, in %d rounds", calls, threads, rounds)
	}
	k, err := look()
	if err != nil {
		return err
	}
	var halves []map[string]int
	root, nobody, opening := newTally(), newTally(), newTally()
	for r := range rounds {
		if err := k.round(calls/rounds/2, seed+uint64(r), &root, &nobody); err != nil {
			return err
		}
		if err := k.contest(seed+uint64(r), &opening); err != nil {
			return err
		}
		if r+1 == rounds/2 || r+1 == rounds {
			now, err := settled()
			if err != nil {
				return err
			}
			halves = append(halves, now)
		}
	}
	for _, what := range []string{batches, withCopies, withResumes} {
		n := root.Made[what] + nobody.Made[what]
		check.Report(what, n, n > 0, "")
	}
	root.report("root", calls/2)
	nobody.report("nobody", calls/2)
	opening.reportHeld("openers")
	check.Grown(halves[0], halves[1], mayGrow)
	if err := check.Leaks(); err != nil {
		return err
	}
	return left()
}

// settled is what the kernel keeps when what was left has been looked at again, and what is
// freed in its own time has been: once a look finds no less than the one before, since on a busy host
// grace periods take long. What is lost is found by each look.
func settled() (map[string]int, error) {
	fd, err := openDevice()
	if err != nil {
		return nil, err
	}
	if err := unix.Close(fd); err != nil {
		return nil, err
	}
	var last map[string]int
	for range mostLooks {
		time.Sleep(2 * time.Second) // nothing says when a CPU's callbacks have run
		now, err := check.Kept()
		if err != nil || last != nil && now["pages"] >= last["pages"] {
			return now, err
		}
		last = now
	}
	return last, nil
}

// mostLooks is after how many what the kernel keeps is taken as it is.
const mostLooks = 15

// mayGrow is by how much what the kernel holds may differ: KiB of what others hold as well,
// and pieces of virtual memory,
// which are the module's own. If some thread's stack looks as if it was in a patch, what was
// made since the device was opened stays, for that time.
var mayGrow = map[string]int{"pages": 1024, "SUnreclaim": 512, "VmallocUsed": 2048, "Percpu": 64, "pieces": 4 * mostAreas}

// round opens the device, has root and then nobody call, and closes it. Both are processes of
// their own: what calls leave on a thread's stack looks as if it was in a patch, as long as
// the thread sleeps, and patches that somebody may be in are kept.
func (k *kernel) round(calls int, seed uint64, root, nobody *tally) error {
	fd, err := openDevice()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, who := range []struct {
		id uint32
		to *tally
	}{{0, root}, {nobodyID, nobody}} {
		t, err := k.as(who.id, fd, calls, seed)
		if err != nil {
			return fmt.Errorf("as user %d: %w", who.id, err)
		}
		who.to.add(t)
	}
	return nil
}

// nobodyID is Debian's user and group of nobody.
const nobodyID = 65534

// as has calls made by a process that has the descriptor, and a user's rights.
func (k *kernel) as(id uint32, fd, calls int, seed uint64) (t tally, err error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return t, err
	}
	file := os.NewFile(uintptr(dup), devicePath)
	defer file.Close()
	c := exec.Command("/proc/self/exe", "-calls", strconv.Itoa(calls), "-seed", strconv.FormatUint(seed, 10), "-dear", strconv.Itoa(dear), "user")
	c.ExtraFiles = []*os.File{file}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
	return k.told(c)
}

// told has a process do its part, which is told of the kernel and says what it was answered.
func (k *kernel) told(c *exec.Cmd) (t tally, err error) {
	known, err := json.Marshal(k)
	if err != nil {
		return t, err
	}
	c.Stdin, c.Stderr = bytes.NewReader(known), os.Stderr
	out, err := c.Output()
	if err != nil {
		return t, err
	}
	return t, json.Unmarshal(out, &t)
}

// part is what such a process does.
func part(do func(*kernel) (tally, error)) error {
	k := &kernel{}
	if err := json.NewDecoder(os.Stdin).Decode(k); err != nil {
		return err
	}
	var err error
	if k.arch, err = all.Lookup(k.Info.Arch); err != nil {
		return err
	}
	t, err := do(k)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(t)
}

// asUser is the process of a user.
func asUser(calls int, seed uint64) error {
	opened := unix.EBUSY
	if os.Getuid() != 0 {
		opened = unix.EACCES
	}
	return part(func(k *kernel) (tally, error) {
		return together(k, 3, threads, seed, opened, func(f *fuzzer) { f.run(calls / threads) })
	})
}

// left reports what is still there when everything is closed.
func left() error {
	fd, err := openDevice()
	if err != nil {
		return err
	}
	if err := unix.Close(fd); err != nil {
		return err
	}
	dev, err := kdev.Open()
	if err != nil {
		return err
	}
	s, err := dev.Stats()
	check.Report("no splice is left", 1, err == nil && s.Splices == 0 && s.Spliced == s.Unspliced, "%+v, %v", s, err)
	check.Report("no area is left, but of one who called last", 1, s.Areas == 0 || s.Quarantined > 0 && s.Areas <= 2*threads*4*mostAreas, "%+v", s)
	if err := dev.Close(); err != nil {
		return err
	}
	err = kdev.UnloadWhenFree(kdev.ModuleName, check.Leaving)
	check.Report("unload", 1, err == nil, "%v", err)
	return nil
}
