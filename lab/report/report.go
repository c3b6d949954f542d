// Package report holds the results of a run as data, and their renderings:
// JSON and Go benchmark files for programs, Markdown and one HTML page for
// people. It starts no machine and reads no clock: it turns what it is given
// into files, and the same input gives the same bytes.
//
// What came out of a guest is untrusted wherever it appears in Results. It is
// validated, bounded and stripped of control characters when it is written and
// again when it is read back, and escaped where it is rendered.
package report

import (
	"encoding/json"

	"kerninst/lab/status"
)

// Schema is the version of every document that this package writes.
const Schema = 1

// Results is what one run on one ISA found. It holds nothing of the host (no
// time, path, process or date), so an exact repeat is equal to the byte.
type Results struct {
	Schema    int           `json:"schema"`
	Arch      string        `json:"arch"`
	Kernel    string        `json:"kernel"` // uname -r of the guest
	QEMU      string        `json:"qemu"`   // version
	Time      string        `json:"time"`   // exact or host
	Seed      uint64        `json:"seed"`
	Status    status.Status `json:"status"`
	Reason    string        `json:"reason,omitempty"`
	Scenarios []Scenario    `json:"scenarios"`
	// Failure of the run as a whole: what happened outside any scenario.
	Failure *Failure `json:"failure,omitempty"`
}

// Scenario is one scenario's part of the results.
type Scenario struct {
	Name   string        `json:"name"`
	Status status.Status `json:"status"`
	Reason string        `json:"reason,omitempty"` // why skipped
	// Metrics by name; what stands before the first dot groups them.
	Metrics map[string]Metric `json:"metrics"`
	Checks  []Check           `json:"checks,omitempty"`
	Points  []Point           `json:"points,omitempty"`
	Grid    *Grid             `json:"grid,omitempty"`
	Failure *Failure          `json:"failure,omitempty"`
}

// Better says which way a metric improves.
type Better string

const (
	Neither Better = ""
	Lower   Better = "lower"
	Higher  Better = "higher"
)

// Metric is one figure. Lo and Hi bound its interval over N samples, which holds
// the true value with probability Confidence.
type Metric struct {
	Value  float64  `json:"value"`
	Unit   string   `json:"unit"`
	Better Better   `json:"better"`
	Lo     *float64 `json:"lo,omitempty"`
	Hi     *float64 `json:"hi,omitempty"`
	N      int      `json:"n,omitempty"`
	// Of 0 to 1; 0: the interval is all that was seen.
	Confidence float64   `json:"confidence,omitempty"`
	Samples    []float64 `json:"samples,omitempty"` // in the order of measuring
	// Order is the place among the scenario's figures where it is shown: a suite has an
	// order that says more than names do. Those of 0 follow, by name.
	Order int `json:"order,omitempty"`
}

// Check is one thing that was compared.
type Check struct {
	What string `json:"what"`
	Got  string `json:"got"`
	Want string `json:"want"`
	OK   bool   `json:"ok"`
}

// Point is what became of one instrumentation point: a mechanism or a refusal,
// or neither where the guest died in between.
type Point struct {
	Spec         string   `json:"spec"`
	Symbol       string   `json:"symbol"`
	Offset       string   `json:"offset"`  // bytes from the symbol, "0x…"
	Address      string   `json:"address"` // "0x…"
	Mechanism    string   `json:"mechanism,omitempty"`
	Refusal      *Refusal `json:"refusal,omitempty"`
	Old          string   `json:"old,omitempty"` // bytes at the point before, in hex
	New          string   `json:"new,omitempty"` // and after
	Patch        string   `json:"patch,omitempty"`
	PatchAddress string   `json:"patch_address,omitempty"`
	Annex        string   `json:"annex,omitempty"` // the patch's second part, with what is displaced, if it has one
	AnnexAddress string   `json:"annex_address,omitempty"`
	WrittenAt    string   `json:"written_at,omitempty"` // where the bytes are
	RunsAt       string   `json:"runs_at,omitempty"`    // what the snippet runs before, if it is not the point: as often
	Moved        string   `json:"moved,omitempty"`      // the function that runs elsewhere, to make room for the springboard
	Displaced    []string `json:"displaced,omitempty"`  // disassembly
	Added        int      `json:"added,omitempty"`      // instructions added per hit, by construction
	Spilled      int      `json:"spilled,omitempty"`    // registers and flag words saved
	Liveness     string   `json:"liveness,omitempty"`   // who says that the others are free: block, function, index
	Cell         string   `json:"cell,omitempty"`       // shared or per-cpu
	Count        *uint64  `json:"count,omitempty"`
}

// Refusal says why a point was not spliced.
type Refusal struct {
	Reason string `json:"reason"`
	Detail string `json:"detail"`
}

// Failure is what a person needs to know about something that went wrong.
type Failure struct {
	Kind    string   `json:"kind"` // panic, oops, hang, assertion…
	Summary string   `json:"summary"`
	Console []string `json:"console,omitempty"` // the decisive lines
	Rerun   string   `json:"rerun,omitempty"`   // command
}

// Manifest is a JSON object that holds every hash, argument and seed of a run.
// It is the caller's: here it only has to carry the schema.
type Manifest = json.RawMessage

// Timings is what a run took on its host: the part of the output that two
// equal runs do not share.
type Timings struct {
	Schema  int                `json:"schema"`
	Seconds map[string]float64 `json:"seconds"` // by phase; "a/b" is a part of another
	Host    map[string]string  `json:"host"`    // versions, CPUs, date…
}

// Names of the files of one ISA.
const (
	ResultsFile  = "results.json"
	ManifestFile = "manifest.json"
	TimingsFile  = "timings.json"
	BenchFile    = "bench.txt"
	FilesDir     = "files" // of what scenarios leave for other programs
)

// Names of the files over all ISAs.
const (
	SummaryFile = "summary.md"
	HTMLFile    = "report.html"
)

// Arches in the order in which they are shown.
var Arches = []string{"amd64", "arm64", "riscv64"}
