package runner

import (
	"testing"

	"kerninst/agent/wire"
	"kerninst/lab/postmortem"
)

// What the daemon put into the kernel has names, springboards, too.
func TestPatches(t *testing.T) {
	records := []*wire.Record{
		{Body: &wire.Record_Log{Log: &wire.Log{Text: "x"}}},
		{Body: &wire.Record_Result{Result: &wire.Result{Step: "splice", Points: []*wire.PointResult{
			{Symbol: "f", Offset: 8, PatchAddress: 0xffffffffc0000000, PatchBytes: make([]byte, 40)},
			{Symbol: "i", Offset: 4, PatchAddress: 0xffff800008000000, PatchBytes: make([]byte, 24), AnnexAddress: 0xffff800079000040, AnnexBytes: make([]byte, 16)},
			{Symbol: "g", Offset: 4, Refusal: &wire.Refusal{Reason: "overlap"}},
			// jmp rel8 back by 32 bytes from its end: SDM 2, EB cb.
			{Symbol: "h", Offset: 2, WrittenAt: 0xffffffff81000042, NewBytes: []byte{0xeb, 0xe0}, BoardBytes: make([]byte, 5), PatchAddress: 0xffffffffc0000040, PatchBytes: make([]byte, 16)},
		}}}},
	}
	want := []postmortem.Patch{
		{Addr: 0xffffffffc0000000, Size: 40, Of: "f+0x8"}, {Addr: 0xffff800008000000, Size: 24, Of: "i+0x4"}, {Addr: 0xffff800079000040, Size: 16, Of: "i+0x4"},
		{Addr: 0xffffffffc0000040, Size: 16, Of: "h+0x2"}, {Addr: 0xffffffff81000024, Size: 5, Of: "h+0x2"},
	}
	got := patches("amd64", records)
	if len(got) != len(want) {
		t.Fatalf("%+v, want %+v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
}
