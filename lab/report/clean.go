package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Bounds on what a guest may put into a report.
const (
	maxText    = 4096    // bytes of one string
	maxConsole = 200     // lines of one failure, the last ones
	maxCode    = 1 << 16 // bytes of machine code
)

// escapes are the terminal's own commands: dropping only their first byte
// would leave the rest as litter.
var escapes = regexp.MustCompile(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])`)

// CleanText strips terminal escapes, control characters and the invisible
// characters that reorder text. Line feeds and tabs stay. Invalid UTF-8 becomes
// U+FFFD.
func CleanText(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = escapes.ReplaceAllString(s, "")
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			return -1
		}
		return r
	}, s)
}

// Clean is CleanText within the bound on one string of a report.
func Clean(s string) string {
	s = CleanText(s)
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "…"
}

// clean applies Clean to every string that v points to, however deep.
func clean(v any) { cleanValue(reflect.ValueOf(v).Elem()) }

func cleanValue(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			cleanValue(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			cleanValue(v.Field(i))
		}
	case reflect.Slice:
		for i := range v.Len() {
			cleanValue(v.Index(i))
		}
	case reflect.Map:
		if v.Type().Elem().Kind() == reflect.String {
			for _, k := range v.MapKeys() {
				v.SetMapIndex(k, reflect.ValueOf(Clean(v.MapIndex(k).String())))
			}
		}
	case reflect.String:
		if hexOnly(v.String()) {
			return // machine code may be longer than a text, and has its own bound
		}
		v.SetString(Clean(v.String()))
	}
}

func hexOnly(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'f')
	})
}

// bound cuts the console of a failure to its last lines and says so.
func (f *Failure) bound() {
	if f == nil || len(f.Console) <= maxConsole {
		return
	}
	cut := len(f.Console) - maxConsole + 1 // the note is a line too
	note := fmt.Sprintf("(%d earlier lines: see console.log)", cut)
	f.Console = append([]string{note}, f.Console[cut:]...)
}

func invisible(r rune) bool { return r == ' ' || !unicode.IsPrint(r) }

// inOrder has the names of figures as they are shown.
func inOrder(metrics map[string]Metric) []string {
	place := func(name string) int {
		if order := metrics[name].Order; order > 0 {
			return order
		}
		return math.MaxInt
	}
	return slices.SortedFunc(maps.Keys(metrics), func(a, b string) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a, b))
	})
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
