package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/lab/status"
)

// What contradicts itself is told before a guest is booted for it, and what is no
// dump is not read on.
func TestAnalyzeRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.dump")
	var b strings.Builder
	d := &ktext.Dump{Arch: "arm64", Release: "6.12.0", Parts: []ktext.Part{{Name: "kallsyms", Size: 1, Data: []byte("x")}}}
	if err := d.Write(&b, func(isa.Addr, []byte) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, endless := filepath.Join(filepath.Dir(file), "pipe"), filepath.Join(filepath.Dir(file), "endless")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.WriteFile(endless, nil, 0o600), os.Truncate(endless, 1<<40)); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"--dump /dev/zero":                      "not a plain file",
		"--dump " + pipe:                        "not a plain file",
		"--dump " + endless:                     "no dump of this version",
		"--dump " + file + " --arch riscv64":    "is of arm64",
		"--dump " + file + " --kernel 6.12.107": "the kernel is what --dump names",
		"--function= --arch arm64":              "--function: its value is empty",
		"--dump=":                               "--dump: its value is empty",
		"--function vfs_read --arch all":        "--function is of one ISA",
	} {
		c := analyzeCommand()
		c.SetArgs(strings.Fields(args))
		c.SilenceErrors, c.SilenceUsage = true, true
		err, e := c.Execute(), (*exit)(nil)
		if !errors.As(err, &e) || e.code != status.ExitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("analyze %s: %v, want usage: …%s", args, err, want)
		}
	}
}
