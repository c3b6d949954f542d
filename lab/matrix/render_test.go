package matrix

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2/reporters"

	"kerninst/lab/status"
)

func TestNames(t *testing.T) {
	var got []string
	for _, k := range Kernels([]string{"", "6.12.107", "/home/me/linux", "/opt/linux", "/x/a b", "locked"}) {
		got = append(got, k.Name)
	}
	if want := []string{"locked", "6.12.107", "linux", "linux_2", "a_b", "locked_2"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	names := map[string]bool{}
	cells := Cells(Kernels([]string{"", "7.2"}), []string{"boot", "count"}, []uint64{1, 2, 3}, []string{"arm64", "riscv64"}, func(string, string) Needs { return Needs{CPUs: 1} })
	for _, c := range cells {
		names[c.Name()] = true
	}
	if len(names) != 24 || !names["riscv64-7.2-count-3"] || cells[0].Arch == cells[1].Arch {
		t.Errorf("%d cells of 24, %+v", len(names), cells[:2])
	}
}

func TestMachines(t *testing.T) {
	hosts := []Host{host("a", "m", 4, 4000), host("b", "m", 8, 3000), host("c", "n", 1, 1)}
	got := Machines(hosts, func(h Host) Size { return Size{h.CPUs, h.MemMiB} })
	if got["m"] != (Size{4, 3000}) || got["n"] != (Size{1, 1}) || len(got) != 2 {
		t.Errorf("got %v", got)
	}
}

func TestRanges(t *testing.T) {
	for want, list := range map[string][]uint64{"1": {1}, "1, 2": {2, 1}, "1–3": {3, 1, 2}, "1–3, 5, 7, 8": {1, 2, 3, 5, 7, 8}, "0–2, 9–12": {0, 1, 2, 9, 10, 11, 12}, "": nil} {
		if got := ranges(list); got != want {
			t.Errorf("%v: %q, want %q", list, got, want)
		}
	}
}

// hostile is what a guest might have put into a reason.
const hostile = `<script>alert(1)</script> | **x** ` + "\x1b[31m"

// document has a cell of each kind.
func document() *Document {
	d := &Document{Time: "exact", Hosts: []HostRecord{
		{Name: "a", URI: "qemu:///system", Status: Used, Version: "9.0.0", CPUs: 2, MemMiB: 4000, Arches: []string{"amd64"}, Lacks: map[string]string{"riscv64": "none"}},
		{Name: "b", URI: "local", Status: LostMidway, Reason: "went away"},
	}}
	for k, s := range []status.Status{status.Passed, status.Passed, status.Crashed, status.LabFailed, status.Skipped, status.Passed} {
		c := Record(Cell{Arch: []string{"amd64", "arm64"}[k%2], Kernel: Kernel{"", locked}, Scenario: "boot", Seed: uint64(k / 2), Needs: Needs{1, 768, false}})
		c.Rerun = "bin/lab run --seed " + fmt.Sprint(k/2)
		c.Take(Result{Host: "a", Outcome: Outcome{Status: s, Exit: status.ExitCode(s), Seconds: 1}})
		d.Cells = append(d.Cells, c)
	}
	d.Cells[0].Figures, d.Cells[0].Page = "splice 3", "amd64-locked-boot-0/report.html"
	d.Cells[1].Moved = []Move{{"b", "went away"}}
	d.Cells[2].Reason = hostile
	d.Cells[3].Reason, d.Cells[3].Host = "no such kernel", ""
	d.Cells[4].Reason = "interrupted"
	d.Finish()
	return d
}

// A kernel is called with its release where that says more, and where all cells agree.
func TestKernelWithRelease(t *testing.T) {
	for want, releases := range map[string][2]string{
		"locked (6.12.107+deb13)": {"6.12.107+deb13-amd64", "6.12.107+deb13-arm64"},
		"locked (6.12)":           {"6.12", ""},
		"locked":                  {"6.12.107-amd64", "6.12.95-arm64"},
	} {
		d := document()
		for k := range d.Cells {
			d.Cells[k].Release = releases[k%2]
		}
		if got := d.kernel(locked); got != want {
			t.Errorf("%v: %q, want %q", releases, got, want)
		}
		if text := string(d.Markdown()); !strings.Contains(text, "| "+strings.NewReplacer("(", `\(`, ")", `\)`, "+", `\+`).Replace(want)+" | boot |") {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if got := document().kernel("6.12"); got != "6.12" {
		t.Errorf("got %q", got)
	}
}

func TestFinish(t *testing.T) {
	d := document()
	if d.Exit != status.ExitLabFailed || d.Status != status.LabFailed || d.Hosts[0].Cells != 5 || d.Hosts[1].Cells != 0 {
		t.Errorf("got %+v", d)
	}
	well := &Document{Cells: []CellRecord{{Status: status.Passed, Host: "a"}}, Hosts: []HostRecord{{Name: "a", Status: Used}}}
	if well.Finish(); well.Exit != 0 || well.Status != status.Passed {
		t.Errorf("got %+v", well)
	}
	// A host that is of no use is said by the status, too.
	for _, s := range []HostStatus{LostMidway, Unreachable, Unfit} {
		well.Hosts = []HostRecord{{Name: "a", Status: Used}, {Name: "b", Status: s}}
		if well.Finish(); well.Exit != status.ExitLabFailed || well.Status != status.LabFailed {
			t.Errorf("%s: exit %d, %s", s, well.Exit, well.Status)
		}
	}
}

func TestDecode(t *testing.T) {
	text, err := document().Encode()
	if err != nil {
		t.Fatal(err)
	}
	d, err := Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := d.Encode(); err != nil || !bytes.Equal(again, text) {
		t.Errorf("%v: %s\n%s", err, again, text)
	}
	for _, tt := range []struct{ old, put, want string }{
		{`"schema": 1`, `"schema": 2`, "schema 2 is unknown"},
		{`"passed"`, `"well"`, `unknown status "well"`},
		{`"amd64-locked-boot-0/report.html"`, `"../x"`, "leads out of the folder"},
		{"{", "[", "invalid character"},
	} {
		if _, err := Decode([]byte(strings.Replace(string(text), tt.old, tt.put, 1))); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want …%s…", tt.put, err, tt.want)
		}
	}
}

// What a matrix leaves that was killed is read, too, and its cells have not run.
func TestUnfinished(t *testing.T) {
	d := &Document{Time: "exact", Cells: []CellRecord{Record(some(1, "amd64")[0])}}
	text, err := d.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if d, err = Decode(text); err != nil || d.lead() != "1 cell, 1 not run; 0 hosts; exact time" {
		t.Errorf("%v: %+v", err, d)
	}
}

// Each rendering has every cell, the reasons, the hosts; and what a guest said is text in all of them.
func TestRenderings(t *testing.T) {
	d := document()
	page, err := d.Page()
	if err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	if err := d.Table(&table); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]struct {
		text string
		want []string
	}{
		"page": {string(page), []string{`href="amd64-locked-boot-0/report.html"`, "splice 3", "no such kernel", "moved from b, which was lost: went away", "&lt;script&gt;", "bin/lab run --seed 1", "not riscv64: none", "3 passed", "lab failed"}},
		"Markdown": {string(d.Markdown()), []string{"| locked | boot | ✓ passed: seed 0<br>✗ guest crashed: seed 1<br>– skipped: seed 2<br>splice 3 | ✓ passed: seed 0, 2<br>! lab failed: seed 1 |",
			"| b | lost | 0 | went away |", "```sh\nbin/lab run --seed 1\n```", `\<script\>`, "### ✓ arm64, locked, boot, seed 0: passed"}},
		"table": {table.String(), []string{"amd64  locked  boot  0  passed      a  1.0 s  splice 3", "lab_failed  –", "6 cells, 3 passed, 1 guest crashed, 1 lab failed, 1 skipped, 1 moved from a host that was lost; 2 hosts, 1 lost; exact time"}},
	} {
		for _, w := range r.want {
			if !strings.Contains(r.text, w) {
				t.Errorf("%s: no %q in\n%s", name, w, r.text)
			}
		}
		if strings.Contains(r.text, "\x1b") || name != "table" && strings.Contains(r.text, "<script>alert") {
			t.Errorf("%s: what a guest said is in it as it was:\n%s", name, r.text)
		}
	}
}

func TestPlan(t *testing.T) {
	d := document()
	d.Cells[0].Alone = true
	var b bytes.Buffer
	if err := d.Plan(&b); err != nil {
		t.Fatal(err)
	}
	for _, w := range []string{
		"host a  qemu:///system  used  2 CPUs, 4000 MiB, amd64, libvirt 9.0.0; not riscv64: none",
		"host b  local           lost  went away",
		"cell amd64-locked-boot-0  amd64  locked  boot  seed 0  1 CPU, 768 MiB, alone",
		"cell arm64-locked-boot-1  arm64  locked  boot  seed 1  1 CPU, 768 MiB         no such kernel",
	} {
		if !strings.Contains(b.String(), w) {
			t.Errorf("no %q in\n%s", w, &b)
		}
	}
}

func TestJUnit(t *testing.T) {
	own := reporters.JUnitTestSuites{TestSuites: []reporters.JUnitTestSuite{{Name: "kerninst on amd64", Package: "/somewhere", Tests: 2, Failures: 1, TestCases: []reporters.JUnitTestCase{{Name: "one"}, {Name: "two"}}}}}
	text, err := xml.Marshal(own)
	if err != nil {
		t.Fatal(err)
	}
	d := document()
	out, err := d.JUnit(func(c *CellRecord) []byte {
		if c.Arch == "amd64" {
			return text
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var got reporters.JUnitTestSuites
	if err := xml.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.TestSuites) != 6 || got.Tests != 9 || got.Failures != 3 || got.Errors != 3 {
		t.Errorf("%d suites, %d tests, %d failures, %d errors", len(got.TestSuites), got.Tests, got.Failures, got.Errors)
	}
	for k, s := range got.TestSuites {
		if s.Name != d.Cells[k].Name || s.Package != "" || s.Properties.WithName("seed") != fmt.Sprint(d.Cells[k].Seed) {
			t.Errorf("suite %+v", s)
		}
	}
	if c := got.TestSuites[3].TestCases[0]; c.Error == nil || c.Error.Message != "no such kernel" || c.Classname != d.Cells[3].Name {
		t.Errorf("got %+v", c)
	}
	if got.TestSuites[1].Properties.WithName("moved from") != "b: went away" {
		t.Errorf("got %+v", got.TestSuites[1].Properties)
	}
	if _, err := d.JUnit(func(*CellRecord) []byte { return []byte("<x") }); err == nil || !strings.Contains(err.Error(), d.Cells[0].Name) {
		t.Errorf("got %v", err)
	}
}

// The board shows what waits, runs and is done, and fits where it is drawn.
func TestBoard(t *testing.T) {
	start := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	b := NewBoard(some(9, "amd64", "arm64", "riscv64"), start)
	at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	say := func(e Event, n int, want string) {
		t.Helper()
		if got := b.See(e, at(n)); got != want {
			t.Errorf("said %q, want %q", got, want)
		}
	}
	say(Event{Kind: Begun, Cell: 0, Host: "a"}, 0, "amd64-locked-boot-0: begun on a")
	say(Event{Kind: Begun, Cell: 1, Host: "b"}, 1, "arm64-locked-boot-1: begun on b")
	say(Event{Kind: Ended, Cell: 0, Result: &Result{Host: "a", Outcome: Outcome{Status: status.Crashed, Seconds: 2, Reason: "panic:\nx"}}}, 2, "[1/9] amd64-locked-boot-0: guest crashed on a after 2.0 s: panic: x")
	say(Event{Kind: Begun, Cell: 3, Host: "a"}, 2, "amd64-locked-boot-3: begun on a")
	want := []string{
		"kernel  scenario  amd64  arm64  riscv64",
		"locked  boot      ✗▸·    ▸··    ···",
		"▸ arm64-locked-boot-1 on b, 4 s",
		"▸ amd64-locked-boot-3 on a, 3 s",
		"1 of 9 done, 1 of them not passed, 2 running; 5 s",
	}
	if got := b.Lines(80, 24, at(5)); !slices.Equal(got, want) {
		t.Errorf("drew\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	say(Event{Kind: Lost, Host: "b", Reason: "went"}, 6, "host b is lost: went; its cells are done elsewhere")
	got := b.Lines(80, 24, at(7))
	if got[1] != "locked  boot      ✗▸·    ···    ···" || got[3] != "lost: b" {
		t.Errorf("drew\n%s", strings.Join(got, "\n"))
	}
}

func TestBoardFits(t *testing.T) {
	var kernels []string
	for n := range 40 {
		kernels = append(kernels, fmt.Sprint("6.", n))
	}
	cells := Cells(Kernels(kernels), []string{"boot", "count"}, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}, []string{"amd64"}, func(string, string) Needs { return Needs{} })
	b := NewBoard(cells, time.Time{})
	for k := range 40 {
		b.See(Event{Kind: Begun, Cell: k, Host: "a"}, time.Time{})
	}
	for _, size := range [][2]int{{80, 24}, {20, 5}, {200, 60}, {1, 3}} {
		lines := b.Lines(size[0], size[1], time.Time{})
		if len(lines) > size[1]-1 && size[1] > 3 {
			t.Errorf("%v: %d lines", size, len(lines))
		}
		for _, l := range lines {
			if len([]rune(l)) > size[0] {
				t.Errorf("%v: %q", size, l)
			}
		}
	}
	lines := strings.Join(b.Lines(80, 24, time.Time{}), "\n")
	for _, w := range []string{"13▸", "1▸ 12·", "more running", "more lines", "0 of 1040 done"} {
		if !strings.Contains(lines, w) {
			t.Errorf("no %q in\n%s", w, lines)
		}
	}
	// What is done makes room for what is not.
	for k := range 26 {
		b.See(Event{Kind: Ended, Cell: k, Result: &Result{Outcome: Outcome{Status: status.Passed}}}, time.Time{})
	}
	if first := b.Lines(80, 24, time.Time{})[1]; !strings.HasPrefix(first, "6.1 ") {
		t.Errorf("the first line is %q", first)
	}
}
