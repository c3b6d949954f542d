package images

import (
	"errors"
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
