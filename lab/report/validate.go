package report

import (
	"encoding/hex"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"kerninst/lab/status"
)

// Validate says what in r breaks the contract of results.json, or nil.
func (r *Results) Validate() error {
	if r.Schema != Schema {
		return fmt.Errorf("schema %d is unknown here: this program reads and writes schema %d", r.Schema, Schema)
	}
	if !slices.Contains(Arches, r.Arch) {
		return fmt.Errorf("arch %q is none of %s", r.Arch, strings.Join(Arches, ", "))
	}
	if r.Time != "exact" && r.Time != "host" {
		return fmt.Errorf("time %q is neither exact nor host", r.Time)
	}
	if err := checkStatus(r.Status, r.Reason); err != nil {
		return err
	}
	seen := map[string]bool{}
	for i := range r.Scenarios {
		s := &r.Scenarios[i]
		if !nameForm.MatchString(s.Name) {
			return fmt.Errorf("scenario %d: name %q is not of letters, digits and ._-", i, s.Name)
		}
		if seen[s.Name] {
			return fmt.Errorf("scenario %s: twice", s.Name)
		}
		seen[s.Name] = true
		if err := s.validate(); err != nil {
			return fmt.Errorf("scenario %s: %w", s.Name, err)
		}
	}
	return nil
}

// nameForm of scenarios and metrics: they become parts of file formats, links
// and command lines.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]*$`)

func checkStatus(s status.Status, reason string) error {
	if !s.Valid() {
		return fmt.Errorf("status %q is unknown", s)
	}
	if s == status.Skipped && reason == "" {
		return fmt.Errorf("skipped without a reason")
	}
	return nil
}

func (s *Scenario) validate() error {
	if err := checkStatus(s.Status, s.Reason); err != nil {
		return err
	}
	for _, name := range sorted(s.Metrics) {
		m := s.Metrics[name]
		if !nameForm.MatchString(name) {
			return fmt.Errorf("metric %q: name is not of letters, digits and ._-", name)
		}
		if err := m.validate(); err != nil {
			return fmt.Errorf("metric %s: %w", name, err)
		}
	}
	for i := range s.Points {
		if err := s.Points[i].validate(); err != nil {
			return fmt.Errorf("point %d (%s): %w", i, s.Points[i].Spec, err)
		}
	}
	return s.Grid.validate()
}

func (m *Metric) validate() error {
	for _, v := range []*float64{&m.Value, m.Lo, m.Hi} {
		if v != nil && (math.IsNaN(*v) || math.IsInf(*v, 0)) {
			return fmt.Errorf("%v is not a finite number", *v)
		}
	}
	for _, v := range m.Samples {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("sample %v is not a finite number", v)
		}
	}
	if !(m.Confidence >= 0 && m.Confidence <= 1) {
		return fmt.Errorf("confidence %v is not from 0 to 1", m.Confidence)
	}
	if strings.ContainsFunc(m.Unit, invisible) {
		return fmt.Errorf("unit %q holds white space or control characters", m.Unit)
	}
	if m.Better != Neither && m.Better != Lower && m.Better != Higher {
		return fmt.Errorf("better %q is neither lower nor higher nor empty", m.Better)
	}
	if m.N < 0 {
		return fmt.Errorf("%d samples", m.N)
	}
	if m.Order < 0 {
		return fmt.Errorf("order %d", m.Order)
	}
	return nil
}

func (p *Point) validate() error {
	for _, a := range []struct{ what, text string }{
		{"offset", p.Offset}, {"address", p.Address}, {"patch_address", p.PatchAddress}, {"annex_address", p.AnnexAddress},
		{"written_at", p.WrittenAt}, {"runs_at", p.RunsAt},
	} {
		if a.text != "" && !addressForm.MatchString(a.text) {
			return fmt.Errorf("%s %q is not of the form 0x1f", a.what, a.text)
		}
	}
	for _, b := range []struct{ what, text string }{
		{"old", p.Old}, {"new", p.New}, {"patch", p.Patch}, {"annex", p.Annex},
	} {
		code, err := hex.DecodeString(b.text)
		if err != nil {
			return fmt.Errorf("%s: %w", b.what, err)
		}
		if len(code) > maxCode {
			return fmt.Errorf("%s: %d bytes of code, more than %d", b.what, len(code), maxCode)
		}
	}
	if p.Mechanism != "" && p.Refusal != nil {
		return fmt.Errorf("has both a mechanism, %s, and a refusal, %s", p.Mechanism, p.Refusal.Reason)
	}
	return nil
}

var addressForm = regexp.MustCompile(`^0x[0-9a-f]{1,16}$`)

func (t *Timings) validate() error {
	if t.Schema != Schema {
		return fmt.Errorf("schema %d is unknown here: this program reads and writes schema %d", t.Schema, Schema)
	}
	for _, phase := range sorted(t.Seconds) {
		if s := t.Seconds[phase]; math.IsNaN(s) || math.IsInf(s, 0) {
			return fmt.Errorf("phase %s: %v is not a finite number", phase, s)
		}
	}
	return nil
}
