package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kerninst/lab/card"
	"kerninst/lab/report"
	"kerninst/lab/status"
)

// theCard is the card of a run's only failure, which is on the terminal, in both
// files and in the report.
func theCard(t *testing.T, a answer, out, arch string) card.Card {
	t.Helper()
	dir := filepath.Join(out, arch)
	cards, err := report.ReadCards(dir)
	if err != nil || len(cards) != 1 {
		t.Fatalf("%d cards, %v: %s", len(cards), err, a)
	}
	c := cards[0]
	text, err := os.ReadFile(filepath.Join(dir, card.TextFile))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(out, report.HTMLFile))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(a.stderr, c.Brief()) || !strings.Contains(string(text), c.Text()) {
		t.Errorf("the card is not on the terminal or not in %s: %s", card.TextFile, a.stderr)
	}
	if c.Guest == "" {
		return c
	}
	for _, cmd := range c.Commands {
		if to := "To " + cmd.To; !strings.Contains(string(page), to) {
			t.Errorf("the report does not say %q", to)
		}
	}
	for _, f := range append(c.Files, filepath.Join("guests", c.Guest, card.TextFile)) {
		if _, err := os.Stat(filepath.Join(dir, f)); err != nil {
			t.Errorf("the card names a file that is not there: %v", err)
		}
	}
	return c
}

// Each way in which a run can end badly is told from the others, by exit status,
// by kind and in words, and has a card that shows where the guest was.
func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		scenario string
		flags    []string
		code     int
		kind     string
		says     string // in the summary, or on the console
		class    card.Class
		at       string // a name in the backtrace of the first CPU, or the detail of its hang
	}{
		{scenario: "fault-assert", code: status.ExitFailed, kind: "assertion", says: "one is two"},
		{scenario: "fault-step", code: status.ExitFailed, kind: "assertion", says: "no such function"},
		{scenario: "fault-panic", code: status.ExitCrashed, kind: "panic", says: "sysrq_reset_seq_param_set", at: "__sbi_ecall"},
		{scenario: "fault-daemon", code: status.ExitCrashed, kind: "daemon-died", says: "its daemon never said done"},
		{scenario: "fault-boot-panic", code: status.ExitBootFailed, kind: "panic", says: "Unable to mount root fs"},
		{scenario: "fault-boot-hang", code: status.ExitBootFailed, kind: "hang", says: "did not say hello", class: card.Idle, at: "nothing left"},
		{scenario: "fault-token", code: status.ExitBootFailed, kind: "power-off", says: "kerninst.lab=1 on the kernel command line"},
		{scenario: "fault-hang", code: status.ExitTimeout, kind: "hang", says: "hung after hello", class: card.Spinning, at: "in a program"},
		{scenario: "fault-wait", code: status.ExitTimeout, kind: "hang", says: "hung after hello", class: card.Waiting, at: "do_idle"},
		{scenario: "fault-wait", flags: []string{"--timeout", "1s"}, code: status.ExitTimeout, kind: "timeout", says: "wait did not end within 1s"},
		{scenario: "fault-spin", flags: []string{"--cpus", "2"}, code: status.ExitTimeout, kind: "hang", says: "hung after hello", class: card.Spinning, at: "riscv_timer_interrupt"},
	} {
		t.Run(strings.Join(append(tt.flags, tt.scenario), " "), func(t *testing.T) {
			t.Parallel()
			out := t.TempDir()
			a := call(t, nil, append([]string{"run", "--arch", "riscv64", "--scenario", tt.scenario, "--out", out, "--force"}, tt.flags...)...)
			if a.code != tt.code {
				t.Fatalf("exit status %d, want %d: %s", a.code, tt.code, a)
			}
			if strings.Contains(a.stderr, "•") || strings.Contains(a.stderr, "[It]") {
				t.Errorf("the suite's own report is among the progress: %s", a.stderr)
			}
			s := results(t, out, "riscv64").Scenarios[0]
			if s.Failure == nil || s.Failure.Kind != tt.kind || !strings.Contains(s.Failure.Rerun, tt.scenario) {
				t.Fatalf("want a failure of kind %q with a command to rerun: %+v", tt.kind, s.Failure)
			}
			c := theCard(t, a, out, "riscv64")
			for _, cmd := range c.Commands {
				if strings.Contains(cmd.To, "without the lab") && exec.Command("sh", "-n", "-c", cmd.Line).Run() != nil {
					t.Errorf("no shell takes %q", cmd.Line)
				}
			}
			if c.Kind != tt.kind || status.ExitCode(c.Status) != tt.code || c.Scenario != tt.scenario || len(c.Commands) < 2 {
				t.Errorf("card %+v", c)
			}
			if all := c.Summary + strings.Join(c.Console, "\n"); !strings.Contains(all, tt.says) {
				t.Errorf("%q does not say %q", all, tt.says)
			}
			where := ""
			if c.Hang != nil {
				where = c.Hang.Detail
			}
			for _, cpu := range c.CPUs {
				where += "\n" + cpu.Symbol
				for _, f := range cpu.Backtrace {
					where += "\n" + f.Symbol
				}
			}
			if !strings.Contains(where, tt.at) {
				t.Errorf("%q does not say %q", where, tt.at)
			}
			if (c.Hang != nil) != (tt.class != "") || c.Hang != nil && c.Hang.Class != tt.class {
				t.Errorf("hang %+v, want %q", c.Hang, tt.class)
			}
		})
	}
}
