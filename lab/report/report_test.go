package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"kerninst/lab/status"
)

var (
	update = flag.Bool("update", false, "rewrite the golden files")
	sample = flag.String("sample", "", "write the sample run into this folder, to look at")
)

func ptr[T any](v T) *T { return &v }

// isaSample is what a run on one ISA may look like. Made up.
type isaSample struct {
	arch, qemu          string
	bare, splice, probe float64
	point               Point
}

var isaSamples = []isaSample{
	{"amd64", "7.2.22", 356.25, 3, 527, Point{
		Spec: "kinst::__x64_sys_getppid:0x1d", Symbol: "__x64_sys_getppid", Offset: "0x1d",
		Address: "0xffffffff8a2c1b3d", Mechanism: "pun",
		Old: "4801d0", New: "e9be44", PatchAddress: "0xffffffffbf376000",
		Patch:     "48ff05f91f00004801d0e931bbf4ca",
		Displaced: []string{"add %rdx,%rax"}, Added: 3, Cell: "shared", Count: ptr(uint64(20000)),
	}},
	{"arm64", "7.2.22", 477.6, 5, 518, Point{
		Spec: "kinst::__arm64_sys_getppid:0x18", Symbol: "__arm64_sys_getppid", Offset: "0x18",
		Address: "0xffffa5c0d8a1b2c8", Mechanism: "jump",
		Old: "60aa42f9", New: "4ed3fe17", PatchAddress: "0xffffa5c0d89d0000",
		Patch:     "10000010310080d21f0231f860aa42f9af2c0114",
		Displaced: []string{"ldr x0, [x19, #1360]"}, Added: 5, Cell: "shared", Count: ptr(uint64(20000)),
	}},
	{"riscv64", "7.2.22", 463, 7, 793, Point{
		Spec: "kinst::__riscv_sys_getppid:0x14", Symbol: "__riscv_sys_getppid", Offset: "0x14",
		Address: "0xffffffff80039d2c", Mechanism: "quiesced",
		Old: "83370500138685020505", New: "97021601678002000505", PatchAddress: "0xffffffff81199d2c",
		Patch:     "9702000013031000afb26200833705001386850297e2e9fe67808200",
		Displaced: []string{"ld a5, 0(a0)", "addi a2, a1, 40", "addi a0, a0, 1"}, Added: 7, Cell: "shared", Count: ptr(uint64(20000)),
	}},
}

func results(s isaSample) Results {
	insns := func(v float64, unit string) Metric { return Metric{Value: v, Unit: unit, Better: Lower} }
	count := func(v float64) Metric { return Metric{Value: v, Unit: "count"} }
	same := func(what, n string) Check { return Check{What: what, Got: n, Want: n, OK: true} }
	spread := insns(s.bare+s.splice, "insns/op")
	spread.Lo, spread.Hi, spread.N = ptr(s.bare+s.splice), ptr(s.bare+s.splice+0.5), 3
	return Results{
		Schema: Schema, Arch: s.arch, Kernel: "6.12.107+deb13-" + s.arch, QEMU: s.qemu,
		Time: "exact", Seed: 42, Status: status.Passed,
		Scenarios: []Scenario{
			{Name: "boot", Status: status.Passed, Metrics: map[string]Metric{
				"boot_instructions": insns(1205469933, "insns"),
			}, Checks: []Check{same("kernel release", "6.12.107+deb13-"+s.arch)}},
			{Name: "count", Status: status.Passed, Metrics: map[string]Metric{
				"null.counter": count(20000), "null.workload": count(20000), "null.oracle": count(20000),
				"null-2cpu.counter": count(40000), "null-2cpu.workload": count(40000), "null-2cpu.oracle": count(40000),
				"read.counter": count(20000), "read.workload": count(20000), "read.oracle": count(20000),
			}, Checks: []Check{same("null: counter against oracle", "20000"), same("text after undo", "0 differing bytes")},
				Points: []Point{s.point}},
			{Name: "cost", Status: status.Passed, Metrics: map[string]Metric{
				"bare.insns_per_op":    insns(s.bare, "insns/op"),
				"splice.insns_per_op":  spread,
				"splice.insns_per_hit": insns(s.splice, "insns/hit"),
				"kprobe.insns_per_op":  insns(s.bare+s.probe, "insns/op"),
				"kprobe.insns_per_hit": insns(s.probe, "insns/hit"),
			}},
		},
	}
}

var (
	manifest = Manifest(`{"schema":1,"seed":42,"sha256":{"kernel":"0xaa","initrd":"0xbb"}}`)
	timings  = Timings{Seconds: map[string]float64{"prepare": 4.13, "total": 9.82, "guest/count.null": 1}, Host: map[string]string{"cpus": "2"}}
)

// crash makes a run of which the guest died in the scenario count, and cost
// never ran.
func crash(r *Results) {
	r.Status = status.Crashed
	r.Scenarios = r.Scenarios[:2]
	s := &r.Scenarios[1]
	s.Status, s.Metrics = status.Crashed, nil
	s.Checks[1] = Check{What: "text after undo", Got: "2 differing bytes at 0xffffa5c0d8a1b2c8", Want: "0 differing bytes"}
	refused := Point{Spec: "kinst::do_exit:0x4", Symbol: "do_exit", Offset: "0x4", Address: "0xffffa5c0d8a1b000",
		Refusal: &Refusal{"target in window", "vfs_read.cold+0x12 jumps to do_exit+0x8"}}
	s.Points = append(s.Points, refused)
	s.Failure = &Failure{
		Kind: "oops", Summary: "Unable to handle kernel paging request at virtual address 0000000000001000",
		Console: []string{
			"[    3.141592] Unable to handle kernel paging request at virtual address 0000000000001000",
			"[    3.141600] Internal error: Oops: 0000000096000004 [#1] SMP",
			"[    3.141610] comm: \x1b[31m<script>alert(1)</script>\x1b[0m\x07 & \u202Eevil",
			"[    3.141620] pc : __arm64_sys_getppid+0x1c/0x40",
			"",
			"[    3.141630] ---[ end trace 0000000000000000 ]---",
			"[    3.141640] Kernel panic - not syncing: Oops: Fatal exception",
		},
		Rerun: "bin/lab run --arch arm64 --scenario count --time exact --seed 42",
	}
}

// writeSample makes the output of a run on three ISAs; broken: arm64 crashed.
func writeSample(t *testing.T, out string, broken bool) {
	t.Helper()
	for _, s := range isaSamples {
		r := results(s)
		if broken && s.arch == "arm64" {
			crash(&r)
		}
		dir := filepath.Join(out, s.arch)
		if err := WriteArch(dir, r, manifest, timings); err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{"console.log", "junit.xml", "qemu.argv", "agent.log"} {
			if err := os.WriteFile(filepath.Join(dir, f), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := WriteReport(out); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestGolden(t *testing.T) {
	out := t.TempDir()
	writeSample(t, out, true)
	for _, f := range []string{"arm64/results.json", "amd64/results.json", "amd64/bench.txt", "summary.md"} {
		golden := filepath.Join("testdata", strings.ReplaceAll(f, "/", "-"))
		got := read(t, out, f)
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want := read(t, golden); got != want {
			t.Errorf("%s differs from %s (-update rewrites it); got\n%s", f, golden, got)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	for _, s := range isaSamples {
		dir := filepath.Join(t.TempDir(), s.arch)
		want := results(s)
		if err := WriteArch(dir, want, manifest, timings); err != nil {
			t.Fatal(err)
		}
		got, err := ReadArch(dir)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got.Results, want) {
			t.Errorf("%s: got %+v\nwant %+v", s.arch, got.Results, want)
		}
		var m map[string]any
		if err := json.Unmarshal(got.Manifest, &m); err != nil || m["seed"] != 42.0 {
			t.Errorf("%s: manifest %s, %v", s.arch, got.Manifest, err)
		}
		if got.Timings.Schema != Schema || !reflect.DeepEqual(got.Timings.Seconds, timings.Seconds) {
			t.Errorf("%s: timings %+v", s.arch, got.Timings)
		}
	}
}

// A report is made again from its own files without changing a byte, and
// WriteArch does not change what it is given.
func TestDeterministic(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	writeSample(t, a, true)
	writeSample(t, b, true)
	again := map[string]string{}
	for _, f := range []string{HTMLFile, SummaryFile, "arm64/results.json", "arm64/bench.txt"} {
		again[f] = read(t, a, f)
		if again[f] != read(t, b, f) {
			t.Errorf("%s: two renderings of one run differ", f)
		}
	}
	if err := WriteReport(a); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{HTMLFile, SummaryFile} {
		if again[f] != read(t, a, f) {
			t.Errorf("%s: differs when made again", f)
		}
	}
	r := results(isaSamples[1])
	crash(&r)
	before, _ := json.Marshal(r)
	if err := WriteArch(filepath.Join(a, "arm64"), r, manifest, timings); err != nil {
		t.Fatal(err)
	}
	if after, _ := json.Marshal(r); !bytes.Equal(before, after) {
		t.Error("WriteArch changed its argument")
	}
	left, _ := filepath.Glob(filepath.Join(a, "*", ".*"))
	if len(left) > 0 {
		t.Errorf("temporary files left: %v", left)
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(*Results)
		want  string
	}{
		{"good", func(r *Results) {}, ""},
		{"arch", func(r *Results) { r.Arch = "sparc64" }, "arch"},
		{"time", func(r *Results) { r.Time = "fast" }, "time"},
		{"status", func(r *Results) { r.Status = "fine" }, "status"},
		{"skipped", func(r *Results) { r.Scenarios[0].Status = status.Skipped }, "without a reason"},
		{"name", func(r *Results) { r.Scenarios[0].Name = "a b" }, "name"},
		{"twice", func(r *Results) { r.Scenarios[0].Name = "cost" }, "twice"},
		{"NaN", func(r *Results) { r.Scenarios[0].Metrics["x"] = Metric{Value: math.NaN()} }, "finite"},
		{"Inf", func(r *Results) { r.Scenarios[0].Metrics["x"] = Metric{Hi: ptr(math.Inf(1))} }, "finite"},
		{"metric name", func(r *Results) { r.Scenarios[0].Metrics["x y"] = Metric{} }, "name"},
		{"sample", func(r *Results) { r.Scenarios[0].Metrics["x"] = Metric{Samples: []float64{1, math.NaN()}} }, "finite"},
		{"confidence", func(r *Results) { r.Scenarios[0].Metrics["x"] = Metric{Confidence: 95} }, "0 to 1"},
		{"unit", func(r *Results) { r.Scenarios[0].Metrics["x"] = Metric{Unit: "a\nb"} }, "unit"},
		{"order", func(r *Results) { r.Scenarios[0].Metrics["x"] = Metric{Order: -1} }, "order"},
		{"better", func(r *Results) { r.Scenarios[0].Metrics["x"] = Metric{Better: "more"} }, "better"},
		{"address", func(r *Results) { r.Scenarios[1].Points[0].Address = "12" }, "address"},
		{"hex", func(r *Results) { r.Scenarios[1].Points[0].Old = "0xe9" }, "old"},
		{"no fate", func(r *Results) { r.Scenarios[1].Points[0].Mechanism = "" }, ""},
		{"two fates", func(r *Results) { r.Scenarios[1].Points[0].Refusal = &Refusal{} }, "refusal"},
		{"grid", func(r *Results) { r.Scenarios[0].Grid = sampleGrid() }, ""},
		{"cells", func(r *Results) { r.Scenarios[0].Grid = sampleGrid(); r.Scenarios[0].Grid.Columns = []string{"a"} }, "2 cells for 1 columns"},
		{"no fate of a cell", func(r *Results) {
			r.Scenarios[0].Grid = sampleGrid()
			r.Scenarios[0].Grid.Lines[1].Cells[1].Why = ""
		}, "why there is none"},
		{"NaN in a cell", func(r *Results) {
			r.Scenarios[0].Grid = sampleGrid()
			r.Scenarios[0].Grid.Lines[0].Cells[0].Value = ptr(math.NaN())
		}, "finite"},
		{"wide grid", func(r *Results) { r.Scenarios[0].Grid = &Grid{Columns: make([]string, maxGrid+1)} }, "are enough"},
		{"long patch", func(r *Results) { r.Scenarios[1].Points[0].Patch = strings.Repeat("90", maxCode+1) }, "more than"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := results(isaSamples[0])
			tt.spoil(&r)
			dir := filepath.Join(t.TempDir(), "amd64")
			err := WriteArch(dir, r, manifest, timings)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Fatalf("got %v, want an error about %q", err, tt.want)
			}
			if _, statErr := os.Stat(dir); err != nil && statErr == nil {
				t.Error("something was written all the same")
			}
		})
	}
}

func TestValidateSchema(t *testing.T) {
	r := results(isaSamples[0])
	r.Schema = 2
	if err := r.Validate(); err == nil {
		t.Error("schema 2 is valid")
	}
}

func TestReadRefuses(t *testing.T) {
	good := `{"schema":1,"arch":"amd64","time":"exact","status":"passed","later":"key","scenarios":[]}`
	for _, tt := range []struct{ name, results, manifest, want string }{
		{"good, with a key to come", good, `{"schema":1}`, ""},
		{"schema", `{"schema":2}`, `{"schema":1}`, "schema 2 is unknown here"},
		{"no schema", `{}`, `{"schema":1}`, `no key "schema"`},
		{"not JSON", `passed`, `{"schema":1}`, "invalid character"},
		{"more behind", good + "{}", `{"schema":1}`, "after top-level value"},
		{"type", `{"schema":1,"seed":"42"}`, `{"schema":1}`, "seed"},
		{"value", strings.Replace(good, "passed", "fine", 1), `{"schema":1}`, "status"},
		{"manifest", good, `{"schema":3}`, "schema 3 is unknown here"},
		{"manifest is a list", good, `[]`, "cannot unmarshal"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, data := range map[string]string{
				ResultsFile: tt.results, ManifestFile: tt.manifest, TimingsFile: `{"schema":1}`,
			} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			_, err := ReadArch(dir)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Fatalf("got %v, want an error about %q", err, tt.want)
			}
		})
	}
}

// Go benchmark lines, as golang.org/x/perf/benchfmt reads them.
var (
	benchKey  = regexp.MustCompile(`^([a-z][^\sA-Z:]*): (.+)$`)
	benchLine = regexp.MustCompile(`^Benchmark(\S+) (\d+) (\S+) (\S+)$`)
	benchMeta = regexp.MustCompile(`^Unit (\S+)((?: [a-z]+=\S+)+)$`)
)

func parseBench(t *testing.T, text string) (keys, values, units map[string]string) {
	t.Helper()
	keys, values, units = map[string]string{}, map[string]string{}, map[string]string{}
	for _, l := range strings.Split(strings.TrimSpace(text), "\n") {
		if m := benchMeta.FindStringSubmatch(l); m != nil {
			units[m[1]] = strings.TrimSpace(m[2])
		} else if m := benchLine.FindStringSubmatch(l); m != nil {
			if _, err := strconv.ParseFloat(m[3], 64); err != nil {
				t.Errorf("%q: %v", l, err)
			}
			if _, ok := units[m[4]]; !ok {
				t.Errorf("%q: its unit was not declared before", l)
			}
			values[m[1]] = m[3] + " " + m[4]
		} else if m := benchKey.FindStringSubmatch(l); m != nil {
			keys[m[1]] = m[2]
		} else if l != "" {
			t.Errorf("%q is no line of the format", l)
		}
	}
	return
}

func TestBench(t *testing.T) {
	r := results(isaSamples[0])
	r.Scenarios[0].Metrics["a-2.b/c%"] = Metric{Value: 0.5, Unit: "insns/op", Better: Higher}
	keys, values, units := parseBench(t, string(Bench(&r)))
	for k, want := range map[string]string{"kernel": "6.12.107+deb13-amd64", "qemu": "7.2.22", "seed": "42", "arch": "amd64", "time": "exact"} {
		if keys[k] != want {
			t.Errorf("key %s: got %q, want %q", k, keys[k], want)
		}
	}
	for k, want := range map[string]string{
		"Cost/splice/insns_per_hit": "3 insns/hit",
		"Cost/kprobe/insns_per_hit": "527 insns/hit",
		"Count/null-2cpu/counter":   "40000 count",
		"Boot/a_2/b_c_":             "0.5 insns/op", // -2 at the end is GOMAXPROCS
	} {
		if values[k] != want {
			t.Errorf("%s: got %q, want %q", k, values[k], want)
		}
	}
	for k, want := range map[string]string{
		"insns/hit": "assume=exact better=lower",
		"insns/op":  "assume=exact", // two directions: none
		"count":     "assume=exact",
	} {
		if units[k] != want {
			t.Errorf("unit %s: got %q, want %q", k, units[k], want)
		}
	}
	m := Metric{Value: 3, Unit: "ratio", N: 2, Samples: []float64{2, 4}}
	r.Scenarios = []Scenario{{Name: "ab", Metrics: map[string]Metric{"b_over_a": m}}}
	r.Time = "host"
	if text := string(Bench(&r)); !strings.Contains(text, "BenchmarkAb/b_over_a 1 2 ratio\nBenchmarkAb/b_over_a 1 4 ratio\n") {
		t.Errorf("not a line for each sample:\n%s", text)
	}
	if strings.Contains(string(Bench(&r)), "assume=exact") {
		t.Error("host time is not exact")
	}
}

// Ratios are drawn where they have an interval, and on one scale.
func TestRatios(t *testing.T) {
	out := t.TempDir()
	for _, arch := range []string{"amd64", "arm64"} {
		r := results(isaSamples[0])
		r.Arch, r.Time = arch, "host"
		r.Scenarios = []Scenario{{Name: "ab", Status: status.Passed, Metrics: map[string]Metric{
			"b_over_a": {Value: 3, Unit: "ratio", Lo: ptr(2.5), Hi: ptr(4.0), N: 6, Confidence: 0.96875, Samples: []float64{2.5, 3, 4}},
			"no_range": {Value: 7, Unit: "ratio"},
		}}}
		if err := WriteArch(filepath.Join(out, arch), r, manifest, timings); err != nil {
			t.Fatal(err)
		}
	}
	if err := WriteReport(out); err != nil {
		t.Fatal(err)
	}
	page := read(t, out, HTMLFile)
	for text, want := range map[string]int{
		`aria-label="amd64: ratios of host time"`: 1, `aria-label="arm64: ratios of host time"`: 1,
		"96.9 %": 2, "2.5 – 4": 2, "b_over_a 3 [2.5, 4]": 2, "no_range": 1, // in the list of all figures
	} {
		if n := strings.Count(page, text); n != want {
			t.Errorf("%q stands there %d times, want %d", text, n, want)
		}
	}
	svgs := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(page, -1)
	strip := func(s string) string { return s[strings.Index(s, "</title>"):] } // its name
	if len(svgs) != 2 || strip(svgs[0]) != strip(svgs[1]) || !strings.Contains(svgs[0], "var(--ours)") {
		t.Errorf("%d drawings, or they differ", len(svgs))
	}
}

func TestClean(t *testing.T) {
	long := strings.Repeat("é", maxText)
	for _, tt := range []struct{ in, want string }{
		{"plain\ttext\n", "plain\ttext\n"},
		{"\x1b[1;31mred\x1b[0m", "red"},
		{"\x1b]0;title\x07x", "x"},
		{"a\x00b\x7fc\u0085d\r", "abcd"},
		{"\u202Ereversed\u2069\u200B", "reversed"},
		{"\xff", "\uFFFD"},
		{long, long[:maxText] + "…"},
	} {
		if got := Clean(tt.in); got != tt.want {
			t.Errorf("Clean(%.20q) = %.40q, want %.40q", tt.in, got, tt.want)
		}
		if got := Clean(Clean(tt.in)); got != tt.want {
			t.Errorf("Clean twice of %.20q changes it", tt.in)
		}
	}
}

func TestConsoleBound(t *testing.T) {
	f := &Failure{Console: make([]string, maxConsole+50)}
	f.bound()
	if len(f.Console) != maxConsole || !strings.HasPrefix(f.Console[0], "(51 earlier") {
		t.Errorf("%d lines, first %q", len(f.Console), f.Console[0])
	}
	f.bound()
	if !strings.HasPrefix(f.Console[0], "(51 earlier") {
		t.Errorf("twice: first %q", f.Console[0])
	}
}

func TestHostileGuest(t *testing.T) {
	out := t.TempDir()
	writeSample(t, out, true)
	page, md := read(t, out, HTMLFile), read(t, out, SummaryFile)
	for name, text := range map[string]string{HTMLFile: page, SummaryFile: md} {
		if strings.Contains(text, "<script") || !strings.Contains(text, "&lt;script&gt;alert(1)&lt;/script&gt; &amp; evil") {
			t.Errorf("%s: the console's script is not escaped", name)
		}
	}
	for name, text := range map[string]string{HTMLFile: page, SummaryFile: md, "results": read(t, out, "arm64", ResultsFile)} {
		if i := strings.IndexFunc(text, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == '\u202E' }); i >= 0 {
			t.Errorf("%s: control character %q", name, text[i])
		}
	}
	if got := md1("a|b\n<img src=x> [x](y) `c` http://e.x"); got != "a\\|b \\<img src=x\\> \\[x\\]\\(y\\) \\`c\\` http\\://e.x" {
		t.Errorf("Markdown: %s", got)
	}
}

var md1 = md

// The page must work without a network and without scripts.
func TestSelfContained(t *testing.T) {
	out := t.TempDir()
	writeSample(t, out, false)
	page := read(t, out, HTMLFile)
	for _, bad := range []string{"://", "<script", "url(", "@import", " src=", "font-family:Liberation"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	svgs := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(page, -1)
	if len(svgs) != len(isaSamples) {
		t.Fatalf("%d charts, want one per ISA", len(svgs))
	}
	for i, svg := range svgs {
		for _, v := range []float64{isaSamples[i].splice, isaSamples[i].probe} {
			if !strings.Contains(svg, ">"+number(v)+"</text>") {
				t.Errorf("%s: no bar labelled %v", isaSamples[i].arch, v)
			}
		}
		if m := regexp.MustCompile(`#[0-9A-F]{6}`).FindString(svg); m != "" {
			t.Errorf("%s: fixed colour %s", isaSamples[i].arch, m)
		}
		if !strings.Contains(svg, "var(--ours)") || !strings.Contains(svg, "var(--peer)") {
			t.Errorf("%s: bars without their colours", isaSamples[i].arch)
		}
	}
	for _, m := range regexp.MustCompile(`href="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if h := m[1]; h == "data:," {
			continue
		} else if id, ok := strings.CutPrefix(h, "#"); ok {
			if !strings.Contains(page, `id="`+id+`"`) {
				t.Errorf("link to %s leads nowhere", h)
			}
		} else if _, err := os.Stat(filepath.Join(out, h)); err != nil {
			t.Errorf("link: %v", err)
		}
	}
}

func TestCrashedAndMissing(t *testing.T) {
	out := t.TempDir()
	writeSample(t, out, true)
	page, md := read(t, out, HTMLFile), read(t, out, SummaryFile)
	for _, want := range []string{
		`href="#failure-arm64-count"`, `id="failure-arm64-count"`, "✗ guest crashed", "· not run",
		"Kernel panic - not syncing", "bin/lab run --arch arm64 --scenario count", "No figures: guest crashed",
		"target in window", "2 differing bytes at", "176 times as many",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%s lacks %q", HTMLFile, want)
		}
	}
	if !strings.HasPrefix(md, "## ✗ Lab run: guest crashed") || !strings.Contains(md, "| cost | ✓ passed<br>splice 3 · kprobe 527 | · not run |") {
		t.Errorf("summary:\n%s", md)
	}
}

func TestListing(t *testing.T) {
	text := func(ls []line) string {
		var b strings.Builder
		for _, l := range ls {
			b.WriteString(l.Offset + " " + l.Bytes + " " + l.Text + "\n")
		}
		return b.String()
	}
	for i, want := range []string{
		"+00 e9 be 44 jmp patch (tail shared)\n",
		"+00 17fed34e b patch\n",
		"+00 01160297 auipc x5,0x1160\n+04 00028067 jr x5\n+08 05 05 (never reached)\n",
	} {
		s := isaSamples[i]
		if got := text(listing(s.arch, &s.point).After); got != want {
			t.Errorf("%s: after:\n%swant\n%s", s.arch, got, want)
		}
	}
	for i, want := range []string{"jmp point+0x3", "b point+0x4"} {
		s := isaSamples[i]
		ls := listing(s.arch, &s.point).Patch
		if got := ls[len(ls)-1].Text; got != want {
			t.Errorf("%s: way back %q, want %q", s.arch, got, want)
		}
	}
	s := isaSamples[1].point
	s.AnnexAddress, s.Annex = "0xffffa5c011110040", "220840f8"
	if ls := listing("arm64", &s).Patch; ls[len(ls)-1].Text != "ldtr x2, [x1]" || ls[len(ls)-1].Offset != "+00" {
		t.Errorf("the second part of a patch is listed as %+v", ls[len(ls)-1])
	}
	// Whatever the bytes are, all of them are listed.
	for _, arch := range Arches {
		for n := range 20 {
			for fill := range 256 {
				p := Point{Mechanism: "jump", Address: "0x1000", Old: strings.Repeat(string("0123456789abcdef"[fill>>4])+string("0123456789abcdef"[fill&15]), n)}
				digits := 0
				for _, l := range listing(arch, &p).Before {
					digits += len(strings.ReplaceAll(l.Bytes, " ", ""))
				}
				if digits != 2*n {
					t.Fatalf("%s: %d bytes of %#x: %d digits listed", arch, n, fill, digits)
				}
			}
		}
	}
}

// A run that was killed leaves a folder without results: it is shown, as the
// lab's own failure, with the end of its console.
func TestUnfinished(t *testing.T) {
	out := t.TempDir()
	writeSample(t, out, false)
	dir := filepath.Join(out, "riscv64")
	os.Remove(filepath.Join(dir, ResultsFile))
	os.WriteFile(filepath.Join(dir, "console.log"), []byte("OpenSBI\n\x1b[0mlast words\n"), 0o644)
	if err := WriteReport(out); err != nil {
		t.Fatal(err)
	}
	page := read(t, out, HTMLFile)
	for _, want := range []string{"! lab failed", "ended before it wrote results.json", "OpenSBI\nlast words", "--time exact --seed 42"} {
		if !strings.Contains(page, want) {
			t.Errorf("%s lacks %q", HTMLFile, want)
		}
	}
}

// Who may read the files is up to the umask, as with every program.
func TestUmask(t *testing.T) {
	for _, mask := range []int{0o022, 0o027, 0o077} {
		func() {
			out := t.TempDir()
			defer syscall.Umask(syscall.Umask(mask)) // the tests of this package run one by one
			writeSample(t, out, false)
			if err := WriteReport(out); err != nil {
				t.Fatal(err)
			}
			err := filepath.WalkDir(out, func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				st, err := d.Info()
				if err == nil && st.Mode().Perm() != 0o666&^fs.FileMode(mask) {
					t.Errorf("umask %03o: %s is %v", mask, path, st.Mode())
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}()
	}
}

// What scenarios leave lies in a folder of its own, under their names alone.
func TestWriteFiles(t *testing.T) {
	out := t.TempDir()
	if err := WriteFiles(out, nil); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(out, FilesDir)); err == nil {
		t.Error("a folder for nothing")
	}
	if err := WriteFiles(out, map[string][]byte{"a.txt": []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(out, FilesDir, "a.txt")); err != nil || string(b) != "x" {
		t.Errorf("%q, %v", b, err)
	}
	for _, name := range []string{"", "../a", "a/b", ".a", "a\n"} {
		if err := WriteFiles(out, map[string][]byte{name: nil}); err == nil || !strings.Contains(err.Error(), "name is not") {
			t.Errorf("name %q: %v", name, err)
		}
	}
}

func TestWriteReportRefuses(t *testing.T) {
	out := t.TempDir()
	if err := WriteReport(out); err == nil || !strings.Contains(err.Error(), "not the output of a run") {
		t.Errorf("empty folder: %v", err)
	}
	writeSample(t, out, false)
	os.Rename(filepath.Join(out, "amd64"), filepath.Join(out, "x"))
	os.Rename(filepath.Join(out, "arm64"), filepath.Join(out, "amd64"))
	if err := WriteReport(out); err == nil || !strings.Contains(err.Error(), "results of arm64 in the folder of amd64") {
		t.Errorf("swapped folder: %v", err)
	}
}

func TestVerdict(t *testing.T) {
	m := func(v float64) *Metric { return &Metric{Value: v} }
	for _, tt := range []struct {
		t    tally
		want string
	}{
		{tally{"", m(1), m(1), m(1)}, "equal"},
		{tally{"", m(1), m(1), nil}, "2 equal"},
		{tally{"", m(1), nil, nil}, "unconfirmed"},
		{tally{"", m(1), m(2), m(1)}, "differ"},
		{tally{"", m(1), m(1), m(2)}, "differ"},
	} {
		if got := tt.t.Verdict().Words; got != tt.want {
			t.Errorf("%+v: got %s, want %s", tt.t, got, tt.want)
		}
	}
}

func TestNumber(t *testing.T) {
	for _, tt := range []struct {
		in   float64
		want string
	}{
		{0, "0"}, {3, "3"}, {999, "999"}, {1000, "1,000"}, {1205469933, "1,205,469,933"},
		{-1234, "−1,234"}, {356.25, "356.25"}, {0.5, "0.5"}, {12345.6, "12,345.6"}, {-0.25, "−0.25"}, {1e300, "1e+300"},
	} {
		if got := number(tt.in); got != tt.want {
			t.Errorf("number(%v) = %s, want %s", tt.in, got, tt.want)
		}
	}
}

// For our eyes: with -sample DIR the pages stay.
func TestSample(t *testing.T) {
	dir := *sample
	if dir == "" {
		dir = t.TempDir()
	}
	writeSample(t, filepath.Join(dir, "passed"), false)
	writeSample(t, filepath.Join(dir, "crashed"), true)
	writeWorkloads(t, filepath.Join(dir, "workloads"))
}
