package qemu

import (
	"encoding/binary"
	"strings"
	"testing"
)

func TestClearCount(t *testing.T) {
	part := func(lead, count int64) string {
		b := binary.BigEndian.AppendUint64([]byte(countHead), uint64(lead))
		return string(binary.BigEndian.AppendUint64(b, uint64(count)))
	}
	for _, tt := range []struct{ name, state, want, err string }{
		{"one", "memory" + part(5, 1<<33) + "more", "memory" + part(5+1<<33, 0) + "more", ""},
		{"nothing executed", part(7, 0), part(7, 0), ""},
		{"a name elsewhere", "timer/icount" + part(1, 2), "timer/icount" + part(3, 0), ""},
		{"none", "memory", "", "0 times"},
		{"two", part(1, 2) + part(1, 2), "", "2 times"},
		{"another version", strings.Replace(part(1, 2), "\x00\x01", "\x00\x02", 1), "", "0 times"},
		{"cut off", part(1, 2)[:len(part(1, 2))-1], "", "ends within"},
		{"behind", part(-1, 2), "", "no clock"},
		{"negative", part(1, -2), "", "no clock"},
		{"more than a clock holds", part(1<<62, 1<<62), "", "no clock"},
	} {
		got := []byte(tt.state)
		err := clearCountIn(got)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) || string(got) != tt.state {
				t.Errorf("%s: %v, %q, want %s and nothing changed", tt.name, err, got, tt.err)
			}
			continue
		}
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %v, %q, want %q", tt.name, err, got, tt.want)
		}
	}
}
