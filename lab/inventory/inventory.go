// Package inventory reads the file in which a user lists hosts, and chooses among them. It asks no
// host anything.
package inventory

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"kerninst/agent/near"
)

// Host is a line of an inventory.
type Host struct {
	Line   int
	Name   string
	URI    string   // of a libvirtd, or Here
	Arches []string // that it is to be used for; nil: all that it has
	CPUs   int      // at the most; 0: all
	MemMiB int      // likewise
	Labels []string
}

// Here is what stands for the machine that the lab runs on, without libvirt.
const Here = "local"

// Form is what an inventory looks like, for a command's help.
const Form = `An inventory has lines of a NAME, the URI of a libvirtd or the word local, and then
settings: arches=A,B (default: all that it has emulators for), cpus=N and mem=MIB
(at the most; default: all), labels=L,M. # begins a comment. A host that is reached by
ssh or TLS has a storage pool for images (pool=NAME; default: kerninst), and this
machine's QEMU, to its number.

  here   local                                      cpus=4
  big    qemu:///system                             labels=fast,night
  old    qemu:///session?socket=/run/x/libvirt-sock  arches=amd64 mem=4096
  far    qemu+ssh://lab@far.example/system           arches=riscv64
  vault  qemu+tls://vault.example/system?pkipath=/home/me/pki&pool=images
`

// MaxSize bounds an inventory, in bytes.
const MaxSize = 1 << 20

// mostHosts bounds the lines of an inventory: each host is asked what it has.
const mostHosts = 1000

// word is what names and labels are made of: they are in names of files, and in lists.
var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$`)

// Rules are what an inventory is held to beside its form.
type Rules struct {
	Arches []string // that there are
	// Key is the same for two URIs of one host; the error of one that is none says why.
	Key func(uri string) (string, error)
}

// Parse reads an inventory. Errors name the line, of the file that name calls so.
func (r Rules) Parse(name string, text []byte) (hosts []Host, err error) {
	names, keys := map[string]int{}, map[string]int{}
	for n, line := range strings.Split(string(text), "\n") {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		h, key, err := r.host(f)
		switch {
		case err != nil:
		case names[h.Name] > 0:
			err = fmt.Errorf("the name %s is that of line %d", h.Name, names[h.Name])
		case keys[key] > 0:
			err = fmt.Errorf("%s is the host of line %d: what it has would be counted twice", h.URI, keys[key])
		case len(hosts) == mostHosts:
			err = fmt.Errorf("more than %d hosts", mostHosts)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n+1, err)
		}
		h.Line = n + 1
		names[h.Name], keys[key] = h.Line, h.Line
		hosts = append(hosts, h)
	}
	if len(hosts) == 0 {
		return nil, fmt.Errorf("%s: no line has a host: want NAME URI, as in: here %s", name, Here)
	}
	return hosts, nil
}

func (r Rules) host(f []string) (h Host, key string, err error) {
	h.Name = f[0]
	switch {
	case !word.MatchString(h.Name):
		return h, "", fmt.Errorf("name %q: want up to 40 letters, digits and ._-, of which the first is a letter or digit", h.Name)
	case len(f) < 2 || strings.Contains(f[1], "=") && !strings.Contains(f[1], ":"):
		return h, "", fmt.Errorf("%s has no URI: want NAME URI, as in: %s %s", h.Name, h.Name, Here)
	}
	h.URI = f[1]
	if key = h.URI; h.URI != Here {
		if key, err = r.Key(h.URI); err != nil {
			return h, "", err
		}
	}
	given := map[string]bool{}
	for _, setting := range f[2:] {
		name, value, is := strings.Cut(setting, "=")
		set, known := settings[name]
		switch {
		case !is || !known:
			return h, "", fmt.Errorf("unknown key %q: want %s, each with =%s", name, strings.Join(keys, ", "), near.Hint(name, keys))
		case given[name]:
			return h, "", fmt.Errorf("%s is given twice", name)
		}
		given[name] = true
		if err := set(&h, r, value); err != nil {
			return h, "", fmt.Errorf("%s: %w", setting, err)
		}
	}
	return h, key, nil
}

// keys are those of settings, in the order in which they are told.
var keys = []string{"arches", "cpus", "mem", "labels"}

var settings = map[string]func(h *Host, r Rules, value string) error{
	"arches": func(h *Host, r Rules, value string) (err error) {
		h.Arches, err = list(value, func(a string) error {
			if !slices.Contains(r.Arches, a) {
				return fmt.Errorf("unknown ISA %q: want some of %s%s", a, strings.Join(r.Arches, ", "), near.Hint(a, r.Arches))
			}
			return nil
		})
		return err
	},
	"cpus": func(h *Host, _ Rules, value string) (err error) { h.CPUs, err = number(value, "CPUs"); return err },
	"mem":  func(h *Host, _ Rules, value string) (err error) { h.MemMiB, err = number(value, "MiB"); return err },
	"labels": func(h *Host, _ Rules, value string) (err error) {
		h.Labels, err = list(value, func(l string) error {
			if !word.MatchString(l) {
				return fmt.Errorf("label %q: want up to 40 letters, digits and ._-", l)
			}
			return nil
		})
		return err
	},
}

// list reads words with commas between them, each once.
func list(value string, check func(string) error) (out []string, err error) {
	for _, w := range strings.Split(value, ",") {
		if slices.Contains(out, w) {
			return nil, fmt.Errorf("%s is given twice", w)
		}
		if err := check(w); err != nil {
			return nil, err
		}
		out = append(out, w)
	}
	return out, nil
}

// mostNumber is more than any host has of anything, and still a number of MiB.
const mostNumber = 1 << 30

func number(value, of string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > mostNumber {
		return 0, fmt.Errorf("want a number of %s from 1 on, without a unit", of)
	}
	return n, nil
}

// Choose returns the hosts that have one of the labels, or one of the names, in the order of the
// inventory; of no word all. A word that chooses none is an error.
func Choose(hosts []Host, words []string) (chosen []Host, err error) {
	if len(words) == 0 {
		return hosts, nil
	}
	used := map[string]bool{}
	for _, h := range hosts {
		is := false
		for _, w := range words {
			if w == h.Name || slices.Contains(h.Labels, w) {
				used[w], is = true, true
			}
		}
		if is {
			chosen = append(chosen, h)
		}
	}
	for _, w := range words {
		if w == "" {
			return nil, errors.New("a label is empty")
		}
		if !used[w] {
			known := Words(hosts)
			return nil, fmt.Errorf("no host has the label or the name %s; there are %s%s", w, strings.Join(known, ", "), near.Hint(w, known))
		}
	}
	return chosen, nil
}

// Words are all names and labels of hosts.
func Words(hosts []Host) (words []string) {
	for _, h := range hosts {
		words = append(append(words, h.Name), h.Labels...)
	}
	slices.Sort(words)
	return slices.Compact(words)
}
