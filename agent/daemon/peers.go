package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"kerninst/agent/isa"
	"kerninst/agent/kdev"
	"kerninst/agent/plan"
	"kerninst/agent/wire"
)

// peersFile is where the peer module says what became of each of many kprobes.
const peersFile = "/proc/peer"

// peers are the kernel's own kprobes, one at each point of an earlier splice.
// They are counted like splices: from when all are in to the end of the last program.
//
// The file stays open, and is read in one call: what is counted may be opening files.
type peers struct {
	file   *os.File
	points []*wire.PointResult
	base   []peerLine // when all were in
	now    []peerLine // at the end of the last program, or base
}

// peerLine is what the module says of one of its kprobes.
type peerLine struct {
	hits uint64
	err  error // why the kernel does not have it
}

// kprobes places the kernel's own probes at all points of a splice, or beside them. None is asked for between a
// load-exclusive and its store: arm64's kernel refuses that, riscv64's does not, and the store then fails for ever.
func (d *Daemon) kprobes(k *wire.Kprobe, res *wire.Result) error {
	points := d.resolved[k.Splice]
	if k.Beside {
		points = d.beside(d.sets[k.Splice])
	}
	if len(points) == 0 {
		return fmt.Errorf("kprobes: step %q resolved no points", k.Splice)
	}
	ko, err := os.ReadFile(peerFile)
	if err != nil {
		return err
	}
	p, known := &peers{}, &plan.Functions{}
	var list []string
	var barred []*wire.PointResult
	for _, at := range points {
		f, ok := d.text.Locate(at)
		if !ok {
			return fmt.Errorf("kprobes: no function at %v", at)
		}
		point := peerPoint(f.Module, f.Name, at, f.Addr)
		if known.Exclusive(d.text, f.Module, f.Name, isa.Off(at-f.Addr)) {
			point.Mechanism, point.Refusal = "", &wire.Refusal{Reason: "exclusive sequence", Detail: "a kprobe between a load-exclusive and its store has it fail for ever"}
			barred = append(barred, point)
			continue
		}
		p.points = append(p.points, point)
		list = append(list, fmt.Sprintf("%#x", uint64(at)))
	}
	d.stages.enter(stageRegister)
	err = kdev.Load(ko, "kind="+cmp.Or(k.Kind, "kprobes")+" addrs="+strings.Join(list, ","))
	d.stages.enter("")
	if err != nil {
		return err
	}
	if p.file, err = os.Open(peersFile); err != nil {
		return fmt.Errorf("kprobes: %w", err)
	}
	if err := p.look(); err != nil {
		return errors.Join(err, p.file.Close())
	}
	for i, line := range p.now {
		if line.err != nil {
			p.points[i].Mechanism, p.points[i].Refusal = "", &wire.Refusal{Reason: "kprobe", Detail: line.err.Error()}
		}
	}
	res.Points, d.peers = append(slices.Clip(p.points), barred...), p
	return d.begin()
}

// begin makes all splices and kprobes that are there count from now on. Kprobes come
// first, here and in end, since both count how they are read.
func (d *Daemon) begin() error {
	if p := d.peers; p != nil {
		if err := p.look(); err != nil {
			return err
		}
		p.base = p.now
	}
	d.counts, d.ended, d.covered = nil, nil, nil
	d.rings.restart()
	var err error
	d.base, d.began, err = d.moment()
	return err
}

// end keeps what they have counted.
func (d *Daemon) end() error {
	if d.peers != nil {
		if err := d.peers.look(); err != nil {
			return err
		}
	}
	var err error
	d.counts, d.ended, err = d.moment()
	return err
}

// beside are, for each live splice at the entry of a function, the first instruction of the
// function, and the one to which the patch returns, if that is among those that each call
// executes exactly once, as it does the point.
func (d *Daemon) beside(s *set) (out []addr) {
	if s == nil {
		return nil
	}
	known := &plan.Functions{}
	for _, l := range s.live {
		f, ok := d.text.Locate(l.Plan.At())
		if !ok {
			continue
		}
		out = append(out, f.Addr)
		if off := isa.Off(l.Plan.Back - f.Addr); off < known.Straight(d.text, f.Module, f.Name) {
			out = append(out, l.Plan.Back)
		}
	}
	return out
}

func peerPoint(module, function string, at, start isa.Addr) *wire.PointResult {
	off := uint64(at - start)
	return &wire.PointResult{Spec: fmt.Sprintf("kinst:%s:%s:%d", module, function, off), Symbol: function, Offset: off, Address: uint64(at), Mechanism: "kprobe"}
}

// unkprobes takes them away, and says how often each was hit.
func (d *Daemon) unkprobes(res *wire.Result) error {
	if d.peers == nil {
		return fmt.Errorf("kprobes: there are none to remove")
	}
	for i, p := range d.peers.points {
		if p.Refusal == nil {
			res.Values = append(res.Values, &wire.Value{Spec: p.Spec, Symbol: p.Symbol, Offset: p.Offset, Count: d.peers.now[i].hits - d.peers.base[i].hits})
		}
	}
	err := d.peers.file.Close()
	d.peers = nil
	return errors.Join(err, kdev.Unload("peer"))
}

// peerLength is more than a line has, in bytes.
const peerLength = 64

// look reads all counts.
func (p *peers) look() error {
	b := make([]byte, len(p.points)*peerLength)
	n, err := p.file.ReadAt(b, 0)
	if !errors.Is(err, io.EOF) {
		return fmt.Errorf("kprobes: %s: %w", peersFile, err)
	}
	if p.now, err = peerLines(string(b[:n])); err == nil && len(p.now) != len(p.points) {
		err = fmt.Errorf("kprobes: %s has %d lines for %d points", peersFile, len(p.now), len(p.points))
	}
	return err
}

// peerLines reads lines of an address, a count, and an errno below zero, or 0.
func peerLines(text string) (out []peerLine, err error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 3 {
			return nil, fmt.Errorf("kprobes: unexpected line %q", line)
		}
		hits, err := strconv.ParseUint(f[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("kprobes: line %q: %w", line, err)
		}
		errno, err := strconv.Atoi(f[2])
		if err != nil || errno > 0 {
			return nil, fmt.Errorf("kprobes: line %q: want an errno below zero, or 0", line)
		}
		l := peerLine{hits: hits}
		if errno < 0 {
			l.err = unix.Errno(-errno)
		}
		out = append(out, l)
	}
	return out, nil
}
