package qemu

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"kerninst/agent/isa"
	"kerninst/lab/untrusted"
	"kerninst/lab/vm"
)

// QEMU's states leave out what some CPUs' timers are compared with (row.timers). A
// guest that goes on from such a state sleeps for ever. So the lab reads those registers
// when it keeps a state, has them in a file beside it, and writes them when it has
// loaded the state, while the guest's CPUs stand still. The guest cannot tell: the time
// that they are compared with is that of the state, and so is whether the interrupt was
// pending.
//
// Only QEMU's stub for gdb writes registers.

// timersSuffix of a state's name is the file with its timers: a list of numbers in JSON,
// of each CPU those of row.timers in their order.
const timersSuffix = ".timers"

// maxTimers bounds that file, in bytes.
const maxTimers = 4096

// saveTimers keeps the timers of a machine that is stopped beside its state.
func (z Freezer) saveTimers(ctx context.Context, state string) error {
	var values []uint64
	err := z.timers(ctx, func(g gdbStub, register int) error {
		v, err := g.read(register)
		values = append(values, v)
		return err
	})
	if err != nil || values == nil {
		return err
	}
	b, err := json.Marshal(values)
	if err != nil {
		return err
	}
	return os.WriteFile(state+timersSuffix, b, 0o600)
}

// loadTimers sets the timers of a machine that is stopped to what is beside its state.
func (z Freezer) loadTimers(ctx context.Context, state string) error {
	if len(rows[z.Arch].timers) == 0 {
		return nil
	}
	b, err := untrusted.Read(state+timersSuffix, maxTimers)
	if err != nil {
		return &vm.StateError{File: state, Err: err}
	}
	var values []uint64
	if err := json.Unmarshal(b, &values); err != nil {
		return &vm.StateError{File: state, Err: err}
	}
	if err := os.Remove(state + timersSuffix); err != nil {
		return err
	}
	kept := len(values)
	bad := &vm.StateError{File: state, Err: fmt.Errorf("%d timers are beside it, of a machine that has others", kept)}
	err = z.timers(ctx, func(g gdbStub, register int) error {
		if len(values) == 0 {
			return bad
		}
		err := g.write(register, values[0])
		values = values[1:]
		return err
	})
	if err == nil && len(values) > 0 {
		return bad
	}
	return err
}

// timers visits the machine's timers, CPU by CPU and in order, by the numbers that the
// stub has for them.
func (z Freezer) timers(ctx context.Context, visit func(g gdbStub, register int) error) (err error) {
	csrs := rows[z.Arch].timers
	if len(csrs) == 0 {
		return nil
	}
	var cpus []struct{}
	if err := z.Monitor.Execute(ctx, "query-cpus-fast", nil, &cpus); err != nil {
		return err
	}
	inside := Inside{Monitor: z.Monitor, Dir: z.Dir, Root: z.Root}
	if _, err := inside.ServeGDB(ctx); err != nil {
		return err
	}
	defer func() {
		_, off := inside.human(ctx, "gdbserver none")
		if gone := os.Remove(filepath.Join(z.Dir, GDBSock)); !errors.Is(gone, fs.ErrNotExist) {
			off = errors.Join(off, gone)
		}
		err = errors.Join(err, off)
	}()
	conn, err := dialer(z.Dir, GDBSock, z.PID, nil)(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if until, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(until); err != nil {
			return err
		}
	}
	g := gdbStub{conn, bufio.NewReaderSize(conn, 1<<16)}
	first, err := g.firstCSR()
	if err != nil {
		return err
	}
	for cpu := range cpus {
		if err := g.choose(cpu); err != nil {
			return err
		}
		for _, csr := range csrs {
			if err := visit(g, first+csr); err != nil {
				return fmt.Errorf("timer of CPU %d (CSR %#x): %w", cpu, csr, err)
			}
		}
	}
	return nil
}

// gdbStub speaks gdb's remote serial protocol (gdb's manual, appendix E): packets are
// $DATA#SUM, SUM being the sum of the data's bytes, and each is acknowledged by "+".
// What is asked for here has no bytes that would be escaped.
type gdbStub struct {
	w io.Writer
	r *bufio.Reader
}

// ask makes a request.
func (g gdbStub) ask(request string) (string, error) {
	sum := byte(0)
	for _, c := range []byte(request) {
		sum += c
	}
	if _, err := fmt.Fprintf(g.w, "$%s#%02x", request, sum); err != nil {
		return "", err
	}
	return g.reply()
}

// choose has what follows be about a CPU: a thread to the stub, counted from 1.
func (g gdbStub) choose(cpu int) error {
	reply, err := g.ask(fmt.Sprintf("Hg%x", cpu+1))
	if err == nil && reply != "OK" {
		err = fmt.Errorf("gdb's stub knows no CPU %d: %q", cpu, reply)
	}
	return err
}

// write sets a register of 64 bits.
func (g gdbStub) write(register int, v uint64) error {
	reply, err := g.ask(fmt.Sprintf("P%x=%x", register, isa.ByteOrder.AppendUint64(nil, v)))
	if err == nil && reply != "OK" {
		err = fmt.Errorf("gdb's stub does not write register %d: %q", register, reply)
	}
	return err
}

// read reads a register of 64 bits.
func (g gdbStub) read(register int) (uint64, error) {
	reply, err := g.ask(fmt.Sprintf("p%x", register))
	if err != nil {
		return 0, err
	}
	b, err := hex.DecodeString(reply)
	if err != nil || len(b) != 8 {
		return 0, fmt.Errorf("gdb's stub does not read register %d: %.40q", register, reply)
	}
	return isa.ByteOrder.Uint64(b), nil
}

// sstatus is a CSR that every machine with a kernel has, as the stub lists it.
var sstatus = regexp.MustCompile(`<reg name="sstatus"[^>]* regnum="([0-9]+)"`)

const sstatusNumber = 0x100

// firstCSR is the number that the stub has for CSR 0: those of all others follow, also
// of those that it does not list. Who has not asked for the list reads no registers one
// by one.
func (g gdbStub) firstCSR() (int, error) {
	list := ""
	for !sstatus.MatchString(list) {
		piece, err := g.ask(fmt.Sprintf("qXfer:features:read:riscv-csr.xml:%x,400", len(list)))
		if err != nil {
			return 0, err
		}
		if len(piece) < 2 || piece[0] != 'm' && piece[0] != 'l' {
			return 0, fmt.Errorf("gdb's stub lists no sstatus: %.40q after %d bytes", piece, len(list))
		}
		list += piece[1:]
	}
	n, err := strconv.Atoi(sstatus.FindStringSubmatch(list)[1])
	return n - sstatusNumber, err
}

// reply reads the next packet and acknowledges it.
func (g gdbStub) reply() (string, error) {
	if _, err := g.r.ReadSlice('$'); err != nil {
		return "", fmt.Errorf("gdb's stub: %w", err)
	}
	data, err := g.r.ReadSlice('#')
	if err != nil {
		return "", fmt.Errorf("gdb's stub: %w", err)
	}
	reply := string(bytes.TrimSuffix(data, []byte("#")))
	var sum [2]byte
	if _, err := io.ReadFull(g.r, sum[:]); err != nil {
		return "", fmt.Errorf("gdb's stub: %w", err)
	}
	if _, err := hex.DecodeString(string(sum[:])); err != nil {
		return "", fmt.Errorf("gdb's stub: a packet ends with %q", sum)
	}
	_, err = g.w.Write([]byte("+"))
	return reply, err
}
