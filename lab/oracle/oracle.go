// Package oracle holds truths about a guest that are found outside it.
//
// Arrivals are counted by a QEMU plugin (plugin/arrivals.c) that watches the
// program counter alone; guest programs tell it points, beginning and end by
// executing marks at fixed addresses (guest/bench/mark.S).
//
// Calls of one task are followed by another (plugin/calls.c), by the same means.
package oracle

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Plugin is the source of the plugin, below the repository's root.
const Plugin = "lab/oracle/plugin/arrivals.c"

// MarkBase is where every guest program has its marks; guest/bench/mark.h
// holds the same number, and a test compares them.
const MarkBase = 0x7ab00000

// InterfaceVersion is the version of QEMU's plugin interface that a plugin for
// QEMU major.x must declare: 9.0 raised the least it accepts to 2.
func InterfaceVersion(major int) int {
	if major >= 9 {
		return 2
	}
	return 1
}

// Arrivals at one address.
type Arrivals struct {
	Total uint64
	CPU   []uint64
}

// Report is what the plugin wrote, by address.
type Report map[uint64]Arrivals

// End is the last line of a plugin's file that is whole.
const End = "done\n"

// ReadReport reads the plugin's file. A file without its last line, `done`,
// comes from a machine that was killed: its counts may be short, so that is an
// error.
func ReadReport(r io.Reader) (Report, error) {
	rep := Report{}
	done := false
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		switch {
		case len(f) == 1 && f[0] == "done":
			done = true
		case len(f) >= 4 && f[0] == "arrivals":
			addr, a, err := parseArrivals(f[1:])
			if err != nil {
				return nil, fmt.Errorf("oracle: line %q: %w", sc.Text(), err)
			}
			rep[addr] = a
		default:
			return nil, fmt.Errorf("oracle: unexpected line %q", sc.Text())
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("oracle: %w", err)
	}
	if !done {
		return nil, fmt.Errorf("oracle: the report is cut short: the machine did not end by itself")
	}
	return rep, nil
}

// parseArrivals reads an address, a total and the counts that make it up.
func parseArrivals(f []string) (addr uint64, a Arrivals, err error) {
	if addr, err = strconv.ParseUint(f[0], 0, 64); err != nil {
		return 0, a, err
	}
	if a.Total, err = strconv.ParseUint(f[1], 10, 64); err != nil {
		return 0, a, err
	}
	var sum uint64
	for _, s := range f[2:] {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return 0, a, err
		}
		a.CPU = append(a.CPU, n)
		sum += n
	}
	if sum != a.Total {
		return 0, a, fmt.Errorf("total %d is not the sum %d", a.Total, sum)
	}
	return addr, a, nil
}
