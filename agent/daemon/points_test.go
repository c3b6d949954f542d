package daemon

import (
	"testing"

	"kerninst/agent/wire"
)

// TestResultNamed: what stands for all that a function has, and is refused, is named as it was asked for.
func TestResultNamed(t *testing.T) {
	for want, p := range map[string]*wire.Point{
		"kinst::f:8":      {Function: "f", Offset: 8},
		"kinst:m:f:":      {Module: "m", Function: "f", Each: wire.Each_INSTRUCTION},
		"kinst::f:return": {Function: "f", Each: wire.Each_RETURN},
		"kinst::f:block":  {Function: "f", Each: wire.Each_BLOCK},
		"kinst::f:call":   {Function: "f", Each: wire.Each_CALL},
	} {
		if got := result(p).Spec; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
