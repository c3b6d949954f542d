package images

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"kerninst/agent/near"
)

// software is what of Debian's a guest can bring along beside the image: some programs
// and folders of some packages, and the libraries that the programs are linked with.
// Packages are named one by one, not by what they depend on: most of that is for
// somebody who administers a system.
type software struct {
	packages []string
	only     map[string][]string // packages that some ISA needs besides, by ISA
	// unlocked are ISAs for which nothing is locked, and why; the mirror is asked each time.
	unlocked map[string]string
	programs []string // by their paths in the packages, as in the guest
	folders  []string
	// host: it is for what makes files for guests, not for them.
	host bool
	// memory of a guest that unpacks and runs it, in MiB; 0: the lab's default.
	memory int
}

// of are the packages for an ISA, by name.
func (s software) of(arch string) []string {
	all := slices.Concat(s.packages, s.only[arch])
	slices.Sort(all)
	return all
}

// softwares are those that there are, by name.
var softwares = map[string]software{
	// A proxy, and what makes the file system for its store.
	"squid": {
		packages: []string{
			"e2fsprogs", "libblkid1", "libc6", "libcap2", "libcom-err2", "libecap3", "libext2fs2t64", "libffi8",
			"libgcc-s1", "libgmp10", "libgnutls30t64", "libgssapi-krb5-2", "libhogweed6t64", "libidn2-0", "libk5crypto3",
			"libkeyutils1", "libkrb5-3", "libkrb5support0", "libltdl7", "libmnl0", "libnetfilter-conntrack3",
			"libnettle8t64", "libnfnetlink0", "libp11-kit0", "libstdc++6", "libsystemd0", "libtasn1-6", "libunistring5",
			"libuuid1", "squid", "squid-common", "squid-langpack",
		},
		programs: []string{"/usr/sbin/squid-gnutls", "/usr/lib/squid/unlinkd", "/usr/sbin/mke2fs"},
		folders:  []string{"/usr/share/squid", "/usr/share/squid-langpack/en", "/etc/mke2fs.conf"},
	},
	// A web server, with the modules that it has a choice of, and its own benchmark.
	"apache": {
		packages: []string{
			"apache2-bin", "apache2-utils", "libapr1t64", "libaprutil1t64", "libc6", "libcrypt1", "libexpat1",
			"libpcre2-8-0", "libssl3t64", "libuuid1", "libzstd1", "media-types", "zlib1g",
		},
		programs: []string{
			"/usr/sbin/apache2", "/usr/bin/ab", "/usr/lib/apache2/modules/mod_mpm_prefork.so",
			"/usr/lib/apache2/modules/mod_mpm_event.so", "/usr/lib/apache2/modules/mod_mime.so",
			"/usr/lib/apache2/modules/mod_authz_core.so",
		},
		folders: []string{"/etc/mime.types"},
	},
	// The tracer that our answers are compared with. A compiler is a part of it.
	"bpftrace": {
		packages: []string{
			"bpftrace", "libbpf1", "libbpfcc", "libbsd0", "libc6", "libclang-cpp19", "libclang1-19", "libedit2",
			"libelf1t64", "libffi8", "libgcc-s1", "libllvm19", "liblzma5", "libmd0", "libsframe1", "libstdc++6",
			"libtinfo6", "libxml2", "libz3-4", "libzstd1", "zlib1g",
		},
		only:     map[string][]string{"riscv64": {"libatomic1"}}, // elsewhere the compiler has the instructions
		programs: []string{"/usr/bin/bpftrace"},
		memory:   1536, // 290 MiB of files, twice while they are unpacked, and 400 to compile
	},
	// The kernel's own tool, which likewise is compared with. It is linked with two interpreters and
	// what speaks to servers of debugging information; of these it only asks whether they are there.
	"perf": {
		packages: []string{
			"libatomic1", "libbabeltrace1", "libbrotli1", "libbz2-1.0", "libc6", "libcom-err2", "libcrypt1",
			"libcurl3t64-gnutls", "libdebuginfod1t64", "libdw1t64", "libelf1t64", "libexpat1", "libffi8", "libgcc-s1",
			"libglib2.0-0t64", "libgmp10", "libgnutls30t64", "libgssapi-krb5-2", "libhogweed6t64", "libidn2-0", "libjson-c5",
			"libk5crypto3", "libkeyutils1", "libkrb5-3", "libkrb5support0", "libldap2", "liblzma5", "libnettle8t64",
			"libnghttp2-14", "libnghttp3-9", "libngtcp2-16", "libngtcp2-crypto-gnutls8", "libnuma1", "libopencsd1",
			"libp11-kit0", "libpcre2-8-0", "libperl5.40", "libpsl5t64", "libpython3.13", "librtmp1", "libsasl2-2", "libslang2",
			"libssh2-1t64", "libssl3t64", "libstdc++6", "libtasn1-6", "libtraceevent1", "libunistring5", "libunwind8",
			"libuuid1", "libzstd1", "linux-perf", "zlib1g",
		},
		only:     map[string][]string{"riscv64": {"libaudit1", "libcap-ng0"}}, // which names system calls; elsewhere perf has a table
		unlocked: map[string]string{"riscv64": "when the others were locked, the mirror's index of packages for riscv64 was older than what its signed Release says"},
		programs: []string{"/usr/bin/perf"},
		memory:   640, // 53 MiB of files, twice while they are unpacked
	},
	// What loads SystemTap's modules, and reads what they find. It is linked with what fetches
	// debugging information and checks signatures, and asks neither.
	"systemtap": {
		packages: append([]string{"systemtap-runtime"}, tapLibraries...),
		programs: []string{"/usr/bin/staprun", "/usr/lib/systemtap/stapio"},
	},
	// What makes these modules, of a script.
	tapTranslator: {
		packages: append([]string{
			"libavahi-client3", "libavahi-common3", "libbz2-1.0", "libcap2", "libdbus-1-3", "libdw1t64", "liblzma5",
			"libsqlite3-0", "libsystemd0", "systemtap", "systemtap-common",
		}, tapLibraries...),
		unlocked: map[string]string{"riscv64": "toolchains are locked for hosts of amd64 and arm64"},
		programs: []string{"/usr/bin/stap"},
		folders:  []string{"/usr/share/systemtap/runtime", "/usr/share/systemtap/tapset"},
		host:     true,
	},
}

// tapLibraries are what both of SystemTap's programs are linked with.
var tapLibraries = []string{
	"libbrotli1", "libc6", "libcom-err2", "libcurl3t64-gnutls", "libdebuginfod1t64", "libelf1t64", "libffi8", "libgcc-s1",
	"libgmp10", "libgnutls30t64", "libgssapi-krb5-2", "libhogweed6t64", "libidn2-0", "libjson-c5", "libk5crypto3",
	"libkeyutils1", "libkrb5-3", "libkrb5support0", "libldap2", "libnettle8t64", "libnghttp2-14", "libnghttp3-9",
	"libngtcp2-16", "libngtcp2-crypto-gnutls8", "libnspr4", "libnss3", "libp11-kit0", "libpsl5t64", "librtmp1",
	"libsasl2-2", "libssh2-1t64", "libssl3t64", "libstdc++6", "libtasn1-6", "libunistring5", "libzstd1", "zlib1g",
}

// softwareSet names a software's packages in the lock.
func softwareSet(name, arch string) string { return "software/" + name + "/" + arch }

// Software returns what a guest brings along to run programs of Debian's, by the name
// of what they make together.
func Software(ctx context.Context, opt Options, name string) ([]File, error) {
	b, err := newBuilder(opt)
	if err == nil {
		err = b.cache.use(ctx)
	}
	if err != nil {
		return nil, err
	}
	if err := CheckSoftware(name); err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	made, err := b.software(ctx, name)
	if err != nil {
		return nil, err
	}
	var out []File
	for _, at := range sortedNames(made) {
		d := made[at]
		if err := b.cache.verify(d); err != nil {
			b.cache.discard(d, at, err)
			return nil, err
		}
		out = append(out, File{Path: at, Mode: softwareMode(at), Source: b.cache.object(d)})
	}
	return out, nil
}

// SoftwarePrograms are the programs among those files, without content.
func SoftwarePrograms(name string) (out []File) {
	for _, at := range softwares[name].programs {
		out = append(out, File{Path: at, Mode: softwareMode(at)})
	}
	return out
}

// Softwares are the names of those that there are for guests, sorted.
func Softwares() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(softwares)), func(name string) bool { return softwares[name].host })
}

// CheckSoftware says whether there is one for guests by that name.
func CheckSoftware(name string) error {
	if !slices.Contains(Softwares(), name) {
		return fmt.Errorf("no software %q: there are %s%s", name, strings.Join(Softwares(), ", "), near.Hint(name, Softwares()))
	}
	return nil
}

// SoftwareUnlocked is why nothing is locked of a software for an ISA, so that it is there only if
// the mirror has it; "": it is locked.
func SoftwareUnlocked(name, arch string) string { return softwares[name].unlocked[arch] }

// SoftwareMemory is what a guest with these needs, in MiB; 0: no more than any other.
func SoftwareMemory(names ...string) (most int) {
	for _, name := range names {
		most = max(most, softwares[name].memory)
	}
	return most
}

// softwareMode: programs and libraries, of which one is the loader, are executable.
func softwareMode(at string) fs.FileMode {
	if strings.HasPrefix(at, "/usr/share/") || strings.HasPrefix(at, "/etc/") {
		return 0o644
	}
	return 0o755
}

// software is the files, by their paths in the guest.
func (b *builder) software(ctx context.Context, name string) (files, error) {
	want := softwares[name]
	pkgs, err := b.softwarePackages(ctx, name)
	if err != nil {
		return nil, err
	}
	key := slices.Concat([]string{b.t.name}, want.programs, want.folders)
	for _, p := range pkgs {
		key = append(key, p.SHA256)
	}
	return b.cache.made(ctx, "software", keyOf(key...), func() (files, error) {
		b.say("unpacking %s for %s", name, b.t.name)
		dir, err := b.cache.temp("software")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		if err := b.unpackAll(ctx, pkgs, dir); err != nil {
			return nil, err
		}
		return b.pick(want, dir)
	})
}

// softwarePackages sees to it that the packages are cached: the locked ones, or what
// the mirror has of them.
func (b *builder) softwarePackages(ctx context.Context, name string) ([]Package, error) {
	lock, err := ReadLock(b.opt.Root)
	if err != nil {
		return nil, err
	}
	set := softwareSet(name, b.t.name)
	wanted := softwares[name].of(b.t.name)
	key := keyOf("2", set, strings.Join(wanted, " "), Lock{set: lock[set]}.content()) // nothing may be locked
	if pkgs, ok := b.cachedSoftware(key, lock[set]); ok {
		return pkgs, nil
	}
	switch {
	case b.cache.look || b.cache.used != nil:
		return nil, ErrNotCached
	case b.opt.Offline:
		return nil, fmt.Errorf("images: offline, and the cache %s lacks packages of %s for %s; run once with a network", b.cache.dir, name, b.t.name)
	}
	unlock, err := b.cache.lock(ctx, "packages-"+key)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if pkgs, ok := b.cachedSoftware(key, lock[set]); ok {
		return pkgs, nil
	}
	if err := b.fetchLocked(ctx, lock[set]); err != nil {
		return nil, err
	}
	if pkgs, ok := b.cachedSoftware(key, lock[set]); ok {
		return pkgs, nil
	}
	a, err := b.mirror(ctx, trixie, b.mirrors)
	if err != nil {
		return nil, err
	}
	offers, err := a.exactly(ctx, wanted)
	if err != nil {
		return nil, err
	}
	pkgs := packagesOf(offers)
	drift, err := compare(lock[set], pkgs)
	if err != nil {
		return nil, err
	}
	for _, m := range drift {
		b.say("lock file: %s", m)
	}
	if err := b.download(ctx, a, offers); err != nil {
		return nil, err
	}
	return pkgs, b.cache.store("software-packages", key, pkgs)
}

// cachedSoftware is what an earlier run has chosen, or else what is locked, if all of it
// is in the cache.
func (b *builder) cachedSoftware(key string, locked []Package) ([]Package, bool) {
	var pkgs []Package
	if !b.cache.load("software-packages", key, &pkgs) || len(pkgs) == 0 {
		pkgs = locked
	} else if _, err := compare(locked, pkgs); err != nil {
		pkgs = locked
	}
	for _, p := range pkgs {
		if b.cache.check(p.Digest) != nil {
			return nil, false
		}
	}
	return pkgs, len(pkgs) > 0
}

// pick takes what is wanted out of a folder with unpacked packages.
func (b *builder) pick(want software, dir string) (files, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	p := picker{b: b, root: root, made: files{}}
	for _, name := range want.programs {
		if err := p.program(name); err != nil {
			return nil, err
		}
	}
	for _, name := range want.folders {
		if err := p.folder(name); err != nil {
			return nil, err
		}
	}
	return p.made, nil
}

type picker struct {
	b    *builder
	root *os.Root
	made files
}

// put stores a file of the packages, by its path there, for a place in the guest.
func (p *picker) put(from, at string) error {
	f, err := p.root.Open(strings.TrimPrefix(from, "/"))
	if err != nil {
		return fmt.Errorf("images: the packages for %s lack %s: %w", at, from, err)
	}
	defer f.Close()
	p.made[at], err = p.b.cache.put(f)
	return err
}

// program takes a program, its loader, and the libraries that it and those are linked
// with.
func (p *picker) program(name string) error {
	if err := p.put(name, name); err != nil {
		return err
	}
	todo := []string{name}
	for len(todo) > 0 {
		libs, loader, err := p.linked(todo[0])
		if err != nil {
			return err
		}
		todo = todo[1:]
		if loader != "" && p.made[loader] == (Digest{}) {
			if err := p.put(p.library(path.Base(loader)), loader); err != nil {
				return err
			}
		}
		for _, lib := range libs {
			at := p.library(lib)
			if p.made[at] != (Digest{}) {
				continue
			}
			if err := p.put(at, at); err != nil {
				return err
			}
			todo = append(todo, at)
		}
	}
	return nil
}

// library is where a library is, in the packages and in the guest.
func (p *picker) library(name string) string { return "/usr/lib/" + p.b.t.triplet + "/" + name }

// linked are the libraries that a file of the packages names, and its loader.
func (p *picker) linked(name string) (libs []string, loader string, err error) {
	f, err := p.root.Open(strings.TrimPrefix(name, "/"))
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	e, err := elf.NewFile(f)
	if err != nil {
		return nil, "", fmt.Errorf("images: %s: %w", name, err)
	}
	for _, s := range e.Progs {
		if s.Type != elf.PT_INTERP {
			continue
		}
		b := make([]byte, s.Filesz)
		if _, err := s.ReadAt(b, 0); err != nil {
			return nil, "", fmt.Errorf("images: %s: %w", name, err)
		}
		loader = strings.TrimRight(string(b), "\x00")
	}
	libs, err = e.ImportedLibraries()
	return libs, loader, err
}

// folder takes what is below a path, which may be a file.
func (p *picker) folder(name string) error {
	found := false
	err := fs.WalkDir(p.root.FS(), strings.TrimPrefix(name, "/"), func(at string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		found = true
		return p.put(at, "/"+at)
	})
	if err == nil && !found {
		err = errors.New("nothing is in it")
	}
	if err != nil {
		return fmt.Errorf("images: %s of the packages: %w", name, err)
	}
	return nil
}
