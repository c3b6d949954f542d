package kdev

import (
	"strings"
	"testing"
)

func TestReadKallsyms(t *testing.T) {
	const text = "ffffffff81000000 T _text\n" +
		"ffffffff81000000 T text_mutex\n" +
		"ffffffff82000000 t helper\t[other]\n" +
		"ffffffff83000000 d last"
	for _, tt := range []struct {
		name, in string
		names    []string
		want     Symbols
		err      string
	}{
		{"found, and nothing else", text, []string{"text_mutex", "last"}, Symbols{"text_mutex": 0xffffffff81000000, "last": 0xffffffff83000000}, ""},
		{"modules do not count", text, []string{"helper"}, Symbols{}, ""},
		{"twice at one address", text + "\nffffffff83000000 D last\n", []string{"last"}, Symbols{"last": 0xffffffff83000000}, ""},
		{"twice at two", text + "\nffffffff84000000 D last\n", []string{"last"}, nil, "refusing to guess"},
		{"hidden", "0000000000000000 T _text\n", []string{"_text"}, nil, "hidden"},
		{"no address", "xyz T _text\n", []string{"_text"}, nil, "xyz"},
		{"short lines", "\n \nab\nab c\nab c d\n", []string{"d"}, Symbols{"d": 0xab}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ReadKallsyms(strings.NewReader(tt.in), tt.names)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("got %v, %v; want an error about %q", got, err, tt.err)
				}
				return
			}
			if err != nil || len(got) != len(tt.want) {
				t.Fatalf("got %v, %v; want %v", got, err, tt.want)
			}
			for n, a := range tt.want {
				if got[n] != a {
					t.Errorf("%s: %#x, want %#x", n, got[n], a)
				}
			}
		})
	}
}
