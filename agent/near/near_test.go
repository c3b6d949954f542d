package near

import "testing"

func TestWord(t *testing.T) {
	known := []string{"amd64", "arm64", "riscv64", "smoke", "count", "cost"}
	for word, want := range map[string]string{
		"amd46": "amd64", // swapped
		"rm64":  "arm64", // missing
		"riscv": "riscv64",
		"SMOKE": "smoke",
		"cots":  "cost",
		"x":     "",
		"sparc": "",
		"":      "",
	} {
		if got := Word(word, known); got != want {
			t.Errorf("Word(%q) = %q, want %q", word, got, want)
		}
	}
	if got := Hint("smok", known); got != "; did you mean smoke?" {
		t.Errorf("Hint = %q", got)
	}
	if got := Hint("sparc", known); got != "" {
		t.Errorf("Hint = %q", got)
	}
}

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0},
		{"abc", "acb", 1}, {"abc", "abx", 1}, {"abc", "ab", 1}, {"abc", "xabc", 1},
		{"kitten", "sitting", 3}, {"ca", "abc", 3},
	} {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
