package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"kerninst/images"
	"kerninst/lab/golden"
	"kerninst/lab/plain"
	"kerninst/lab/status"
)

// cacheOptions are what the verbs on the cache as a whole need.
func cacheOptions() (images.Options, error) {
	root, err := repository()
	return images.Options{Root: root, Progress: progress}, err
}

func imageVerifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify",
		Short: "read everything in the cache and compare it with its hash",
		RunE: func(c *cobra.Command, _ []string) error {
			opts, err := cacheOptions()
			if err != nil {
				return err
			}
			n, damaged, err := images.Verify(c.Context(), opts)
			if err != nil {
				return err
			}
			store, err := golden.Open(progress)
			if err != nil {
				return err
			}
			states, bad, err := store.Verify(c.Context())
			if err != nil {
				return err
			}
			n, damaged = n+states, append(damaged, bad...)
			for _, d := range damaged {
				fmt.Println(d)
			}
			fmt.Printf("%d objects, %d damaged\n", n, len(damaged))
			if len(damaged) > 0 {
				return &exit{code: status.ExitFailed}
			}
			return nil
		},
	}
}

func imageGCCommand() *cobra.Command {
	var age time.Duration
	c := &cobra.Command{
		Use:   "gc",
		Short: "remove what no image of the lock file needs",
		RunE: func(c *cobra.Command, _ []string) error {
			if age < 0 {
				return usage(fmt.Errorf("--age %v: want 0 or more", age))
			}
			opts, err := cacheOptions()
			if err != nil {
				return err
			}
			freed, err := images.GC(c.Context(), opts, age)
			if err != nil {
				return err
			}
			fmt.Printf("%d bytes freed\n", freed)
			return nil
		},
	}
	c.Flags().DurationVar(&age, "age", 24*time.Hour, "keep what is younger; while a lab uses the cache, nothing is removed")
	return c
}

func imageExportCommand() *cobra.Command {
	var f common
	c := &cobra.Command{
		Use:     "export FILE",
		Short:   "write the packages of an image to a file, for a host without a mirror",
		Example: "  lab image export --arch riscv64 packages.tar",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			isas, err := arches(f.arch)
			if err != nil {
				return err
			}
			opts, err := cacheOptions()
			if err != nil {
				return err
			}
			opts.Kernel = images.KernelWord(f.kernel)
			out, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
			if err != nil {
				return usage(err)
			}
			if err := images.Export(c.Context(), opts, isas, out); err != nil {
				out.Close()
				os.Remove(args[0])
				return kernelError(err)
			}
			return out.Close()
		},
	}
	f.add(c.Flags())
	return c
}

func imageImportCommand() *cobra.Command {
	var trust bool
	c := &cobra.Command{
		Use:   "import FILE",
		Short: "take packages from a file that export wrote",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			opts, err := cacheOptions()
			if err != nil {
				return err
			}
			in, err := plain.Open(args[0])
			if err != nil {
				return usage(err)
			}
			defer in.Close()
			n, err := images.Import(c.Context(), opts, in, trust)
			var bad *images.BundleError
			if errors.As(err, &bad) {
				return usage(fmt.Errorf("%s: %w", args[0], err))
			} else if err != nil {
				return err
			}
			fmt.Printf("%d objects\n", n)
			return nil
		},
	}
	c.Flags().BoolVar(&trust, "trust", false, "take packages too that are not in the lock file: nobody's signature is checked")
	return c
}
