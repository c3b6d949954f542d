package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kerninst/lab/status"
)

// TestMain ends what lab run starts of itself for each ISA: here that is the tests,
// all over again. It is also the program that TestInterruptedAgain interrupts.
func TestMain(m *testing.M) {
	if os.Getenv(interruptedProgram) != "" {
		waitForSignals()
		os.Exit(status.ExitLabFailed)
	}
	if slices.Contains(os.Args, "run-isa") {
		os.Exit(status.ExitLabFailed)
	}
	os.Exit(m.Run())
}

// refused runs a command line that is wrong, and returns what it says. If it is not
// refused, there is no cache to harm and no program to run.
func refused(t *testing.T, args ...string) string {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("PATH", "")
	c := root()
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetArgs(args)
	err, e := c.Execute(), (*exit)(nil)
	if !errors.As(err, &e) || e.code != status.ExitUsage {
		t.Errorf("lab %q: %v, want status %d", args, err, status.ExitUsage)
		return ""
	}
	if out.Len() > 0 {
		t.Errorf("lab %q: printed %q", args, out.String())
	}
	return err.Error()
}

// Words that no command takes, too many of them and too few: the message says what
// was meant or what is wanted.
func TestWrongArguments(t *testing.T) {
	for line, want := range map[string]string{
		"frob":                    `unknown command "frob" for "lab"; see lab --help`,
		"hlep":                    "did you mean help?",
		"rnu":                     "did you mean run?",
		"help frob":               `unknown command "frob" for "lab"`,
		"help pro":                "did you mean probe?",
		"help image frob":         `unknown command "frob" for "lab image"`,
		"help image bild":         "did you mean build?",
		"help run x":              `unexpected argument "x"`,
		"help --frob":             "unknown flag: --frob",
		"completion frob":         `unknown command "frob" for "lab completion"`,
		"completion bsh":          "did you mean bash?",
		"completion bash extra":   `unexpected argument "extra"; want lab completion bash`,
		"completion fish extra":   `unexpected argument "extra"`,
		"image frob":              `unknown command "frob" for "lab image"`,
		"image build x":           `unexpected argument "x"; want lab image build [flags]; see lab image build --help`,
		"image ls x":              "unexpected argument",
		"image verify x":          "unexpected argument",
		"image gc x":              "unexpected argument",
		"image gc --age -1s":      "--age -1s: want 0 or more",
		"image export":            "want lab image export FILE",
		"image export a b":        "received 2",
		"image import":            "want lab image import FILE",
		"image import a b":        "received 2",
		"image import /":          "/ is not a plain file",
		"image import /dev/zero":  "/dev/zero is not a plain file",
		"image dump":              "want lab image dump FILE",
		"image dump a b":          "received 2",
		"image dump --arch all a": "a dump is of one ISA",
		"doctor x":                "unexpected argument",
		"doctor --arch arm":       "unknown ISA",
		"kept x":                  "unexpected argument",
		"kept --end=":             "--end: its value is empty",
		"kept --end /none":        "no guest was kept in /none",
		"gdb a b":                 "gdb debugs one guest",
		"gdb --arch all":          "gdb debugs one guest",
		"shell x":                 "unexpected argument",
		"shell --arch all":        "a shell is in one guest",
		"probe":                   "want lab probe SPEC...",
		"probe kinst::f:0":        "no workload",
		"probe kinst::f:0 --live --plot x.svg --run true": "--plot with --live",
		"probe kinst::f:0 --list --plot x.svg":            "leave --plot out",
		"report":                                          "want lab report DIR",
		"report a b":                                      "received 2",
		"report /none":                                    "no such file",
		"repro":                                           "want lab repro DIR",
		"repro a b":                                       "received 2",
		"repro /none":                                     "no manifest of a run",
		"compare":                                         "want lab compare A B",
		"compare a b c":                                   "received 3",
		"compare /none /none":                             "no such file",
		"history":                                         "want lab history DIR",
		"history a b":                                     "received 2",
		"history /none":                                   "no such file",
		"analyze x":                                       "unexpected argument",
		"survey x":                                        "unexpected argument",
		"survey --dump=":                                  "--dump: its value is empty",
		"survey --each=":                                  "--each: its value is empty",
		"survey --svg=":                                   "--svg: its value is empty",
		"survey --json --each -":                          "give --each a file",

		"survey --arch all --each x":       "--each is of one ISA",
		"survey --dump x --modprobe dummy": "lab image dump --modprobe",
		"shell --with bpftrase":            "--with: no software \"bpftrase\": there are apache, bpftrace, perf, squid, systemtap; did you mean bpftrace?",
		"shell --mem 512 --with bpftrace":  "--mem 512: a guest with bpftrace needs 1536",
		"run --append lab.mode=x":          "lab.mode=x is the lab's own",
		"shell --append=--":                "what follows -- is for the guest's init",
		"run --append nokäslr":             "want words of printable ASCII",
		"run --with ,":                     "--with: no software",
		"run x":                            "unexpected argument",
		"run -- x":                         "unexpected argument",
		"run --seed x":                     "invalid argument",
		"run --sed 1":                      "did you mean --seed?",
		"run-isa":                          "--out is missing",
	} {
		if got := refused(t, strings.Fields(line)...); !strings.Contains(got, want) {
			t.Errorf("lab %s: %q, want …%s…", line, got, want)
		}
	}
}

// TestRoom: a guest that is too small for what every guest has is not said to be so for what is added.
func TestRoom(t *testing.T) {
	var o own
	o.mem = 128
	if err := o.room(0); err == nil || !strings.Contains(err.Error(), "the lab's own files: give --mem 192") {
		t.Error(err)
	}
	o.mem = 192
	if err := o.room(0); err != nil {
		t.Error(err)
	}
}

// What is added may be longer than any guest, or than a file there can be.
func TestEndlessFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "endless")
	for size, want := range map[int64]string{1 << 40: "a file in a guest has at most 4294967295", 1 << 30: "cannot unpack its initramfs of 1024 MiB: give --mem 2112"} {
		if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, size)); err != nil {
			t.Fatal(err)
		}
		for _, verb := range []string{"run", "shell", "probe kinst::f:8 --run true", "gdb"} {
			if got := refused(t, append(strings.Fields(verb), "--add", file)...); !strings.Contains(got, want) {
				t.Errorf("lab %s --add of %d bytes: %q, want …%s…", verb, size, got, want)
			}
		}
	}
}

// A list of ISAs that says two things, or one thing twice, is not guessed at.
func TestWrongISAs(t *testing.T) {
	for list, want := range map[string]string{
		"all,arm64":   "all stands for every ISA",
		"arm64,all":   "all stands for every ISA",
		"arm64,arm64": "arm64 is given twice",
		"":            "a name is empty",
		"arm64,":      "a name is empty",
		"aarch64":     "did you mean arm64?",
		"mips":        `unknown ISA "mips"; want some of amd64, arm64, riscv64, separated by commas, or all`,
	} {
		for _, verb := range []string{"run", "doctor", "image build", "analyze", "survey"} {
			if got := refused(t, append(strings.Fields(verb), "--arch="+list)...); !strings.Contains(got, want) {
				t.Errorf("lab %s --arch=%s: %q, want …%s…", verb, list, got, want)
			}
		}
	}
	for list, want := range map[string]int{"all": 3, "arm64": 1, "riscv64,amd64": 2} {
		if got, err := arches(list); err != nil || len(got) != want {
			t.Errorf("--arch %s: %v, %v", list, got, err)
		}
	}
}
