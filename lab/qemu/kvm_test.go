package qemu

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"kerninst/lab/qemu/qemutest"
	"kerninst/lab/vm"
)

// A KVM that is there and does not work is none, with the reason: not an error.
func TestUnusableKVM(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "kvm")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for device, want := range map[string]string{
		plain:                      "is not KVM",
		"/dev/null":                "is not KVM",
		dir:                        "does not open",
		filepath.Join(dir, "none"): "no " + dir,
	} {
		k, err := FindKVM(soon(t), device, t.TempDir(), vm.Spec{Arch: runtime.GOARCH})
		if err != nil || k.Usable || !strings.Contains(k.Why, want) {
			t.Errorf("%s: %+v, %v; want %q", device, k, err, want)
		}
	}
	k, err := FindKVM(soon(t), plain, t.TempDir(), vm.Spec{Arch: "other"})
	if err != nil || k.Usable || !strings.Contains(k.Why, "ISA") {
		t.Errorf("another ISA: %+v, %v", k, err)
	}
}

// A kernel that never gets to its first program does not make KVM usable, and
// neither does a QEMU that does not start with it; whatever this host's KVM is.
func TestKVMThatRunsNoGuest(t *testing.T) {
	s := tiny(t, runtime.GOARCH, "hello\n", qemutest.Reset)
	k, err := runUnderKVM(soon(t), s)
	if err != nil || k.Usable || k.Why == "" {
		t.Errorf("%+v, %v", k, err)
	}
}

// What was found holds for what it was found of, and is replaced whole.
func TestKVMIsRemembered(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "new")
	want := KVM{Usable: true, Why: "a guest ran", Of: "this boot"}
	for range 2 {
		if err := want.write(kvmFile(cache, "amd64")); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := KnownKVM(cache, "amd64"); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if entries, err := os.ReadDir(cache); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	if err := os.WriteFile(kvmFile(cache, "amd64"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if k, err := KnownKVM(cache, "amd64"); err == nil {
		t.Errorf("damage was taken: %+v", k)
	}
}
