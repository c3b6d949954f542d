package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"

	"kerninst/lab/plain"
)

// WriteArch writes what is known of one ISA into dir, which it makes if need
// be: results.json, manifest.json, timings.json and bench.txt. Each file
// appears whole or not at all; results.json is the last, so where it stands
// the others do.
func WriteArch(dir string, r Results, m Manifest, t Timings) error {
	results, err := encodeResults(r)
	if err != nil {
		return fmt.Errorf("%s: %w", ResultsFile, err)
	}
	manifest, err := encodeManifest(m)
	if err != nil {
		return fmt.Errorf("%s: %w", ManifestFile, err)
	}
	t = t.normal()
	if err := t.validate(); err != nil {
		return fmt.Errorf("%s: %w", TimingsFile, err)
	}
	timings, err := encode(t)
	if err != nil {
		return fmt.Errorf("%s: %w", TimingsFile, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		data []byte
	}{
		{ManifestFile, manifest},
		{TimingsFile, timings},
		{BenchFile, Bench(&r)},
		{ResultsFile, results},
	} {
		if err := writeFile(filepath.Join(dir, f.name), f.data); err != nil {
			return err
		}
	}
	return nil
}

// WriteFiles writes what scenarios leave for other programs into a folder of its own.
// Names are the scenarios', not a guest's.
func WriteFiles(dir string, files map[string][]byte) error {
	for _, name := range sorted(files) {
		if !nameForm.MatchString(name) {
			return fmt.Errorf("file %q: name is not of letters, digits and ._-", name)
		}
		err := os.MkdirAll(filepath.Join(dir, FilesDir), 0o755)
		if err == nil {
			err = writeFile(filepath.Join(dir, FilesDir, name), files[name])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Arch is what WriteArch wrote.
type Arch struct {
	Results  Results
	Manifest Manifest
	Timings  Timings
}

// ReadResults reads the results of one ISA alone, as ReadArch does.
func ReadResults(dir string) (r Results, err error) {
	err = readDocument(dir, ResultsFile, func(b []byte) error { r, err = decodeResults(b); return err })
	return r, err
}

// ReadResultsFile is ReadResults of a file of any name, or of what links lead to: a person
// has named it.
func ReadResultsFile(path string) (r Results, err error) {
	data, err := plain.Read(path, MaxDocument)
	if err == nil {
		if r, err = decodeResults(data); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}
	return r, err
}

// ReadManifest reads the manifest of one ISA alone, as ReadArch does.
func ReadManifest(dir string) (m Manifest, err error) {
	err = readDocument(dir, ManifestFile, func(b []byte) error { m = b; return checkManifest(b) })
	return m, err
}

// ReadTimings reads the timings of one ISA alone, as ReadArch does.
func ReadTimings(dir string) (t Timings, err error) {
	err = readDocument(dir, TimingsFile, func(b []byte) error { t, err = decodeTimings(b); return err })
	return t, err
}

func readDocument(dir, name string, decode func([]byte) error) error {
	data, err := readPlain(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	if err := decode(data); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
	}
	return nil
}

// ReadArch reads the directory of one ISA back. Keys that it does not know are
// allowed, as the contract says; an unknown schema, a broken document or a
// value outside the contract is an error that names the file.
func ReadArch(dir string) (*Arch, error) {
	var a Arch
	for _, f := range []struct {
		name   string
		decode func([]byte) error
	}{
		{ResultsFile, func(b []byte) (err error) { a.Results, err = decodeResults(b); return err }},
		{ManifestFile, func(b []byte) (err error) { a.Manifest, err = b, checkManifest(b); return err }},
		{TimingsFile, func(b []byte) (err error) { a.Timings, err = decodeTimings(b); return err }},
	} {
		if err := readDocument(dir, f.name, f.decode); err != nil {
			return nil, err
		}
	}
	return &a, nil
}

func encodeResults(r Results) ([]byte, error) {
	r.Schema = Schema
	if err := r.Validate(); err != nil {
		return nil, err
	}
	data, err := encode(r)
	if err != nil {
		return nil, err
	}
	// Through its own decoder, so that the caller's value is not changed and
	// what is written is what will be read.
	if r, err = decodeResults(data); err != nil {
		return nil, err
	}
	return encode(r)
}

func decodeResults(data []byte) (Results, error) {
	var r Results
	if err := decode(data, &r); err != nil {
		return r, err
	}
	clean(&r)
	r.Failure.bound()
	if r.Scenarios == nil {
		r.Scenarios = []Scenario{}
	}
	for i := range r.Scenarios {
		s := &r.Scenarios[i]
		s.Failure.bound()
		if s.Metrics == nil {
			s.Metrics = map[string]Metric{}
		}
	}
	return r, r.Validate()
}

func decodeTimings(data []byte) (Timings, error) {
	var t Timings
	if err := decode(data, &t); err != nil {
		return t, err
	}
	clean(&t)
	return t, t.validate()
}

// normal has no nil maps, which JSON would call null.
func (t Timings) normal() Timings {
	t.Schema = Schema
	if t.Seconds == nil {
		t.Seconds = map[string]float64{}
	}
	if t.Host == nil {
		t.Host = map[string]string{}
	}
	return t
}

func encodeManifest(m Manifest) ([]byte, error) {
	if err := checkManifest(m); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err := json.Indent(&b, bytes.TrimSpace(m), "", "  ")
	b.WriteByte('\n')
	return b.Bytes(), err
}

func checkManifest(m Manifest) error {
	var d struct{}
	return decode(m, &d)
}

// decode reads one JSON object of our schema, and nothing behind it.
func decode(data []byte, v any) error {
	var d struct {
		Schema *int `json:"schema"`
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return err
	}
	if d.Schema == nil {
		return errors.New(`no key "schema": not a document of this program`)
	}
	if *d.Schema != Schema {
		return fmt.Errorf("schema %d is unknown here: this program reads and writes schema %d", *d.Schema, Schema)
	}
	return json.Unmarshal(data, v)
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // for people who look: it is no HTML
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return b.Bytes(), err
}

// writeFile replaces path at once: readers see the old file or the new one. Who
// may read it is the umask's to say, which os.CreateTemp leaves no choice.
func writeFile(path string, data []byte) (err error) {
	name := fmt.Sprintf(".%s.%x", filepath.Base(path), rand.Uint64())
	tmp, err := os.OpenFile(filepath.Join(filepath.Dir(path), name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(tmp.Name())
		}
	}()
	_, err = io.Copy(tmp, bytes.NewReader(data))
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// ReplaceFile writes what is made of runs beside them: whole or not at all, and in place of
// a link, not through it.
func ReplaceFile(path string, data []byte) error { return writeFile(path, data) }

// MaxDocument bounds a document in a run's folder, in bytes. Those of the longest
// runs have a thousandth of it.
const MaxDocument = 64 << 20

// readPlain reads a document of a run's folder, which somebody else may have made.
func readPlain(file string) ([]byte, error) { return plain.ReadHere(file, MaxDocument) }
