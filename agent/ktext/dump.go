package ktext

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"sort"
	"strconv"
	"strings"

	"kerninst/agent/isa"
)

// A dump is what a Text is made of, in one file, so that a kernel can be
// analysed on another machine:
//
//	kerninst-dump 1
//	arch "amd64"
//	…                              one line per field, values as Go quotes them
//	part "text" 0xffffffff81000000 20971520
//	…                              name, address (0: no memory), bytes
//	                               an empty line ends the header
//	the parts' bytes, end to end, in that order
//	the SHA-256 of everything before it, 32 bytes
//
// Same kernel, same dump: it holds no time and no host.

const dumpMagic = "kerninst-dump 1\n"

// maxDumpHeader bounds the header, in bytes.
const maxDumpHeader = 1 << 20

// maxDump bounds a dump, in bytes: stock kernels make 25 to 40 MiB.
const maxDump = 1 << 30

// Names of parts that are no memory.
const (
	partKallsyms  = "kallsyms"
	partBlacklist = "blacklist"
	partModules   = "modules"
)

// Part is one stretch of a dump.
type Part struct {
	Name string
	Addr isa.Addr // 0: the data is no memory
	Size int
	Data []byte // of Size bytes; nil while it is still to be read
}

// End is the address behind a part.
func (p Part) End() isa.Addr { return p.Addr + isa.Addr(p.Size) }

// Dump is a kernel's text and all that is known about it, off line.
type Dump struct {
	Arch    string // as isa.Arch names it
	Release string // uname -r
	Version string // uname -v
	Cmdline string // of the kernel
	CPUs    int    // that are possible
	Parts   []Part
	Sum     [sha256.Size]byte // of the file; set by ReadDump
}

// fields are the header's lines, in order.
func (d *Dump) fields() []struct {
	key  string
	text *string
} {
	return []struct {
		key  string
		text *string
	}{{"arch", &d.Arch}, {"release", &d.Release}, {"version", &d.Version}, {"cmdline", &d.Cmdline}}
}

// copyPiece is how much memory is read at a time while a dump is written.
const copyPiece = 1 << 20

// Write writes the dump; parts without data are read on the way.
func (d *Dump) Write(w io.Writer, read Reader) error {
	sum := sha256.New()
	out := io.MultiWriter(w, sum)
	if _, err := out.Write(d.header()); err != nil {
		return err
	}
	for _, p := range d.Parts {
		if err := p.write(out, read); err != nil {
			return fmt.Errorf("dump: part %s: %w", p.Name, err)
		}
	}
	_, err := w.Write(sum.Sum(nil))
	return err
}

func (d *Dump) header() []byte {
	var h bytes.Buffer
	h.WriteString(dumpMagic)
	for _, f := range d.fields() {
		fmt.Fprintf(&h, "%s %q\n", f.key, *f.text)
	}
	fmt.Fprintf(&h, "cpus %d\n", d.CPUs)
	for _, p := range d.Parts {
		fmt.Fprintf(&h, "part %q %#x %d\n", p.Name, uint64(p.Addr), p.Size)
	}
	h.WriteByte('\n')
	return h.Bytes()
}

func (p Part) write(w io.Writer, read Reader) error {
	if p.Data != nil {
		if len(p.Data) != p.Size {
			return fmt.Errorf("%d bytes of data, not %d", len(p.Data), p.Size)
		}
		_, err := w.Write(p.Data)
		return err
	}
	b := make([]byte, min(copyPiece, p.Size))
	for n := 0; n < p.Size; n += len(b) {
		b = b[:min(len(b), p.Size-n)]
		if err := read(p.Addr+isa.Addr(n), b); err != nil {
			return err
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// LoadDump is ReadDump of a stream, which may be anything: what does not begin as
// a dump is not read on, and no more than 1 GiB is.
func LoadDump(r io.Reader) (*Dump, error) {
	head := make([]byte, len(dumpMagic))
	n, err := io.ReadFull(r, head)
	if err == io.EOF || err == io.ErrUnexpectedEOF || err == nil && string(head) != dumpMagic {
		return ReadDump(head[:n])
	}
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(io.MultiReader(bytes.NewReader(head), r), maxDump+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxDump {
		return nil, fmt.Errorf("dump: more than %d bytes: damaged", maxDump)
	}
	return ReadDump(b)
}

// ReadDump reads what Write wrote. The parts' data point into b.
func ReadDump(b []byte) (*Dump, error) {
	if !bytes.HasPrefix(b, []byte(dumpMagic)) {
		return nil, fmt.Errorf("dump: does not begin with %q: no dump of this version", strings.TrimSpace(dumpMagic))
	}
	header := b[len(dumpMagic):min(len(b), maxDumpHeader)]
	end := bytes.Index(header, []byte("\n\n"))
	if end < 0 {
		return nil, fmt.Errorf("dump: its header has no end within %d bytes: cut off or damaged", min(len(b), maxDumpHeader))
	}
	d := &Dump{}
	lines := strings.Split(string(header[:end]), "\n")
	if err := d.parse(lines); err != nil {
		return nil, fmt.Errorf("dump: header: %w", err)
	}
	rest, want := b[len(dumpMagic)+end+2:], 0
	for _, p := range d.Parts {
		want += p.Size
	}
	if len(rest) != want+sha256.Size {
		return nil, fmt.Errorf("dump: %d bytes follow the header, %d are announced: cut off or damaged", len(rest), want+sha256.Size)
	}
	if d.Sum = sha256.Sum256(b[:len(b)-sha256.Size]); !bytes.Equal(d.Sum[:], rest[want:]) {
		return nil, fmt.Errorf("dump: its bytes are not those that were written: the SHA-256 differs")
	}
	for k := range d.Parts {
		p := &d.Parts[k]
		p.Data, rest = rest[:p.Size:p.Size], rest[p.Size:]
	}
	if err := d.check(); err != nil {
		return nil, err
	}
	return d, nil
}

// parse reads the header's lines behind the first.
func (d *Dump) parse(lines []string) error {
	bad := func(n int) error { return fmt.Errorf("line %d: %.80q", n+2, lines[n]) }
	fields := d.fields()
	if len(lines) <= len(fields) {
		return fmt.Errorf("%d lines", len(lines)+1)
	}
	for n, f := range fields {
		key, value, _ := strings.Cut(lines[n], " ")
		text, err := strconv.Unquote(value)
		if key != f.key || err != nil || value != strconv.Quote(text) {
			return bad(n)
		}
		*f.text = text
	}
	n := len(fields)
	if _, err := fmt.Sscanf(lines[n], "cpus %d", &d.CPUs); err != nil || lines[n] != fmt.Sprintf("cpus %d", d.CPUs) {
		return bad(n)
	}
	for n++; n < len(lines); n++ {
		p, ok := parsePart(lines[n])
		if !ok {
			return bad(n)
		}
		d.Parts = append(d.Parts, p)
	}
	return nil
}

// parsePart reads the line of one part; only what Write writes is accepted.
func parsePart(line string) (p Part, ok bool) {
	text, isPart := strings.CutPrefix(line, "part ")
	quoted, err := strconv.QuotedPrefix(text)
	if !isPart || err != nil {
		return p, false
	}
	f := strings.Fields(text[len(quoted):])
	if len(f) != 2 {
		return p, false
	}
	p.Name, err = strconv.Unquote(quoted)
	addr, err1 := strconv.ParseUint(f[0], 0, 64)
	size, err2 := strconv.ParseUint(f[1], 10, 31)
	p.Addr, p.Size = isa.Addr(addr), int(size)
	return p, err == nil && err1 == nil && err2 == nil && p.End() >= p.Addr &&
		line == fmt.Sprintf("part %q %#x %d", p.Name, addr, size)
}

// check refuses dumps that do not make one kernel, and puts memory in order.
func (d *Dump) check() error {
	seen := map[string]bool{}
	var mem []Part
	for _, p := range d.Parts {
		if seen[p.Name] {
			return fmt.Errorf("dump: two parts are named %s", p.Name)
		}
		seen[p.Name] = true
		if p.Addr != 0 {
			mem = append(mem, p)
		}
	}
	if !seen[partKallsyms] {
		return fmt.Errorf("dump: there are no symbols in it")
	}
	sort.Slice(mem, func(i, j int) bool { return mem[i].Addr < mem[j].Addr })
	for k := 1; k < len(mem); k++ {
		if mem[k-1].End() > mem[k].Addr {
			return fmt.Errorf("dump: parts %s and %s overlap", mem[k-1].Name, mem[k].Name)
		}
	}
	return nil
}

// Part returns the data of a part by its name; nil if there is none.
func (d *Dump) Part(name string) []byte {
	for _, p := range d.Parts {
		if p.Name == name {
			return p.Data
		}
	}
	return nil
}

// Read is a Reader.
func (d *Dump) Read(a isa.Addr, b []byte) error {
	for len(b) > 0 {
		k := slices.IndexFunc(d.Parts, func(p Part) bool { return p.Addr != 0 && a >= p.Addr && a < p.End() })
		if k < 0 {
			return fmt.Errorf("%v is not in the dump", a)
		}
		n := copy(b, d.Parts[k].Data[a-d.Parts[k].Addr:])
		a, b = a+isa.Addr(n), b[n:]
	}
	return nil
}

// Text makes the view of the dumped kernel.
func (d *Dump) Text(arch *isa.Arch) (*Text, error) {
	if d.Arch != arch.Name {
		return nil, fmt.Errorf("dump: it is of %s, not of %s", d.Arch, arch.Name)
	}
	opt := Options{OneCPU: d.CPUs == 1}
	if b := d.Part(partBlacklist); b != nil {
		opt.Blacklist = bytes.NewReader(b)
	}
	if b := d.Part(partModules); b != nil {
		opt.Modules = bytes.NewReader(b)
	}
	return New(arch, bytes.NewReader(d.Part(partKallsyms)), d.Read, opt)
}

// DumpParts lists what a dump of this kernel holds: symbols, the kernel's code
// and constants, the tables that lie elsewhere, and of modules what is Dumped.
// blacklist may be nil.
func (t *Text) DumpParts(kallsyms, blacklist []byte, modules []Section) []Part {
	parts := []Part{
		{Name: partKallsyms, Size: len(kallsyms), Data: kallsyms},
		{Name: "text", Addr: t.lo, Size: int(t.hi - t.lo)},
	}
	add := func(name string, lo, hi isa.Addr) {
		inside := slices.ContainsFunc(parts, func(p Part) bool { return p.Addr != 0 && lo >= p.Addr && hi <= p.End() })
		if lo != 0 && lo < hi && !inside {
			parts = append(parts, Part{Name: name, Addr: lo, Size: int(hi - lo)})
		}
	}
	add("rodata", t.sym.markers["__start_rodata"], t.sym.markers["__end_rodata"])
	for _, name := range []string{jumpTable.name, exTable.name, bugTable, staticCalls.name} {
		add(name, t.sym.markers["__start_"+name], t.sym.markers["__stop_"+name])
	}
	for _, s := range modules {
		if s.Dumped() {
			add("module "+s.Module+" "+s.Name, s.Addr, s.End())
		}
	}
	if blacklist != nil {
		parts = append(parts, Part{Name: partBlacklist, Size: len(blacklist), Data: blacklist})
	}
	if list := FormatModules(modules); len(list) > 0 {
		parts = append(parts, Part{Name: partModules, Size: len(list), Data: list})
	}
	return parts
}
