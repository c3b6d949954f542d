package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"kerninst/images"
	"kerninst/lab/inventory"
	"kerninst/lab/libvirt"
	"kerninst/lab/matrix"
	"kerninst/lab/plain"
	"kerninst/lab/qemu"
)

// machineOf is what the machine of a host calls itself, without its domain, which not all know: hosts
// of one name share what it has.
func machineOf(has *libvirt.Host) string {
	name := has.Name
	if name == "" {
		name, _ = os.Hostname() // one that has none has one name with others that have none
	}
	name, _, _ = strings.Cut(strings.ToLower(name), ".")
	return name
}

// rules are what an inventory is held to.
var rules = inventory.Rules{Arches: images.Arches(), Key: hostKey}

func hostKey(uri string) (string, error) {
	if uri == inventory.Here {
		return uri, nil
	}
	b, err := libvirt.Parse(uri)
	if err != nil {
		return "", err
	}
	return b.Key(), nil
}

// named are the hosts that were asked for.
func (f *matrixFlags) named() ([]inventory.Host, error) {
	hosts, err := f.listed()
	if err != nil {
		return nil, err
	}
	keys := map[string]string{}
	for _, h := range hosts {
		key, err := hostKey(h.URI)
		if err != nil {
			return nil, err
		}
		keys[key] = h.Name
	}
	for _, uri := range f.hosts {
		key, err := hostKey(uri)
		if err != nil {
			return nil, err
		}
		if other := keys[key]; other != "" {
			return nil, fmt.Errorf("--host %s is %s, too: what it has would be counted twice", uri, other)
		}
		name := free(hosts, "host", 1)
		keys[key] = name
		hosts = append(hosts, inventory.Host{Name: name, URI: uri})
	}
	if here := func(h inventory.Host) bool { return h.URI == inventory.Here }; f.local && !slices.ContainsFunc(hosts, here) {
		hosts = append(hosts, inventory.Host{Name: free(hosts, inventory.Here, 0), URI: inventory.Here})
	}
	if len(hosts) == 0 {
		return nil, errors.New("no host: leave --local=false out, or name hosts by --host or --inventory")
	}
	return hosts, nil
}

// listed are the hosts of the inventory that were chosen.
func (f *matrixFlags) listed() ([]inventory.Host, error) {
	switch {
	case f.inventory == "" && len(f.on) > 0:
		return nil, errors.New("--on: labels are those of an inventory: add --inventory FILE")
	case f.inventory == "":
		return nil, nil
	}
	all, err := readInventory(f.inventory)
	if err != nil {
		return nil, err
	}
	chosen, err := inventory.Choose(all, f.on)
	if err != nil {
		return nil, fmt.Errorf("--on: %w", err)
	}
	return chosen, nil
}

func readInventory(file string) ([]inventory.Host, error) {
	text, err := plain.Read(file, inventory.MaxSize)
	if err != nil {
		return nil, fmt.Errorf("--inventory: %w", err)
	}
	return rules.Parse(file, text)
}

// inventoryWords are the labels and names of the inventory that a command line names, for shells.
func inventoryWords(c *cobra.Command) []string {
	file, err := c.Flags().GetString("inventory")
	if err != nil || file == "" {
		return nil
	}
	hosts, _ := readInventory(file) // what cannot be read is not offered
	return inventory.Words(hosts)
}

// free is a name that no host has: the word with the first number from n on, of which 0 is not written.
func free(hosts []inventory.Host, word string, n int) string {
	for ; ; n++ {
		name := word + strconv.Itoa(n)
		if n == 0 {
			name = word
		}
		if !slices.ContainsFunc(hosts, func(h inventory.Host) bool { return h.Name == name }) {
			return name
		}
	}
}

// survey asks all hosts at once what they have, and says which are of no use.
func (m *matrixRun) survey(ctx context.Context, named []inventory.Host) {
	isas := m.isas()
	m.doc.Hosts, m.sizes = make([]matrix.HostRecord, len(named)), make([]matrix.Size, len(named))
	m.ways = map[string]libvirt.Backend{}
	for _, h := range named {
		if b, err := libvirt.Parse(h.URI); err == nil { // an error is this machine's: the others have been read before
			m.ways[h.URI] = b
		}
	}
	var asked sync.WaitGroup
	for i, h := range named {
		asked.Go(func() { m.doc.Hosts[i], m.sizes[i] = survey(ctx, h, m.ways[h.URI], isas) })
	}
	asked.Wait()
	for i := range m.doc.Hosts {
		h := &m.doc.Hosts[i]
		if h.Status != matrix.Used {
			progress("host %s is not used: %s", h.Name, h.Reason)
		}
		for _, a := range isas {
			if why := h.Lacks[a]; why != "" && h.Status == matrix.Used {
				progress("host %s runs no %s: %s", h.Name, a, why)
			}
		}
	}
}

func (m *matrixRun) isas() (isas []string) {
	for _, c := range m.doc.Cells {
		if !slices.Contains(isas, c.Arch) {
			isas = append(isas, c.Arch)
		}
	}
	return isas
}

// survey asks one host. What an inventory says bounds what it has.
func survey(ctx context.Context, h inventory.Host, way libvirt.Backend, isas []string) (matrix.HostRecord, matrix.Size) {
	r := matrix.HostRecord{Name: h.Name, URI: h.URI, Status: matrix.Used, Lacks: map[string]string{}}
	has, err := offer(ctx, h.URI, way, isas)
	if err != nil {
		r.Status, r.Reason = matrix.Unreachable, err.Error()
		var old *libvirt.TooOldError
		var pool *libvirt.PoolError
		var other *libvirt.OtherEmulatorError
		if errors.As(err, &old) || errors.As(err, &pool) || errors.As(err, &other) {
			r.Status = matrix.Unfit
		}
		return r, matrix.Size{}
	}
	r.Machine, r.KVM = machineOf(has), has.KVM
	r.Version, r.CPUs, r.MemMiB = has.Version, atMost(has.CPUs, h.CPUs), atMost(has.FreeMiB, h.MemMiB)
	var claimed []string
	for _, a := range isas {
		switch why := has.Lacks[a]; {
		case len(h.Arches) > 0 && !slices.Contains(h.Arches, a):
		case why != nil:
			r.Lacks[a] = why.Error()
			if len(h.Arches) > 0 {
				claimed = append(claimed, a)
			}
		default:
			r.Arches = append(r.Arches, a)
		}
	}
	switch {
	case len(claimed) > 0:
		r.Status, r.Reason = matrix.Unfit, fmt.Sprintf("the inventory says that it runs %s: %s", claimed[0], r.Lacks[claimed[0]])
	case len(r.Arches) == 0:
		r.Status, r.Reason = matrix.Unfit, "it runs none of "+strings.Join(isas, ", ")+because(r.Lacks, isas)
	}
	return r, matrix.Size{CPUs: has.CPUs, MemMiB: has.FreeMiB}
}

// because is the first reason there is.
func because(lacks map[string]string, isas []string) string {
	for _, a := range isas {
		if why := lacks[a]; why != "" {
			return ": " + why
		}
	}
	return ""
}

// atMost is what there is, or as much of it as may be used; 0: all.
func atMost(has, limit int) int {
	if limit > 0 {
		return min(has, limit)
	}
	return has
}

// offer is what a host has.
func offer(ctx context.Context, uri string, way libvirt.Backend, isas []string) (*libvirt.Host, error) {
	if uri == inventory.Here {
		return offerHere(ctx, isas)
	}
	return way.Survey(ctx, isas)
}

// offerHere is what a libvirtd would say of this machine.
func offerHere(ctx context.Context, isas []string) (*libvirt.Host, error) {
	h := &libvirt.Host{CPUs: runtime.NumCPU(), Lacks: map[string]error{}}
	for _, a := range isas {
		if _, err := qemu.FindVersion(ctx, a); err != nil {
			h.Lacks[a] = err
		}
	}
	var err error
	h.FreeMiB, err = availableMiB()
	return h, err
}

// availableMiB is the memory that programs could have now.
func availableMiB() (int, error) {
	const file = "/proc/meminfo"
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, is := strings.CutPrefix(s.Text(), "MemAvailable:"); is {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			return kib >> 10, err
		}
	}
	return 0, fmt.Errorf("%s does not say MemAvailable", file)
}
