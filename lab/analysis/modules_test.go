package analysis_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/lab/analysis"
)

// withModule is a dump of amd64's recorded kernel with a module of two functions, the
// second of which has padding in front, and zeros behind it.
func withModule(t *testing.T) *ktext.Dump {
	t.Helper()
	k := ktexttest.Load(t, "amd64")
	_, hi := k.Text(t).Bounds()
	at := (hi + 64<<20) &^ 4095
	code := make([]byte, 4096)
	copy(code, "\xc3"+strings.Repeat("\xcc", 0x2f)+ // first: ret
		strings.Repeat("\x90", 16)+ // padding
		"\x0f\x1f\x44\x00\x00\x48\x89\xf8\x48\x05\x00\x01\x00\x00\xc3\x90") // f: its site; mov %rdi, %rax; add $256, %rax; ret
	k.Write(at, code)
	k.Kallsyms += fmt.Sprintf("%x t first\t[mod]\n%x t __pfx_f\t[mod]\n%x t f\t[mod]\n", uint64(at), uint64(at+0x30), uint64(at+0x40))
	sections := ktext.Sections(map[string]map[string]isa.Addr{"mod": {".text": at}}, k.Read)
	d := &ktext.Dump{Arch: "amd64", Release: "6.12", CPUs: 1, Parts: k.Text(t).DumpParts([]byte(k.Kallsyms), nil, sections)}
	return written(t, d, k)
}

// TestSurveyModules: what a dump has of modules is surveyed beside the kernel's own text,
// without what fills up behind functions.
func TestSurveyModules(t *testing.T) {
	d := withModule(t)
	k, err := analysis.Analyse(d)
	if err != nil {
		t.Fatal(err)
	}
	x := indexed(t, k)
	var lines bytes.Buffer
	s, err := analysis.NewSurvey(t.Context(), d, x, &lines, nil)
	if err != nil {
		t.Fatal(err)
	}
	var own []string
	for line := range strings.Lines(lines.String()) {
		if c := strings.Split(line, "\t"); strings.HasPrefix(c[1], "mod:") {
			own = append(own, c[1]+" "+c[2])
		}
	}
	want := "[mod:first+0x0 jump mod:f+0x0 reserved mod:f+0x5 springboard mod:f+0x8 jump mod:f+0xe jump]"
	if got := fmt.Sprint(own); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	last := s.Sections[len(s.Sections)-1]
	if !last.Module || last.Name != "mod" || last.Instructions != len(own) || s.Modules.Instructions != len(own) || s.Modules.Reserved != 1 {
		t.Errorf("%+v, all modules %+v", last, s.Modules)
	}
	rooms := map[string]analysis.Room{}
	for _, r := range s.Boards {
		rooms[r.Where] = r
	}
	if r := rooms["padding in front of modules' functions"]; r.Bytes != 16 || r.Pieces != 1 {
		t.Errorf("%+v", s.Boards)
	}
	if r := rooms["padding in front of the kernel's functions"]; r.Pieces == 0 || r.Bytes != uint64(16*r.Pieces) {
		t.Errorf("%+v", s.Boards)
	}
	var out strings.Builder
	if err := s.Print(&out); err != nil || !strings.Contains(out.String(), "module mod") || !strings.Contains(out.String(), "modules, instructions") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
