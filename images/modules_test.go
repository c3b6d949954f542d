package images

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// module is the least ELF file that says what a module depends on.
func module(t *testing.T, depends string) []byte {
	t.Helper()
	info, names := "license=GPL\x00depends="+depends+"\x00", "\x00.modinfo\x00.shstrtab\x00"
	const header, entry = 64, 64
	at := uint64(header)
	h := elf.Header64{Ident: [16]byte{0x7f, 'E', 'L', 'F', 2, 1, 1}, Type: uint16(elf.ET_REL), Machine: uint16(elf.EM_RISCV),
		Version: 1, Ehsize: header, Shentsize: entry, Shnum: 3, Shstrndx: 2, Shoff: at + uint64(len(info)+len(names))}
	var b bytes.Buffer
	for _, part := range []any{
		h, []byte(info), []byte(names), elf.Section64{},
		elf.Section64{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: at, Size: uint64(len(info))},
		elf.Section64{Name: 10, Type: uint32(elf.SHT_STRTAB), Off: at + uint64(len(info)), Size: uint64(len(names))},
	} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// tree is a folder with a few modules: fs needs lib-a and core, lib-a needs core.
func tree(t *testing.T) installedModules {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string][]byte{
		"kernel/fs/fs.ko":        module(t, "lib-a,core,inside"),
		"kernel/lib/lib_a.ko":    module(t, "core"),
		"kernel/lib/core.ko":     module(t, ""),
		"kernel/lib/other.ko":    module(t, ""),
		"kernel/lib/packed.ko.z": nil,
		"kernel/lib/no.ko":       []byte("no ELF file"),
		"modules.builtin":        []byte("kernel/lib/inside.ko\n"),
	} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755), os.WriteFile(filepath.Join(dir, name), content, 0o644))
	}
	return installedModules{dir}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestLoadable(t *testing.T) {
	dir := tree(t)
	for _, tt := range []struct {
		names, want []string
		err         string
	}{
		{[]string{"fs"}, []string{"core", "lib_a", "fs"}, ""},
		{[]string{"lib-a"}, []string{"core", "lib_a"}, ""},
		{[]string{"core", "fs", "core"}, []string{"core", "lib_a", "fs"}, ""},
		{[]string{"inside"}, nil, ""}, // built in: nothing to load
		{[]string{"othr"}, nil, "kernel 6.1 has no module othr; did you mean other?"},
		{[]string{"packed"}, nil, `packed as ".z"`},
		{[]string{"no"}, nil, "module no"},
	} {
		got, err := loadable(context.Background(), dir, "6.1", tt.names)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%v: %v, want an error about %q", tt.names, err, tt.err)
			}
			continue
		}
		var names []string
		for _, m := range got {
			names = append(names, m.name)
		}
		if err != nil || !slices.Equal(names, tt.want) {
			t.Errorf("%v: %v, %v; want %v", tt.names, names, err, tt.want)
		}
	}
}
