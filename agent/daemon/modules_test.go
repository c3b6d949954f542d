package daemon

import (
	"maps"
	"strings"
	"testing"
)

// TestLoaded reads what a kernel says of its modules.
func TestLoaded(t *testing.T) {
	const list = `null_blk 65536 0 - Live 0xffffffffc0a38000
configfs 69632 2 null_blk, Live 0xffffffffc0a20000
late 16384 1 - Loading 0xffffffffc0a10000 (+)
kerninst 1114112 1 - Live 0xffffffffc0800000 (OE)
`
	got, err := parseLoaded(strings.NewReader(list))
	want := map[string]addr{"null_blk": 0xffffffffc0a38000, "configfs": 0xffffffffc0a20000, "kerninst": 0xffffffffc0800000}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for _, bad := range []string{"null_blk 65536 0 - Live\n", "null_blk 65536 0 - Live here\n"} {
		if _, err := parseLoaded(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was understood", bad)
		}
	}
}
