package images

import (
	"strings"
	"testing"
)

// A job of SystemTap's has a module and what is said of each script, and knows the functions
// that they name, and no others.
func TestTapJob(t *testing.T) {
	for _, isa := range targets {
		b := &builder{t: isa, host: "amd64"}
		j, err := b.tapJob(&selection{Kernel: "6.12.1"}, map[string]string{
			"b": `probe kprobe.function("load_msg").return, kprobe.function("do_msgrcv") { next }`,
			"a": `probe kprobe.function("load_msg+4") { next } probe kprobe.function("load_msg") { next }`,
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(j.outputs, " "); got != "a.ko a.said b.ko b.said" {
			t.Errorf("%s: %s come out", isa.name, got)
		}
		if tapArches[isa.name] == "" {
			t.Errorf("%s has no name in SystemTap's words", isa.name)
		}
		last := j.sources[len(j.sources)-1]
		var names []string
		for line := range strings.Lines(string(last.data)) {
			names = append(names, strings.Fields(line)[2])
		}
		if got := strings.Join(names, " "); last.name != "root/boot/System.map-6.12.1-"+isa.name || got != "do_msgrcv load_msg" {
			t.Errorf("%s: %s names %s", isa.name, last.name, got)
		}
	}
}

// A name that would make no module, or a path, is an error.
func TestTapNames(t *testing.T) {
	b := &builder{t: targets[0], host: "amd64"}
	for _, name := range []string{"", "a-b", "a b", "../a", "1a", strings.Repeat("a", 50)} {
		if _, err := b.tapJob(&selection{Kernel: "6.12.1"}, map[string]string{name: "probe begin { exit() }"}); err == nil {
			t.Errorf("%q is a name", name)
		}
	}
}

// Of a kernel of one's own each script has the reason why there is no module.
func TestTapsOfOwn(t *testing.T) {
	got := tapsOfOwn(map[string]string{"b": "", "a": ""})
	if len(got) != 2 || got[0].Path != TapFolder+"a.said" || got[1].Path != TapFolder+"b.said" || !strings.Contains(string(got[0].Data), "headers") {
		t.Errorf("%+v", got)
	}
}
