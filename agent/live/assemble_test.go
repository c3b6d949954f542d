package live_test

import (
	"bytes"
	"debug/elf"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

var (
	assembled = flag.String("assemble", "", "assemble testdata/NAME.s to NAME.txt")
	binutils  = flag.String("binutils", "riscv64-linux-gnu-", "what the names of GNU as and ld for that begin with, a folder perhaps")
)

// handBase is where programs that are made by hand begin.
const handBase uint64 = 0xffffffff81000000

// TestAssemble makes a program for TestByHand of its source. What is said of an instruction there, behind #?, is a check of the
// place where it begins.
func TestAssemble(t *testing.T) {
	if *assembled == "" {
		t.Log("nothing to assemble")
		return
	}
	src, err := os.ReadFile("testdata/" + *assembled + ".s")
	if err != nil {
		t.Fatal(err)
	}
	marked, checks := marks(string(src))
	obj := t.TempDir() + "/hand"
	tool := func(name string, args ...string) {
		cmd := exec.Command(*binutils+name, args...)
		cmd.Stdin = strings.NewReader(marked)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
	}
	tool("as", "-mno-relax", "-o", obj+".o")
	tool("ld", fmt.Sprintf("-Ttext=%#x", handBase), "-e", "0", "-o", obj, obj+".o")
	text, err := listed(obj, checks)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("testdata/"+*assembled+".txt", []byte("# Made by hand, assembled with GNU as from "+*assembled+".s beside this.\n"+text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// marks gives each check a label.
func marks(src string) (marked string, checks []string) {
	var out strings.Builder
	for line := range strings.Lines(src) {
		code, says, ok := strings.Cut(strings.TrimRight(line, "\n"), "#?")
		if ok {
			fmt.Fprintf(&out, "check_%d: ", len(checks))
			checks = append(checks, strings.TrimSpace(says))
		}
		fmt.Fprintln(&out, code)
	}
	return out.String(), checks
}

// listed is the text of a program as loadHand reads it.
func listed(obj string, checks []string) (string, error) {
	f, err := elf.Open(obj)
	if err != nil {
		return "", err
	}
	defer f.Close()
	syms, err := f.Symbols()
	if err != nil {
		return "", err
	}
	code, err := f.Section(".text").Data()
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	at := map[string]uint64{}
	for _, s := range syms {
		switch text := s.Value >= handBase && s.Value <= handBase+uint64(len(code)) && elf.ST_TYPE(s.Info) == elf.STT_NOTYPE; {
		case strings.HasPrefix(s.Name, "check_"):
			at[s.Name] = s.Value
		case text && s.Name != "" && !strings.ContainsAny(s.Name, ".$"):
			fmt.Fprintf(&out, "sym %x t %s\n", s.Value, s.Name)
		}
	}
	for k := 0; k < len(code); k += 16 {
		fmt.Fprintf(&out, "mem %x %x\n", handBase+uint64(k), code[k:min(k+16, len(code))])
	}
	for k, says := range checks {
		fmt.Fprintf(&out, "check %x %s\n", at[fmt.Sprintf("check_%d", k)], says)
	}
	return out.String(), nil
}
