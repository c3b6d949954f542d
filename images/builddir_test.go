package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// built is a folder that looks like one in which a kernel for arm64 was built,
// by programs that are on the PATH of this test.
func built(t *testing.T) string {
	t.Helper()
	dir, bin := t.TempDir(), t.TempDir()
	config := "CONFIG_ARM64=y\nCONFIG_64BIT=y\nCONFIG_CC_IS_GCC=y\nCONFIG_CC_VERSION_TEXT=\"aarch64-mine-gcc-9 (Mine) 9.1\"\n"
	for _, n := range needed {
		config += "CONFIG_" + n.option + "=y\n"
	}
	for name, content := range map[string]string{
		".config": config, autoConf: config, "include/config/kernel.release": "6.1-mine\n",
		"arch/arm64/boot/Image": "kernel", "Module.symvers": "symbols",
		"modules.order": "fs/fs.o\n", "fs/fs.ko": string(module(t, "")), "modules.builtin": "kernel/lib/inside.ko\n",
	} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755), os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	for _, p := range []string{"make", "aarch64-mine-gcc-9", "aarch64-mine-nm", "aarch64-mine-objcopy", "aarch64-mine-strip"} {
		must(t, os.WriteFile(filepath.Join(bin, p), []byte("#!/bin/sh\n"), 0o755))
	}
	t.Setenv("PATH", bin)
	t.Setenv("CROSS_COMPILE", "")
	return dir
}

// Whatever a build directory lacks is said, with what to do about it.
func TestBuildDirErrors(t *testing.T) {
	remove := func(names ...string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			for _, name := range names {
				must(t, os.Remove(filepath.Join(dir, name)))
			}
		}
	}
	configured := func(old, new string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			name := filepath.Join(dir, autoConf)
			b, err := os.ReadFile(name)
			if err != nil || !strings.Contains(string(b), old) {
				t.Fatalf("%s: %v", old, err)
			}
			must(t, os.WriteFile(name, []byte(strings.Replace(string(b), old, new, 1)), 0o644))
		}
	}
	for name, tt := range map[string]struct {
		spoil func(t *testing.T, dir string)
		want  string
	}{
		"nothing there":      {func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)) }, "does not exist"},
		"not configured":     {remove(".config", autoConf), "is not one"},
		"not built":          {remove(autoConf), "configured, but not built"},
		"no release":         {remove("include/config/kernel.release"), "configured, but not built"},
		"no kernel":          {remove("arch/arm64/boot/Image"), "has no kernel (none of arch/arm64/boot/Image, arch/arm64/boot/Image.gz, boot/vmlinuz-6.1-mine"},
		"no symbols":         {remove("Module.symvers"), "has no modules (no Module.symvers): run make modules there"},
		"no list of modules": {remove("modules.order"), "neither modules.order nor lib/modules/6.1-mine"},
		"a module missing":   {remove("fs/fs.ko"), "fs/fs.ko is not there"},
		"other ISA":          {configured("ARM64=y", "RISCV=y"), "is of riscv64, not of arm64: give --arch riscv64"},
		"unknown ISA":        {configured("ARM64=y", "SPARC=y"), "is of none of amd64, arm64, riscv64"},
		"32 bits":            {configured("64BIT=y", "32BIT=y"), "is of none of"},
		"an option missing":  {configured("CONFIG_JUMP_LABEL=y\n", ""), "lacks CONFIG_JUMP_LABEL=y (kerninst.ko asks"},
		"an option modular":  {configured("VIRTIO_CONSOLE=y", "VIRTIO_CONSOLE=m"), "lacks CONFIG_VIRTIO_CONSOLE=y (results"},
		"signed only":        {configured("CONFIG_64BIT=y", "CONFIG_64BIT=y\nCONFIG_MODULE_SIG_FORCE=y"), "MODULE_SIG_FORCE"},
		"no compiler":        {configured("mine-gcc-9", "other-gcc"), "aarch64-other-gcc is not on the PATH"},
		"no clang":           {configured("CC_IS_GCC", "CC_IS_CLANG"), "clang is not on the PATH"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := built(t)
			tt.spoil(t, dir)
			_, err := openBuildDir(dir, targets[1])
			var bad *BuildDirError
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("got %v; want a *BuildDirError about %q", err, tt.want)
			}
		})
	}
}

func TestBuildDir(t *testing.T) {
	dir := built(t)
	d, err := openBuildDir(dir, targets[1])
	if err != nil {
		t.Fatal(err)
	}
	if d.release != "6.1-mine" || d.image != filepath.Join(dir, "arch/arm64/boot/Image") || d.tools.strip != "aarch64-mine-strip" {
		t.Errorf("got %+v", d)
	}
	for _, name := range []string{"fs", "inside"} {
		if _, err := loadable(context.Background(), d.modules, d.release, []string{name}); err != nil {
			t.Errorf("module %s: %v", name, err)
		}
	}
	// What is installed beside it goes before what was built.
	must(t, os.MkdirAll(filepath.Join(dir, "lib/modules/6.1-mine/kernel"), 0o755), os.Remove(filepath.Join(dir, "modules.order")),
		os.WriteFile(filepath.Join(dir, "lib/modules/6.1-mine/kernel/other.ko"), module(t, ""), 0o644))
	if d, err = openBuildDir(dir, targets[1]); err != nil {
		t.Fatal(err)
	}
	if got, err := loadable(context.Background(), d.modules, d.release, []string{"other"}); err != nil || len(got) != 1 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestKernelWord(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, os.Mkdir("build", 0o755))
	wd, err := os.Getwd()
	must(t, err)
	for word, want := range map[string]string{
		"": "", "6.12.107": "6.12.107", "6.12.107+deb13": "6.12.107+deb13", "build": wd + "/build", ".": wd, "none/": wd + "/none", "/x/y": "/x/y",
	} {
		if got := KernelWord(word); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}

func TestTools(t *testing.T) {
	foreign, own := targets[1], targets[0]
	if hostArch() == foreign.name {
		foreign, own = own, foreign
	}
	for _, tt := range []struct {
		got  kbuildTools
		want string
	}{
		{gnuTools("gcc (Debian 14.2.0-19) 14.2.0", "", own), "[CROSS_COMPILE= CC=gcc] gcc nm"},
		{gnuTools("gcc-14 (Debian 14.2.0-19) 14.2.0", "", own), "[CROSS_COMPILE= CC=gcc-14] gcc-14 nm"},
		{gnuTools(foreign.triplet+"-gcc-14 (Debian) 14", "", foreign), fmt.Sprintf("[CROSS_COMPILE=%[1]s- CC=%[1]s-gcc-14] %[1]s-gcc-14 %[1]s-nm", foreign.triplet)},
		// Built on a machine of its own ISA.
		{gnuTools("gcc-14 (Debian) 14", "", foreign), fmt.Sprintf("[CROSS_COMPILE=%[1]s- CC=%[1]s-gcc] %[1]s-gcc %[1]s-nm", foreign.triplet)},
		{gnuTools("gcc-14 (Debian) 14", "/opt/x-", foreign), "[CROSS_COMPILE=/opt/x- CC=/opt/x-gcc] /opt/x-gcc /opt/x-nm"},
		{llvmTools(""), "[LLVM=1] clang llvm-nm"},
		{llvmTools("-19"), "[LLVM=-19] clang-19 llvm-nm-19"},
		{llvmTools("/opt/bin/"), "[LLVM=/opt/bin/] /opt/bin/clang /opt/bin/llvm-nm"},
	} {
		if got := fmt.Sprint(tt.got.make, " ", tt.got.cc, " ", tt.got.nm); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}
