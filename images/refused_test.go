package images

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Of a wall of a compiler's output, the first error is left.
func TestFirstError(t *testing.T) {
	for said, want := range map[string]string{
		"/build/module/faults.h:17:52: warning: odd\n/build/module/area.c:91:29: note: x\n/build/module/area.c:143:16: error: implicit declaration of function 'set_memory_rox'\n" +
			"/build/module/area.c:563:9: error: other\nmake: *** [/usr/src/Makefile:2050: /build/module] Error 2\n": "area.c:143: implicit declaration of function 'set_memory_rox'",
		"a.c:1:2: fatal error: linux/x.h: No such file or directory\n":           "a.c:1: linux/x.h: No such file or directory",
		"ERROR: modpost: missing MODULE_LICENSE() in x.o\nmake: *** [x] Error 1": "missing MODULE_LICENSE() in x.o",
		"undefined, not exported, not in internals.h: a b\n":                     "undefined, not exported, not in internals.h: a b",
		"make: *** No rule to make target 'x'.  Stop.\n":                         "make: *** No rule to make target 'x'.  Stop.",
		"all is well\n": "",
	} {
		if got := firstError(said); got != want {
			t.Errorf("firstError(%q) = %q, want %q", said, got, want)
		}
	}
}

// A kernel that was asked for is refused in one sentence, the locked one with all of it.
func TestNotFor(t *testing.T) {
	err := &toolError{"make", errors.New("exit status 2"), nil, []byte("x.c:1:2: error: no\nmore\n")}
	b := &builder{opt: Options{Kernel: "6.1"}}
	const want = "kernel 6.1.0-50-amd64: the module cannot be built for it: x.c:1: no"
	if got := b.notFor("6.1.0-50-amd64", err).Error(); got != want {
		t.Errorf("notFor = %q, want %q", got, want)
	}
	b.opt.Kernel = ""
	if got := b.notFor("6.12.1+deb13-amd64", err).Error(); !strings.Contains(got, "more") {
		t.Errorf("of the locked kernel, notFor = %q, want all of it", got)
	}
}

// A kernel is refused for what it was built without, but not for what comes along as a
// module; the locked one is not asked.
func TestFits(t *testing.T) {
	var all strings.Builder
	for _, n := range needed {
		fmt.Fprintf(&all, "CONFIG_%s=%s\n", n.option, map[bool]string{true: "m", false: "y"}[strings.HasPrefix(n.option, "VIRTIO_")])
	}
	for name, tt := range map[string]struct{ kernel, without, want string }{
		"fits":   {"6.1", "", ""},
		"lacks":  {"6.1", "CONFIG_KALLSYMS_ALL=y\n", "kernel 6.1.0-50-arm64 lacks CONFIG_KALLSYMS_ALL=y (kerninst.ko is told where some of the kernel's data is)"},
		"locked": {"", "CONFIG_KALLSYMS_ALL=y\n", ""},
	} {
		root := t.TempDir()
		dir := filepath.Join(root, "usr/src/linux-headers-6.1.0-50-arm64")
		must(t, os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, ".config"), []byte(strings.Replace(all.String(), tt.without, "", 1)), 0o644))
		b := &builder{opt: Options{Kernel: tt.kernel}, t: targets[1]}
		err := b.fits(&Root{Path: root}, &selection{Kernel: "6.1.0-50"})
		if err == nil && tt.want != "" || err != nil && err.Error() != tt.want {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}
