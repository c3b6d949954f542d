package kdev

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"

	"kerninst/agent/gen"
	"kerninst/agent/place"
)

const moduleDir = "../../guest/module/"

// goLayout renders the Go structures and request numbers as the lines of
// layout.c, which the C compiler holds against the header on each ISA.
func goLayout() []string {
	var out []string
	for name, v := range map[string]any{
		"ki_info": kiInfo{}, "ki_area": kiArea{}, "ki_area_free": kiAreaFree{},
		"ki_read": kiRead{}, "ki_code": kiCode{}, "ki_frame": kiFrame{}, "ki_site": kiSite{}, "ki_splice": kiSplice{},
		"ki_batch": kiBatch{}, "ki_copied": kiCopied{}, "ki_resume": kiResume{}, "ki_undo": kiUndo{}, "ki_stats": kiStats{},
		"ki_cells": kiCells{}, "ki_range": kiRange{}, "ki_inside": kiInside{}, "ki_moment": kiMoment{},
		"ki_ring": kiRing{}, "ki_wait": kiWait{},
	} {
		t := reflect.TypeOf(v)
		out = append(out, fmt.Sprintf("SIZE(%s, %d)", name, t.Size()))
		for i := range t.NumField() {
			f := t.Field(i)
			out = append(out, fmt.Sprintf("FIELD(%s, %s, %d, %d)", name, cName(f.Name), f.Offset, f.Type.Size()))
		}
	}
	for name, n := range map[string]uint32{
		"INFO": iocInfo, "AREA": iocArea, "AREA_FREE": iocAreaFree, "READ": iocRead,
		"CODE": iocCode, "SPLICE": iocSplice, "UNDO": iocUndo, "STATS": iocStats, "MOMENT": iocMoment, "WAIT": iocWait, "WAKE": iocWake,
	} {
		out = append(out, fmt.Sprintf("IOCTL(KI_IOC_%s, %#08x)", name, n))
	}
	sort.Strings(out)
	return out
}

// cName turns MmapOffset into mmap_offset; a run of capitals is one word.
func cName(s string) string {
	switch s {
	case "CPUs":
		return "cpus"
	case "TaskCPU":
		return "task_cpu"
	case "IDs":
		return "ids"
	case "TGID", "TID":
		return strings.ToLower(s)
	}
	s = regexp.MustCompile(`^N([A-Z])`).ReplaceAllString(s, "n_${1}")
	s = regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(s, "${1}_$2")
	return strings.ToLower(s)
}

func TestLayoutIsTheModules(t *testing.T) {
	src, err := os.ReadFile(moduleDir + "layout.c")
	if err != nil {
		t.Fatal(err)
	}
	c := regexp.MustCompile(`(?m)^(SIZE|FIELD|IOCTL)\(ki_[^)]*\)|^(IOCTL)\(KI_[^)]*\)`).FindAllString(string(src), -1)
	sort.Strings(c)
	if g := goLayout(); !reflect.DeepEqual(g, c) {
		t.Errorf("layouts differ\n go: %s\n  C: %s", diff(g, c), diff(c, g))
	}
}

// diff lists what is in a and not in b.
func diff(a, b []string) []string {
	in := map[string]bool{}
	for _, s := range b {
		in[s] = true
	}
	var out []string
	for _, s := range a {
		if !in[s] {
			out = append(out, s)
		}
	}
	return out
}

// TestHeaderIsAsserted fails when a structure or field of the header has no
// line in layout.c, so that the test above cannot pass by looking at less.
func TestHeaderIsAsserted(t *testing.T) {
	header, err := os.ReadFile(moduleDir + "uapi/kerninst.h")
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`(?s)/\*.*?\*/`).ReplaceAllString(string(header), "")
	have := map[string]bool{}
	for _, l := range goLayout() {
		have[regexp.MustCompile(`, \d.*`).ReplaceAllString(l, ")")] = true
	}
	n := 0
	for _, s := range regexp.MustCompile(`(?s)struct (ki_\w+) \{(.*?)\};`).FindAllStringSubmatch(text, -1) {
		for _, f := range regexp.MustCompile(`[ ,]\s*(\w+)(?:\[\w+\])?\s*[,;]`).FindAllStringSubmatch(strings.ReplaceAll(s[2], ",", ",,"), -1) {
			n++
			if want := fmt.Sprintf("FIELD(%s, %s)", s[1], f[1]); !have[want] {
				t.Errorf("header has %s.%s and layout.c does not", s[1], f[1])
			}
		}
	}
	if want := strings.Count(strings.Join(goLayout(), "\n"), "FIELD("); n != want {
		t.Errorf("found %d fields in the header and %d asserted", n, want)
	}
}

func TestConstantsAreTheHeaders(t *testing.T) {
	header, err := os.ReadFile(moduleDir + "uapi/kerninst.h")
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"KI_ABI_VERSION":        fmt.Sprintf("%du", ABIVersion),
		"KI_MAX_PATCH":          fmt.Sprintf("%du", MaxPatch),
		"KI_MAX_BATCH":          fmt.Sprintf("%du", MaxBatch),
		"KI_MAX_AREA":           fmt.Sprintf("(%du << 20)", MaxArea>>20),
		"KI_FEAT_NO_WINDOWS":    shift(FeatureNoWindows),
		"KI_FEAT_TRAP":          shift(FeatureTrap),
		"KI_FEAT_PREEMPTED":     shift(FeaturePreempted),
		"KI_READ_UNPROBED":      fmt.Sprintf("%du", readUnprobed),
		"KI_FEAT_LSE":           shift(FeatureLSE),
		"KI_FEAT_KEYS":          shift(FeatureKeys),
		"KI_FEAT_SITED":         shift(FeatureSited),
		"KI_SITE_FAULT":         fmt.Sprintf("%du", siteFault),
		"KI_SITE_KEY":           fmt.Sprintf("%du", siteKey),
		"KI_MAX_SITES":          fmt.Sprintf("%du", MaxSites),
		"KI_ANNEX_FAULTS":       fmt.Sprintf("%du", AnnexFaults),
		"KI_MAX_KEYS":           fmt.Sprintf("%du", MaxKeys),
		"KI_MAX_RESUMES":        fmt.Sprintf("(%du << 20)", MaxResumes>>20),
		"KI_SPLICE_WINDOW":      shift(spliceWindow),
		"KI_SPLICE_SPRINGBOARD": shift(spliceSpringboard),
		"KI_SPLICE_CODE":        shift(spliceCode),
		"KI_SPLICE_AWAKE":       shift(spliceAwake),
		"KI_SPLICE_TRAP":        shift(spliceTrap),
		"KI_SPLICE_HOME":        shift(spliceHome),
		"KI_UNDO_NO_WAIT":       shift(undoNoWait),
		"KI_LOAD_STRIDE":        strconv.Itoa(gen.LoadStride),
		"KI_WALK_SHIFT":         strconv.Itoa(gen.WalkShift),
		"KI_AREA_WINDOW":        fmt.Sprintf("%du", areaWindow),
		"KI_AREA_ANNEX":         fmt.Sprintf("%du", areaAnnex),
		"KI_AREA_LOCAL":         fmt.Sprintf("%du", areaLocal),
		"KI_AREA_RINGS":         fmt.Sprintf("%du", areaRings),
		"KI_ANNEX_LEN":          fmt.Sprintf("%#x", AnnexLen),
		"KI_ARENA_LEN":          fmt.Sprintf("%#x", ArenaLen),
		"KI_MAX_FRAMES":         fmt.Sprintf("%du", MaxFrames),
		"KI_MAX_WORDS":          fmt.Sprintf("(%du << 20)", MaxWords>>20),
		"KI_MAX_RANGES":         fmt.Sprintf("%du", MaxRanges),
		"KI_MAX_INSIDE":         fmt.Sprintf("%du", MaxInside),
		"KI_LINE_FRAMES":        fmt.Sprintf("%du", LineFrames),
		"KI_LINE":               fmt.Sprintf("%du", place.Line),
		"KI_BP_KEPT":            fmt.Sprintf("%#xu", bpKept),
	} {
		re := regexp.MustCompile(`(?m)^#define ` + name + `\s+` + regexp.QuoteMeta(value) + `(\s|$)`)
		if !re.Match(header) {
			t.Errorf("%s is not %s in the header", name, value)
		}
	}
}

func shift(flag int) string {
	n := 0
	for ; flag > 1; flag >>= 1 {
		n++
	}
	return fmt.Sprintf("(1u << %d)", n)
}
