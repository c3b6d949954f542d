package oracle

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// CallsPlugin is the source of the plugin that follows one task's calls, below the
// repository's root.
const CallsPlugin = "lab/oracle/plugin/calls.c"

// Call is all calls of a function on one path: what called it, and what called that, up to
// where the kernel was entered, are the Calls above. At the top is the task itself, with
// Addr 0 and Calls 0: the time between the marks begin and end, in user mode too.
//
// Whatever was on the way when `begin` was executed counts from then on, but not as
// called; whatever was at `end` is called, and counts up to then.
type Call struct {
	Addr  uint64 // of the function's first instruction
	Calls uint64 // that came between begin and end
	// Insns are instructions that were executed while the task ran, from the function's
	// first to its last: those of what it called, and of interrupts, included.
	Insns uint64
	// NS are nanoseconds of the machine's clock from its beginning to its end: those in
	// which the task slept or others ran included. Of a task that is alone, Insns.
	NS uint64
	// Exception: it was not called. An interrupt or an exception came in what is above it.
	Exception bool
	Children  []*Call // in the order in which each was first called
}

// ReadCalls reads the file of the plugin that follows calls: the last tree in it. A file
// without its last line, `done`, comes from a machine that was killed.
func ReadCalls(r io.Reader) (*Call, error) {
	var tree *Call
	var all []*Call
	done := false
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		var err error
		switch f := strings.Fields(sc.Text()); {
		case sc.Text() == "calls":
			all = nil
		case len(f) == 8 && f[0] == "call":
			all, err = appendCall(all, sc.Text())
		case sc.Text() == "end" && len(all) > 0:
			tree = all[0]
		case sc.Text() == "done":
			done = true
		default:
			err = fmt.Errorf("unexpected")
		}
		if err != nil {
			return nil, fmt.Errorf("oracle: line %q: %w", sc.Text(), err)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("oracle: %w", err)
	}
	if !done {
		return nil, fmt.Errorf("oracle: the calls are cut short: the machine did not end by itself")
	}
	if tree == nil {
		return nil, fmt.Errorf("oracle: no task's calls were followed to an end")
	}
	return tree, nil
}

// appendCall reads one line, whose number is the next and whose parent's was before.
func appendCall(all []*Call, line string) ([]*Call, error) {
	var number, parent int
	var kind string
	c := &Call{}
	if _, err := fmt.Sscanf(line, "call %d %d 0x%x %d %d %d %s", &number, &parent, &c.Addr, &c.Calls, &c.Insns, &c.NS, &kind); err != nil {
		return nil, err
	}
	if number != len(all) || parent < 0 || parent > number || parent == number && number > 0 {
		return nil, fmt.Errorf("number %d below %d, behind %d lines", number, parent, len(all))
	}
	if c.Exception = kind == "exception"; !c.Exception && kind != "call" {
		return nil, fmt.Errorf("neither call nor exception")
	}
	if number > 0 {
		all[parent].Children = append(all[parent].Children, c)
	}
	return append(all, c), nil
}

// Walk calls see for each path, those above first, with what leads to it: the task itself
// is not in it. The path is the walk's own.
func (c *Call) Walk(see func(path []*Call)) { c.walk(nil, see) }

func (c *Call) walk(path []*Call, see func([]*Call)) {
	for _, d := range c.Children {
		below := append(path, d)
		see(below)
		d.walk(below, see)
	}
}

// Total adds up what there is of one function on all paths. Time inside calls of itself
// is not counted twice.
func (c *Call) Total(addr uint64) Call {
	sum := Call{Addr: addr}
	c.Walk(func(path []*Call) {
		d := path[len(path)-1]
		if d.Addr != addr {
			return
		}
		sum.Calls += d.Calls
		for _, above := range path[:len(path)-1] {
			if above.Addr == addr {
				return
			}
		}
		sum.Insns, sum.NS = sum.Insns+d.Insns, sum.NS+d.NS
	})
	return sum
}

// Own are the instructions of a function itself and of what it called, without those of
// interrupts and exceptions that came meanwhile.
func (c *Call) Own() uint64 {
	own := c.Insns
	c.Walk(func(path []*Call) {
		for _, above := range path[:len(path)-1] {
			if above.Exception {
				return
			}
		}
		if d := path[len(path)-1]; d.Exception {
			own -= d.Insns
		}
	})
	return own
}

// Print writes the tree with names, as name gives them to addresses, and each path with
// the least share of the task's time, as its calls, instructions and nanoseconds.
func (c *Call) Print(w io.Writer, name func(addr uint64) string, least float64) {
	c.Walk(func(path []*Call) {
		d := path[len(path)-1]
		if float64(d.NS) < least*float64(c.NS) {
			return
		}
		came := ""
		if d.Exception {
			came = " (came)"
		}
		fmt.Fprintf(w, "%s%s%s %d %d %d\n", strings.Repeat("  ", len(path)-1), name(d.Addr), came, d.Calls, d.Insns, d.NS)
	})
}

// Names are the kernel's symbols, of functions and other code, by address.
type Names map[uint64]string

// ReadNames reads /proc/kallsyms. Of several names for an address the first is taken that
// does not say where a section begins or ends.
func ReadNames(r io.Reader) (Names, error) {
	names := Names{}
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) < 3 {
			return nil, fmt.Errorf("kallsyms: line %q has no address, type and name", sc.Text())
		}
		addr, err := strconv.ParseUint(f[0], 16, 64)
		if err != nil {
			return nil, fmt.Errorf("kallsyms: line %q: %w", sc.Text(), err)
		}
		_, known := names[addr]
		if !known && strings.Contains("tTwW", f[1]) && !strings.Contains(f[2], "_text_start") && !strings.Contains(f[2], "_text_end") {
			names[addr] = f[2]
		}
	}
	return names, sc.Err()
}

// Of is the name of what begins at an address, or the address.
func (n Names) Of(addr uint64) string {
	if name, ok := n[addr]; ok {
		return name
	}
	return fmt.Sprintf("%#x", addr)
}
