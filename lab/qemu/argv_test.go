package qemu

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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

// golden compares an argument vector, one argument a line, with a file.
func golden(t *testing.T, name string, argv []string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	got := strings.Join(argv, "\n") + "\n"
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

func TestArgvGolden(t *testing.T) {
	for _, arch := range Arches() {
		for _, mode := range []vm.Time{vm.Exact, vm.Host} {
			s := spec(arch, mode)
			argv, err := Argv(s, Version{})
			if err != nil {
				t.Fatal(err)
			}
			golden(t, fmt.Sprintf("%s.%s.argv", arch, mode), argv)
		}
	}
}

func TestArgvGoldenOptions(t *testing.T) {
	s := spec("amd64", vm.Exact)
	s.Append = "nokaslr  preempt=full -- a b"
	s.Plugins = []vm.Plugin{{Object: "/p/a.so", Out: "x"}, {Object: "/p/b.so", Option: "all=10"}}
	s.Interactive = true
	mail := spec("arm64", vm.Exact)
	mail.Mailbox, mail.State, mail.Mail = true, "/run/r1/state", []byte("mail")
	argv, err := Argv(mail, Version{})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "state.argv", argv)
	v := Version{Binary: "/usr/bin/qemu-system-x86_64", Machine: "pc-q35-7.2"}
	if argv, err = Argv(s, v); err != nil {
		t.Fatal(err)
	}
	golden(t, "options.argv", argv)
}

func TestArgvRefuses(t *testing.T) {
	tests := []struct {
		name string
		edit func(*vm.Spec)
		want string
	}{
		{"arch", func(s *vm.Spec) { s.Arch = "mips" }, `architecture "mips" is unknown: use one of amd64, arm64, riscv64`},
		{"no arch", func(s *vm.Spec) { s.Arch = "" }, `architecture ""`},
		{"time", func(s *vm.Spec) { s.Time = "" }, `time "" is unknown`},
		{"no CPU", func(s *vm.Spec) { s.CPUs = 0 }, "0 CPUs"},
		{"riscv64, exact, 2 CPUs", func(s *vm.Spec) { s.Arch, s.CPUs = "riscv64", 2 }, "use 1 CPU, or host time"},
		{"memory", func(s *vm.Spec) { s.MemMiB = 3 }, "3 MiB"},
		{"state without a mailbox", func(s *vm.Spec) { s.State = "/s" }, "with a mailbox"},
		{"state and a terminal", func(s *vm.Spec) { s.State, s.Mailbox, s.Interactive = "/s", true, true }, "without a terminal"},
		{"state's path", func(s *vm.Spec) { s.State, s.Mailbox = "s", true }, "must be absolute"},
		{"mail for nobody", func(s *vm.Spec) { s.Mail = []byte("m") }, "mail"},
		{"kernel", func(s *vm.Spec) { s.Kernel = "kernel" }, "must be absolute"},
		{"initrd", func(s *vm.Spec) { s.Initrd = "" }, "must be absolute"},
		{"firmware", func(s *vm.Spec) { s.Firmware = "opensbi" }, "must be absolute"},
		{"newline", func(s *vm.Spec) { s.Append = "a\nb" }, "control characters"},
		{"long", func(s *vm.Spec) { s.Append = strings.Repeat("x ", 2000) }, "this kernel takes 2047"},
		{"long for riscv64", func(s *vm.Spec) {
			s.Arch, s.CPUs, s.Append = "riscv64", 1, strings.Repeat("x", 1000)
		}, "this kernel takes 1023"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := spec("amd64", vm.Exact)
			tt.edit(&s)
			argv, err := Argv(s, Version{})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("err = %v, want %q", err, tt.want)
			}
			if argv != nil {
				t.Errorf("argv = %q beside an error", argv)
			}
		})
	}
}

// Runs that are compared differ in their parameters, not in their lengths.
func TestCmdlineLength(t *testing.T) {
	for arch, r := range rows {
		for n := range 900 {
			line, err := r.cmdline(strings.Repeat("x", n))
			if err != nil {
				if arch == "riscv64" && n > 700 {
					break
				}
				t.Fatalf("%s: %d bytes: %v", arch, n, err)
			}
			if len(line)%padTo != 0 && len(line) != r.bootLen {
				t.Fatalf("%s: %d bytes more give a line of %d", arch, n, len(line))
			}
		}
	}
}

// Every reason in the table is about something that is in the row.
func TestWhyNamesWhatIsThere(t *testing.T) {
	for arch, r := range rows {
		settings := strings.Join(append([]string{r.machine, r.cpu}, r.boot...), " ")
		if len(r.why) == 0 {
			t.Errorf("%s: no reasons given", arch)
		}
		for name, why := range r.why {
			if !strings.Contains(settings, name) || why == "" {
				t.Errorf("%s: the reason for %q (%q) is about nothing in %q", arch, name, why, settings)
			}
		}
	}
	for _, f := range baseFlags {
		if f.why == "" {
			t.Errorf("%q has no reason", f.args)
		}
	}
}

func TestQuote(t *testing.T) {
	got := Quote([]string{"a", "", "a b", "it's", "x=y,z:/w", "$HOME", "<", "ü"})
	want := `a '' 'a b' 'it'\''s' x=y,z:/w '$HOME' '<' 'ü'`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestByHand(t *testing.T) {
	s := spec("arm64", vm.Exact)
	s.Mailbox = true
	argv, err := Argv(s, Version{})
	if err != nil {
		t.Fatal(err)
	}
	hand := strings.Join(ByHand(argv), " ")
	if strings.Contains(hand, " -S ") || strings.Contains(hand, watchdogStops) || !strings.Contains(hand, " -kernel /images/kernel ") {
		t.Errorf("by hand: %s", hand)
	}
}

// An amd64 kernel that is rewritten while it runs needs a QEMU that notices.
func TestThreadsByVersion(t *testing.T) {
	for _, tt := range []struct {
		arch         string
		major, minor int
		want         string
	}{
		{"amd64", 7, 2, "single"}, {"amd64", 8, 0, "single"}, {"amd64", 8, 1, "multi"}, {"amd64", 10, 0, "multi"},
		{"arm64", 7, 2, "multi"}, {"riscv64", 7, 2, "multi"},
	} {
		argv := rows[tt.arch].timeFlags(vm.Spec{Time: vm.Host}, Version{Major: tt.major, Minor: tt.minor})
		if argv[1] != "tcg,thread="+tt.want {
			t.Errorf("%s with QEMU %d.%d: %v, want %s", tt.arch, tt.major, tt.minor, argv, tt.want)
		}
	}
}

// A machine under KVM has no place for the firmware of the emulated one.
func TestFirmware(t *testing.T) {
	for kvm, want := range map[bool]bool{false: true, true: false} {
		s := spec("riscv64", vm.Host)
		s.KVM = kvm
		argv, err := Argv(s, Version{})
		if got := slices.Contains(argv, "-bios"); err != nil || got != want {
			t.Errorf("KVM %v: firmware %v, %v, want %v", kvm, got, err, want)
		}
		parts, err := PartsOf(s, Version{}, RunFiles{Root: s.Dir}.At)
		if got := slices.Contains(parts.Args, "-bios"); err != nil || got != want {
			t.Errorf("KVM %v, in parts: firmware %v, %v, want %v", kvm, got, err, want)
		}
	}
}

// TestRecorded: QEMU records what it can.
func TestRecorded(t *testing.T) {
	for _, tt := range []struct {
		name string
		spec vm.Spec
		want bool
	}{
		{"exact", vm.Spec{CPUs: 1, Time: vm.Exact}, true},
		{"from a state", vm.Spec{CPUs: 1, Time: vm.Exact, Mailbox: true, State: "state"}, true},
		{"for a state", vm.Spec{CPUs: 1, Time: vm.Exact, Mailbox: true}, false},
		{"two CPUs", vm.Spec{CPUs: 2, Time: vm.Exact}, false},
		{"host", vm.Spec{CPUs: 1, Time: vm.Host}, false},
	} {
		flags := strings.Join(clockFlags(tt.spec), " ")
		if got := strings.Contains(flags, "rr=record"); got != tt.want || strings.Contains(flags, "filter-buffer") != tt.want {
			t.Errorf("%s: %s", tt.name, flags)
		}
	}
}
