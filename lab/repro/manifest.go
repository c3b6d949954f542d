// Package repro says whether a run came out as one before it: what each was
// made of, and the first thing in which their results differ.
package repro

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"kerninst/images"
	"kerninst/lab/plain"
	"kerninst/lab/report"
)

// Manifest says what a run of one ISA was made of: every input by hash, and what
// was asked for. It is all that is needed to do the run again.
type Manifest struct {
	Schema   int             `json:"schema"`
	Arch     string          `json:"arch"`
	Scenario string          `json:"scenario"`
	Time     string          `json:"time"`
	Seed     uint64          `json:"seed"`
	Kernel   string          `json:"kernel,omitempty"` // version that was asked for; empty: the locked one
	QEMU     string          `json:"qemu"`
	Through  string          `json:"through,omitempty"` // what started QEMU for the lab: exact results are the same without
	Go       string          `json:"go"`
	Image    images.Manifest `json:"image"`
	Exact    []string        `json:"exact,omitempty"` // guests of exact time
	Own      *Own            `json:"own,omitempty"`
	// Sum is the SHA-256 of the rest, so that a manifest that was changed
	// afterwards is not taken for that of the run beside it.
	Sum string `json:"sum"`
}

// Own is what the user had in the guests. The files lie beside the manifest, in
// the folder AddedDir.
type Own struct {
	CPUs    int           `json:"cpus,omitempty"`
	MemMiB  int           `json:"mem_mib,omitempty"`
	Append  string        `json:"append,omitempty"`     // to the kernel's command line
	Timeout time.Duration `json:"timeout_ns,omitempty"` // guest time
	Modules []string      `json:"modprobe,omitempty"`
	With    []string      `json:"with,omitempty"` // programs of Debian's
	Added   []images.Kept `json:"added,omitempty"`
	Fetch   []string      `json:"fetch,omitempty"` // paths in the guest
}

// AddedDir is the folder, below that of an ISA, with the files that the user
// added to the guests, each named by its SHA-256.
const AddedDir = "added"

// Empty says whether there is nothing of the user's.
func (o *Own) Empty() bool {
	return o.CPUs == 0 && o.MemMiB == 0 && o.Append == "" && o.Timeout == 0 && len(o.Modules) == 0 && len(o.With) == 0 && len(o.Added) == 0 && len(o.Fetch) == 0
}

func (m Manifest) sum() (string, error) {
	m.Sum = ""
	b, err := json.Marshal(m)
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:]), err
}

// Encode completes the manifest and writes it as JSON.
func (m Manifest) Encode() (report.Manifest, error) {
	var err error
	m.Schema = report.Schema
	if m.Sum, err = m.sum(); err != nil {
		return nil, err
	}
	return json.Marshal(m)
}

// ReadManifest reads the manifest in the folder of one ISA.
func ReadManifest(dir string) (*Manifest, error) {
	path := filepath.Join(dir, report.ManifestFile)
	text, err := plain.ReadHere(path, report.MaxDocument)
	if err != nil {
		return nil, err
	}
	var m Manifest
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil {
		return nil, fmt.Errorf("%s: not the manifest of a run of this lab: %w", path, err)
	}
	if m.Schema != report.Schema {
		return nil, fmt.Errorf("%s: schema %d is unknown here: this program knows schema %d", path, m.Schema, report.Schema)
	}
	if m.Sum == "" {
		return nil, fmt.Errorf("%s: no sum: a lab wrote it that could not reproduce runs", path)
	}
	if got, err := m.sum(); err != nil || got != m.Sum {
		return nil, fmt.Errorf("%s: changed since the run: its sum is %.12s and not %.12s; what it describes was never run", path, got, m.Sum)
	}
	return &m, nil
}

// Changed lists what differs between what a run was made of and what is here.
func Changed(then *Manifest, qemu string, image images.Manifest) []string {
	var out []string
	if then.QEMU != qemu {
		out = append(out, fmt.Sprintf("QEMU here is %s, the run had %s", qemu, then.QEMU))
	}
	was := map[string]string{}
	for _, f := range then.Image.Files {
		was[f.Name] = f.SHA256
	}
	for _, f := range image.Files {
		if was[f.Name] != f.SHA256 {
			out = append(out, fmt.Sprintf("%s of the image here is %.12s, the run had %.12s", f.Name, f.SHA256, or(was[f.Name], "none")))
		}
		delete(was, f.Name)
	}
	for _, f := range then.Image.Files {
		if _, left := was[f.Name]; left {
			out = append(out, fmt.Sprintf("%s is not in the image here, the run had %.12s", f.Name, f.SHA256))
		}
	}
	return out
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
