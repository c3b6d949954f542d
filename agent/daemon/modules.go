package daemon

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"kerninst/agent/kdev"
	"kerninst/agent/ktext"
	"kerninst/agent/wire"
)

// modulesFile lists the modules that are loaded.
const modulesFile = "/proc/modules"

// modulesOf are the modules that points are in.
func modulesOf(points []*wire.Point) (out []string) {
	for _, p := range points {
		if p.Module != "" && !slices.Contains(out, p.Module) {
			out = append(out, p.Module)
		}
	}
	return out
}

// loading is one load of a module: the next may lie where this does, but its folder in
// sysfs is another.
type loading struct {
	at     addr
	folder uint64 // inode
}

// seeingTries is how often modules are looked at that come and go meanwhile.
const seeingTries = 3

// seeModules takes modules into the view of the kernel. They come and go while a daemon
// lives: what is known of one holds for as long as it is loaded. One that
// leaves between here and the splice is noticed by the bytes at its point; the splice
// then keeps it. Who needs one that is not loaded has to complain.
func (d *Daemon) seeModules(names []string) error {
	if len(names) == 0 {
		return nil
	}
	all := slices.AppendSeq(slices.Clone(names), maps.Keys(d.bases))
	wanted := func(name string) bool { return others(name) && slices.Contains(all, name) }
	for range seeingTries {
		now, err := loadings(wanted)
		if err != nil {
			return err
		}
		if maps.Equal(now, d.bases) {
			return nil
		}
		d.bases = nil // what is seen of some may be half of it
		seen := d.seeLoaded(now)
		after, err := loadings(wanted)
		switch {
		case err != nil:
			return err
		case !maps.Equal(now, after):
			continue
		case seen != nil:
			return seen
		}
		d.bases = now
		return d.reachModules()
	}
	return fmt.Errorf("modules %s come and go: try again when they stay", strings.Join(names, ", "))
}

// seeLoaded reads what is known of modules; all symbols, too, if any module has come or gone since
// they were read: for the kernel to print them takes as long as to plan some hundred points.
func (d *Daemon) seeLoaded(modules map[string]loading) (err error) {
	at := map[string]map[string]addr{}
	for name := range modules {
		one, err := moduleSections(modulesDir, name)
		if err != nil {
			return err
		}
		maps.Copy(at, one)
	}
	all, err := loadings(others)
	if err != nil {
		return err
	}
	anew := !maps.Equal(all, d.symbolsOf)
	if anew {
		if err := d.readSymbols(); err != nil {
			return err
		}
	}
	return d.see(ktext.Sections(at, d.dev.Read), anew)
}

// others are all modules but our own, which is loaded after the symbols have been read.
func others(name string) bool { return name != kdev.ModuleName }

// loadings are those of the modules that are loaded and wanted.
func loadings(wanted func(name string) bool) (map[string]loading, error) {
	f, err := os.Open(modulesFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	live, err := parseLoaded(f)
	if err != nil {
		return nil, err
	}
	out := map[string]loading{}
	for name, at := range live {
		if !wanted(name) {
			continue
		}
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(modulesDir, name), &st); err == nil { // it has just left otherwise
			out[name] = loading{at, st.Ino}
		}
	}
	return out, nil
}

// reachModules gets patch memory for modules that lie too far from the kernel for what
// there is (arm64, of which a jump goes 128 MiB, while its modules may be 2 GiB away).
func (d *Daemon) reachModules() error {
	for _, name := range d.text.Modules() {
		var lo, hi addr
		for _, s := range d.text.Sections(name) {
			if s.Text() && lo == 0 {
				lo = s.Addr
			}
			if s.Text() {
				hi = s.End()
			}
		}
		if lo == hi {
			continue
		}
		if err := d.splicer.Reach(lo, hi, areaSize); err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
	}
	return nil
}

// parseLoaded reads where the live modules of /proc/modules lie: lines of name, size,
// references, users, state, address.
func parseLoaded(r io.Reader) (map[string]addr, error) {
	out := map[string]addr{}
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) < 6 {
			return nil, fmt.Errorf("%s: %.80q is not name, size, references, users, state, address", modulesFile, sc.Text())
		}
		a, err := strconv.ParseUint(f[5], 0, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %.80q: %w", modulesFile, sc.Text(), err)
		}
		if f[4] == "Live" {
			out[f[0]] = addr(a)
		}
	}
	return out, sc.Err()
}

// moduleSections reads where the sections of a loaded module lie, or with "*" of all
// of them, below dir. What is built in has no sections.
func moduleSections(dir, module string) (map[string]map[string]addr, error) {
	files, err := filepath.Glob(filepath.Join(dir, module, "sections", "*"))
	if err != nil {
		return nil, err
	}
	out := map[string]map[string]addr{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		a, err := strconv.ParseUint(strings.TrimSpace(string(b)), 0, 64)
		if err != nil {
			return nil, err
		}
		name := filepath.Base(filepath.Dir(filepath.Dir(f)))
		if out[name] == nil {
			out[name] = map[string]addr{}
		}
		out[name][filepath.Base(f)] = addr(a)
	}
	return out, nil
}
