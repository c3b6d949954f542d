package libvirt

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	golibvirt "github.com/digitalocean/go-libvirt"

	"kerninst/lab/libvirt/libvirttest"
)

// A libvirtd tells what the machine has, and of an ISA without emulator that it lacks it.
func TestSurvey(t *testing.T) {
	t.Parallel()
	b := backend(t, libvirttest.Start(t))
	h, err := b.Survey(soon(t), []string{"riscv64", "sparc"})
	if err != nil {
		t.Fatal(err)
	}
	if h.CPUs < 1 || h.FreeMiB < 64 || h.Version == "" || h.Name == "" || len(h.KVM) > 0 { // no host of ours is riscv64
		t.Errorf("got %+v", h)
	}
	if h.Lacks["riscv64"] != nil || h.Lacks["sparc"] == nil {
		t.Errorf("lacks %v, want sparc alone", h.Lacks)
	}
}

// What QEMU an ISA wants is not on the PATH.
func TestSurveyWithoutQEMU(t *testing.T) {
	d := libvirttest.Start(t)
	t.Setenv("PATH", t.TempDir())
	h, err := backend(t, d).Survey(soon(t), []string{"riscv64"})
	if err != nil || h.Lacks["riscv64"] == nil || !strings.Contains(h.Lacks["riscv64"].Error(), "qemu-system-riscv64") {
		t.Errorf("got %+v, %v", h, err)
	}
}

func TestSurveyUnreachable(t *testing.T) {
	b, err := Parse("qemu+unix:///system?socket=" + filepath.Join(t.TempDir(), "none"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Survey(context.Background(), nil); err == nil || !strings.Contains(err.Error(), "is it running") {
		t.Errorf("got %v", err)
	}
}

func TestTooOld(t *testing.T) {
	for n, want := range map[uint64]string{8_010_000: "8.10.0", 8_999_999: "8.999.999", 9_000_000: "", 11_003_000: ""} {
		err := tooOld(n)
		var old *TooOldError
		if errors.As(err, &old) != (want != "") || want != "" && (old.Version != want || !strings.Contains(err.Error(), "9.0.0")) {
			t.Errorf("%d: %v, want %q", n, err, want)
		}
	}
}

// A libvirtd that wants a password says so, though it closes the connection behind that.
func TestSurveyWithoutPassword(t *testing.T) {
	_, err := backend(t, libvirttest.StartClosed(t)).Survey(soon(t), nil)
	if err == nil || !strings.Contains(err.Error(), "authentication required: it wants credentials") {
		t.Errorf("got %v", err)
	}
}

// Whom libvirtd does not let in is told that the lab has no password.
func TestCredentials(t *testing.T) {
	for code, want := range map[golibvirt.ErrorNumber]bool{golibvirt.ErrAuthFailed: true, golibvirt.ErrAuthUnavailable: true, golibvirt.ErrNoConnect: false} {
		err := credentials(golibvirt.Error{Code: uint32(code), Message: "no"})
		if strings.Contains(err.Error(), "credentials") != want {
			t.Errorf("%v: %v", code, err)
		}
	}
}

// Two ways to name one libvirtd are one host.
func TestKey(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "sock"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	key := func(uri string) string {
		b, err := Parse(uri)
		if err != nil {
			t.Fatal(err)
		}
		return b.Key()
	}
	same := []string{key("qemu:///system?socket=" + file), key("qemu+unix:///system?socket=" + file), key("qemu:///system?socket=" + link)}
	others := []string{key("qemu:///session?socket=" + file), key("qemu:///system?socket=" + file + "2")}
	if same[0] != same[1] || same[0] != same[2] || same[0] == others[0] || same[0] == others[1] {
		t.Errorf("keys %q, those of another driver and another socket %q", same, others)
	}
}
