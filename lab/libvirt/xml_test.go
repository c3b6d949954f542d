package libvirt

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kerninst/lab/qemu"
	"kerninst/lab/vm"
)

var update = flag.Bool("update", false, "write the golden files anew")

func spec(arch string, t vm.Time) vm.Spec {
	s := vm.Spec{
		Arch: arch, Kernel: "/images/kernel", Initrd: "/images/initrd",
		CPUs: 1, MemMiB: 512, Time: t, Seed: 42, Dir: "/run/r1",
	}
	if t == vm.Host {
		s.CPUs = 2
	}
	if arch == "riscv64" {
		s.Firmware = "/images/firmware"
	}
	return s
}

func describe(t *testing.T, s vm.Spec) string {
	t.Helper()
	p, err := qemu.PartsOf(s, qemu.Version{Binary: "/usr/bin/qemu", Machine: "board", Major: 9}, qemu.RunFiles{Root: s.Dir}.At)
	if err != nil {
		t.Fatal(err)
	}
	out, err := domainXML("kerninst-test", s, p, nil, filepath.Join(s.Dir, pidFile))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s\n(go test -update writes it anew)", path, got, want)
	}
}

func TestXMLGolden(t *testing.T) {
	for _, arch := range qemu.Arches() {
		for _, mode := range []vm.Time{vm.Exact, vm.Host} {
			golden(t, fmt.Sprintf("%s.%s.xml", arch, mode), describe(t, spec(arch, mode)))
		}
	}
	s := spec("arm64", vm.Exact)
	s.Mailbox = true
	golden(t, "mailbox.xml", describe(t, s))
}

// What comes from outside is escaped for XML, and once more for QEMU.
func TestXMLEscapes(t *testing.T) {
	s := spec("amd64", vm.Exact)
	s.Append = `a="<&>"`
	s.Dir = "/run/a,b"
	s.Plugins = []vm.Plugin{{Object: "/p/a.so", Out: "x"}}
	golden(t, "escapes.xml", describe(t, s))
}

// What a guest can see of its machine is said in the words of the local one:
// every argument is among Argv's, but for where files lie.
func TestSameMachineAsLocal(t *testing.T) {
	for _, arch := range qemu.Arches() {
		s := spec(arch, vm.Exact)
		s.Dir = ""
		p, err := qemu.PartsOf(s, qemu.Version{}, qemu.RunFiles{Root: s.Dir}.At)
		if err != nil {
			t.Fatal(err)
		}
		argv, err := qemu.Argv(s, qemu.Version{})
		if err != nil {
			t.Fatal(err)
		}
		local := "\n" + strings.Join(argv, "\n") + "\n"
		for _, a := range append(p.Args, p.Machine, p.Cmdline) {
			if !strings.Contains(local, "\n"+a+"\n") {
				t.Errorf("%s: %q is not said to a local machine", arch, a)
			}
		}
	}
}

// CPUs that would run in parallel and must not, of which a guest can die, count
// instructions and take turns.
func TestTurns(t *testing.T) {
	for _, tt := range []struct {
		cpus, major int
		turns       bool
	}{{2, 7, true}, {1, 7, false}, {2, 9, false}} {
		s := spec("amd64", vm.Host)
		s.CPUs = tt.cpus
		p, err := qemu.PartsOf(s, qemu.Version{Major: tt.major}, qemu.RunFiles{Root: s.Dir}.At)
		if err != nil {
			t.Fatal(err)
		}
		out, err := domainXML("n", s, p, nil, "/run/pid")
		if err != nil || strings.Contains(string(out), "-icount") != tt.turns {
			t.Errorf("%+v: %s, %v", tt, out, err)
		}
	}
}

// A system's libvirtd is told to run QEMU as us; a session's has nothing to be
// told.
func TestOwnLabels(t *testing.T) {
	us := label{"static", "dac", "no", "+1000:+100"}
	for _, tt := range []struct {
		driver, model string
		want          []label
	}{
		{systemDriver, "dac", []label{us}},
		{systemDriver, "apparmor", []label{us, {Type: "none", Model: "apparmor"}}},
		{"qemu:///session", "none", nil},
	} {
		if got := ownLabels(tt.driver, tt.model, 1000, 100); !slices.Equal(got, tt.want) {
			t.Errorf("%s, %s: %+v, want %+v", tt.driver, tt.model, got, tt.want)
		}
	}
}

func TestOverridesHaveReasons(t *testing.T) {
	for _, o := range overrides(vm.Spec{}) {
		if o.why == "" {
			t.Errorf("%q has no reason", o.args)
		}
	}
}
