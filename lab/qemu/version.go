package qemu

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"kerninst/lab/qmp"
)

// oldest is the first QEMU that does what the lab needs: -seed together with
// icount, and TCG plugins in Debian's build.
var oldest = [2]int{7, 2}

// Version is what an installed QEMU says about itself.
type Version struct {
	Binary       string // absolute path
	Major, Minor int
	Number       string // 7.2.22
	Package      string // the distribution's version, as QEMU prints it; may be empty
	Machine      string // the versioned machine type, where there is one
}

func (v Version) String() string {
	if v.Package == "" {
		return v.Number
	}
	return v.Number + " (" + v.Package + ")"
}

// MissingError says that the QEMU for an architecture is not installed.
type MissingError struct {
	Binary  string
	Package string // Debian package
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s is not installed: it is in Debian's package %s; `lab doctor` lists all that is missing",
		e.Binary, e.Package)
}

// TooOldError says that the installed QEMU cannot do what the lab needs.
type TooOldError struct {
	Binary, Version string
}

func (e *TooOldError) Error() string {
	return fmt.Sprintf("%s is version %s: the lab needs %d.%d or newer; `lab doctor` says how to get it",
		e.Binary, e.Version, oldest[0], oldest[1])
}

// found remembers answers by binary: every machine asks, and a QEMU is not
// replaced while a lab runs.
var found sync.Map // path → Version

// FindVersion asks the installed QEMU for an architecture who it is.
func FindVersion(ctx context.Context, arch string) (Version, error) {
	r, err := lookup(arch)
	if err != nil {
		return Version{}, err
	}
	path, err := exec.LookPath(r.binary)
	if err != nil {
		return Version{}, &MissingError{Binary: r.binary, Package: r.pkg}
	}
	if v, ok := found.Load(path); ok {
		return v.(Version), nil
	}
	v, err := r.ask(ctx, path)
	if err != nil {
		return Version{}, err
	}
	found.Store(path, v)
	return v, nil
}

func (r row) ask(ctx context.Context, path string) (Version, error) {
	out, err := output(ctx, path, "--version")
	if err != nil {
		return Version{}, err
	}
	v, err := parseVersion(path, out)
	if err != nil {
		return Version{}, err
	}
	machines, err := output(ctx, path, "-machine", "help")
	if err != nil {
		return Version{}, err
	}
	if v.Machine, err = resolveMachine(machines, r.machine); err != nil {
		return Version{}, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

func output(ctx context.Context, path string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, path, args...).Output()
	if err == nil {
		return string(out), nil
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return "", fmt.Errorf("%s %s: %w", path, strings.Join(args, " "), err)
}

var versionLine = regexp.MustCompile(`^QEMU emulator version ((\d+)\.(\d+)[.\w-]*)(?: \(([^)]*)\))?`)

func parseVersion(path, out string) (Version, error) {
	m := versionLine.FindStringSubmatch(out)
	if m == nil {
		return Version{}, fmt.Errorf("%s --version: not a QEMU: %.80q", path, out)
	}
	major, _ := strconv.Atoi(m[2])
	minor, _ := strconv.Atoi(m[3])
	if major < oldest[0] || major == oldest[0] && minor < oldest[1] {
		return Version{}, &TooOldError{Binary: path, Version: m[1]}
	}
	return Version{Binary: path, Major: major, Minor: minor, Number: m[1], Package: m[4]}, nil
}

var aliasOf = regexp.MustCompile(`\(alias of ([^)]+)\)`)

// resolveMachine finds what an alias stands for in the output of -machine help.
func resolveMachine(help, alias string) (string, error) {
	for line := range strings.Lines(help) {
		if name, rest, _ := strings.Cut(line, " "); name == alias {
			if m := aliasOf.FindStringSubmatch(rest); m != nil {
				return m[1], nil
			}
			return alias, nil
		}
	}
	return "", fmt.Errorf("machine type %s is missing", alias)
}

// VersionOf asks a QEMU that runs for its number, as 7.2.22.
func VersionOf(ctx context.Context, m *qmp.Client) (string, error) {
	var is struct {
		QEMU struct{ Major, Minor, Micro int }
	}
	err := m.Execute(ctx, "query-version", nil, &is)
	return fmt.Sprintf("%d.%d.%d", is.QEMU.Major, is.QEMU.Minor, is.QEMU.Micro), err
}
