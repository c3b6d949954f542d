package sweep

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	"kerninst/agent/isa"
)

// Line is one instruction as objdump prints it.
type Line struct {
	Addr     isa.Addr
	Len      int
	Mnemonic string   // with its prefixes, as "lock cmpxchg"
	Operands string   // without comments and symbols
	Address  isa.Addr // that objdump computed from this instruction and another; 0: none
}

// Arguments of objdump: -w puts all bytes of an instruction on one line, -z
// keeps runs of zeros.
var arguments = []string{"-d", "-w", "-z"}

// maxLine is what one line of objdump's may take, in bytes.
const maxLine = 1 << 16

// read calls visit for every instruction in objdump's output.
func read(r io.Reader, visit func(*Line) error) error {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, maxLine), maxLine)
	var l Line
	for in.Scan() {
		ok, err := l.parse(in.Bytes())
		if err != nil {
			return err
		}
		if ok {
			if err := visit(&l); err != nil {
				return err
			}
		}
	}
	return in.Err()
}

// parse reads "address:<tab>bytes<tab>mnemonic operands"; it is false for the
// lines between.
func (l *Line) parse(b []byte) (bool, error) {
	colon := bytes.Index(b, []byte(":\t"))
	if colon < 0 {
		return false, nil
	}
	a, ok := hex(bytes.TrimLeft(b[:colon], " "))
	if !ok {
		return false, nil
	}
	raw, text, _ := bytes.Cut(b[colon+2:], []byte("\t"))
	l.Addr, l.Len = isa.Addr(a), 0
	for _, c := range raw {
		if c != ' ' {
			l.Len++
		}
	}
	if l.Len == 0 || l.Len%2 != 0 {
		return false, fmt.Errorf("objdump: %q has half a byte", b)
	}
	l.Len /= 2
	l.split(text)
	return true, nil
}

// prefixes of amd64 that objdump prints before the mnemonic.
var prefixes = map[string]bool{
	"lock": true, "rep": true, "repz": true, "repnz": true, "bnd": true, "notrack": true,
	"cs": true, "ds": true, "es": true, "fs": true, "gs": true, "ss": true, "data16": true, "addr32": true,
	"xacquire": true, "xrelease": true, "{evex}": true,
}

// split divides the text into mnemonic and operands and drops what objdump
// adds for people: <symbols>, and comments behind # or //.
func (l *Line) split(text []byte) {
	l.Address = 0
	if k := bytes.Index(text, []byte(" # ")); k >= 0 {
		a, _, _ := bytes.Cut(text[k+3:], []byte(" "))
		if v, ok := hex(a); ok {
			l.Address = isa.Addr(v)
		}
	}
	for _, mark := range []string{" # ", "//", "\t;", "<"} {
		if k := bytes.Index(text, []byte(mark)); k >= 0 {
			text = text[:k]
		}
	}
	text = bytes.TrimSpace(text)
	end := 0
	for {
		n := bytes.IndexAny(text[end:], " \t")
		if n < 0 {
			l.Mnemonic, l.Operands = string(text), ""
			return
		}
		word := text[end : end+n]
		if !prefixes[string(word)] && !bytes.HasPrefix(word, []byte("rex")) {
			l.Mnemonic, l.Operands = string(text[:end+n]), string(bytes.TrimSpace(text[end+n:]))
			return
		}
		end += n + 1
	}
}

func hex(b []byte) (v uint64, ok bool) {
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			v = v<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			v = v<<4 | uint64(c-'a'+10)
		default:
			return 0, false
		}
	}
	return v, len(b) > 0
}

// zeros reports whether the instruction is one of zeros, which are none.
func (l *Line) zeros() bool {
	return l.Mnemonic == "udf" && l.Operands == "#0" || l.Mnemonic == "unimp" && l.Len == 2
}
