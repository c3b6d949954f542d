package oracle

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

func TestReadReport(t *testing.T) {
	for _, tt := range []struct {
		name, in, err string
		want          Report
	}{
		{"two blocks, the later counts", "arrivals 0x10 1 1 0\narrivals 0x10 5 3 2\ndone\n", "", Report{0x10: {5, []uint64{3, 2}}}},
		{"nothing", "done\n", "", Report{}},
		{"cut short", "arrivals 0x10 1 1\n", "cut short", nil},
		{"bad sum", "arrivals 0x10 2 1\ndone\n", "not the sum", nil},
		{"bad address", "arrivals zz 1 1\ndone\n", "zz", nil},
		{"the plugin complains", "error: more than 4096 points\ndone\n", "unexpected line", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ReadReport(strings.NewReader(tt.in))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || got != nil {
					t.Fatalf("got %v, %v; want an error about %q", got, err, tt.err)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Fatalf("got %v, %v; want %v", got, err, tt.want)
			}
		})
	}
}

// The address of the marks stands in three places that no compiler compares.
func TestMarkBaseAgrees(t *testing.T) {
	want := fmt.Sprintf("%#x", MarkBase)
	for file, before := range map[string]string{
		"../../guest/bench/mark.h": "MARK_BASE\t",
		"plugin/plugin.h":          "MARK_BASE\t",
	} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, ok := strings.Cut(string(b), "#define "+before)
		if !ok || !strings.HasPrefix(rest, want) {
			t.Errorf("%s does not define MARK_BASE as %s", file, want)
		}
	}
}
