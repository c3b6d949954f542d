package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kerninst/images"
	"kerninst/lab/analysis"
	"kerninst/lab/status"
)

// theModule is one that any guest can load, and moduleRuns runs a program by it so often.
const (
	theModule  = "binfmt_misc"
	moduleRuns = 50
)

var moduleLoad = fmt.Sprintf("cd $(mktemp -d) && mkdir m && mount -t binfmt_misc b m && printf '#kern' >p && chmod +x p && "+
	"echo ':me:M::#kern::/bin/true:OC' >m/register && for i in $(seq %d); do ./p || exit 1; done", moduleRuns)

// moduleCopies are the files of what is known of functions of the locked kernel and of the module, which
// lab inline --arch A --module binfmt_misc --save testdata/A.binfmt_misc.copies has written.
func moduleCopies(arch string) []string {
	return []string{"--copies", "../../scenarios/copies/" + arch + ".copies", "--copies", "testdata/" + arch + "." + theModule + ".copies"}
}

// TestInlineModule: copies in a module are entered as often as they are left, and as often as the workload comes by; an argument by its
// name is what the function around was given; and lines are told.
func TestInlineModule(t *testing.T) {
	t.Parallel()
	for _, arch := range images.Arches() {
		t.Run(arch, func(t *testing.T) {
			if arch != "amd64" && !*full {
				return // where places are does not depend on the ISA: agent/inline's tests are of all
			}
			args := append([]string{"probe", "--arch", arch, "--inline", "--json", "--skip-refused", "--modprobe", theModule,
				"kinst:binfmt_misc:get_binfmt_handler:entry count", "kinst:binfmt_misc:get_binfmt_handler:return count",
				`kinst:binfmt_misc:get_binfmt_handler:entry sum(arg("bprm"))`, "kinst:binfmt_misc:load_misc_binary:entry sum(arg0)",
				"kinst:binfmt_misc:get_binfmt_handler:entry stack(2)"}, moduleCopies(arch)...)
			a := call(t, nil, append(args, "--run", moduleLoad)...)
			var doc struct {
				Points []struct {
					Symbol, Source string
					Offset, Value  uint64
					Actions        []struct {
						Action string
						Value  uint64
						Stacks []struct{ Source []string }
					}
				}
			}
			if err := json.Unmarshal([]byte(a.stdout), &doc); a.code != 0 || err != nil {
				t.Fatalf("%v: %v", err, a)
			}
			counts, sums, told := map[string]uint64{}, map[uint64]int{}, 0
			for _, p := range doc.Points {
				counts[fmt.Sprintf("%s+%#x", p.Symbol, p.Offset)] = p.Value // of the first action, which is count but for one
				for _, action := range p.Actions {
					if strings.HasPrefix(action.Action, "sum(") {
						sums[action.Value]++
					}
					for _, stack := range action.Stacks {
						if stack.Source[0] == p.Source && strings.HasSuffix(p.Source, " get_binfmt_handler") {
							told++
						}
					}
				}
			}
			compared := 0
			for _, c := range moduleDocument(t, arch, "get_binfmt_handler").Copies {
				left := uint64(0)
				for _, r := range c.Returns {
					left += counts[r.Place]
				}
				if c.Call == "" {
					continue
				}
				if compared++; left != counts[c.Entry.Place] || left < moduleRuns {
					t.Errorf("get_binfmt_handler in %s is entered %d times and left %d times: %v", c.Caller, counts[c.Entry.Place], left, a)
				}
			}
			if compared == 0 || told == 0 {
				t.Errorf("%d copies, %d stacks with lines: %v", compared, told, a)
			}
			if len(sums) != 1 || slices.Collect(maps.Values(sums))[0] != 2 {
				t.Errorf("sums of arguments, and how many points have each: %v: %v", sums, a)
			}
			moduleListed(t, arch)
			t.Logf("proof inline-modules %s %d", arch, compared)
		})
	}
}

// moduleDocument is what lab inline says of a function of the module.
func moduleDocument(t *testing.T, arch, function string) (doc analysis.Inlined) {
	t.Helper()
	a := call(t, nil, append([]string{"inline", "--arch", arch, "--module", theModule, "--json", function}, moduleCopies(arch)...)...)
	if err := json.Unmarshal([]byte(a.stdout), &doc); a.code != 0 || err != nil || doc.Module != theModule {
		t.Fatalf("%v: %v", err, a)
	}
	return doc
}

// moduleListed: lines of the module are found, and what is wrong with a call is said.
func moduleListed(t *testing.T, arch string) {
	t.Helper()
	with := func(args ...string) []string { return append(args, moduleCopies(arch)...) }
	at := moduleDocument(t, arch, "put_binfmt_handler").Copies[0].Entry.Line
	if a := call(t, nil, with("probe", "--arch", arch, "--inline", "--modprobe", theModule, "--module", theModule, "-l", "kinst:"+at)...); a.code != 0 ||
		!strings.Contains(a.stdout, "kinst:binfmt_misc:") || strings.Contains(a.stderr, "what is known was made for") {
		t.Errorf("%s: %v", at, a)
	}
	end := "kinst:" + path.Base(at) // of which the kernel may have another file
	if a := call(t, nil, with("probe", "--arch", arch, "--inline", "--modprobe", theModule, "--module", theModule, "-l", end)...); a.code != 0 || !strings.Contains(a.stderr, end+", in the kernel: what is known was made for") {
		t.Errorf("%s: %v", end, a)
	}
	header := moduleDocument(t, arch, "exe_file_deny_write_access").Copies[0].Entry.Line
	if a := call(t, nil, with("probe", "--arch", arch, "--inline", "--modprobe", theModule, "--module", theModule, "-l", "kinst:"+header)...); a.code != 0 || !strings.Contains(header, ".h:") ||
		!strings.Contains(a.stdout, "kinst:binfmt_misc:") || !strings.Contains(a.stderr, header+", in the kernel: what is known was made for") {
		t.Errorf("%s, of which the kernel may have some: %v", header, a)
	}
	if a := call(t, nil, with("probe", "--arch", arch, "--inline", "--modprobe", theModule, "-l", "kinst:"+theModule+":nothing_like_it:entry")...); a.code != status.ExitFailed ||
		!strings.Contains(a.stderr, "no function is called nothing_like_it, inlined or by itself") {
		t.Errorf("what is inlined everywhere has no symbol that could be near: %v", a)
	}
	kernels := []string{"--copies", "../../scenarios/copies/" + arch + ".copies"}
	for want, args := range map[string][]string{
		"in module binfmt_misc; did you mean get_binfmt_handler": with("inline", "--arch", arch, "--module", theModule, "get_binfmt_handle"),
		"nothing of module binfmt_msc; did you mean binfmt_misc": with("inline", "--arch", arch, "--module", "binfmt_msc", "get_binfmt_handler"),
		"lab's --modprobe binfmt_misc loads it":                  with("probe", "--arch", arch, "--inline", "kinst:binfmt_misc:get_binfmt_handler:entry", "--run", "true"),
		"nothing of module binfmt_misc":                          append([]string{"inline", "--arch", arch, "--module", theModule, "get_binfmt_handler"}, kernels...),
		"not of the kernel itself":                               append([]string{"inline", "--arch", arch, "fdget"}, moduleCopies(arch)[2:]...),
		"which is not given":                                     {"probe", "--arch", arch, "--module", theModule, "kinst::vfs_read:entry", "--run", "true"},
	} {
		if a := call(t, nil, args...); a.code != status.ExitUsage || !strings.Contains(a.stderr, want) {
			t.Errorf("%q: %d: %v", want, a.code, a)
		}
	}
}

// TestKinstModule: a daemon that has been told of a module's copies finds them where the module is at the moment, says so when it
// is not loaded, and finds them again where it is the next time.
func TestKinstModule(t *testing.T) {
	t.Parallel()
	const arch = "amd64"
	g := openShell(t, arch, append([]string{"--inline", "--modprobe", theModule, "--module", theModule}, moduleCopies(arch)...)...)
	const entry = "kinst:binfmt_misc:get_binfmt_handler:entry"
	for k, tt := range []struct {
		command string
		code    int
		want    string
	}{
		{"kinst --inline " + entry + " -- true", 0, `kinst:binfmt_misc:load_misc_binary:\d+ +\w+ +[1-9]\d* +fs/binfmt_misc\.c:\d+ get_binfmt_handler\n`},
		{"rmmod binfmt_misc && kinst --inline " + entry + " -- true", 2, `module binfmt_misc is not loaded in the guest`},
		{"kinst --inline kinst::fdget:entry -- true >/tmp/out || cat /tmp/out; wc -l </tmp/out", 0, `\n?[1-9]\d*\n$`}, // the kernel's are there
		{"insmod /lib/modules/binfmt_misc.ko && kinst --inline -l kinst:fs/binfmt_misc.c:149", 0, `kinst:binfmt_misc:load_misc_binary:\d+ `},
		{"kinst --inline " + entry + " --skip-refused -- true", 0, `kinst:binfmt_misc:load_misc_binary:\d+ +\w+ +[1-9]\d* +fs/binfmt_misc\.c:\d+ get_binfmt_handler\n`},
	} {
		if got, code := g.run(tt.command, k); code != tt.code || !regexp.MustCompile(tt.want).MatchString(got) {
			t.Errorf("%s\nexit status %d, want %d, and what matches %s:\n%s", tt.command, code, tt.code, tt.want, got)
		}
	}
}
