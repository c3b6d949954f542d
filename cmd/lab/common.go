package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"kerninst/agent/near"
	"kerninst/images"
	"kerninst/lab/oracle"
	"kerninst/lab/qemu"
	"kerninst/lab/vm"
)

// common are the flags of every verb that has to do with guests.
type common struct {
	arch   string
	mirror string
	kernel string
	look   bool // at what is cached; make nothing
}

func (c *common) add(f *pflag.FlagSet) {
	f.StringVar(&c.arch, "arch", runtime.GOARCH, "ISA: "+strings.Join(images.Arches(), ", "))
	f.StringVar(&c.mirror, "mirror", os.Getenv("MIRROR"), "Debian mirror (default: the host's own)")
	f.StringVar(&c.kernel, "kernel", "", "`VERSION|DIR`: of Debian's kernel package, or the folder that a kernel of your own was built in (default: the locked one)")
}

// arches reads a list of ISAs, each once; "all" alone is all of them.
func arches(list string) ([]string, error) {
	known := images.Arches()
	if list == "all" {
		return known, nil
	}
	var out []string
	for _, a := range strings.Split(list, ",") {
		why := ""
		switch {
		case a == "":
			why = "a name is empty"
		case a == "all":
			why = "all stands for every ISA: give it alone, or leave it out"
		case !slices.Contains(known, a):
			why = fmt.Sprintf("unknown ISA %q%s", a, near.Hint(isaNamed(a), known))
		case slices.Contains(out, a):
			why = a + " is given twice"
		}
		if why != "" {
			return nil, usage(fmt.Errorf("--arch %s: %s; want some of %s, separated by commas, or all", list, why, strings.Join(known, ", ")))
		}
		out = append(out, a)
	}
	return out, nil
}

// one is the only ISA that was asked for; why says so of the command.
func (c *common) one(why string) (string, error) {
	isas, err := arches(c.arch)
	if err == nil && len(isas) != 1 {
		err = usage(fmt.Errorf("--arch %s: %s", c.arch, why))
	}
	if err != nil {
		return "", err
	}
	return isas[0], nil
}

// isaNamed is what others call an ISA in our words, or the name itself.
func isaNamed(s string) string {
	for ours, others := range map[string][]string{
		"amd64": {"x86_64", "x86-64", "x86", "x64"}, "arm64": {"aarch64", "armv8"}, "riscv64": {"riscv", "rv64", "rv64gc"},
	} {
		if slices.Contains(others, strings.ToLower(s)) {
			return ours
		}
	}
	return s
}

// repository is the root of the sources that guests are built from: the one
// that the command's file lies in, else the one that we stand in.
func repository() (string, error) {
	var tried []string
	if exe, err := os.Executable(); err == nil {
		tried = append(tried, filepath.Dir(exe))
	}
	if wd, err := os.Getwd(); err == nil {
		tried = append(tried, wd)
	}
	for _, dir := range tried {
		for ; dir != "/"; dir = filepath.Dir(dir) {
			b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
			if err == nil && strings.HasPrefix(string(b), "module kerninst\n") {
				return dir, nil
			}
		}
	}
	return "", fmt.Errorf("the sources are not here: run bin/lab from its repository")
}

// progress writes one line per phase to stderr.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// image makes or finds the image for one ISA.
func (c *common) image(ctx context.Context, arch string) (*images.Image, images.Options, error) {
	root, err := repository()
	if err != nil {
		return nil, images.Options{}, err
	}
	c.kernel = images.KernelWord(c.kernel)
	opts := images.Options{Arch: arch, Kernel: c.kernel, Mirror: c.mirror, Root: root, Look: c.look, Progress: progress}
	img, err := images.Ensure(ctx, opts)
	return img, opts, kernelError(err)
}

// kernelError tells from other errors that there is no such kernel.
func kernelError(err error) error {
	var dir *images.BuildDirError
	var none *images.NoKernelError
	var word *images.NoVersionError
	var order *images.OrderError
	if errors.As(err, &dir) || errors.As(err, &none) || errors.As(err, &word) || errors.As(err, &order) {
		return usage(fmt.Errorf("--kernel: %w", err))
	}
	return err
}

// plugin builds one of the oracle's plugins for the QEMU that is installed.
func plugin(ctx context.Context, opts images.Options, v qemu.Version, source string) (string, error) {
	define := fmt.Sprintf("PLUGIN_VERSION=%d", oracle.InterfaceVersion(v.Major))
	return images.BuildPlugin(ctx, opts, filepath.Join(opts.Root, source), define)
}

func parseTime(s string) (vm.Time, error) {
	return vm.Time(s), oneOf("time", s, []string{string(vm.Exact), string(vm.Host)})
}
