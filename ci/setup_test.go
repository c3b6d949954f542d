package ci

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
		{"*", nil},
		{"amd64,*", nil},
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
		if strings.Contains(tt.arch, "*") && !strings.Contains(string(out), "unknown architecture "+tt.arch) {
			t.Errorf("ARCH=%s is taken for a pattern: %s", tt.arch, out)
		}
	}
}

// A GO that is none is not put right by taking another.
func TestSetupRefusesGo(t *testing.T) {
	stub := stubGo(t, "go1.99.1", "local", "")
	for _, wrong := range []string{"/nonexistent/go", "goo", "false", "./go"} {
		for _, args := range [][]string{nil, {"--go"}} {
			cmd := exec.Command("/bin/sh", append([]string{"setup.sh"}, args...)...)
			cmd.Env = []string{"PATH=" + stub + ":/usr/bin:/bin", "XDG_CACHE_HOME=" + t.TempDir(), "ARCH=amd64", "GO=" + wrong}
			out, _ := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(string(out), "GO="+wrong+": no Go that runs") {
				t.Errorf("GO=%s %v: exit status %d: %s", wrong, args, code, out)
			}
		}
	}
}

// What in the environment makes another program than bin/lab of the Go that
// builds it does not reach that Go; where it fetches modules from does.
func TestMakeBuildsForThisHost(t *testing.T) {
	stub := filepath.Join(stubGo(t, "go1.99.1", "local", ""), "go")
	text, err := os.ReadFile(stub)
	if err != nil {
		t.Fatal(err)
	}
	seen := filepath.Join(t.TempDir(), "env")
	err = os.WriteFile(stub, []byte(strings.Replace(string(text), "case", `[ "$1" = build ] && env >'`+seen+"' && exit\ncase", 1)), 0o755)
	if err != nil {
		t.Fatal(err)
	}
	taken := []string{"GOARCH=arm64", "GOOS=plan9", "GOFLAGS=-race", "GOEXPERIMENT=rangefunc", "GOAMD64=v4"}
	left := []string{"GOPROXY=off", "GOCACHE=/c", "GOMODCACHE=/m", "GOTOOLCHAIN=local"}
	for _, how := range []string{"environment", "command line"} {
		cmd := exec.Command("make", "-C", "..", "bin/lab")
		cmd.Env = append(append([]string{"PATH=" + os.Getenv("PATH"), "XDG_CACHE_HOME=" + t.TempDir(), "GO=" + stub}, left...), taken...)
		if how == "command line" {
			cmd.Args = append(cmd.Args, taken...)
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		env, err := os.ReadFile(seen)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(env), "\n")
		for _, v := range taken {
			if slices.Contains(lines, v) {
				t.Errorf("in the %s: %s reaches the compiler", how, v)
			}
		}
		for _, v := range left {
			if !slices.Contains(lines, v) {
				t.Errorf("in the %s: %s does not reach the compiler", how, v)
			}
		}
	}
}

// hostWithout is a folder with links to all commands but one, and with scripts
// in place of others; HOST in them is the folder.
func hostWithout(t *testing.T, missing string, scripts map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, from := range filepath.SplitList(os.Getenv("PATH")) {
		entries, _ := os.ReadDir(from)
		for _, e := range entries {
			if _, replaced := scripts[e.Name()]; e.Name() != missing && !replaced {
				_ = os.Symlink(filepath.Join(from, e.Name()), filepath.Join(dir, e.Name()))
			}
		}
	}
	for name, text := range scripts {
		text = strings.ReplaceAll(text, "HOST", dir)
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// What is missing is named in one command, which root runs once and which nobody
// else is asked about where there is no terminal.
func TestSetupGetsWhatIsMissing(t *testing.T) {
	const qemu, install = "qemu-system-aarch64", "apt-get install -y --no-install-recommends qemu-system-arm"
	noted := `echo "apt-get $*" >>HOST/notes`
	installs := noted + `; case $1 in install) printf '#!/bin/sh\necho version 10.0.2\n' >HOST/` + qemu + `; chmod +x HOST/` + qemu + ` ;; esac`
	tests := []struct {
		name, missing string
		scripts       map[string]string
		exit          int
		ran           int // how often apt-get install
		says          string
	}{
		{"root", qemu, map[string]string{"id": "echo 0", "apt-get": installs, "apt-cache": "exit 0"}, 0, 1, install},
		{"root, package lists missing", qemu, map[string]string{"id": "echo 0", "apt-get": installs, "apt-cache": "exit 100"}, 0, 1, "apt-get update && " + install},
		{"root, of no use", qemu, map[string]string{"id": "echo 0", "apt-get": noted, "apt-cache": "exit 0"}, 3, 1, "still missing: qemu-system-arm"},
		{"root, it fails", qemu, map[string]string{"id": "echo 0", "apt-get": noted + "; exit 100", "apt-cache": "exit 0"}, 3, 1, "failed: " + install},
		{"a user without terminal", qemu, map[string]string{"id": "echo 1000", "apt-get": noted, "apt-cache": "exit 0"}, 3, 0, "run: sudo sh -c '" + install},
		{"no Debian", "apt-get", map[string]string{"id": "echo 0"}, 3, 0, "not a Debian host"},
		{"QEMU too old", "", map[string]string{"id": "echo 0", "apt-get": noted, qemu: "echo QEMU emulator version 6.2.0"}, 3, 0, "version 6.2.0; 7.2 or newer"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			host := hostWithout(t, tt.missing, tt.scripts)
			cmd := exec.Command("/bin/sh", "setup.sh")
			cmd.Env = append(os.Environ(), "PATH="+host, "ARCH=arm64", "TESTS=", "XDG_CACHE_HOME="+t.TempDir(), "GO="+stubGo(t, "go1.99.1", "local", "")+"/go")
			out, err := cmd.CombinedOutput()
			exit := 0
			var failed *exec.ExitError
			if errors.As(err, &failed) {
				exit = failed.ExitCode()
			} else if err != nil {
				t.Fatal(err)
			}
			log, _ := os.ReadFile(filepath.Join(host, "notes"))
			if ran := strings.Count(string(log), "apt-get install"); exit != tt.exit || ran != tt.ran || !strings.Contains(string(out), tt.says) {
				t.Errorf("exit %d, installed %d times, %q; want %d, %d and %q", exit, ran, out, tt.exit, tt.ran, tt.says)
			}
		})
	}
}
