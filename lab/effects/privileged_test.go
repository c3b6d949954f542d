package effects

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/ktext"
	"kerninst/agent/plan"
	"kerninst/images"
	"kerninst/lab/qemu"
	"kerninst/lab/runner"
	"kerninst/lab/sweep"
)

var update = flag.Bool("update", false, "with -full: write the lists of what is never displaced anew")

// barredForm is a form of instructions that are never displaced, and a function of the
// stock kernel that has one: the first there is refused for a reason. Look at a line
// before you let -update change it.
type barredForm struct {
	form, function, reason string
}

func (b barredForm) String() string { return b.form + "\t" + b.function + "\t" + b.reason }

// TestNeverDisplaced asks the planner for one instruction of each form that is never
// displaced, where it stands in the kernel: privileged ones, traps, landing pads and
// parts of sequences. What the list says holds, and with -full it is complete.
func TestNeverDisplaced(t *testing.T) {
	for _, arch := range all.Arches() {
		t.Run(arch.Name, func(t *testing.T) {
			img, err := images.Ensure(context.Background(), images.Options{Arch: arch.Name, Root: "../..", Progress: t.Logf})
			if err != nil {
				t.Fatal(err)
			}
			r := runner.New(runner.Runner{Image: img, Backend: qemu.Backend{}, Seed: seed, Jobs: 1, Progress: t.Logf})
			d, err := r.Dump(context.Background(), "")
			if err != nil {
				t.Fatal(err)
			}
			text, err := d.Text(arch)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", arch.Name+".barred")
			if *full {
				compareBarred(t, text, file)
			}
			rows := readBarred(t, file)
			held := 0
			for _, row := range rows {
				got, off := refusedIn(text, row.form, row.function)
				if got != row.reason || ranks[got] == 0 {
					t.Errorf("%s in %s: %s, not %s", row.form, row.function, got, row.reason)
					continue
				}
				held++
				if *full {
					t.Logf("%s: %s+%#x: %s", row.form, row.function, uint64(off), got)
				}
			}
			t.Logf("proof privileged %s %d of %d forms", arch.Name, held, len(rows))
		})
	}
}

func readBarred(t *testing.T, file string) (rows []barredForm) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		f := strings.Split(line, "\t")
		if len(f) != 3 {
			t.Fatalf("%s: %q has no three parts", file, line)
		}
		rows = append(rows, barredForm{f[0], f[1], f[2]})
	}
	return rows
}

// compareBarred sees that the list has the forms that the kernel has, no more and no
// fewer, or writes it.
func compareBarred(t *testing.T, text *ktext.Text, file string) {
	t.Helper()
	pieces, err := sweep.Kernel(text)
	if err != nil {
		t.Fatal(err)
	}
	found, asked := map[string]barredForm{}, map[string]int{}
	for _, p := range pieces {
		eachBarred(text.Arch, p.Code, p.Addr, func(form string, _ isa.Addr) bool {
			if old := found[form]; asked[form] < 100 && ranks[old.reason] < ownReason {
				asked[form]++
				if reason, _ := refusedIn(text, form, p.Name); old.form == "" || ranks[reason] > ranks[old.reason] {
					found[form] = barredForm{form, p.Name, reason}
				}
			}
			return true
		})
	}
	var forms []string
	for form := range found {
		forms = append(forms, form)
	}
	slices.Sort(forms)
	if *update {
		var b strings.Builder
		for _, form := range forms {
			fmt.Fprintln(&b, found[form])
		}
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	listed := map[string]bool{}
	for _, row := range readBarred(t, file) {
		listed[row.form] = true
		if _, ok := found[row.form]; !ok {
			t.Errorf("%s is listed, and the kernel has none", row.form)
		}
	}
	for _, form := range forms {
		if !listed[form] {
			t.Errorf("%s, as in %s, is never displaced and not listed", form, found[form].function)
		}
	}
}

// eachBarred visits the instructions of code that are understood and never displaced,
// until visit returns false.
func eachBarred(arch *isa.Arch, code []byte, a isa.Addr, visit func(form string, at isa.Addr) bool) {
	for k := 0; k < len(code); {
		i := arch.Decode(code[k:], a+isa.Addr(k))
		if i.Flow != isa.FlowUnknown && Bar(i) != "" && !visit(Form(arch, arch.Text(code[k:], i.Addr)), i.Addr) {
			return
		}
		k += i.Len
	}
}

// ranks are the reasons that there may be. Where text is off limits anyway, or a fault is
// handled, the form itself has not been looked at: another place says more.
var ranks = map[string]int{
	plan.ReservedText.String(): 1, plan.MayFault.String(): 2, "trap": ownReason, "landing pad": ownReason,
	plan.PrivilegedInsn.String(): ownReason, plan.ControlFlow.String(): ownReason, plan.ExclusiveSequence.String(): ownReason,
}

const ownReason = 3

// refusedIn is the reason for which the first instruction of a form in a function is
// refused, and where; "" if there is none, or no such function, or more than one.
func refusedIn(text *ktext.Text, form, function string) (reason string, off isa.Off) {
	f, err := text.Function("", function)
	if err != nil {
		return "", 0
	}
	code, err := text.Code(f)
	if err != nil {
		return "", 0
	}
	eachBarred(text.Arch, code, f.Addr, func(has string, at isa.Addr) bool {
		if has != form {
			return true
		}
		reason, off = "not refused", isa.Off(at-f.Addr)
		if _, r := plan.At(text, f, plan.Request{Offset: off}); r != nil {
			if reason = r.Reason.String(); ranks[r.Class] == ownReason {
				reason = r.Class
			}
		}
		return false
	})
	return reason, off
}
