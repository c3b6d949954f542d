package main

import (
	"errors"
	"fmt"
	"os"

	"kerninst/agent/ask"
	"kerninst/agent/wire"
)

// expand has the daemon say what specifications mean where functions are inlined. A code that is not 0 is
// to be exited with for the error; any other error is one of the question.
func expand(r *ask.Request) (code int, err error) {
	err = r.Expand(func(specs []string) ([]*wire.Meant, error) {
		res, status, err := copies(&wire.Copies{Specs: specs})
		code = status
		return res.GetMeant(), err
	}, func(s string) { fmt.Fprintln(os.Stderr, "kinst:", s) })
	var untold *ask.UntoldError
	if errors.As(err, &untold) {
		code = exitFailed
	}
	return code, err
}

// tell adds lines of the source to an answer. That they are not known is said, and is no reason to say nothing else.
func tell(a *ask.Answer) {
	var places []*wire.SourcePlace
	a.Tell(func(place string, returned bool) string {
		places = append(places, &wire.SourcePlace{Place: place, Returned: returned})
		return ""
	})
	res, _, err := copies(&wire.Copies{Places: places})
	if err != nil || len(res.Sources) != len(places) {
		fmt.Fprintln(os.Stderr, "kinst: no lines of the source:", err)
		return
	}
	next := 0
	a.Tell(func(string, bool) string { next++; return res.Sources[next-1] })
}

// copies asks the daemon; the code is what to exit with if there is an error.
func copies(what *wire.Copies) (res *wire.Result, code int, err error) {
	job := &wire.Job{Schema: 1, Steps: []*wire.Step{{Name: "copies", Do: &wire.Step_Copies{Copies: what}}}}
	records, err := do(job, func(*wire.Record) {})
	switch {
	case errors.Is(err, errInterrupted):
		return nil, exitInterrupted, err
	case err != nil:
		return nil, exitBroken, err
	}
	for _, rec := range records {
		if r := rec.GetResult(); r.GetStep() == "copies" {
			res = r
		}
	}
	if res.GetError() != "" {
		return nil, exitFailed, errors.New(res.Error)
	}
	return res, 0, nil
}
