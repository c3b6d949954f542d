package e2e

import (
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kerninst/agent/inline"
	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/images"
	"kerninst/lab/analysis"
	"kerninst/lab/status"
)

// TestInline: copies are entered as often as they are left, and as often as the workload writes; with
// the digests of the locked kernels that the scenario inlined has, too.
func TestInline(t *testing.T) {
	t.Parallel()
	for _, arch := range images.Arches() {
		t.Run(arch, func(t *testing.T) {
			if arch != "amd64" && !*full {
				return // what differs between ISAs is found by TestCopies
			}
			const writes = 700
			a := call(t, nil, "probe", "--arch", arch, "--inline", "--copies", "../../scenarios/copies/"+arch+".copies", "--json", "--skip-refused",
				"kinst::file_start_write:entry", "kinst::fdget:entry", "kinst::fdget:return", "kinst::vfs_write:entry",
				"--run", fmt.Sprintf("dd if=/dev/zero of=/tmp/x bs=1 count=%d 2>/dev/null", writes))
			var doc struct {
				Points []struct {
					Symbol string
					Offset uint64
					Value  uint64
				}
			}
			if err := json.Unmarshal([]byte(a.stdout), &doc); a.code != 0 || err != nil {
				t.Fatalf("%v: %v", err, a)
			}
			values := map[string]uint64{}
			for _, p := range doc.Points {
				values[fmt.Sprintf("%s+%#x", p.Symbol, p.Offset)] = p.Value
			}
			inWrite, flows := uint64(0), 0
			for _, c := range inlineDocument(t, arch, "file_start_write").Copies {
				if c.Caller == "vfs_write" {
					inWrite += values[c.Entry.Place]
				}
			}
			for _, c := range inlineDocument(t, arch, "fdget").Copies {
				left := uint64(0)
				for _, r := range c.Returns {
					left += values[r.Place]
				}
				if c.Call == "" || slices.ContainsFunc(c.Returns, func(w analysis.WayInOut) bool { return w.Refusal != "" }) {
					continue
				}
				if flows++; left != values[c.Entry.Place] || left < writes {
					t.Errorf("fdget in %s is entered %d times at %s and left %d times: %v", c.Caller, values[c.Entry.Place], c.Entry.Place, left, values)
				}
			}
			if inWrite < writes || flows == 0 {
				t.Errorf("%d entries of file_start_write in vfs_write, %d writes; %d copies of fdget of which all is told: %v", inWrite, writes, flows, a)
			}
			inlineListed(t, arch)
			t.Logf("proof inline %s %d", arch, flows)
		})
	}
}

// inlineListed: lab inline lists the copies and says what is wrong with a call.
func inlineListed(t *testing.T, arch string) {
	t.Helper()
	with := []string{"inline", "--arch", arch, "--copies", "../../scenarios/copies/" + arch + ".copies"}
	a := call(t, nil, append(with, "file_start_write")...)
	if a.code != 0 || !strings.Contains(a.stdout, "fs/read_write.c:") || !strings.Contains(a.stdout, "vfs_write") {
		t.Errorf("%v", a)
	}
	if a := call(t, nil, append(slices.Clone(with), "fdget", "fdput", "fdget")...); a.code != 0 || strings.Count(a.stdout, "\nfdput (") != 1 || strings.Count(a.stdout, "fdget (") != 1 {
		t.Errorf("of two functions, one twice: %v", a)
	}
	probe := []string{"probe", "--arch", arch, "--inline", "--copies", "../../scenarios/copies/" + arch + ".copies", "-l"}
	for want, args := range map[string][]string{
		"not for file_start_writ; did you mean file_start_write": append(slices.Clone(with), "fdget", "file_start_writ"),
		"not for sb_start_write":                                 append(slices.Clone(with), "sb_start_write"), // of which it has one copy of many
		"not for vfs_read":                                       append(slices.Clone(probe), "kinst::vfs_read:entry"),
		"not for lines of the source":                            append(slices.Clone(probe), "kinst:include/linux/file.h:82"),
		"is no line's number":                                    append(slices.Clone(probe), "kinst:include/linux/file.h:-1"),
		"fdget_pos has no argument fdd":                          append(slices.Clone(probe), `kinst::fdget_pos:entry hist(arg("fdd"))`),
		"fdget has no argument fdd":                              {"probe", "--arch", arch, `kinst::fdget:entry hist(arg("fdd"))`, "--run", "true"},
		"no index of inlined copies":                             {"inline", "--arch", arch, "--copies", "inline_test.go", "fdget"},
		"it is of " + arch:                                       {"inline", "--arch", other(arch), "--copies", "../../scenarios/copies/" + arch + ".copies", "fdget"},
		"--save: no file is named":                               {"inline", "--arch", arch, "--save", "", "fdget"},
		`"--copies" flag: its value is`:                          {"inline", "--arch", arch, "--copies", "", "fdget"},
		`"--module" flag: its value is`:                          {"inline", "--arch", arch, "--module", "", "fdget"},
	} {
		if a := call(t, nil, args...); a.code != status.ExitUsage || !strings.Contains(a.stderr, want) || a.stdout != "" {
			t.Errorf("%q: %d: %v", want, a.code, a)
		}
	}
}

// TestInlineConverted: what --expand prints counts the same without --inline, at each of a hundred copies and more.
func TestInlineConverted(t *testing.T) {
	t.Parallel()
	for _, arch := range images.Arches() {
		t.Run(arch, func(t *testing.T) {
			if arch != "amd64" && !*full {
				return // nothing in it is of an ISA
			}
			with := []string{"--inline", "--copies", "../../scenarios/copies/" + arch + ".copies"}
			counts := func(args ...string) (all map[string]uint64, came int) {
				t.Helper()
				a := call(t, nil, append([]string{"probe", "--arch", arch, "--json", "--skip-refused", "--run", "wc -c /proc/mounts"}, args...)...)
				var doc struct {
					Points []struct {
						Spec  string
						Value uint64
					}
				}
				if err := json.Unmarshal([]byte(a.stdout), &doc); a.code != 0 || err != nil {
					t.Fatalf("%v: %v", err, a)
				}
				all = map[string]uint64{}
				for _, p := range doc.Points {
					if all[p.Spec] = p.Value; p.Value > 0 {
						came++
					}
				}
				return all, came
			}
			inlined, came := counts(append(with, "kinst::fdput:entry")...)
			a := call(t, nil, append([]string{"probe", "--arch", arch, "--expand", "kinst::fdput:entry"}, with...)...)
			specs := strings.Fields(a.stdout)
			if converted, _ := counts(specs...); a.code != 0 || len(specs) < 100 || came == 0 || !maps.Equal(inlined, converted) {
				t.Errorf("%d specifications, %d of them came by: %v\nwith --inline %v\nwithout %v", len(specs), came, a, inlined, converted)
			}
			t.Logf("proof inline-converted %s %d", arch, len(specs))
		})
	}
}

// TestInlineArguments: an argument by its name is what the function that has the copy was given:
// whatever vfs_write is called with, its copy of file_start_write gets. Points and stacks are told with their lines.
func TestInlineArguments(t *testing.T) {
	t.Parallel()
	const arch, writes = "amd64", 300
	a := call(t, nil, "probe", "--arch", arch, "--inline", "--copies", "../../scenarios/copies/"+arch+".copies", "--json", "--skip-refused",
		`kinst::file_start_write:entry sum(arg("file"))`, "kinst::vfs_write:entry sum(arg0)", "kinst::file_start_write:entry stack(2)",
		"--run", fmt.Sprintf("dd if=/dev/zero of=/tmp/x bs=1 count=%d 2>/dev/null", writes))
	var doc struct {
		Points []struct {
			Symbol, Source string
			Actions        []struct {
				Action      string
				Value, Hits uint64
				Stacks      []struct{ Source []string }
			}
		}
	}
	if err := json.Unmarshal([]byte(a.stdout), &doc); a.code != 0 || err != nil {
		t.Fatalf("%v: %v", err, a)
	}
	sums, stacks, told := map[uint64]int{}, 0, 0
	inCopy, caller := regexp.MustCompile(`^include/linux/fs\.h:\d+ .*file_start_write$`), regexp.MustCompile(`^fs/read_write\.c:\d+`)
	for _, p := range doc.Points {
		for _, action := range p.Actions {
			if p.Symbol == "vfs_write" && action.Hits >= writes && strings.HasPrefix(action.Action, "sum(") {
				sums[action.Value]++
			}
			for _, stack := range action.Stacks {
				if stacks++; stack.Source[0] == p.Source && inCopy.MatchString(p.Source) && caller.MatchString(stack.Source[1]) {
					told++
				}
			}
		}
	}
	if stacks == 0 || told != stacks {
		t.Errorf("%d of %d stacks have the lines of their frames: %v", told, stacks, a)
	}
	if len(sums) != 1 || slices.Collect(maps.Values(sums))[0] != 2 {
		t.Errorf("sums of files, and how many points have each: %v: %v", sums, a)
	}
	if why := "arg(\"file\") at kinst::do_splice:"; !strings.Contains(a.stderr, why) {
		t.Errorf("nothing says %s: %v", why, a.stderr)
	}
}

// inlineDocument is what lab inline says of a function.
func inlineDocument(t *testing.T, arch, function string) (doc analysis.Inlined) {
	t.Helper()
	a := call(t, nil, "inline", "--arch", arch, "--copies", "../../scenarios/copies/"+arch+".copies", "--json", function)
	if err := json.Unmarshal([]byte(a.stdout), &doc); a.code != 0 || err != nil {
		t.Fatalf("%v: %v", err, a)
	}
	return doc
}

func other(arch string) string {
	if arch == "amd64" {
		return "arm64"
	}
	return "amd64"
}

// TestCopies holds what agent/inline reads of a kernel's debugging information against what
// llvm-dwarfdump prints of it: of source files that the seed draws, until there are enough copies.
func TestCopies(t *testing.T) {
	if !*full {
		t.Skip("a gigabyte for each ISA")
	}
	for _, arch := range images.Arches() {
		t.Run(arch, func(t *testing.T) {
			root, err := os.Getwd()
			if err != nil {
				t.Fatal(err)
			}
			opt := images.Options{Arch: arch, Root: root + "/../..", Progress: t.Logf}
			name := fmt.Sprintf("checked-%d-%d", inline.Version, os.Getpid())
			_, err = images.FromVmlinux(context.Background(), opt, name, func(r io.ReaderAt) ([]byte, error) {
				f, ok := r.(*os.File)
				if !ok {
					return nil, fmt.Errorf("the vmlinux is a %T", r)
				}
				checkCopies(t, arch, f)
				return nil, errEnough // nothing is kept
			})
			if !errors.Is(err, errEnough) {
				t.Fatal(err)
			}
			_, err = images.FromModules(context.Background(), opt, name, []string{theModule}, func(r io.ReaderAt) ([]byte, error) {
				checkModule(t, arch, r)
				return nil, errEnough
			})
			if !errors.Is(err, errEnough) {
				t.Fatal(err)
			}
		})
	}
}

var errEnough = errors.New("that is all that was wanted")

const leastCopies = 1000

func checkCopies(t *testing.T, arch string, f *os.File) {
	a, err := all.Lookup(arch)
	if err != nil {
		t.Fatal(err)
	}
	x, err := inline.Make(f, a, inline.Options{Workers: runtime.GOMAXPROCS(0)})
	if err != nil {
		t.Fatal(err)
	}
	symbols := symbolsOf(t, f.Name())
	base, end := symbols.at["_stext"], symbols.at["_etext"]
	units := regexp.MustCompile(`(?m)^(0x[0-9a-f]+): DW_TAG_compile_unit`).FindAllStringSubmatch(dumped(t, "-r", "0", "--debug-info", f.Name()), -1)
	draw := rand.New(rand.NewPCG(*seed, 2))
	n, places := 0, 0
	for n < leastCopies {
		unit := units[draw.IntN(len(units))][1]
		for _, c := range copiesIn(dumped(t, "--debug-info="+unit, "-c", f.Name())) {
			if len(c.ranges) == 0 || c.ranges[0][0] < base || c.ranges[0][0] >= end || c.ranges[0][0] == c.ranges[0][1] {
				continue // not in the text, or nothing is left of it
			}
			c.entry = c.start()
			if !symbols.begins(c.of.start()) { // left of a weak function: nothing is known of it
				if found, err := x.At(isa.Off(c.entry - base)); err != nil || found.Body != nil {
					t.Errorf("%s at %#x, in %s without a symbol: %v, %v", c.name, c.entry, c.of.name, found, err)
				}
				continue
			}
			n++
			places += c.check(t, x, base)
		}
	}
	t.Logf("%s: %d copies, %d places of arguments", arch, n, places)
	if places < n/4 {
		t.Errorf("%d places of arguments of %d copies: too few to mean anything", places, n)
	}
	t.Logf("proof copies %s %d", arch, n)
}

// moduleBase is where sections of a module's code are put for llvm-dwarfdump.
const moduleBase = 1 << 28

// checkModule is checkCopies for all of a module, in a copy of its file that says where each section lies: as
// they are, all begin at 0, and nobody can tell from places which one is meant.
func checkModule(t *testing.T, arch string, file io.ReaderAt) {
	a, err := all.Lookup(arch)
	if err != nil {
		t.Fatal(err)
	}
	m, err := inline.MakeModule(file, a, inline.Options{Workers: runtime.GOMAXPROCS(0)})
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(io.NewSectionReader(file, 0, 1<<30))
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const headerSize, addrField = 64, 16 // of an Elf64_Shdr
	headers := binary.LittleEndian.Uint64(b[40:])
	for k, s := range f.Sections {
		for _, laid := range m.Sections {
			if laid.Name == s.Name {
				binary.LittleEndian.PutUint64(b[headers+uint64(k)*headerSize+addrField:], moduleBase+uint64(laid.Lo))
			}
		}
	}
	name := filepath.Join(t.TempDir(), "laid.ko")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	n, places := 0, 0
	for _, c := range copiesIn(dumped(t, "--debug-info", name)) {
		if len(c.ranges) == 0 || c.ranges[0][0] < moduleBase || c.ranges[0][0] == c.ranges[0][1] {
			continue
		}
		if c.entry == 0 {
			c.entry = c.ranges[0][0]
		}
		n++
		places += c.check(t, m.Index, moduleBase)
	}
	t.Logf("%s: %s: %d copies of %d, %d places of arguments", arch, m.Name, n, m.Index.Stats.Copies, places)
	if n == 0 || n != m.Index.Stats.Copies || places < n/4 {
		t.Errorf("%s: %d copies, %d in the index, %d places of arguments", m.Name, n, m.Index.Stats.Copies, places)
	}
	t.Logf("proof copies %s %d", arch, n)
}

// symbolsOf are what readelf prints of an ELF file's.
func symbolsOf(t *testing.T, file string) (s symbols) {
	t.Helper()
	out, err := exec.Command("readelf", "-sW", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	s = symbols{at: map[string]uint64{}, is: map[uint64]bool{}}
	for _, m := range regexp.MustCompile(`(?m): ([0-9a-f]{16}) +\S+ (FUNC|NOTYPE) .* ([^ $]\S*)$`).FindAllSubmatch(out, -1) {
		v, _ := strconv.ParseUint(string(m[1]), 16, 64)
		s.at[string(m[3])], s.is[v] = v, true
	}
	if s.at["_stext"] == 0 || s.at["_etext"] == 0 {
		t.Fatalf("%s: no _stext and _etext", file)
	}
	return s
}

type symbols struct {
	at map[string]uint64
	is map[uint64]bool
}

// begins reports whether a function has a symbol: riscv64's is in front of what is kept free for ftrace.
func (s symbols) begins(at uint64) bool { return s.is[at] || s.is[at-4] || s.is[at-8] }

func dumped(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("llvm-dwarfdump", args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("llvm-dwarfdump, of Debian's package llvm, is what this is held against: %v: %s", err, said.String())
	}
	return string(out)
}

// dumpedCopy is an inlined copy as llvm-dwarfdump prints it.
type dumpedCopy struct {
	name, in, file string // in: the function whose copy it is in, or whose body
	line           int
	entry          uint64
	ranges         [][2]uint64
	args           []dumpedArg
	indent         int
	tag            string
	of             *dumpedCopy // the function that it is in
}

// start is where it is entered.
func (d *dumpedCopy) start() uint64 {
	if d.entry != 0 || len(d.ranges) == 0 {
		return d.entry
	}
	return d.ranges[0][0]
}

type dumpedArg struct {
	name   string
	places map[[2]uint64]string // the only operation of each, if it has one
}

var (
	dieLine   = regexp.MustCompile(`^0x[0-9a-f]+:( +)(DW_TAG_\w+|NULL)`)
	attribute = regexp.MustCompile(`^ +(DW_AT_\w+)\t\((.*)$`)
	quoted    = regexp.MustCompile(`"([^"]*)"`)
	fromTo    = regexp.MustCompile(`\[(0x[0-9a-f]+), (0x[0-9a-f]+)\)(?:: ([^\n]*?))?\)?$`)
)

// copiesIn reads what is printed of a unit.
func copiesIn(text string) (out []*dumpedCopy) {
	var stack []*dumpedCopy // the entries that the one that is read is in, and itself
	attr := ""
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		line := s.Text()
		if m := dieLine.FindStringSubmatch(line); m != nil {
			attr = ""
			d := &dumpedCopy{indent: len(m[1]), tag: strings.TrimPrefix(m[2], "DW_TAG_")}
			for len(stack) > 0 && stack[len(stack)-1].indent >= d.indent {
				stack = stack[:len(stack)-1]
			}
			for k := len(stack) - 1; k >= 0 && d.in == ""; k-- {
				if stack[k].tag == "inlined_subroutine" || stack[k].tag == "subprogram" {
					d.in = stack[k].name
				}
			}
			if d.tag == "formal_parameter" && len(stack) > 0 {
				p := stack[len(stack)-1]
				p.args = append(p.args, dumpedArg{places: map[[2]uint64]string{}})
			}
			stack = append(stack, d)
			if d.tag == "inlined_subroutine" {
				d.of = stack[slices.IndexFunc(stack, func(d *dumpedCopy) bool { return d.tag == "subprogram" })]
				out = append(out, d)
			}
			continue
		}
		if len(stack) == 0 {
			continue
		}
		if m := attribute.FindStringSubmatch(line); m != nil {
			attr = m[1]
			line = m[2]
		}
		stack[len(stack)-1].read(attr, line, stack)
	}
	return out
}

// read takes a line of an attribute.
func (d *dumpedCopy) read(attr, line string, stack []*dumpedCopy) {
	number := func() uint64 {
		v, _ := strconv.ParseUint(strings.TrimRight(line, ")"), 0, 64)
		return v
	}
	var arg *dumpedArg
	if d.tag == "formal_parameter" && len(stack) > 1 {
		p := stack[len(stack)-2]
		arg = &p.args[len(p.args)-1]
	}
	switch attr {
	case "DW_AT_abstract_origin", "DW_AT_name":
		if m := quoted.FindStringSubmatch(line); m != nil && d.name == "" {
			if d.name = m[1]; arg != nil {
				arg.name = m[1]
			}
		}
	case "DW_AT_entry_pc":
		d.entry = number()
	case "DW_AT_low_pc":
		d.ranges = append(d.ranges, [2]uint64{number()})
	case "DW_AT_high_pc":
		d.ranges[0][1] = number()
	case "DW_AT_call_file":
		if m := quoted.FindStringSubmatch(line); m != nil {
			d.file = m[1]
		}
	case "DW_AT_call_line":
		d.line = int(number())
	case "DW_AT_ranges", "DW_AT_location":
		m := fromTo.FindStringSubmatch(line)
		if m == nil {
			return
		}
		lo, _ := strconv.ParseUint(m[1], 0, 64)
		hi, _ := strconv.ParseUint(m[2], 0, 64)
		if attr == "DW_AT_ranges" && lo < hi {
			d.ranges = append(d.ranges, [2]uint64{lo, hi})
		} else if attr == "DW_AT_location" && arg != nil && lo < hi {
			arg.places[[2]uint64{lo, hi}] = m[3]
		}
	}
}

// dwarfRegs are the numbers of amd64's registers by those that DWARF has.
var dwarfRegs = []isa.Reg{0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15}

var oneRegister = regexp.MustCompile(`^DW_OP_reg(\d+) \w+$`)

// check looks the copy up. It returns how many places of arguments were compared.
func (d *dumpedCopy) check(t *testing.T, x *inline.Index, base uint64) (places int) {
	found, err := x.Find(d.name)
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(d.ranges)
	slices.SortFunc(want, func(a, b [2]uint64) int { return int(int64(a[0]) - int64(b[0])) })
	for _, f := range found {
		if f.Copy < 0 {
			continue
		}
		c := f.Body.Copy(f.Copy)
		in := f.Body.Func.Name
		if c.In >= 0 {
			in = f.Body.Copy(c.In).Func.Name
		}
		var got [][2]uint64
		for _, r := range c.Ranges() {
			got = append(got, [2]uint64{base + uint64(r.Lo), base + uint64(r.Hi)})
		}
		if slices.Equal(got, want) && base+uint64(c.Entry) == d.entry && c.Line == d.line && in == d.in && strings.HasSuffix(path.Clean(d.file), c.File) {
			return d.places(t, x.Arch, c, base)
		}
	}
	t.Errorf("%s in %s at %s:%d, entered at %#x, %x: not in the index", d.name, d.in, d.file, d.line, d.entry, want)
	return 0
}

// places compares those that are one register.
func (d *dumpedCopy) places(t *testing.T, arch string, c *inline.Copy, base uint64) (n int) {
	args := c.Args()
	if len(args) != len(d.args) {
		t.Errorf("%s at %#x: %d arguments, not %d", d.name, d.entry, len(args), len(d.args))
		return 0
	}
	for k, a := range d.args {
		if args[k].Name != a.name {
			t.Errorf("%s at %#x: argument %q, not %q", d.name, d.entry, args[k].Name, a.name)
		}
		for at, op := range a.places {
			m := oneRegister.FindStringSubmatch(op)
			if m == nil {
				continue
			}
			r, _ := strconv.Atoi(m[1])
			reg := isa.Reg(r)
			if arch == "amd64" && r < len(dwarfRegs) {
				reg = dwarfRegs[r]
			}
			n++
			for o := at[0]; o < at[1]; o++ { // in the copy's own code
				off := isa.Off(o - base)
				inside := slices.ContainsFunc(c.Ranges(), func(r inline.Range) bool { return r.Holds(off) })
				said := slices.ContainsFunc(args[k].Where, func(p inline.Place) bool {
					return p.Holds(off) && p.Kind == inline.Register && p.Reg == reg
				})
				if said != inside {
					t.Errorf("%s at %#x: %s is in %s at %#x: %v", d.name, d.entry, a.name, op, o, args[k].Where)
					break
				}
			}
		}
	}
	return n
}
