package probe

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"kerninst/agent/wire"
)

// Kind is what an action does.
type Kind uint8

const (
	Count Kind = iota
	Sum
	Min
	Max
	Avg
	Hist
	Linear
	Trace
	Stack
	Time
	Concurrency
	Cover
	Virtual
)

// Form is how a number is written.
type Form uint8

const (
	Unsigned Form = iota
	Signed
	Text    // two words: a command's name
	Address // as the kernel prints them: in hex
	Symbol  // an address of code, by what is there
)

// words is how many words are one.
func (f Form) words() int {
	if f == Text {
		return 2
	}
	return 1
}

// Shape is how what an action has found is to be read.
type Shape struct {
	Kind   Kind
	Signed bool   // what is bounded, averaged or counted in buckets has a sign
	Lo     uint64 // of the first bucket of a linear histogram that has a lower end
	Step   uint64 // how wide its buckets are
	Steps  int    // how many of them have two ends
	Keys   []Form
	Fields []Form // of a trace
}

// turned is what numbers are xored with so that the one that is looked for is the largest
// without a sign.
func (s Shape) turned() (mask uint64) {
	if s.Signed {
		mask = 1 << 63
	}
	if s.Kind == Min {
		mask = ^mask
	}
	return mask
}

// Row is what was found, of one of the keys or without any.
type Row struct {
	Keys []string `json:"keys,omitempty"`
	// Value is the number, if there is one: an average is rounded towards 0.
	Value   *Number  `json:"value,omitempty"`
	Hits    uint64   `json:"hits"`
	Buckets []Bucket `json:"buckets,omitempty"` // those from the first that is not empty to the last
}

// Number is 64 bits, with or without a sign.
type Number struct {
	Bits   uint64
	Signed bool
}

func (n Number) String() string {
	if n.Signed {
		return strconv.FormatInt(int64(n.Bits), 10)
	}
	return strconv.FormatUint(n.Bits, 10)
}

// MarshalJSON is String.
func (n Number) MarshalJSON() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalJSON reads it again.
func (n *Number) UnmarshalJSON(b []byte) (err error) {
	if n.Signed = bytes.HasPrefix(b, []byte("-")); n.Signed {
		v, err := strconv.ParseInt(string(b), 10, 64)
		n.Bits = uint64(v)
		return err
	}
	n.Bits, err = strconv.ParseUint(string(b), 10, 64)
	return err
}

// Bucket is a part of a histogram: how many were from Lo to Hi, both included; the first
// and the last may have no end.
type Bucket struct {
	Lo *Number `json:"lo,omitempty"`
	Hi *Number `json:"hi,omitempty"`
	N  uint64  `json:"n"`
}

// Rows reads what an action found: one row, or one for each of its keys, the rarest first.
func (s Shape) Rows(v *wire.Value) (out []Row) {
	if len(s.Keys) == 0 {
		return []Row{s.alone(v)}
	}
	for _, r := range v.Rows {
		row := s.row(r.Values)
		row.Keys = s.keys(r.Keys, v.Symbols)
		out = append(out, row)
	}
	slices.SortStableFunc(out, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Hits, b.Hits), slices.Compare(a.Keys, b.Keys))
	})
	return out
}

// keys are those of a row as people read them; symbols are what addresses of code are in.
func (s Shape) keys(w []uint64, symbols map[uint64]string) []string {
	out, at := Write(s.Keys, w), 0
	for k, f := range s.Keys {
		if f == Symbol && at < len(w) && symbols[w[at]] != "" {
			out[k] = symbols[w[at]]
		}
		at += f.words()
	}
	return out
}

// CodeKeys are the words of keys that are addresses of code, as wire.Action's.
func (s Shape) CodeKeys() (mask uint32) {
	at := 0
	for _, f := range s.Keys {
		if f == Symbol {
			mask |= 1 << at
		}
		at += f.words()
	}
	return mask
}

// alone is a row without keys.
func (s Shape) alone(v *wire.Value) Row {
	switch s.Kind {
	case Count, Sum:
		return Row{Value: &Number{v.Count, s.Signed}, Hits: v.Count}
	case Min, Max:
		r := Row{Hits: v.Count}
		if v.Bounded {
			r.Value = &Number{v.Bound, v.Signed}
		}
		return r
	case Avg, Hist, Linear:
		if len(v.Rows) > 0 {
			return s.row(v.Rows[0].Values)
		}
	}
	return Row{Hits: v.Count}
}

// row reads the numbers of a record.
func (s Shape) row(w []uint64) Row {
	switch {
	case len(w) == 0:
		return Row{}
	case s.Kind == Hist || s.Kind == Linear:
		return s.buckets(w)
	case len(w) < 2:
		return Row{Value: &Number{w[0], s.Signed}, Hits: w[0]}
	case w[1] == 0:
		return Row{}
	case s.Kind == Avg && s.Signed:
		return Row{Value: &Number{uint64(int64(w[0]) / int64(w[1])), true}, Hits: w[1]}
	case s.Kind == Avg:
		return Row{Value: &Number{Bits: w[0] / w[1]}, Hits: w[1]}
	}
	return Row{Value: &Number{w[0] ^ s.turned(), s.Signed}, Hits: w[1]}
}

// buckets names what each number of a histogram is about.
func (s Shape) buckets(w []uint64) (r Row) {
	first, last := -1, 0
	for k, n := range w {
		r.Hits += n
		if n > 0 {
			last = k
			if first < 0 {
				first = k
			}
		}
	}
	for k := first; first >= 0 && k <= last; k++ {
		b := Bucket{N: w[k]}
		lo, hi, below, above := s.ends(k)
		if !below {
			b.Lo = &Number{lo, s.Signed}
		}
		if !above {
			b.Hi = &Number{hi, s.Signed}
		}
		r.Buckets = append(r.Buckets, b)
	}
	return r
}

// ends is what bucket k holds: from lo to hi, or all that is below, or above.
func (s Shape) ends(k int) (lo, hi uint64, below, above bool) {
	if s.Kind == Linear {
		lo = s.Lo + uint64(k-1)*s.Step
		return lo, lo + s.Step - 1, k == 0, k == s.Steps+1
	}
	switch k {
	case 0:
		return 0, ^uint64(0), true, false
	case 1:
		return 0, 0, false, false
	}
	return 1 << (k - 2), 1<<(k-1) - 1, false, false
}

// Write is words as people read them.
func Write(forms []Form, w []uint64) (out []string) {
	for _, f := range forms {
		if len(w) < f.words() {
			break
		}
		switch f {
		case Text:
			out = append(out, name(w[0], w[1]))
		case Signed:
			out = append(out, strconv.FormatInt(int64(w[0]), 10))
		case Address, Symbol:
			out = append(out, fmt.Sprintf("%#x", w[0]))
		default:
			out = append(out, strconv.FormatUint(w[0], 10))
		}
		w = w[f.words():]
	}
	return out
}

// name is a command's.
func name(w ...uint64) string {
	var b []byte
	for _, one := range w {
		b = binary.LittleEndian.AppendUint64(b, one)
	}
	if n := bytes.IndexByte(b, 0); n >= 0 {
		b = b[:n]
	}
	return string(b)
}

// barWidth is how many letters the longest bar of a histogram has.
const barWidth = 40

// Bars draws a histogram: a line for each bucket.
func Bars(all []Bucket) (out []string) {
	most := uint64(1)
	for _, b := range all {
		most = max(most, b.N)
	}
	for _, b := range all {
		hi, lo := bits.Mul64(b.N, barWidth)
		full, _ := bits.Div64(hi, lo, most)
		out = append(out, fmt.Sprintf("%-24s %8d |%-*s|", b.String(), b.N, barWidth, strings.Repeat("@", int(full))))
	}
	return out
}

// String is what a bucket holds.
func (b Bucket) String() string {
	switch {
	case b.Lo == nil:
		return fmt.Sprintf("(..., %v]", b.Hi)
	case b.Hi == nil:
		return fmt.Sprintf("[%v, ...)", b.Lo)
	case *b.Lo == *b.Hi:
		return fmt.Sprintf("[%v]", b.Lo)
	}
	return fmt.Sprintf("[%v, %v]", b.Lo, b.Hi)
}
