package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"kerninst/images"
	"kerninst/lab/repro"
	"kerninst/lab/runner"
)

// own are the flags for what is the user's own in a guest.
type own struct {
	cpus, mem     int
	timeout       time.Duration
	adds, modules []string
	fetches, with []string
	appended      string
	dryrun        bool
}

// addOwn adds the flags; cpus is the default of --cpus.
func (o *own) addOwn(f *pflag.FlagSet, cpus int) {
	f.IntVar(&o.cpus, "cpus", cpus, "CPUs of a guest (0: what its scenario wants; more than that: that many)")
	f.IntVar(&o.mem, "mem", 0, "memory of a guest in MiB (default: the lab's)")
	f.StringVar(&o.appended, "append", "", "more for the kernel's command line, `WORDS` as \"nokaslr preempt=full\"")
	f.StringArrayVar(&o.adds, "add", nil, "file or folder to have in the guest, `SRC[:DST]` (default: in /root); may be repeated")
	f.StringSliceVar(&o.with, "with", nil, "Debian's programs to have in the guest, `NAME[,NAME...]`: "+strings.Join(images.Softwares(), ", "))
	f.BoolVar(&o.dryrun, "dry-run", false, "print QEMU's command lines and do nothing")
	f.StringSliceVar(&o.modules, "modprobe", nil, "modules of the kernel to load before anything else, `NAME[,NAME...]`")
}

// maxCPUs is what every row of machines can have.
const maxCPUs = 8

// maxMem bounds --mem, in MiB: what the smallest board (arm64's virt) addresses.
const maxMem = 255 << 10

// check looks at what needs no guest to be wrong.
func (o *own) check() error {
	switch {
	case o.cpus < 0 || o.cpus > maxCPUs:
		return fmt.Errorf("--cpus %d: want 1 to %d", o.cpus, maxCPUs)
	case o.mem != 0 && (o.mem < 128 || o.mem > maxMem):
		return fmt.Errorf("--mem %d: want 128 to %d MiB", o.mem, maxMem)
	case o.timeout < 0:
		return fmt.Errorf("--timeout %v: want more than 0", o.timeout)
	}
	if err := checkAppended(o.appended); err != nil {
		return fmt.Errorf("--append %q: %w", o.appended, err)
	}
	for _, name := range o.with {
		if err := images.CheckSoftware(name); err != nil {
			return fmt.Errorf("--with: %w", err)
		}
	}
	if need := images.SoftwareMemory(o.with...); o.mem > 0 && o.mem < need {
		return fmt.Errorf("--mem %d: a guest with %s needs %d", o.mem, strings.Join(o.with, ", "), need)
	}
	files, err := images.Add(o.adds)
	if err != nil {
		return fmt.Errorf("--add %w", err)
	}
	return o.fit(files)
}

// theLabs are words of the kernel's command line by which the lab has what it needs of a guest.
var theLabs = []string{"lab.", "kerninst.", "console=", "rdinit=", "initrd="}

// checkAppended looks at what is to be on the kernel's command line, with what the lab has there.
func checkAppended(words string) error {
	for _, w := range strings.Fields(words) {
		if w == "--" {
			return errors.New("what follows -- is for the guest's init, which is the lab's")
		}
		for _, l := range theLabs {
			if strings.HasPrefix(w, l) {
				return fmt.Errorf("%s is the lab's own", w)
			}
		}
	}
	if strings.ContainsFunc(words, func(r rune) bool { return r < ' ' || r > '~' }) {
		return errors.New("want words of printable ASCII")
	}
	return nil
}

// maxFile bounds a file in an initramfs, in bytes: its length has 32 bits.
const maxFile = 1<<32 - 1

// fit refuses files that no guest of that memory unpacks, before anything reads them:
// they may be as long as the disk, or longer where they have holes.
func (o *own) fit(files []images.File) error {
	var size int64
	for _, f := range files {
		if f.Source == "" {
			continue
		}
		info, err := os.Stat(f.Source)
		if err != nil {
			return fmt.Errorf("--add %w", err)
		}
		if info.Size() > maxFile {
			return fmt.Errorf("--add %s: %d bytes: a file in a guest has at most %d", f.Source, info.Size(), int64(maxFile))
		}
		size += info.Size()
	}
	return o.room(size)
}

// leastMemory is what a guest needs in MiB whatever its initramfs, for the daemon above all:
// with 150 it ran out of memory.
const leastMemory = 192

// memory is what a guest shall have in MiB: what the user says, or else what Debian's
// programs in it need; 0: the default.
func (o *own) memory() int { return cmp.Or(o.mem, images.SoftwareMemory(o.with...)) }

// room says whether a guest can unpack an initramfs of that many bytes: the kernel has
// it twice for a while, packed and unpacked, and needs room for itself.
func (o *own) room(size int64) error {
	mem := int64(cmp.Or(o.memory(), runner.DefaultMemory))
	need := max(2*size>>20+64, leastMemory)
	switch {
	case need > mem && need == leastMemory: // whatever is added
		return fmt.Errorf("a guest of %d MiB has no room for the lab's own files: give --mem %d", mem, need)
	case need > mem:
		return fmt.Errorf("a guest of %d MiB cannot unpack its initramfs of %d MiB: give --mem %d", mem, size>>20, need)
	}
	return nil
}

// wanted reads what --fetch wants, GUEST[:DST]. Without DST, it goes where here
// says.
func (o *own) wanted(here func(guest string) string) (all []runner.Fetch, err error) {
	for _, word := range o.fetches {
		guest, to, _ := strings.Cut(word, ":")
		if !path.IsAbs(guest) || path.Clean(guest) == "/" {
			return nil, fmt.Errorf("--fetch %s: %q is no absolute path of a file or folder in the guest", word, guest)
		}
		f := runner.Fetch{Guest: path.Clean(guest), To: to}
		if to == "" {
			f.To = here(f.Guest)
		}
		for _, other := range all {
			if strings.HasPrefix(f.Guest+"/", other.Guest+"/") || strings.HasPrefix(other.Guest+"/", f.Guest+"/") {
				return nil, fmt.Errorf("--fetch %s: %s is fetched, too: one is in the other", word, other.Guest)
			}
			if f.To != "" && f.To == other.To {
				return nil, fmt.Errorf("--fetch %s: %s goes to %s, too: give GUEST:DST", word, other.Guest, f.To)
			}
		}
		if _, err := os.Lstat(f.To); f.To != "" && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("--fetch %s: %s is there already: give another place, GUEST:DST", word, f.To)
		}
		all = append(all, f)
	}
	return all, nil
}

// set are the flags again that were set: for the process that does one ISA, and
// for the command that repeats a run.
func (o *own) set() (args []string) {
	if o.cpus > 0 {
		args = append(args, "--cpus", strconv.Itoa(o.cpus))
	}
	if o.mem > 0 {
		args = append(args, "--mem", strconv.Itoa(o.mem))
	}
	if o.timeout > 0 {
		args = append(args, "--timeout", o.timeout.String())
	}
	if o.appended != "" {
		args = append(args, "--append", o.appended)
	}
	for _, a := range o.adds {
		args = append(args, "--add", a)
	}
	for _, m := range o.modules {
		args = append(args, "--modprobe", m)
	}
	for _, s := range o.with {
		args = append(args, "--with", s)
	}
	for _, g := range o.fetches {
		args = append(args, "--fetch", g)
	}
	return args
}

// files are those that a guest brings along.
func (o *own) files(ctx context.Context, img *images.Image, opts images.Options) ([]images.File, error) {
	added, err := images.Add(o.adds)
	if err != nil {
		return nil, usage(fmt.Errorf("--add %w", err))
	}
	brought, err := o.brought(ctx, img, opts)
	return append(added, brought...), err
}

// kept is files, but with copies in the folder out of those that the user added,
// for the manifest. If from is not empty, it is the folder of an earlier run, and
// what was added then is added now.
func (o *own) kept(ctx context.Context, img *images.Image, opts images.Options, out, from string) ([]images.File, []images.Kept, error) {
	added, err := images.Add(o.adds)
	if err == nil && from != "" {
		added, err = addedThen(from)
	}
	if err != nil {
		return nil, nil, usage(fmt.Errorf("--add %w", err))
	}
	added, kept, err := images.Keep(filepath.Join(out, repro.AddedDir), added)
	if err != nil {
		return nil, nil, err
	}
	brought, err := o.brought(ctx, img, opts)
	return append(added, brought...), kept, err
}

// addedThen are the files that were added to the guests of a run of one ISA.
func addedThen(dir string) ([]images.File, error) {
	m, err := repro.ReadManifest(dir)
	if err != nil || m.Own == nil {
		return nil, err
	}
	return images.Unkeep(filepath.Join(dir, repro.AddedDir), m.Own.Added)
}

// brought are the kernel's modules and Debian's programs.
func (o *own) brought(ctx context.Context, img *images.Image, opts images.Options) ([]images.File, error) {
	files, err := o.load(ctx, img, opts)
	for _, name := range o.with {
		var more []images.File
		if err == nil {
			more, err = images.Software(ctx, opts, name)
		}
		files = runner.WithOthers(files, more) // some have libraries in common
	}
	return files, err
}

func (o *own) load(ctx context.Context, img *images.Image, opts images.Options) ([]images.File, error) {
	files, err := img.Load(ctx, opts, o.modules)
	var none *images.NoModuleError
	if errors.As(err, &none) {
		return nil, usage(fmt.Errorf("--modprobe: %w", err))
	}
	return files, err
}

// wishes are what the runner is told.
func (o *own) wishes(img *images.Image, files []images.File) (runner.Own, error) {
	w := runner.Own{CPUs: o.cpus, MemMiB: o.memory(), Append: o.appended, Timeout: o.timeout, Files: files}
	size, err := img.InitrdSize(files)
	if err != nil {
		return w, err
	}
	return w, usage(o.room(size))
}

// record is what a manifest says of all this, once the files are kept.
func (o *own) record(kept []images.Kept) *repro.Own {
	r := &repro.Own{CPUs: o.cpus, MemMiB: o.mem, Append: o.appended, Timeout: o.timeout, Modules: o.modules, With: o.with, Added: kept, Fetch: o.fetches}
	if r.Empty() {
		return nil
	}
	return r
}

// ownOf is the inverse of record, but for the files.
func ownOf(r *repro.Own) own {
	if r == nil {
		return own{}
	}
	return own{cpus: r.CPUs, mem: r.MemMiB, appended: r.Append, timeout: r.Timeout, modules: r.Modules, with: r.With, fetches: r.Fetch}
}
