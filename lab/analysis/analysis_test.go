package analysis_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"kerninst/agent/index"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/lab/analysis"
)

// recorded is a dump of the recorded stretches of a stock kernel.
func recorded(t *testing.T, arch string) *ktext.Dump {
	t.Helper()
	k := ktexttest.Load(t, arch)
	d := &ktext.Dump{Arch: arch, Release: "6.12-" + arch, CPUs: 1,
		Parts: k.Text(t).DumpParts([]byte(k.Kallsyms), nil, nil)}
	return written(t, d, k)
}

// written is a dump with the bytes that it names.
func written(t *testing.T, d *ktext.Dump, k *ktexttest.Kernel) *ktext.Dump {
	t.Helper()
	var b bytes.Buffer
	if err := d.Write(&b, k.Read); err != nil {
		t.Fatal(err)
	}
	d, err := ktext.ReadDump(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// indexed is what is known of a kernel, as its daemon opens it.
func indexed(t *testing.T, k *analysis.Kernel) *index.Index {
	t.Helper()
	b, err := k.MakeIndex()
	if err != nil {
		t.Fatal(err)
	}
	x, err := index.Open(b)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func analyse(t *testing.T, arch string) *analysis.Kernel {
	t.Helper()
	k, err := analysis.Analyse(recorded(t, arch))
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Graph.Check(); err != nil {
		t.Error(err)
	}
	if err := k.Live.Check(); err != nil {
		t.Error(err)
	}
	return k
}

// TestKeys holds the contract of the document.
func TestKeys(t *testing.T) {
	k := analyse(t, "arm64")
	k.Average()
	b, err := json.Marshal(k.Totals)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"schema", "arch", "kernel", "modules", "functions", "blocks", "instructions", "bytes",
		"undecoded", "jump_tables", "unanalysable_jumps", "seconds", "average_free_registers"} {
		if _, ok := doc[key]; !ok {
			t.Errorf("no %q in %s", key, b)
		}
	}
	seconds, _ := doc["seconds"].(map[string]any)
	for _, key := range []string{"symbols", "cfg", "live", "total", "cached"} {
		if _, ok := seconds[key]; !ok {
			t.Errorf("no seconds.%s in %s", key, b)
		}
	}
	if k.Totals.FreeRegisters <= 0 || k.Totals.Functions < 10 {
		t.Errorf("%+v", k.Totals)
	}
}

func TestTable(t *testing.T) {
	var out strings.Builder
	if err := analysis.Table(&out, []analysis.Totals{{Kernel: "6.12-x", Blocks: 1234567}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"107,976", "1,234,567", "15.5 s", "6.12-x"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestFunction(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		k := analyse(t, arch)
		f, err := k.Function("ksys_read")
		if err != nil {
			t.Fatal(err)
		}
		var list, dot strings.Builder
		if err := k.Listing(&list, f); err != nil {
			t.Fatal(err)
		}
		if err := k.Dot(&dot, f); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"block +0x0 (entry", "free ", "return"} {
			if !strings.Contains(list.String(), want) {
				t.Errorf("%s: no %q in\n%s", arch, want, list.String())
			}
		}
		if strings.Count(dot.String(), "->") < 5 || !strings.HasSuffix(dot.String(), "}\n") {
			t.Errorf("%s:\n%s", arch, dot.String())
		}
		if _, err := k.Function("no_such"); err == nil {
			t.Errorf("%s: found what is not there", arch)
		}
	}
}

// Of functions that share a name, each can be chosen, and none is without.
func TestFunctionsOfOneName(t *testing.T) {
	d := recorded(t, "arm64")
	for i, p := range d.Parts {
		if p.Name == "kallsyms" {
			d.Parts[i].Data = bytes.Replace(p.Data, []byte(" vfs_read\n"), []byte(" ksys_read\n"), 1)
			d.Parts[i].Size = len(d.Parts[i].Data)
		}
	}
	once := analyse(t, "arm64")
	k, err := analysis.Analyse(d)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"ksys_read": "2 functions of the kernel are named ksys_read: choose ksys_read#1 or ksys_read@0x", "ksys_read#0": "ksys_read#0 is none of them: 2 functions", "ksys_read#3": "ksys_read#2 or ",
		"ksys_read#": "is none of them", "ksys_read#x": "is none of them", ":ksys_read": "choose ksys_read#1", "vfs_write#2": "the kernel has one vfs_write", "no_such#1": "no function no_such",
	} {
		if _, err := k.Function(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want …%s…", name, err, want)
		}
	}
	for name, was := range map[string]string{"ksys_read#1": "vfs_read", "ksys_read#2": "ksys_read", "vfs_write#1": "vfs_write"} {
		want, err := once.Function(was)
		if err != nil {
			t.Fatal(err)
		}
		if f, err := k.Function(name); err != nil || f.Addr != want.Addr || !strings.HasPrefix(name, f.Name+"#") {
			t.Errorf("%s: %+v, %v; want what is %+v", name, f, err, want)
		}
	}
}

// TestListingHidesNothing: every byte of a function is in one line of its listing,
// and no other function's is. A symbol may begin in padding.
func TestListingHidesNothing(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		k := analyse(t, arch)
		listed, padded := 0, 0
		k.Text.Functions("", func(f ktext.Func) bool {
			var list strings.Builder
			if _, ok := k.Graph.AtAddr(f.Addr); !ok || strings.HasPrefix(f.Name, "gap") { // between what was recorded
				return true
			}
			if err := k.Listing(&list, f); err != nil {
				t.Fatalf("%s %v: %v", arch, f, err)
			}
			listed++
			at := uint64(0)
			for _, line := range strings.Split(list.String(), "\n") {
				var lo, hi uint64
				if n, _ := fmt.Sscanf(line, "+%v to +%v:", &lo, &hi); n == 2 {
					padded++
				} else if n, _ := fmt.Sscanf(line, "  +%v", &lo); n == 1 {
					p, _ := k.Graph.Pos(f.Addr + isa.Addr(lo))
					hi = lo + uint64(k.Graph.Arch.Decode(k.Graph.Code(p), f.Addr+isa.Addr(lo)).Len)
				} else {
					continue
				}
				if lo != at {
					t.Fatalf("%s %v: %q follows on +%#x in\n%s", arch, f, line, at, list.String())
				}
				at = hi
			}
			if at != uint64(f.Size) {
				t.Errorf("%s %v: listed to +%#x of %#x:\n%s", arch, f, at, f.Size, list.String())
			}
			return true
		})
		if listed < 10 || padded == 0 {
			t.Errorf("%s: %d functions with %d stretches that are no code are too few to tell", arch, listed, padded)
		}
	}
}
