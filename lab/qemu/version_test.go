package qemu

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kerninst/lab/vm"
)

func TestParseVersion(t *testing.T) {
	tests := []struct {
		out     string
		number  string
		pkg     string
		tooOld  bool
		garbage bool
	}{
		{out: "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)\nCopyright", number: "7.2.22", pkg: "Debian 1:7.2+dfsg-7+deb12u18"},
		{out: "QEMU emulator version 10.0.2", number: "10.0.2"},
		{out: "QEMU emulator version 9.2.0-rc1 (v9.2.0-rc1)", number: "9.2.0-rc1", pkg: "v9.2.0-rc1"},
		{out: "QEMU emulator version 7.1.0", tooOld: true},
		{out: "QEMU emulator version 6.2.0 (Debian 1:6.2+dfsg-2ubuntu6)", tooOld: true},
		{out: "bash: version 5", garbage: true},
		{out: "", garbage: true},
	}
	for _, tt := range tests {
		v, err := parseVersion("/q", tt.out)
		var old *TooOldError
		switch {
		case tt.tooOld && (!errors.As(err, &old) || !strings.Contains(err.Error(), "lab doctor")):
			t.Errorf("%q: err = %v, want too old", tt.out, err)
		case tt.garbage && (err == nil || errors.As(err, &old)):
			t.Errorf("%q: err = %v", tt.out, err)
		case !tt.tooOld && !tt.garbage && (err != nil || v.Number != tt.number || v.Package != tt.pkg):
			t.Errorf("%q: %+v, %v", tt.out, v, err)
		}
	}
}

func TestResolveMachine(t *testing.T) {
	const help = `Supported machines are:
microvm              microvm (i386)
q35                  Standard PC (Q35 + ICH9, 2009) (alias of pc-q35-7.2)
pc-q35-7.2           Standard PC (Q35 + ICH9, 2009)
virt                 RISC-V VirtIO board
`
	for alias, want := range map[string]string{"q35": "pc-q35-7.2", "virt": "virt", "microvm": "microvm"} {
		if got, err := resolveMachine(help, alias); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", alias, got, err, want)
		}
	}
	if got, err := resolveMachine(help, "q3"); err == nil {
		t.Errorf("q3: %q, want an error", got)
	}
}

func TestFindVersion(t *testing.T) {
	for _, arch := range Arches() {
		v, err := FindVersion(context.Background(), arch)
		if err != nil {
			t.Errorf("%s: %v", arch, err)
			continue
		}
		if v.Major < 7 || v.Machine == "" || !filepath.IsAbs(v.Binary) || !strings.HasPrefix(v.String(), v.Number) {
			t.Errorf("%s: %+v", arch, v)
		}
	}
	if _, err := FindVersion(context.Background(), "mips"); err == nil {
		t.Error("found a QEMU for an unknown architecture")
	}
}

// onlyInPath makes a PATH that holds one program, a shell script.
func onlyInPath(t *testing.T, name, script string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	return path
}

func TestMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for arch, r := range rows {
		_, err := Backend{}.Start(context.Background(), vm.Spec{Arch: arch, Kernel: os.Args[0], Initrd: os.Args[0]})
		var missing *MissingError
		if !errors.As(err, &missing) || missing.Package != r.pkg {
			t.Errorf("%s: err = %v", arch, err)
			continue
		}
		for _, word := range []string{r.binary, r.pkg, "lab doctor"} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q does not name %s", arch, err, word)
			}
		}
	}
}

func TestTooOldInPath(t *testing.T) {
	onlyInPath(t, "qemu-system-aarch64", "echo QEMU emulator version 5.2.0")
	_, err := FindVersion(context.Background(), "arm64")
	var old *TooOldError
	if !errors.As(err, &old) || old.Version != "5.2.0" {
		t.Errorf("err = %v", err)
	}
}

func TestBrokenInPath(t *testing.T) {
	onlyInPath(t, "qemu-system-aarch64", "echo no library >&2; exit 1")
	_, err := FindVersion(context.Background(), "arm64")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(err.Error(), "no library") {
		t.Errorf("err = %v", err)
	}
}
