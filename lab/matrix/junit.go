package matrix

import (
	"cmp"
	"encoding/xml"
	"fmt"

	"github.com/onsi/ginkgo/v2/reporters"

	"kerninst/lab/report"
	"kerninst/lab/status"
)

// JUnit joins what cells have written into one document, in which each has a suite of its name. of
// returns what one has written, or nil if it has come to nothing: then the suite has one case that
// says why.
func (d *Document) JUnit(of func(*CellRecord) []byte) ([]byte, error) {
	var all reporters.JUnitTestSuites
	for i := range d.Cells {
		c := &d.Cells[i]
		suites := []reporters.JUnitTestSuite{c.suite()}
		if text := of(c); text != nil {
			var has reporters.JUnitTestSuites
			if err := xml.Unmarshal(text, &has); err != nil {
				return nil, fmt.Errorf("%s: %w", c.Name, err)
			}
			suites = has.TestSuites
		}
		for _, s := range suites {
			s.Name, s.Package = c.Name, ""
			s.Properties.Properties = append(s.Properties.Properties, c.properties()...)
			all.TestSuites = append(all.TestSuites, s)
			all.Tests, all.Disabled = all.Tests+s.Tests, all.Disabled+s.Disabled
			all.Errors, all.Failures, all.Time = all.Errors+s.Errors, all.Failures+s.Failures, all.Time+s.Time
		}
	}
	text, err := xml.MarshalIndent(all, "", "  ")
	return append(append([]byte(xml.Header), text...), '\n'), err
}

func (c *CellRecord) properties() (all []reporters.JUnitProperty) {
	for _, p := range [][2]string{{"arch", c.Arch}, {"kernel", cmp.Or(c.Release, c.Kernel)}, {"seed", fmt.Sprint(c.Seed)}, {"host", c.Host}} {
		if p[1] != "" {
			all = append(all, reporters.JUnitProperty{Name: p[0], Value: report.Clean(p[1])})
		}
	}
	for _, m := range c.Moved {
		all = append(all, reporters.JUnitProperty{Name: "moved from", Value: oneLine(m.Host + ": " + m.Reason)})
	}
	return all
}

// suite is that of a cell that has written none.
func (c *CellRecord) suite() reporters.JUnitTestSuite {
	s := reporters.JUnitTestSuite{Tests: 1, Time: c.Seconds}
	t := reporters.JUnitTestCase{Name: c.Scenario, Classname: c.Name, Status: string(c.Status), Time: c.Seconds}
	why := oneLine(cmp.Or(c.Reason, string(c.Status)))
	if c.Status == status.Skipped {
		s.Skipped, t.Skipped = 1, &reporters.JUnitSkipped{Message: why}
	} else {
		s.Errors, t.Error = 1, &reporters.JUnitError{Message: why, Type: string(c.Status), Description: why}
	}
	s.TestCases = []reporters.JUnitTestCase{t}
	return s
}
