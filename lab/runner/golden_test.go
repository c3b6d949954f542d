package runner

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"kerninst/agent/wire"
	"kerninst/images"
	"kerninst/lab/vm"
)

// What boots each time: who is told to, and under KVM, whose states are the host CPU's.
func TestBoots(t *testing.T) {
	host := Request{Time: vm.Host}
	for name, tt := range map[string]struct {
		kvm  bool
		set  func(q *Request)
		want bool
	}{
		"emulated":            {false, func(*Request) {}, true},
		"told to boot":        {false, func(q *Request) { q.Boots = true }, false},
		"KVM":                 {true, func(*Request) {}, false},
		"an oracle, not KVM":  {true, func(q *Request) { q.Oracle = true }, true},
		"calls, not KVM":      {true, func(q *Request) { q.Calls = true }, true},
		"exact time, not KVM": {true, func(q *Request) { q.Time = vm.Exact }, true},
	} {
		r, q := New(Runner{Image: &images.Image{Arch: "amd64"}, KVM: tt.kvm}), host
		tt.set(&q)
		if got := r.fromGolden(q); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Calls are followed on one CPU whose instructions are counted.
func TestFollowable(t *testing.T) {
	for want, all := range map[bool][]Request{
		true:  {{CPUs: 1, Time: vm.Exact, Calls: true}, {CPUs: 2, Time: vm.Host, Oracle: true}},
		false: {{CPUs: 2, Time: vm.Exact, Calls: true}, {CPUs: 1, Time: vm.Host, Calls: true}, {CPUs: 1, Time: vm.Exact, Calls: true, Oracle: true}},
	} {
		for _, q := range all {
			if err := q.followable(); (err == nil) != want {
				t.Errorf("%+v: %v", q, err)
			}
		}
	}
}

// Guests with files start from a state if the files are to come again, and from
// that of the same files.
func TestFilesInStates(t *testing.T) {
	r := New(Runner{Image: &images.Image{Arch: "arm64"}, Progress: t.Logf})
	for _, tt := range []struct {
		own, q Request
		want   bool
	}{
		{Request{}, Request{}, true},
		{Request{Files: []images.File{{Path: "/a"}}}, Request{}, false},
		{Request{Files: []images.File{{Path: "/a"}}, FilesAgain: true}, Request{}, true},
		{Request{Files: []images.File{{Path: "/a"}}, FilesAgain: true}, Request{Files: []images.File{{Path: "/b"}}}, false},
	} {
		own := Own{Files: tt.own.Files, FilesAgain: tt.own.FilesAgain}
		for mode := range mailModes {
			tt.q.Time, tt.q.Job = mode, &wire.Job{}
			if got := r.fromGolden(own.of(tt.q)); got != tt.want {
				t.Errorf("%+v and %+v: %v", own, tt.q, got)
			}
		}
	}
	source := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(source, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	spec := vm.Spec{Arch: "arm64", CPUs: 1, MemMiB: DefaultMemory, Time: vm.Exact, Seed: 1, Dir: "/run", Mailbox: true, Append: mailModes[vm.Exact]}
	keys := map[string]images.File{}
	for _, f := range []images.File{
		{Path: "/a"}, {Path: "/b"}, {Path: "/a", Data: []byte("x")}, {Path: "/a", Data: []byte("y")}, {Path: "/a", Mode: 0o755}, {Path: "/b", Source: source},
	} {
		key, err := r.key(context.Background(), spec, []images.File{f})
		if other, twice := keys[key]; err != nil || twice {
			t.Errorf("%+v and %+v have one state: %v", f, other, err)
		}
		keys[key] = f
	}
	if _, err := r.key(context.Background(), spec, []images.File{{Path: "/a", Source: source + "gone"}}); err == nil {
		t.Error("a file that is not there was hashed")
	}
}
