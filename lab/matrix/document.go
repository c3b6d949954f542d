package matrix

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"kerninst/lab/status"
)

// Schema is the version of the document.
const Schema = 1

// File is where the document lies.
const File = "matrix.json"

// Document is all that a matrix found.
type Document struct {
	Schema int           `json:"schema"`
	Status status.Status `json:"status"`
	Exit   int           `json:"exit"` // the exit status of the command
	Time   string        `json:"time"` // exact or host
	Hosts  []HostRecord  `json:"hosts"`
	Cells  []CellRecord  `json:"cells"`
}

// HostRecord is a host that was named.
type HostRecord struct {
	Name   string     `json:"name"`
	URI    string     `json:"uri"` // or local
	Status HostStatus `json:"status"`
	Reason string     `json:"reason,omitempty"` // of what is not used, or not any more
	// What it had when it was asked; of those that are not used, as far as it said.
	Machine string            `json:"machine,omitempty"` // what it is on; hosts of one share what it has
	Version string            `json:"version,omitempty"` // of its libvirt
	CPUs    int               `json:"cpus,omitempty"`    // for cells, at the most
	MemMiB  int               `json:"mem_mib,omitempty"` // likewise
	Arches  []string          `json:"arches,omitempty"`
	Lacks   map[string]string `json:"lacks,omitempty"` // ISAs of the matrix that it does not run, and why
	KVM     []string          `json:"kvm,omitempty"`   // ISAs that its libvirtd has KVM for; guests there are emulated all the same
	Cells   int               `json:"cells"`           // that came out on it
}

// HostStatus is whether a host was of use.
type HostStatus string

const (
	Used        HostStatus = "used"
	LostMidway  HostStatus = "lost"
	Unreachable HostStatus = "unreachable" // it does not answer, or lets nobody in
	Unfit       HostStatus = "unfit"       // too old, or without any of the ISAs, or a place for images
)

// CellRecord is a cell and what became of it.
type CellRecord struct {
	Name     string        `json:"name"` // and the folder
	Arch     string        `json:"arch"`
	Kernel   string        `json:"kernel"`            // its name here
	Word     string        `json:"word,omitempty"`    // as it was asked for; empty: the locked one
	Release  string        `json:"release,omitempty"` // of the kernel that ran
	Scenario string        `json:"scenario"`
	Seed     uint64        `json:"seed"`
	CPUs     int           `json:"cpus"` // that it was given, at the most
	MemMiB   int           `json:"mem_mib"`
	Alone    bool          `json:"alone,omitempty"`  // nothing ran beside it
	Status   status.Status `json:"status,omitempty"` // empty: not known yet
	Exit     int           `json:"exit"`
	Reason   string        `json:"reason,omitempty"`
	Host     string        `json:"host,omitempty"`
	Moved    []Move        `json:"moved,omitempty"` // hosts that were lost while they had it
	Seconds  float64       `json:"seconds"`
	Figures  string        `json:"figures,omitempty"`
	Page     string        `json:"page,omitempty"` // to look at, below the folder of the matrix
	Rerun    string        `json:"rerun"`          // the command that does it again by itself
}

// Record is a cell without a result.
func Record(c Cell) CellRecord {
	return CellRecord{Name: c.Name(), Arch: c.Arch, Kernel: c.Kernel.Name, Word: c.Kernel.Word, Scenario: c.Scenario, Seed: c.Seed,
		CPUs: c.Needs.CPUs, MemMiB: c.Needs.MemMiB, Alone: c.Needs.Alone}
}

// Take adds the result.
func (r *CellRecord) Take(res Result) {
	r.Status, r.Exit, r.Reason, r.Release = res.Status, res.Exit, res.Reason, res.Release
	r.Host, r.Moved, r.Seconds, r.Figures = res.Host, res.Moved, res.Seconds, res.Figures
}

// Finish sums up. A host that is of no use makes it the lab's fault, however its cells came out.
func (d *Document) Finish() {
	codes, all := []int{}, []status.Status{}
	for i := range d.Hosts {
		d.Hosts[i].Cells = 0
	}
	for _, c := range d.Cells {
		codes, all = append(codes, c.Exit), append(all, c.Status)
		if at := d.host(c.Host); at >= 0 {
			d.Hosts[at].Cells++
		}
	}
	for _, h := range d.Hosts {
		if h.Status != Used {
			codes, all = append(codes, status.ExitLabFailed), append(all, status.LabFailed)
		}
	}
	d.Exit, d.Status = status.WorstExit(codes...), status.Worst(all...)
}

func (d *Document) host(name string) int {
	return slices.IndexFunc(d.Hosts, func(h HostRecord) bool { return h.Name == name })
}

// Encode writes the document, of a matrix that has begun or is done.
func (d *Document) Encode() ([]byte, error) {
	d.Schema = Schema
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // for people who look: it is no HTML
	enc.SetIndent("", "  ")
	err := enc.Encode(d)
	return b.Bytes(), err
}

func (c *CellRecord) passed() bool {
	return status.ExitCode(c.Status) == status.ExitPassed && c.Exit == status.ExitPassed
}

// Decode reads a document back. Somebody else may have made it: what is shown of it is bounded, and
// leads nowhere else.
func Decode(text []byte) (*Document, error) {
	var d Document
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, err
	}
	if d.Schema != Schema {
		return nil, fmt.Errorf("schema %d is unknown here: this program reads and writes schema %d", d.Schema, Schema)
	}
	for _, c := range d.Cells {
		switch {
		case c.Status != "" && !c.Status.Valid():
			return nil, fmt.Errorf("cell %s: unknown status %q", c.Name, c.Status)
		case c.Page != "" && !filepath.IsLocal(c.Page):
			return nil, fmt.Errorf("cell %s: page %q leads out of the folder", c.Name, c.Page)
		}
	}
	return &d, nil
}
