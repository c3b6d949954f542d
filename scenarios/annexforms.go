package scenarios

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/ktext"
	"kerninst/agent/plan"
	"kerninst/lab/effects"
)

// faultless are forms that never fault.
var faultless = map[string][]string{"amd64": {"prefetch"}}

// staying are forms that must stay where they are, and why.
var staying = map[string]map[string]plan.Reason{
	"amd64": {"call": plan.MayFault},
	"arm64": {
		"exclusive_store32": plan.ExclusiveSequence, "exclusive_store32_relaxed": plan.ExclusiveSequence, "exclusive_store8": plan.ExclusiveSequence,
	},
	"riscv64": {"exclusive_load": plan.ExclusiveSequence, "exclusive_store": plan.ExclusiveSequence},
}

// stayingApart are those that must stay because the patch would have two parts.
var stayingApart = map[string]map[string]plan.Reason{
	"arm64": {"exclusive_load64": plan.ExclusiveSequence, "exclusive_load32": plan.ExclusiveSequence, "exclusive_load8": plan.ExclusiveSequence},
}

// Ends of names: what is behind the instruction. Otherwise every register is read there.
const (
	behindFree  = "_free"  // registers are overwritten
	behindTight = "_tight" // likewise, but first there is what must stay, so that no window has room
)

// formName is a name without its end, and whether registers are free there.
func formName(name string) (form string, free bool) {
	form = strings.TrimSuffix(strings.TrimSuffix(name, behindFree), behindTight)
	return form, form != name
}

// staysPut is why a function of guest/module/peer/access is refused, in a
// patch of two parts if it is apart; "": it must not be.
func staysPut(arch, name string, apart bool) string {
	form, _ := formName(name)
	if r, ok := staying[arch][form]; ok {
		return r.String()
	}
	if r, ok := stayingApart[arch][form]; ok && apart {
		return r.String()
	}
	return ""
}

// unlike says why no function is like some of the forms in the exception table that could
// be displaced, by what they match.
var unlike = map[string][]struct{ form, why string }{
	"amd64": {
		{"call n", "refused: a call is other instructions in a patch"},
		{"xsave|xrstor|fxsave|fxrstor|fwait", "works on vector registers, of which the functions know nothing"},
	},
	"riscv64": {
		{"v", "the guests' CPU has no vectors"},
	},
}

// tableForm is one form of the kernel's exception table. There it has the type of its
// entry, too: what the kernel does when it faults.
type tableForm struct {
	form    string
	entries int
	bar     string // why no instruction like it is ever displaced; "": it may be
}

// formsOf lists the forms of the exception table, of entries in the kernel's text.
func formsOf(text *ktext.Text) (out []tableForm, err error) {
	x, err := text.Links("")
	if err != nil {
		return nil, err
	}
	lo, hi := text.Bounds()
	at := map[string]int{}
	for _, e := range x.Faults {
		if e.Site < lo || e.Site >= hi { // initialisation code
			continue
		}
		code := make([]byte, text.Arch.MaxLen)
		if err := text.Read(e.Site, code); err != nil {
			return nil, err
		}
		form := faultForm(text.Arch, code, e.Site, e.Type)
		k, ok := at[form]
		if !ok {
			k = len(out)
			at[form] = k
			out = append(out, tableForm{form: form, bar: effects.Bar(text.Arch.Decode(code, e.Site))})
		}
		out[k].entries++
	}
	slices.SortFunc(out, func(a, b tableForm) int { return strings.Compare(a.form, b.form) })
	return out, nil
}

// faultForm is the form of an instruction, without what varies between its instances.
func faultForm(arch *isa.Arch, code []byte, a isa.Addr, kind uint8) string {
	text := arch.Text(code, a)
	switch arch.Name {
	case "amd64":
		text = amd64Form(text, code)
	case "riscv64":
		text = fmt.Sprintf("%s, %d bytes", effects.Form(arch, text), arch.Decode(code, a).Len)
	default:
		text = effects.Form(arch, text)
	}
	return fmt.Sprintf("%s, type %d", strings.ReplaceAll(text, "nn", "n"), kind) // a sign is a constant's
}

// lockPutOff is what a kernel with one CPU has instead of a lock prefix.
const lockPutOff = 0x3e

var (
	amd64Register = regexp.MustCompile(`%[a-z]+\d*[a-z]?`)
	amd64Constant = regexp.MustCompile(`-?\b0x[0-9a-f]+|,[1248]\)`)
	amd64Hint     = regexp.MustCompile(`prefetch\w+`)
)

// amd64Form leaves registers their width, which is the access's.
func amd64Form(text string, code []byte) string {
	if code[0] == lockPutOff {
		text = "lock " + strings.ReplaceAll(text, "%ds:", "")
	}
	text = amd64Constant.ReplaceAllStringFunc(text, func(s string) string {
		if strings.HasPrefix(s, ",") {
			return ",n)"
		}
		return "n"
	})
	text = amd64Hint.ReplaceAllString(text, "prefetch")
	return amd64Register.ReplaceAllStringFunc(text, func(s string) string { return "%" + amd64Width(s[1:]) })
}

// amd64Width is what a general register's name says of its width; others stay.
func amd64Width(name string) string {
	numbered := len(name) > 1 && name[0] == 'r' && name[1] <= '9'
	last := name[len(name)-1]
	switch {
	case len(name) == 2 && name[1] == 's', strings.HasPrefix(name, "cr"), strings.HasPrefix(name, "st"), strings.Contains(name, "mm"):
		return name
	case numbered && last == 'b', !numbered && (last == 'l' || last == 'h'):
		return "r8"
	case numbered && last == 'w', len(name) == 2 && !numbered:
		return "r16"
	case numbered && last == 'd', name[0] == 'e':
		return "r32"
	}
	return "r64"
}

// coverTable files how many forms of the kernel's exception table were run in the annex,
// and says of each other one why it was not. A form without a reason is an error: it
// wants a function of its own in guest/module/peer/access.
func (t *T) coverTable(done []splicedForm) {
	arch, err := all.Lookup(t.Arch)
	if err != nil {
		panic(err) // the lab has started a guest of it
	}
	table, err := formsOf(t.Guests["list"].Text)
	if err != nil {
		panic(err) // guests with a table that cannot be read do not splice
	}
	ran := map[string]bool{}
	for _, f := range done {
		ran[faultForm(arch, f.point.OldBytes, isa.Addr(f.point.Address), f.kind)] = true
	}
	why := map[string][]string{}
	covered, entries, known := 0, 0, 0
	for _, f := range table {
		entries += f.entries
		switch {
		case ran[f.form]:
			covered, known = covered+1, known+f.entries
			delete(ran, f.form)
		default:
			reason := notRun(t.Arch, f)
			why[reason] = append(why[reason], fmt.Sprintf("%s (%d)", f.form, f.entries))
		}
	}
	unexplained := append([]string{}, why[""]...)
	delete(why, "")
	t.annexMetric("forms.covered", "forms", covered)
	t.annexMetric("forms.table", "forms", len(table))
	t.annexMetric("entries.covered", "entries", known)
	t.annexMetric("entries.table", "entries", entries)
	t.annexMetric("forms.beyond", "forms", len(ran))
	for _, reason := range slices.Sorted(maps.Keys(why)) {
		forms := why[reason]
		t.atLeast(fmt.Sprintf("forms of the exception table that are not run, %s: %s", reason, strings.Join(forms, "; ")), float64(len(forms)), 1)
	}
	t.equal("forms of the exception table that are not run, for no reason", unexplained, []string{})
}

// notRun is the reason why a form is not run.
func notRun(arch string, f tableForm) string {
	if f.bar != "" {
		return "never displaced: " + f.bar
	}
	for _, u := range unlike[arch] {
		if regexp.MustCompile(`^(?:` + u.form + `)`).MatchString(f.form) {
			return u.why
		}
	}
	return ""
}
