package main

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParameter(t *testing.T) {
	tests := []struct{ cmdline, want string }{
		{"", ""},
		{"console=ttyS0 panic=-1\n", ""},
		{"lab.mode=shell quiet\n", "shell"},
		{"lab.mode=job lab.mode=shell", "shell"},
		{"xlab.mode=shell", ""},
	}
	for _, tt := range tests {
		if got := parameter(tt.cmdline, "lab.mode"); got != tt.want {
			t.Errorf("parameter(%q) = %q, want %q", tt.cmdline, got, tt.want)
		}
	}
}

func TestEnding(t *testing.T) {
	tests := []struct {
		status unix.WaitStatus // exit code << 8 | signal, wait(2)
		want   string
	}{
		{0, "exited: status 0"},
		{3 << 8, "exited: status 3"},
		{11, "killed by signal 11 (segmentation fault)"},
	}
	for _, tt := range tests {
		if got := ending(tt.status); got != tt.want {
			t.Errorf("ending(%#x) = %q, want %q", int(tt.status), got, tt.want)
		}
	}
}

func TestFindPort(t *testing.T) {
	class := t.TempDir()
	for port, name := range map[string]string{"vport1p1": "org.other\n", "vport2p3": portName + "\n"} {
		if err := os.Mkdir(filepath.Join(class, port), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(class, port, "name"), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := findPort(class, 0)
	if err != nil || got != "/dev/vport2p3" {
		t.Errorf("findPort = %q, %v, want /dev/vport2p3", got, err)
	}
	if got, err := findPort(t.TempDir(), 0); err == nil {
		t.Errorf("findPort without ports = %q, want an error", got)
	}
}
