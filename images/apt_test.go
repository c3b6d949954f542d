package images

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestHostMirrors(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"sources.list": `# deb http://commented.example/debian trixie main
deb [arch=amd64 signed-by=/x] http://third.example/repo stable main
deb http://one.example/debian/ bookworm main # comment
deb-src http://source.example/debian bookworm main
deb cdrom:[disc]/ bookworm main
debian nonsense
`,
		"sources.list.d/debian.sources": `Types: deb deb-src
# comment
URIs: http://two.example/debian
 https://three.example/debian
Suites: bookworm

Types: deb
URIs: http://two.example/debian-security
Suites: bookworm-security

Enabled: no
Types: deb
URIs: http://off.example/debian

Types: deb-src
URIs: http://source.example/debian
`,
	} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"http://one.example/debian", "http://two.example/debian",
		"https://three.example/debian", "http://third.example/repo"}
	if got := hostMirrors(dir); !reflect.DeepEqual(got, want) {
		t.Errorf("hostMirrors = %q, want %q", got, want)
	}
}

func TestCheckMirror(t *testing.T) {
	tests := []struct {
		uri string
		ok  bool
	}{
		{"http://mirror.example/debian", true},
		{"https://user:pass@mirror.example:8080/debian", true},
		{"file:///srv/debian", true},
		{"", false},
		{"mirror.example/debian", false},
		{"http:///debian", false},
		{"ftp://mirror.example/debian", false},
		{"http://mirror.example/debian sid main", false},
		{"http://mirror.example/\ndeb [trusted=yes] http://bad.example/ x", false},
	}
	for _, tt := range tests {
		if err := checkMirror(tt.uri); (err == nil) != tt.ok {
			t.Errorf("checkMirror(%q) = %v, want ok %v", tt.uri, err, tt.ok)
		}
	}
}

func TestHostAcquire(t *testing.T) {
	const dump = `Acquire "";
Acquire::http::Proxy "http://proxy.example:3128/";
Acquire::AllowInsecureRepositories "1";
Acquire::AllowInsecureRepositoriesNot "1";
Acquire::IndexTargets::deb::Packages::MetaKey "x";
Acquire::Languages:: "de";
Acquire::Check-Date "false";
`
	const want = `Acquire::http::Proxy "http://proxy.example:3128/";
Acquire::AllowInsecureRepositoriesNot "1";
Acquire::Check-Date "false";
`
	if got := hostAcquire(dump); got != want {
		t.Errorf("hostAcquire = %q, want %q", got, want)
	}
}

func TestParseOffers(t *testing.T) {
	out := "Reading...\n'http://m/pool/a%3a.deb' gawk_1%3a5.2.1+b1_amd64.deb 673696 SHA256:" + sumA + "\n"
	got, err := (&apt{mirror: "http://m"}).parseOffers(out)
	want := []offer{{Package{"gawk", "1:5.2.1+b1", "amd64", Digest{sumA, 673696}, "pool/a%3a.deb"}, "gawk_1%3a5.2.1+b1_amd64.deb"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("parseOffers = %v, %v, want %v", got, err, want)
	}
	if got, err := (&apt{mirror: "http://m"}).parseOffers("'http://m/a.deb' odd.deb 1 SHA256:" + sumA + "\n"); err == nil {
		t.Errorf("parseOffers of an odd name = %v, want an error", got)
	}
}

// Paths are had of whatever apt writes before them.
func TestPathOf(t *testing.T) {
	for _, tt := range []struct{ mirror, address, want string }{
		{"http://m/debian", "http://m/debian/pool/main/a_1%2b2.deb", "pool/main/a_1%2b2.deb"},
		{"file:///srv/debian", "file:/srv/debian/pool/a..b.deb", "pool/a..b.deb"},
		{"https://me:pw@m:8080/debian", "https://m:8080/debian/pool/a.deb", "pool/a.deb"},
		{"http://m/debian", "http://m/other/pool/a.deb", ""},
		{"http://m/debian", "http://m/debian/elsewhere/a.deb", ""},
		{"http://m/debian", "http://m/debian/pool/../a.deb", ""},
	} {
		if got := (&apt{mirror: tt.mirror}).pathOf(tt.address); got != tt.want {
			t.Errorf("at %s, the path of %s is %q, want %q", tt.mirror, tt.address, got, tt.want)
		}
	}
}

func TestReleaseIn(t *testing.T) {
	tests := []struct {
		name, want string
		ok         bool
	}{
		{"linux-image-6.12.107+deb13-amd64", "6.12.107+deb13", true},
		{"linux-image-6.12.107+deb13.1-amd64", "6.12.107+deb13.1", true},
		{"linux-image-6.1.0-50-amd64", "6.1.0-50", true},
		{"linux-image-6.1.0-50-cloud-amd64", "", false},
		{"linux-image-6.12.107+deb13-cloud-amd64", "", false},
		{"linux-image-6.12.107+deb13-amd64-unsigned", "", false},
		{"linux-image-6.12.107+deb13-arm64", "", false},
		{"linux-image-amd64", "", false},
	}
	for _, tt := range tests {
		got, ok := releaseIn(tt.name, targets[0])
		if ok != tt.ok || ok && got != tt.want {
			t.Errorf("releaseIn(%s) = %q, %v, want %q, %v", tt.name, got, ok, tt.want, tt.ok)
		}
	}
}

func TestMatches(t *testing.T) {
	for word, want := range map[string]bool{
		"6.12.107+deb13": true, "6.12.107+deb13-amd64": true, "6.12.107": true, "6.12.107-1": true,
		"6.12": true, "6.12.1": false, "6.12.107+deb13-arm64": false, "": false,
	} {
		if got := matches(word, "6.12.107+deb13", "6.12.107-1", targets[0]); got != want {
			t.Errorf("matches(%q) = %v, want %v", word, got, want)
		}
	}
}

// These run apt itself, against nothing.
func TestBadInput(t *testing.T) {
	empty := "file://" + t.TempDir()
	tests := []struct {
		name string
		opt  Options
		want []string // in the message
	}{
		{"architecture", Options{Arch: "mips"}, []string{`"mips"`, "amd64, arm64, riscv64"}},
		{"no architecture", Options{}, []string{`""`}},
		{"mirror without Debian", Options{Arch: "arm64", Mirror: empty}, []string{empty, "has no Debian trixie"}},
		{"no network", Options{Arch: "arm64", Mirror: "http://127.0.0.1:1/debian"}, []string{"http://127.0.0.1:1/debian cannot be reached: without a network, lab image import"}},
		{"mirror of nonsense", Options{Arch: "arm64", Mirror: "debian"}, []string{`"debian" is not an address`}},
		{"offline", Options{Arch: "arm64", Offline: true}, []string{"offline", "lacks"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			testCache(t)
			tt.opt.Root = ".."
			_, err := Toolchain(context.Background(), tt.opt)
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("Toolchain = %v, want %q in it", err, want)
				}
			}
		})
	}
}

// TestAptCause: a mirror's address may have any number in it.
func TestAptCause(t *testing.T) {
	for said, want := range map[string]string{
		"E: Failed to fetch http://127.0.0.1:40449/debian/dists/trixie/InRelease  Connection failed [IP: 127.0.0.1 40449]": "cannot be reached",
		"E: Failed to fetch http://m:404/x/InRelease  Could not connect to m:404":                                          "cannot be reached",
		"E: Failed to fetch http://m/x/InRelease  404  Not Found [IP: 127.0.0.1 40449]":                                    "has no Debian trixie",
		"E: The repository 'http://m trixie Release' does not have a Release file.":                                        "has no Debian trixie",
	} {
		if got := aptCause(said, "trixie"); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", said, got, want)
		}
	}
}
