package qemu

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

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

// What makes a guest count as one that ran, emulated here, so that it is tried on
// hosts without KVM too.
func TestGuestThatStartsAProgram(t *testing.T) {
	const most = 2 * time.Second // of host time; the first guest needs a tenth
	for _, tt := range []struct {
		name, text string
		act        qemutest.Act
		usable     bool
		why        string
	}{
		{"starts a program", "[ 0.5] " + kvmSign + "\n", qemutest.Hang, true, "a guest ran"},
		{"hangs before", "[ 0.5] Run /sbin/init\n", qemutest.Hang, false, "did not boot in 2s"},
		{"dies before", "hello\n", qemutest.Reset, false, "died in its boot (guest-reset"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k, err := startsProgram(soon(t), tiny(t, runtime.GOARCH, tt.text, tt.act), most)
			if err != nil || k.Usable != tt.usable || !strings.Contains(k.Why, tt.why) {
				t.Errorf("%+v, %v", k, err)
			}
		})
	}
	ctx, cancel := context.WithCancel(soon(t))
	cancel()
	if k, err := startsProgram(ctx, tiny(t, runtime.GOARCH, "", qemutest.Hang), most); err == nil {
		t.Errorf("who gave up was told %+v", k)
	}
}

// That KVM works is known until the host boots anew; that it does not is tried
// again soon.
func TestKVMResultsAge(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		name string
		k    KVM
		want bool
	}{
		{"works", KVM{Usable: true, Of: "this", Found: now.Add(-1000 * time.Hour)}, true},
		{"works, of another boot", KVM{Usable: true, Of: "that", Found: now}, false},
		{"failed just now", KVM{Of: "this", Found: now.Add(-time.Second)}, true},
		{"failed of another kernel", KVM{Of: "that", Found: now.Add(-time.Second)}, false},
		{"failed a while ago", KVM{Of: "this", Found: now.Add(-kvmAgain)}, false},
		{"failed at a time to come", KVM{Of: "this", Found: now.Add(time.Hour)}, false},
		{"failed, of a lab that wrote no time", KVM{Of: "this"}, false},
	} {
		if got := tt.k.holds("this", now); got != tt.want {
			t.Errorf("%s: holds: %t", tt.name, got)
		}
	}
}

// What was found holds for what it was found of, and is replaced whole.
func TestKVMIsRemembered(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "new")
	want := KVM{Usable: true, Why: "a guest ran", Of: "this boot", Found: time.Now().UTC().Round(0)}
	for range 2 {
		if err := want.write(kvmFile(cache, "amd64")); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := KnownKVM(cache, "amd64"); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if entries, err := os.ReadDir(filepath.Join(cache, "tmp")); err != nil || len(entries) != 0 {
		t.Errorf("%v, %v", entries, err)
	}
	if err := os.WriteFile(kvmFile(cache, "amd64"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if k, err := KnownKVM(cache, "amd64"); err == nil {
		t.Errorf("damage was taken: %+v", k)
	}
}
