// Package check is what programs have in common that try the module from inside a guest: they
// print one JSON record for each check, and whoever reads those asserts them one by one.
package check

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Record is one check. Its keys are what scenarios read.
type Record struct {
	Name   string `json:"name"`
	N      int    `json:"n"` // how often it was tried
	OK     bool   `json:"ok"`
	Detail string `json:"detail"` // what came out
}

// Report prints one.
func Report(name string, n int, ok bool, format string, args ...any) {
	b, err := json.Marshal(Record{name, n, ok, fmt.Sprintf(format, args...)})
	if err != nil {
		panic(err) // strings and numbers
	}
	fmt.Println(string(b))
}

// Errno is a check of what a call answers; 0 is success.
func Errno(name string, err error, want unix.Errno) {
	var got unix.Errno
	ok := want == 0 && err == nil || want != 0 && errors.As(err, &got) && got == want
	expected := "success"
	if want != 0 {
		expected = unix.ErrnoName(want)
	}
	Report(name, 1, ok, "want %s, got %v", expected, err)
}

// Exit ends a program with an error of its own: what it tests is in the records.
func Exit(program string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", program, err)
		os.Exit(1)
	}
}
