package images

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// A word means the newest kernel that it fits.
func TestNewest(t *testing.T) {
	have := map[string]string{
		"6.1.0-9": "6.1.27-1", "6.1.0-50": "6.1.176-1",
		"6.12.90+deb13": "6.12.90-1", "6.12.90+deb13.1": "6.12.90-2", "6.12.107+deb13": "6.12.107-1",
		"7.2.9+deb14": "7.2.9-1", "7.2.12+deb14": "7.2.12-1",
	}
	for word, want := range map[string]string{
		"6.1": "6.1.0-50", "6.1.0": "6.1.0-50", "6.1.27": "6.1.0-9", "6.1.27-1": "6.1.0-9", "6.1.0-9-amd64": "6.1.0-9",
		"6.12": "6.12.107+deb13", "6.12.90": "6.12.90+deb13.1", "6.12.90+deb13": "6.12.90+deb13", "6.12.9": "",
		"7.2": "7.2.12+deb14", "7.2.12+deb14-amd64": "7.2.12+deb14", "7.2.12+deb14-arm64": "", "7": "7.2.12+deb14", "5.10": "", "": "",
	} {
		if got := newest(word, have, targets[0]); got != want {
			t.Errorf("newest(%q) = %q, want %q", word, got, want)
		}
	}
}

// An image whose headers are gone is none that the module can be built for, and another's
// headers do not help.
func TestBuildable(t *testing.T) {
	got := buildable([]string{
		"linux-image-6.12.90+deb13-arm64", "linux-image-6.12.94+deb13-arm64", "linux-image-6.12.107+deb13-arm64", "linux-image-arm64",
		"linux-image-6.12.107+deb13-cloud-arm64", "linux-headers-6.12.107+deb13-cloud-arm64",
		"linux-headers-6.12.90+deb13-amd64", "linux-headers-6.12.94+deb13-common", "linux-headers-6.12.107+deb13-arm64",
	}, targets[1])
	if want := []string{"linux-image-6.12.107+deb13-arm64:arm64"}; !slices.Equal(got, want) {
		t.Errorf("buildable = %v, want %v", got, want)
	}
}

// Kbuild's programs want a C library that the toolchain may be too old for; of the host's,
// and not of the target's.
func TestRuns(t *testing.T) {
	s := &selection{Toolchain: []Package{{Name: "libc6", Version: "2.42-1", Arch: "arm64"}, {Name: "libc6", Version: "2.41-12+deb13u1", Arch: "amd64"}}}
	a := &apt{of: debianSuite{"forky", "Debian"}, host: "amd64"}
	const refused = "images: kbuild of forky needs libc6 2.42, the toolchain's of trixie is 2.41-12+deb13u1: the module cannot be built for this kernel"
	for depends, want := range map[string]string{
		"libc6 (>= 2.41), libelf1t64 (>= 0.144)": "", "libc6 (>= 2.4)": "", "libelf1t64 (>= 9)": "", "": "",
		"libelf1t64 (>= 0.144), libc6 (>= 2.42)": refused,
	} {
		if err := s.runs(context.Background(), "kbuild", depends, a); err != nil && err.Error() != want || err == nil && want != "" {
			t.Errorf("%q: %v, want %q", depends, err, want)
		}
	}
}

// The packages of a kernel are those that its image and headers depend on, of whatever
// layout; nothing else of the suite is.
func TestNeedsOf(t *testing.T) {
	for name, tt := range map[string]struct {
		release, image, headers string
		want                    kernelNeeds
	}{
		"bookworm": {"6.1.0-50", "kmod, linux-base (>= 4.3~), initramfs-tools | linux-initramfs-tool",
			"linux-headers-6.1.0-50-common (= 6.1.176-1), linux-kbuild-6.1 (>= 6.1.176-1), linux-compiler-gcc-12-x86",
			kernelNeeds{nil, []string{"linux-kbuild-6.1:amd64", "linux-headers-6.1.0-50-common"}}},
		"forky": {"7.2.12+deb14", "dracut | initramfs-tools, linux-base-7.2.12+deb14-arm64 (= 7.2.12-1), linux-binary-7.2.12+deb14-arm64 (= 7.2.12-1), linux-modules-7.2.12+deb14-arm64 (= 7.2.12-1)",
			"gcc-16-for-host, linux-base (>= 4.12~), linux-base-7.2.12+deb14-arm64 (= 7.2.12-1), linux-headers-7.2.12+deb14-common (= 7.2.12-1), linux-kbuild-7.2.12+deb14",
			kernelNeeds{[]string{"linux-base-7.2.12+deb14-arm64:arm64", "linux-binary-7.2.12+deb14-arm64:arm64", "linux-modules-7.2.12+deb14-arm64:arm64"},
				[]string{"linux-kbuild-7.2.12+deb14:amd64", "linux-headers-7.2.12+deb14-common"}}},
		"bookworm-backports": {"6.12.95+deb12", "kmod, linux-base (>= 4.3~)",
			"linux-image-6.12.95+deb12-arm64 (= 6.12.95-1~bpo12+1) | linux-image-6.12.95+deb12-arm64-unsigned, linux-headers-6.12.95+deb12-common, linux-kbuild-6.12.95+deb12",
			kernelNeeds{nil, []string{"linux-kbuild-6.12.95+deb12:amd64", "linux-headers-6.12.95+deb12-common"}}},
	} {
		roots := []string{"linux-image-" + tt.release + "-arm64:arm64"}
		tt.want.target = append(roots, tt.want.target...)
		got := needsOf([]map[string]string{{"depends": tt.image}, {"depends": tt.headers}}, roots, tt.release, "amd64", "arm64")
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: needsOf = %v, want %v", name, got, tt.want)
		}
	}
}

// What is locked stays, but for what is of the locked kernel.
func TestBare(t *testing.T) {
	lock, err := ReadLock("..")
	must(t, err)
	s, ok := selectionOf("amd64", targets[1], lock)
	left := s.bare()
	dropped := len(s.all()) - len(left.all())
	if !ok || dropped != 4 || !slices.ContainsFunc(left.Toolchain, func(p Package) bool { return p.Name == "linux-libc-dev" || p.Name == "libelf1t64" }) {
		t.Errorf("without its kernel, %d packages are fewer, want 4: %v", dropped, left)
	}
}

// One message says what there is, by suite.
func TestNoKernelError(t *testing.T) {
	e := &NoKernelError{"6.2", "riscv64", "http://m", []suiteKernels{
		(&apt{of: trixie}).having(map[string]string{"6.12.107+deb13": "", "6.12.94+deb13": ""}),
		{suite: "bookworm"}, {suite: "sid", unread: true},
	}}
	const want = "mirror http://m has no kernel 6.2 for riscv64: trixie has 6.12.94+deb13, 6.12.107+deb13; bookworm has none; sid cannot be read"
	if got := e.Error(); !strings.HasPrefix(got, want) {
		t.Errorf("it says %q, want %q", got, want)
	}
}
