package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// Check is one thing that the lab needs of its host.
type Check struct {
	Name  string `json:"name"`
	OK    bool   `json:"ok"`
	Found string `json:"found"`
	Want  string `json:"want"`
	Fix   string `json:"fix,omitempty"` // what to do if it is not OK
}

// qemuOldest is the oldest emulator that the lab is tried with.
const qemuOldest = "7.2"

// diskWanted is room for one target: packages, toolchain, image.
const diskWanted = 3 << 30

// emulators by target, with the packages that hold them.
var emulators = []struct{ arch, program, pkg string }{
	{"amd64", "qemu-system-x86_64", "qemu-system-x86"},
	{"arm64", "qemu-system-aarch64", "qemu-system-arm"},
	{"riscv64", "qemu-system-riscv64", "qemu-system-misc (Debian 13: qemu-system-riscv)"},
}

// Doctor looks at the host, for opt.Arch or, if that is empty, all targets. It
// changes nothing and uses no network.
func Doctor(ctx context.Context, opt Options) []Check {
	var all []Check
	for _, e := range emulators {
		if opt.Arch == "" || opt.Arch == e.arch {
			all = append(all, checkEmulator(ctx, e.program, e.pkg))
		}
	}
	for _, tool := range []struct{ program, pkg string }{
		{"apt-get", "apt"}, {"apt-cache", "apt"}, {"dpkg-deb", "dpkg"}, {"xz", "xz-utils"},
	} {
		path, err := exec.LookPath(tool.program)
		all = append(all, Check{tool.program, err == nil, path, "on the PATH", install(tool.pkg)})
	}
	key, err := keyring()
	all = append(all, Check{"Debian's keys", err == nil, key, strings.Join(keyrings, " or "), install("debian-archive-keyring")})
	return append(all, checkGo(ctx, opt), checkMirrors(opt), checkNamespaces(ctx), checkDisk(opt))
}

func install(pkg string) string { return "apt-get install --no-install-recommends " + pkg }

var versionIn = regexp.MustCompile(`version ([0-9]+(?:\.[0-9]+)*)`)

func checkEmulator(ctx context.Context, program, pkg string) Check {
	c := Check{Name: program, Want: qemuOldest + " or newer", Fix: install(pkg)}
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if m := versionIn.FindSubmatch(out); err == nil && m != nil {
		c.Found = string(m[1])
		c.OK = atLeast(c.Found, qemuOldest)
	}
	return c
}

// atLeast compares dotted numbers.
func atLeast(have, want string) bool {
	h, w := strings.Split(have, "."), strings.Split(want, ".")
	for i := range w {
		if i >= len(h) {
			return false
		}
		x, err1 := strconv.Atoi(h[i])
		y, err2 := strconv.Atoi(w[i])
		if err1 != nil || err2 != nil || x != y {
			return err1 == nil && err2 == nil && x > y
		}
	}
	return true
}

func checkGo(ctx context.Context, opt Options) Check {
	c := Check{Name: "Go", Want: "as go.mod says", Fix: "ci/setup.sh"}
	b, err := newBuilder(Options{Arch: targets[0].name, Root: opt.Root})
	if err != nil {
		return c
	}
	gocmd, err := b.gocmd(ctx)
	if err != nil {
		c.Found = err.Error()
		return c
	}
	// In the repository, so that go.mod has its say.
	out, err := b.run(ctx, nil, gocmd, "env", "GOVERSION")
	c.OK, c.Found = err == nil, strings.TrimSpace(string(out))
	return c
}

func checkMirrors(opt Options) Check {
	c := Check{Name: "Debian archive", Want: "MIRROR= or an entry of the host's apt",
		Fix: "MIRROR=http://mirror.example/debian"}
	if opt.Mirror != "" {
		c.OK, c.Found = checkMirror(opt.Mirror) == nil, opt.Mirror
		return c
	}
	uris := hostMirrors("/etc/apt")
	c.OK, c.Found = len(uris) > 0, strings.Join(uris, " ")
	return c
}

// checkNamespaces tries what Root.Command does for ordinary users.
func checkNamespaces(ctx context.Context) Check {
	c := Check{Name: "user namespaces", OK: true, Found: "root, not needed", Want: "allowed, unless root",
		Fix: "sysctl kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0"}
	if os.Geteuid() == 0 {
		return c
	}
	r := &Root{Path: "/"}
	cmd := r.Command(ctx, "/", "true")
	cmd.Args[2] = "mount --bind /dev/null /dev/null"
	err := cmd.Run()
	c.OK, c.Found = err == nil, "work"
	if err != nil {
		c.Found = err.Error()
	}
	return c
}

func checkDisk(opt Options) Check {
	c := Check{Name: "disk", Want: fmt.Sprintf("%d GiB free", diskWanted>>30), Fix: "set XDG_CACHE_HOME, or lab image gc"}
	cache, _, err := storeOf(opt)
	if err != nil {
		c.Found = err.Error()
		return c
	}
	// The cache may not be there yet: ask the nearest directory that is.
	dir := cache.dir
	for _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) && dir != "/"; _, err = os.Stat(dir) {
		dir = filepath.Dir(dir)
	}
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		c.Found = err.Error()
		return c
	}
	free := int64(s.Bavail) * int64(s.Bsize)
	c.OK, c.Found = free >= diskWanted, fmt.Sprintf("%.1f GiB in %s", float64(free)/(1<<30), dir)
	return c
}
