package main

import (
	"fmt"
	"time"

	"kerninst/agent/kdev"
)

// forever are instructions that jump to themselves.
var forever = map[string][]byte{
	"amd64":   {0xeb, 0xfe},
	"arm64":   {0, 0, 0, 0x14},
	"riscv64": {0x6f, 0, 0, 0},
}

// spin has a function of the kernel go round in circles for whoever calls it: a
// hang on demand. It returns only if nobody does.
func spin(function string) error {
	e, err := open()
	if err != nil {
		return err
	}
	if e.fn, err = e.text.Function("", function); err != nil {
		return err
	}
	if err := e.reserve(); err != nil {
		return err
	}
	p, err := e.plan(0)
	if err != nil {
		return err
	}
	if err := e.dev.WriteCode(p.Patch, forever[e.arch.Name]); err != nil {
		return err
	}
	if _, err := e.dev.Splice([]kdev.Splice{whole(p)}); err != nil {
		return err
	}
	time.Sleep(time.Minute) // the splice ends with the program
	return fmt.Errorf("nobody called %s", function)
}
