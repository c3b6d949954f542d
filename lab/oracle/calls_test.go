package oracle

import (
	"reflect"
	"strings"
	"testing"
)

// tree has f twice below itself, an interrupt in g, and g on two paths.
const tree = `calls
call 0 0 0x0 0 100 300 call
call 1 0 0xf 1 80 200 call
call 2 1 0xf 2 40 90 call
call 3 2 0x9 4 30 30 call
call 4 3 0x1 1 10 10 exception
call 5 4 0x9 1 4 4 call
call 6 0 0x9 1 5 6 call
end
`

func TestReadCalls(t *testing.T) {
	older := "calls\ncall 0 0 0x0 0 1 1 call\nend\n"
	got, err := ReadCalls(strings.NewReader(older + tree + "done\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := &Call{Insns: 100, NS: 300, Children: []*Call{
		{Addr: 0xf, Calls: 1, Insns: 80, NS: 200, Children: []*Call{
			{Addr: 0xf, Calls: 2, Insns: 40, NS: 90, Children: []*Call{
				{Addr: 9, Calls: 4, Insns: 30, NS: 30, Children: []*Call{
					{Addr: 1, Calls: 1, Insns: 10, NS: 10, Exception: true, Children: []*Call{{Addr: 9, Calls: 1, Insns: 4, NS: 4}}},
				}},
			}},
		}},
		{Addr: 9, Calls: 1, Insns: 5, NS: 6},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for addr, want := range map[uint64]Call{
		0xf: {Addr: 0xf, Calls: 3, Insns: 80, NS: 200},
		9:   {Addr: 9, Calls: 6, Insns: 35, NS: 36},
		2:   {Addr: 2},
	} {
		if got := got.Total(addr); !reflect.DeepEqual(got, want) {
			t.Errorf("%#x: %+v in all, want %+v", addr, got, want)
		}
	}
	if own := got.Own(); own != 90 {
		t.Errorf("%d instructions without the interrupt's, want 90", own)
	}
}

func TestReadCallsRefuses(t *testing.T) {
	for in, why := range map[string]string{
		tree:                              "cut short",
		"done\n":                          "no task",
		"calls\nend\ndone\n":              "unexpected",
		"error: more than 512 frames\n":   "unexpected",
		"calls\ncall 1 0 0x0 0 1 1 call":  "number 1",
		"calls\ncall 0 2 0x0 0 1 1 call":  "below 2",
		"calls\ncall 0 0 0x0 0 -1 1 call": "-1",
		"calls\ncall 0 0 0x0 0 1 1 what":  "neither",
	} {
		if c, err := ReadCalls(strings.NewReader(in)); err == nil || !strings.Contains(err.Error(), why) || c != nil {
			t.Errorf("%q: %v, %v; want an error about %q", in, c, err, why)
		}
	}
}

func TestPrintCalls(t *testing.T) {
	c, err := ReadCalls(strings.NewReader(tree + "done\n"))
	if err != nil {
		t.Fatal(err)
	}
	names, err := ReadNames(strings.NewReader("0f T f\n09 d data\n09 t __x_text_end\n09 t g\n09 t g.alias\n01 T vector [m]\n"))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	c.Print(&b, names.Of, 0.03)
	want := "f 1 80 200\n  f 2 40 90\n    g 4 30 30\n      vector (came) 1 10 10\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	for _, bad := range []string{"0f T\n", "zz T f\n"} {
		if _, err := ReadNames(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is taken for a symbol", bad)
		}
	}
}
