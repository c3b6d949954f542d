package images

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// toolError is a command in the toolchain that failed, with all that it said.
type toolError struct {
	command   string
	err       error
	out, errs []byte
}

func (e *toolError) Error() string {
	return fmt.Sprintf("images: in the toolchain: %s: %v\n%s%s", e.command, e.err, tail(e.out), tail(e.errs))
}

func (e *toolError) Unwrap() error { return e.err }

// ModuleError says that the module is not one for a kernel: what the kernel's headers lack,
// in the compiler's words.
type ModuleError struct {
	Release, Why string
	err          error
}

func (e *ModuleError) Error() string {
	return fmt.Sprintf("kernel %s: the module cannot be built for it: %s", e.Release, e.Why)
}

func (e *ModuleError) Unwrap() error { return e.err }

// LacksError says what a packaged kernel was built without.
type LacksError struct{ Release, Lacks string }

func (e *LacksError) Error() string { return fmt.Sprintf("kernel %s lacks %s", e.Release, e.Lacks) }

// fits refuses a kernel that the user chose, by what its headers say that it was built with.
// Carriers may be modules, which come along.
func (b *builder) fits(root *Root, sel *selection) error {
	if b.opt.Kernel == "" || b.own != nil {
		return nil
	}
	release := sel.Kernel + "-" + b.t.name
	f, err := os.Open(filepath.Join(root.Path, "usr/src/linux-headers-"+release, ".config"))
	if err != nil {
		return err
	}
	defer f.Close()
	config, err := readOptions(f)
	lacks := lacking(config, b.t, func(option string) bool { return slices.Contains(carriers, strings.ToLower(option)) })
	if err == nil && lacks != "" {
		err = &LacksError{release, lacks}
	}
	return err
}

// notFor makes one sentence of it when the module was refused by a kernel that the user
// chose. Of the locked one all is shown: there the module is what is wrong.
func (b *builder) notFor(release string, err error) error {
	var said *toolError
	if b.opt.Kernel == "" || !errors.As(err, &said) {
		return err
	}
	why := firstError(string(said.errs) + string(said.out))
	if why == "" {
		return err
	}
	return &ModuleError{release, why, err}
}

// buildErrors are how a compiler, modpost and undefinedCheck begin what they refuse; the
// first that there is counts, and of it the first line.
var buildErrors = []*regexp.Regexp{
	regexp.MustCompile(`(?m)^(\S+:\d+):\d+: (?:fatal )?error: (.+)$`),
	regexp.MustCompile(`(?m)^()(?:ERROR: modpost: )(.+)$`),
	regexp.MustCompile(`(?m)^()(undefined, not exported, .+)$`),
	regexp.MustCompile(`(?m)^()(.+: error: .+)$`),
	regexp.MustCompile(`(?m)^()(make.*\*\*\* .+)$`),
}

// firstError is the first error in what a build said: FILE:LINE: MESSAGE.
func firstError(said string) string {
	for _, form := range buildErrors {
		if m := form.FindStringSubmatch(said); m != nil {
			return strings.TrimPrefix(path.Base(m[1])+": ", ".: ") + m[2]
		}
	}
	return ""
}
