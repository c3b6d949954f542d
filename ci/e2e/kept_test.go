package e2e

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kerninst/lab/status"
)

// server is QEMU's side of gdb's remote protocol (gdb manual, appendix E).
type server struct {
	t  *testing.T
	rw *bufio.ReadWriter
}

func dialGDB(t *testing.T, sock string) server {
	t.Helper()
	c, err := net.Dial("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	must(t, c.SetDeadline(time.Now().Add(time.Minute)))
	return server{t, bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c))}
}

// ask sends a packet and returns the bytes of the answer, which is hexadecimal.
func (s server) ask(packet string) []byte {
	s.t.Helper()
	sum := byte(0)
	for _, b := range []byte(packet) {
		sum += b
	}
	fmt.Fprintf(s.rw, "$%s#%02x", packet, sum)
	must(s.t, s.rw.Flush())
	answer := "T"
	for strings.HasPrefix(answer, "T") { // it also says by itself that the guest has stopped
		_, err := s.rw.ReadString('$') // behind acknowledgements
		must(s.t, err)
		answer, err = s.rw.ReadString('#')
		must(s.t, err)
		_, err = s.rw.Discard(2) // the checksum
		must(s.t, err)
		must(s.t, s.rw.WriteByte('+'))
	}
	b, err := hex.DecodeString(strings.TrimSuffix(answer, "#"))
	if err != nil {
		s.t.Fatalf("%s: %s: %v", packet, answer, err)
	}
	return b
}

// pc is the program counter, which comes behind the general registers.
func (s server) pc(arch string) uint64 {
	s.t.Helper()
	all := s.ask("g")
	n := 8 * map[string]int{"amd64": 16, "arm64": 32, "riscv64": 32}[arch]
	if len(all) < n+8 {
		s.t.Fatalf("%d bytes of registers", len(all))
	}
	return binary.LittleEndian.Uint64(all[n:])
}

// memoryOf reads n bytes of a file of a kernel at an address, with the name of the
// last function that begins there or before.
func memoryOf(t *testing.T, file string, addr uint64, n int) (b []byte, name string) {
	t.Helper()
	f, err := elf.Open(file)
	must(t, err)
	defer f.Close()
	symbols, err := f.Symbols()
	must(t, err)
	if f.Section(".debug_frame") == nil {
		t.Errorf("%s: nothing that says how to find callers", file)
	}
	at := uint64(0)
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Value <= addr && s.Value > at {
			at, name = s.Value, s.Name
		}
	}
	for _, s := range f.Sections {
		if s.Type == elf.SHT_PROGBITS && addr >= s.Addr && addr < s.Addr+s.Size {
			b = make([]byte, n)
			_, err := s.ReadAt(b, int64(addr-s.Addr))
			must(t, err)
			return b, name
		}
	}
	return nil, name
}

// A guest that is kept outlives its lab, and the next; a debugger finds it where its
// card says, with the kernel's functions where they are; and it ends when told to.
func TestKeep(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		arch, scenario string
		code           int
		at             string // what the guest is in
	}{
		{"amd64", "fault-panic", status.ExitCrashed, ""},
		{"arm64", "fault-panic", status.ExitCrashed, ""},
		{"riscv64", "fault-wait", status.ExitTimeout, "arch_cpu_idle"},
	} {
		t.Run(tt.arch, func(t *testing.T) {
			t.Parallel()
			temp, out := t.TempDir(), t.TempDir()
			env := []string{"TMPDIR=" + temp, "XDG_RUNTIME_DIR="}
			t.Cleanup(func() { call(t, env, "kept", "--end", "all") })
			a := call(t, env, "run", "--arch", tt.arch, "--scenario", tt.scenario, "--keep", "--dump-memory", "--mem", "256", "--modprobe", "null-blk", "--out", out)
			if a.code != tt.code {
				t.Fatalf("exit status %d, want %d: %s", a.code, tt.code, a)
			}
			c := theCard(t, a, out, tt.arch)
			core, err := elf.Open(filepath.Join(out, tt.arch, "guests", c.Guest, "memory.core"))
			if err != nil || core.Type != elf.ET_CORE {
				t.Errorf("memory: %v", err)
			} else {
				core.Close()
			}

			if tt.arch == "riscv64" { // whose guests are the quickest
				a = call(t, env, "run", "--arch", "riscv64", "--scenario", "fault-assert", "--out", t.TempDir())
				if a.code != status.ExitFailed || strings.Contains(a.stderr, "lab kept") {
					t.Fatalf("the next lab: exit status %d: %s", a.code, a)
				}
			}
			dir, _, _ := strings.Cut(call(t, env, "kept").stdout, " ")
			for _, want := range []string{"bin/lab gdb " + dir, "bin/lab kept --end " + dir} {
				if !strings.Contains(c.Text(), want+"\n") {
					t.Errorf("no %q on the card: %s", want, c.Text())
				}
			}
			var symbols, sock string
			said := call(t, env, "gdb", "--print", out)
			if _, err := fmt.Sscanf(said.stdout, "gdb-multiarch -q %s -ex 'target remote %s", &symbols, &sock); err != nil {
				t.Fatalf("%v: %s", err, said)
			}
			sock = strings.TrimSuffix(sock, "'")
			stub := dialGDB(t, sock)
			pc := stub.pc(tt.arch)
			code, name := memoryOf(t, symbols, pc, 16)
			if len(c.CPUs) != 1 || c.CPUs[0].PC != fmt.Sprintf("%#x", pc) || !strings.HasPrefix(c.CPUs[0].Symbol, name+"+") || tt.at != "" && name != tt.at {
				t.Errorf("the card says %+v; the guest is at %#x, which is in %q", c.CPUs, pc, name)
			}
			if live := stub.ask(fmt.Sprintf("m%x,10", pc)); !bytes.Equal(live, code) {
				t.Errorf("memory at %#x is % x, in the file % x", pc, live, code)
			}
			stub.has(symbols, "null_queue_rq", tt.code == status.ExitTimeout) // a panic's page tables may be others

			if a := call(t, env, "kept", "--end", out); a.code != 0 {
				t.Error(a)
			}
			eventually(t, "QEMU ends", func() bool { return len(emulators(t, temp)) == 0 })
			if left := leftovers(t, temp); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			if a := call(t, env, "gdb", out); a.code != status.ExitUsage || !strings.Contains(a.stderr, "have ended") {
				t.Errorf("exit status %d: %s", a.code, a)
			}
		})
	}
}

// A guest that is started for gdb stays for it, under load, with its kernel's
// functions where they are.
func TestGDB(t *testing.T) {
	temp := t.TempDir()
	env := []string{"TMPDIR=" + temp, "XDG_RUNTIME_DIR="}
	t.Cleanup(func() { call(t, env, "kept", "--end", "all") })
	a := call(t, env, "gdb", "--arch", "arm64", "--print", "--modprobe", "null-blk", "--", "-ex", "break vfs_read")
	if a.code != 0 || !strings.HasSuffix(a.stdout, " -ex 'break vfs_read'\n") {
		t.Fatal(a)
	}
	dir, _, _ := strings.Cut(call(t, env, "kept").stdout, " ")
	stub := dialGDB(t, filepath.Join(dir, "gdb"))
	pc := stub.pc("arm64")
	file := filepath.Join(filepath.Dir(dir), "k"+strings.TrimPrefix(filepath.Base(dir), "r"), "vmlinux")
	for _, want := range []string{"vfs_read", "null_queue_rq"} {
		stub.has(file, want, pc>>63 == 1)
	}
}

// has says that a function is in the file of a kernel, and if its memory can be read now,
// that it lies there.
func (s server) has(file, function string, readable bool) {
	s.t.Helper()
	f, err := elf.Open(file)
	must(s.t, err)
	defer f.Close()
	symbols, err := f.Symbols()
	must(s.t, err)
	found := false
	for _, y := range symbols {
		if y.Name != function {
			continue
		}
		found = true
		code, _ := memoryOf(s.t, file, y.Value, 16)
		if live := s.ask(fmt.Sprintf("m%x,10", y.Value)); readable && (code == nil || !bytes.Equal(live, code)) {
			s.t.Errorf("%s at %#x is % x, in the file % x", function, y.Value, live, code)
		}
	}
	if !found {
		s.t.Errorf("%s: no %s", file, function)
	}
}
