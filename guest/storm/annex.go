package main

import (
	"errors"

	"golang.org/x/sys/unix"

	"kerninst/agent/isa"
	"kerninst/agent/kdev"
	"kerninst/agent/plan"
	"kerninst/guest/check"
)

// spoiltFaults are what is wrong about a splice whose patch may fault; good has a second
// part in the annex, or is given one that is as good.
var spoiltFaults = []struct {
	what  string
	want  unix.Errno
	spoil func(e *env, s *kdev.Splice)
}{
	{"a fault outside the second part", unix.EINVAL, func(_ *env, s *kdev.Splice) { s.Fault = s.Annex + isa.Addr(s.AnnexLen) }},
	{"a fault in front of the second part", unix.EINVAL, func(_ *env, s *kdev.Splice) { s.Fault = s.Annex - 4 }},
	{"a fault in the first part", unix.EINVAL, func(_ *env, s *kdev.Splice) { s.Fault = s.Patch }},
	{"a fault outside the only part", unix.EINVAL, func(_ *env, s *kdev.Splice) { s.Annex, s.AnnexLen = 0, 0 }},
	{"a fault that is expected of nobody", unix.EINVAL, func(_ *env, s *kdev.Splice) { s.Original++ }},
	{"no fault in the second part", unix.EINVAL, func(_ *env, s *kdev.Splice) { s.Fault, s.Original = 0, 0 }},
	{"a second part of no length", unix.EINVAL, func(_ *env, s *kdev.Splice) { s.AnnexLen = 0 }},
	{"both parts in the annex", unix.EINVAL, func(_ *env, s *kdev.Splice) { s.Patch, s.PatchLen = s.Annex, s.AnnexLen }},
	{"a second part in an area", unix.EINVAL, func(_ *env, s *kdev.Splice) { s.Annex, s.Fault = s.Patch, s.Patch }},
	{"a second part behind the annex", unix.ERANGE, func(e *env, s *kdev.Splice) {
		s.AnnexLen = e.annex.CodeLen
		s.Annex = e.annex.Addr + isa.Addr(e.annex.CodeLen) - 8
		s.Fault = s.Annex
	}},
	{"a springboard with a second part", unix.EINVAL, func(_ *env, s *kdev.Splice) { s.Springboard = true }},
	{"a second part in which nobody sleeps", unix.EINVAL, func(_ *env, s *kdev.Splice) { s.Awake = true }},
}

// refuseFaults asks for a splice with something wrong about its fault, and for each of
// them changes nothing.
func (e *env) refuseFaults(p *plan.Plan) {
	for _, c := range spoiltFaults {
		s := batchOf([]*plan.Plan{p})
		one := &s[len(s)-1]
		if one.Annex == 0 { // the patch is whole in the annex
			one.Annex, one.AnnexLen = one.Patch, one.PatchLen
			one.Patch = e.one.Patch
		}
		c.spoil(e, one)
		ids, err := e.dev.Splice([]kdev.Splice{*one})
		check.Errno("splice: "+c.what, err, c.want)
		if err == nil {
			check.Errno("undo of a splice that should not be", e.dev.Undo(ids), 0)
		}
	}
}

// rewrite writes both parts of a patch as they are, and says which the module refused.
func (e *env) rewrite(p *plan.Plan) (first, second error) {
	first = e.dev.WriteCode(p.Patch, p.Code)
	if p.Annex == nil {
		return first, first
	}
	return first, e.dev.WriteCode(p.Annex.Addr, p.Annex.Code)
}

// held counts the plans whose patches the module keeps. What it keeps, it keeps whole.
func (e *env) held(plans []*plan.Plan) (n int, half []*plan.Plan) {
	for _, p := range plans {
		first, second := e.rewrite(p)
		if errors.Is(first, unix.EBUSY) != errors.Is(second, unix.EBUSY) {
			half = append(half, p)
		}
		if errors.Is(second, unix.EBUSY) {
			n++
		}
	}
	return n, half
}
