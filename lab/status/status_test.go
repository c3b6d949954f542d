package status

import "testing"

func TestExitCode(t *testing.T) {
	tests := []struct {
		name string
		of   []Status
		want int
	}{
		{"none", nil, 0},
		{"passed", []Status{Passed}, 0},
		{"skipped", []Status{Skipped}, 0},
		{"failed", []Status{Passed, Failed, Skipped}, 1},
		{"timeout before failed", []Status{Failed, Timeout}, 5},
		{"boot before timeout", []Status{Timeout, BootFailed, Failed}, 6},
		{"crash before boot", []Status{BootFailed, Crashed, Timeout}, 4},
		{"lab before all", []Status{Crashed, BootFailed, LabFailed, Timeout, Failed}, 3},
		{"unknown word", []Status{Passed, "fine"}, 3},
		{"zero value", []Status{""}, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := ExitCode(tt.of...); got != tt.want {
				t.Errorf("ExitCode(%q) = %d, want %d", tt.of, got, tt.want)
			}
		})
	}
}

func TestWorst(t *testing.T) {
	tests := []struct {
		of   []Status
		want Status
	}{
		{nil, Passed},
		{[]Status{Skipped}, Skipped},
		{[]Status{Skipped, Passed}, Passed},
		{[]Status{Passed, Failed}, Failed},
	}
	for _, tt := range tests {
		if got := Worst(tt.of...); got != tt.want {
			t.Errorf("Worst(%q) = %q, want %q", tt.of, got, tt.want)
		}
	}
}

func TestWorstExit(t *testing.T) {
	tests := []struct {
		codes []int
		want  int
	}{
		{nil, 0},
		{[]int{0, 0}, 0},
		{[]int{0, 1, 5}, 5},
		{[]int{6, 4, 1}, 4},
		{[]int{4, 3}, 3},
		{[]int{0, 137}, 3},
		{[]int{3, 130}, 130},
	}
	for _, tt := range tests {
		if got := WorstExit(tt.codes...); got != tt.want {
			t.Errorf("WorstExit(%d) = %d, want %d", tt.codes, got, tt.want)
		}
	}
}
