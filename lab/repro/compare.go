package repro

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sort"

	"kerninst/lab/plain"
	"kerninst/lab/report"
)

// GuestsDir is the folder, below that of an ISA, with one folder per guest.
const GuestsDir = "guests"

// ConsoleFile is a guest's console in its folder.
const ConsoleFile = "console.log"

// Compare returns the first thing in which the folders of two runs of one ISA
// differ, "" if nothing does: results.json, then the consoles of the guests
// named, bit for bit.
func Compare(then, now string, guests []string) (string, error) {
	diff, err := compareFiles(then, now, report.ResultsFile, firstJSON)
	for i := 0; i < len(guests) && diff == "" && err == nil; i++ {
		// The name is from a file that anybody may have written.
		name := filepath.Join(GuestsDir, filepath.Base(guests[i]), ConsoleFile)
		diff, err = compareFiles(then, now, name, firstLine)
	}
	return diff, err
}

func compareFiles(then, now, name string, first func(a, b []byte) string) (string, error) {
	a, errA := plain.ReadHere(filepath.Join(then, name), report.MaxDocument)
	b, errB := plain.ReadHere(filepath.Join(now, name), report.MaxDocument)
	missA, missB := errors.Is(errA, fs.ErrNotExist), errors.Is(errB, fs.ErrNotExist)
	switch {
	case missA && missB:
		return name + ": missing in both", nil
	case missA && errB == nil:
		return name + ": missing in the recorded run", nil
	case missB && errA == nil:
		return name + ": missing in the run now", nil
	case errA != nil || errB != nil:
		return "", errors.Join(errA, errB)
	case bytes.Equal(a, b):
		return "", nil
	}
	return name + ": " + first(a, b), nil
}

// firstLine names the first line that differs.
func firstLine(then, now []byte) string {
	a, b := bytes.Split(then, []byte("\n")), bytes.Split(now, []byte("\n"))
	for i := range min(len(a), len(b)) {
		if !bytes.Equal(a[i], b[i]) {
			return fmt.Sprintf("line %d: %q recorded, %q now", i+1, a[i], b[i])
		}
	}
	return fmt.Sprintf("%d lines recorded, %d now", len(a), len(b))
}

// firstJSON names the first value that differs.
func firstJSON(then, now []byte) string {
	a, errA := parse(then)
	b, errB := parse(now)
	if errA != nil || errB != nil {
		return fmt.Sprintf("not JSON: %v", errors.Join(errA, errB))
	}
	if diff := firstValue("", a, b); diff != "" {
		return diff
	}
	return "the same values, written otherwise"
}

func parse(text []byte) (v any, err error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber() // as written, not as a float
	err = dec.Decode(&v)
	return v, err
}

func firstValue(at string, a, b any) string {
	switch a := a.(type) {
	case map[string]any:
		if b, ok := b.(map[string]any); ok {
			return firstMember(at, a, b)
		}
	case []any:
		if b, ok := b.([]any); ok {
			return firstElement(at, a, b)
		}
	default:
		if a == b {
			return ""
		}
	}
	return fmt.Sprintf("%s: %s recorded, %s now", at, short(a), short(b))
}

// causes are the members of results that say what was run: if one of them differs,
// it is why others do.
var causes = []string{"schema", "arch", "kernel", "qemu", "time", "seed"}

func firstMember(at string, a, b map[string]any) string {
	var keys []string
	for k := range a {
		keys = append(keys, k)
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			keys = append(keys, k)
		}
	}
	sort.Slice(keys, func(i, j int) bool {
		x, y := slices.Contains(causes, keys[i]), slices.Contains(causes, keys[j])
		return x && !y || x == y && keys[i] < keys[j]
	})
	for _, k := range keys {
		where := k
		if at != "" {
			where = at + "." + k
		}
		va, inA := a[k]
		vb, inB := b[k]
		switch {
		case !inA:
			return fmt.Sprintf("%s: not recorded, %s now", where, short(vb))
		case !inB:
			return fmt.Sprintf("%s: %s recorded, absent now", where, short(va))
		}
		if diff := firstValue(where, va, vb); diff != "" {
			return diff
		}
	}
	return ""
}

func firstElement(at string, a, b []any) string {
	for i := range min(len(a), len(b)) {
		if diff := firstValue(fmt.Sprintf("%s[%s]", at, nameOf(a[i], i)), a[i], b[i]); diff != "" {
			return diff
		}
	}
	if len(a) != len(b) {
		return fmt.Sprintf("%s: %d elements recorded, %d now", at, len(a), len(b))
	}
	return ""
}

// nameOf is what an element calls itself, else its number.
func nameOf(v any, i int) string {
	if m, ok := v.(map[string]any); ok {
		for _, key := range []string{"name", "spec", "what"} {
			if s, ok := m[key].(string); ok && s != "" {
				return s
			}
		}
	}
	return fmt.Sprint(i)
}

// short is a value for a message.
func short(v any) string {
	const most = 80
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	if len(b) > most {
		return string(bytes.ToValidUTF8(b[:most], nil)) + "…"
	}
	return string(b)
}
