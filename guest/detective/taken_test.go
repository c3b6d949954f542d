package main

import (
	"os"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const rest = " S 1 0 0 0 -1 4194560 548 0 0 0 441 832 7 9 20 0 6 0 1254"
	for text, want := range map[string]time.Duration{
		"120 (kerninstd)" + rest: 12730 * time.Millisecond,
		"120 (a) R 9 (b)" + rest: 12730 * time.Millisecond, // a process may call itself so
		"120 (kerninstd) S 1":    -1,
		"":                       -1,
		"1 (a) S 1 0 0 0 -1 4194560 548 0 0 0 x 832 7 9": -1,
	} {
		if got, err := parseStat([]byte(text)); (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	got, err := onCPU(os.Getpid())
	for late := time.Now().Add(time.Minute); got == 0 && err == nil && time.Now().Before(late); { // it works
		got, err = onCPU(os.Getpid())
	}
	if err != nil || got == 0 {
		t.Errorf("this process had a CPU for %v, %v", got, err)
	}
}
