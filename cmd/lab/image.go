package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"kerninst/images"
	"kerninst/lab/qemu"
	"kerninst/lab/status"
)

func imageCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "image",
		Short: "guest images and the toolchain that builds them",
	}
	c.AddCommand(imageBuildCommand(), imageListCommand(), imageVerifyCommand(), imageGCCommand(), imageExportCommand(), imageImportCommand(), imageDumpCommand())
	return c
}

func imageBuildCommand() *cobra.Command {
	var f common
	var refresh, offline bool
	c := &cobra.Command{
		Use:     "build",
		Short:   "fetch and build what a guest needs, for one ISA, several, or all",
		Example: "  lab image build --arch all\n  lab image build --refresh",
		RunE: func(c *cobra.Command, _ []string) error {
			isas, err := arches(f.arch)
			if err != nil {
				return err
			}
			root, err := repository()
			if err != nil {
				return err
			}
			opts := images.Options{Kernel: images.KernelWord(f.kernel), Mirror: f.mirror, Root: root, Offline: offline, Progress: progress}
			if refresh {
				return images.Refresh(c.Context(), opts)
			}
			for _, isa := range isas {
				opts.Arch = isa
				img, err := images.Ensure(c.Context(), opts)
				if err != nil {
					return kernelError(err)
				}
				fmt.Printf("%s\t%s\t%s\n", img.Arch, img.Release, img.Kernel)
			}
			return nil
		},
	}
	f.add(c.Flags())
	c.Flags().BoolVar(&refresh, "refresh", false, "write the lock file anew from what the mirror has now")
	c.Flags().BoolVar(&offline, "offline", false, "use the cache only")
	return c
}

func imageListCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "ls",
		Short: "what is in the cache",
		RunE: func(*cobra.Command, []string) error {
			root, err := repository()
			if err != nil {
				return err
			}
			list, err := images.List(images.Options{Root: root})
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(os.Stdout).Encode(map[string]any{"schema": 1, "entries": list})
			}
			w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
			for _, e := range list {
				fmt.Fprintf(w, "%s\t%s\t%d\n", e.Kind, e.Name, e.Size)
			}
			return w.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

// checkKVM says what host time will run on. Whether KVM runs a guest takes one to
// find out, so without an image there is no saying yet.
func checkKVM() images.Check {
	c := images.Check{Name: "KVM", OK: true, Want: "not needed; host time is faster with it"}
	if err := qemu.OpenKVM(qemu.KVMDevice()); err != nil {
		c.Found = "emulation only: " + err.Error()
		return c
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		c.Found = err.Error()
		return c
	}
	k, err := qemu.KnownKVM(filepath.Join(cache, "kerninst"), runtime.GOARCH)
	switch {
	case err != nil:
		c.Found = "opens; the first run in host time tries a guest"
	case k.Usable:
		c.Found = "usable: " + k.Why
	default:
		c.Found = "emulation only: " + k.Why
	}
	return c
}

func doctorCommand() *cobra.Command {
	var f common
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "what is missing on this host, and the command that installs it",
		RunE: func(c *cobra.Command, _ []string) error {
			isas, err := arches(f.arch)
			if err != nil {
				return err
			}
			root, err := repository()
			if err != nil {
				return err
			}
			opts := images.Options{Mirror: f.mirror, Root: root}
			if len(isas) == 1 {
				opts.Arch = isas[0]
			}
			checks := append(images.Doctor(c.Context(), opts), checkKVM())
			bad := false
			for _, k := range checks {
				bad = bad || !k.OK
			}
			if asJSON {
				err = json.NewEncoder(os.Stdout).Encode(map[string]any{"schema": 1, "checks": checks})
			} else {
				err = printChecks(checks)
			}
			if err == nil && bad {
				return &exit{code: status.ExitLabFailed}
			}
			return err
		},
	}
	f.add(c.Flags())
	c.Flags().Lookup("arch").DefValue, f.arch = "all", "all"
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

// installCommand is the start of a fix that installs a package.
const installCommand = "apt-get install --no-install-recommends "

// printChecks shows each check and, at the end, the one command that installs
// all packages that are missing.
func printChecks(checks []images.Check) error {
	var packages []string
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	for _, k := range checks {
		mark, fix := "ok", ""
		if !k.OK {
			mark, fix = "missing", k.Fix
		}
		if pkg, ok := strings.CutPrefix(fix, installCommand); ok {
			packages = append(packages, strings.Fields(pkg)[0])
			fix = "package " + pkg
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", mark, k.Name, k.Found, fix)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(packages) > 0 {
		fmt.Println("run: " + installCommand + strings.Join(packages, " "))
	}
	return nil
}
