package inline

import (
	"encoding/binary"
	"errors"
	"fmt"

	"kerninst/agent/isa"
)

// ModuleVersion is part of the magic of a module's file, as Version is of an index's, which the file has in it: it
// changes when either does.
const ModuleVersion = 3

// moduleMagic begins a module's file, which is otherwise packed as an index is: the name and the sections, and
// behind these the index as Index.Bytes has it.
var moduleMagic = [8]byte{'k', 'i', 'n', 'l', 'm', 'o', 'd', '0' + ModuleVersion}

// Bytes is the module as a file has it.
func (m *Module) Bytes() ([]byte, error) {
	index, err := m.Index.Bytes()
	if err != nil {
		return nil, err
	}
	var b []byte
	text := func(s string) { b = append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	num := func(v uint64) { b = binary.AppendUvarint(b, v) }
	text(m.Name)
	num(uint64(len(m.Sections)))
	for _, s := range m.Sections {
		text(s.Name)
		num(uint64(s.Lo))
		num(uint64(s.Hi - s.Lo))
		num(uint64(len(s.Labels)))
		last := s.Lo
		for _, y := range s.Labels {
			text(y.Name)
			num(uint64(y.Off - last))
			last = y.Off
		}
	}
	text(string(index))
	return pack(moduleMagic, b)
}

// OpenModule reads what Module.Bytes wrote. What is damaged, or of another version, is an error.
func OpenModule(file []byte) (*Module, error) {
	b, err := unpack(moduleMagic, "index of a module's inlined copies", file)
	if err != nil {
		return nil, err
	}
	m := &Module{}
	r := reader{buffer: buffer{rest: b}}
	text := func() string { return string(r.bytes(r.uleb())) }
	m.Name = text()
	m.Sections = make([]Section, r.count())
	for k := range m.Sections {
		s := &m.Sections[k]
		s.Name, s.Lo = text(), isa.Off(r.uleb())
		s.Hi = s.Lo + isa.Off(r.uleb())
		s.Labels = make([]Label, r.count())
		last := s.Lo
		for n := range s.Labels {
			name := text()
			last += isa.Off(r.uleb())
			s.Labels[n] = Label{name, last}
		}
		if k > 0 && s.Lo < m.Sections[k-1].Hi || s.Hi < s.Lo {
			r.damaged()
		}
	}
	index := r.bytes(r.uleb())
	if r.err == nil && m.Name == "" {
		r.err = errors.New("it names no module")
	}
	if r.err != nil {
		return nil, fmt.Errorf("inline: the index is damaged: %w", r.err)
	}
	m.Index, err = Open(index)
	return m, err
}

// IsModule tells a module's file from an index of a kernel, whichever version it is of.
func IsModule(file []byte) bool {
	n := len(moduleMagic) - 1
	return len(file) > n && string(file[:n]) == string(moduleMagic[:n])
}
