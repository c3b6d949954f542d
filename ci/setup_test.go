package ci

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// stubGo writes a program called go that answers what setup.sh asks of one.
func stubGo(t *testing.T, version, toolchain, sum string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	script := `#!/bin/sh
case "$1 $2" in
"env GOVERSION") echo ` + version + ` ;;
"env GOTOOLCHAIN") echo ` + toolchain + ` ;;
"env GOHOSTARCH") echo amd64 ;;
"mod download")
	mkdir -p mod/tree/bin mod/tree/pkg/tool/linux_amd64 mod/tree/src
	echo "module std" >mod/tree/src/_go.mod
	: >mod/tree/pkg/tool/linux_amd64/compile
	printf '#!/bin/sh\necho go1.99\n' >mod/tree/bin/go
	printf '{\n"Dir": "%s",\n"Sum": "%s"\n}\n' "$PWD/mod/tree" "` + sum + `" ;;
*) exit 1 ;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// goHash is what setup.sh expects of the toolchain's module.
func goHash(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("setup.sh")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), "go_hash_amd64='")
	sum, _, ok2 := strings.Cut(rest, "'")
	if !ok || !ok2 {
		t.Fatal("setup.sh has no go_hash_amd64")
	}
	return sum
}

func TestSetupFindsGo(t *testing.T) {
	const fetched = "CACHE/kerninst/go/"
	tests := []struct {
		name, version, toolchain string
		sum                      string
		exit                     int
		out                      string // how the printed path begins, or what stderr says
	}{
		{"new", "go1.99.1", "local", "", 0, "STUB/go"},
		{"release candidate", "go1.99rc1", "local", "", 0, "STUB/go"},
		{"fetches by itself", "go1.24.4", "auto", "", 0, "STUB/go"},
		{"too old, local", "go1.24.4", "local", "good", 0, fetched},
		{"before toolchains", "go1.19.8", "", "good", 0, fetched},
		{"wrong hash", "go1.19.8", "", "h1:AAAA", 3, "is not what it should be"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.sum == "good" {
				tt.sum = goHash(t)
			}
			stub, cache := stubGo(t, tt.version, tt.toolchain, tt.sum), t.TempDir()
			cmd := exec.Command("/bin/sh", "setup.sh", "--go")
			cmd.Env = []string{"PATH=" + stub + ":/usr/bin:/bin", "XDG_CACHE_HOME=" + cache}
			out, err := cmd.Output()
			text, exit := string(out), 0
			var failed *exec.ExitError
			if errors.As(err, &failed) {
				text, exit = string(failed.Stderr), failed.ExitCode()
			}
			want := strings.NewReplacer("STUB", stub, "CACHE", cache).Replace(tt.out)
			if exit != tt.exit || !strings.Contains(text, want) {
				t.Errorf("exit %d, %q, want %d and %q", exit, text, tt.exit, want)
			}
			if left, _ := filepath.Glob(cache + "/kerninst/go/.new-*"); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestSetupRefusesArguments(t *testing.T) {
	tests := []struct {
		arch string
		args []string
	}{
		{"mips", nil},
		{"amd64,mips", nil},
		{"", []string{"--what"}},
		{"", []string{"--go", "--go"}},
	}
	for _, tt := range tests {
		cmd := exec.Command("/bin/sh", append([]string{"setup.sh"}, tt.args...)...)
		cmd.Env = append(os.Environ(), "ARCH="+tt.arch)
		out, err := cmd.CombinedOutput()
		var failed *exec.ExitError
		if !errors.As(err, &failed) || failed.ExitCode() != 2 {
			t.Errorf("ARCH=%s %v: %v, %s, want exit 2", tt.arch, tt.args, err, out)
		}
	}
}
