package inventory

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// rules take any URI with a colon in it; those that differ only in capitals are one host.
var rules = Rules{
	Arches: []string{"amd64", "arm64", "riscv64"},
	Key: func(uri string) (string, error) {
		if !strings.Contains(uri, ":") {
			return "", errors.New("not a URI")
		}
		return strings.ToLower(uri), nil
	},
}

func TestParse(t *testing.T) {
	const text = `
# hosts
here   local          cpus=4   # all but two
big    qemu:///system labels=fast,night mem=4096
old    qemu:///old?x=1 arches=amd64,riscv64
`
	got, err := rules.Parse("hosts", []byte(text))
	want := []Host{
		{Line: 3, Name: "here", URI: Here, CPUs: 4},
		{Line: 4, Name: "big", URI: "qemu:///system", MemMiB: 4096, Labels: []string{"fast", "night"}},
		{Line: 5, Name: "old", URI: "qemu:///old?x=1", Arches: []string{"amd64", "riscv64"}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

// The form that help shows is one that is read.
func TestFormIsRead(t *testing.T) {
	_, example, _ := strings.Cut(Form, "\n\n")
	if got, err := rules.Parse("help", []byte(example)); err != nil || len(got) != 5 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "hosts: no line has a host",
		"# nothing":                  "hosts: no line has a host",
		"a":                          "hosts:1: a has no URI",
		"a cpus=1":                   "hosts:1: a has no URI",
		"\n\na nowhere":              "hosts:3: not a URI",
		"a/b local":                  `hosts:1: name "a/b"`,
		"-a local":                   `hosts:1: name "-a"`,
		"a local\na x:y":             "hosts:2: the name a is that of line 1",
		"a x:y\nb X:Y":               "hosts:2: X:Y is the host of line 1",
		"a local\nb local":           "hosts:2: local is the host of line 1",
		"a local cpu=1":              `hosts:1: unknown key "cpu": want arches, cpus, mem, labels, each with =; did you mean cpus?`,
		"a local cpus":               `hosts:1: unknown key "cpus"`,
		"a local cpus=1 cpus=2":      "hosts:1: cpus is given twice",
		"a local cpus=0":             "hosts:1: cpus=0: want a number of CPUs from 1 on",
		"a local mem=4G":             "hosts:1: mem=4G: want a number of MiB from 1 on, without a unit",
		"a local mem=9999999999999":  "want a number of MiB",
		"a local arches=aarch65":     `unknown ISA "aarch65"`,
		"a local arches=arm6":        "did you mean arm64?",
		"a local arches=":            `unknown ISA ""`,
		"a local arches=arm64,arm64": "hosts:1: arches=arm64,arm64: arm64 is given twice",
		"a local labels=x,":          `label ""`,
		"a local labels=x=y":         `label "x=y"`,
	} {
		if _, err := rules.Parse("hosts", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want …%s…", text, err, want)
		}
	}
	var many strings.Builder
	for n := range mostHosts + 1 {
		fmt.Fprintf(&many, "h%d x:%d\n", n, n)
	}
	if _, err := rules.Parse("hosts", []byte(many.String())); err == nil || !strings.Contains(err.Error(), "more than 1000") {
		t.Errorf("of many: %v", err)
	}
}

func TestChoose(t *testing.T) {
	hosts := []Host{{Name: "a", Labels: []string{"fast"}}, {Name: "b", Labels: []string{"slow", "night"}}, {Name: "c"}}
	for words, want := range map[string]string{"": "a b c", "fast": "a", "night,fast": "a b", "c,night": "b c", "b,slow": "b"} {
		var list []string
		if words != "" {
			list = strings.Split(words, ",")
		}
		chosen, err := Choose(hosts, list)
		var names []string
		for _, h := range chosen {
			names = append(names, h.Name)
		}
		if err != nil || strings.Join(names, " ") != want {
			t.Errorf("--on %q: %v, %v, want %s", words, names, err, want)
		}
	}
	for words, want := range map[string]string{"fats": "did you mean fast?", "fast,": "a label is empty", "x": "there are a, b, c, fast, night, slow"} {
		if _, err := Choose(hosts, strings.Split(words, ",")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--on %s: %v, want …%s…", words, err, want)
		}
	}
}
