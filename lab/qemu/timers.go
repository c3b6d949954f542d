package qemu

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
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
	values, err := z.readTimers(ctx)
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
	err = z.writeTimers(ctx, values)
	var other *otherTimersError
	if errors.As(err, &other) {
		return &vm.StateError{File: state, Err: err}
	}
	return err
}

// otherTimersError says that what is beside a state is of a machine with more timers, or fewer.
type otherTimersError struct{ kept, has int }

func (e *otherTimersError) Error() string {
	return fmt.Sprintf("%d timers are beside it, and this machine has %d", e.kept, e.has)
}

// readTimers reads the machine's timers, CPU by CPU and in order.
func (z Freezer) readTimers(ctx context.Context) (values []uint64, err error) {
	err = z.timers(ctx, func(registers []int) (asked []string, _ error) {
		for _, r := range registers {
			asked = append(asked, fmt.Sprintf("p%x", r))
		}
		return asked, nil
	}, func(reply string) error {
		b, err := hex.DecodeString(reply)
		if err != nil || len(b) != 8 {
			return fmt.Errorf("gdb's stub does not read a timer: %.40q", reply)
		}
		values = append(values, isa.ByteOrder.Uint64(b))
		return nil
	})
	return values, err
}

// writeTimers sets them.
func (z Freezer) writeTimers(ctx context.Context, values []uint64) error {
	return z.timers(ctx, func(registers []int) (asked []string, _ error) {
		if len(registers) != len(values) {
			return nil, &otherTimersError{len(values), len(registers)}
		}
		for i, r := range registers {
			asked = append(asked, fmt.Sprintf("P%x=%x", r, isa.ByteOrder.AppendUint64(nil, values[i])))
		}
		return asked, nil
	}, func(reply string) error {
		if reply != "OK" {
			return fmt.Errorf("gdb's stub does not write a timer: %.40q", reply)
		}
		return nil
	})
}

// timers asks for something of each timer of the machine, CPU by CPU and in order, by the
// numbers that the stub has for them, and hands on what is answered to each.
func (z Freezer) timers(ctx context.Context, ask func(registers []int) ([]string, error), answered func(string) error) error {
	csrs := rows[z.Arch].timers
	if len(csrs) == 0 {
		return nil
	}
	var cpus []struct{}
	if err := z.Monitor.Execute(ctx, "query-cpus-fast", nil, &cpus); err != nil {
		return err
	}
	first, err := z.firstCSR(ctx)
	if err != nil {
		return err
	}
	var registers []int
	for range cpus {
		for _, csr := range csrs {
			registers = append(registers, first+csr)
		}
	}
	asked, err := ask(registers)
	if err != nil {
		return err
	}
	// Whoever has not asked for the list of registers reads none one by one.
	script := []string{listCSRs(0)}
	for i, a := range asked {
		script = append(script, fmt.Sprintf("Hg%x", i/len(csrs)+1), a) // a CPU is a thread to the stub, counted from 1
	}
	replies, err := z.stub(ctx, script)
	if err != nil {
		return err
	}
	for i := range asked {
		chosen, reply := replies[1+2*i], replies[2+2*i]
		if chosen != "OK" {
			return fmt.Errorf("gdb's stub knows no CPU %d: %.40q", i/len(csrs), chosen)
		}
		if err := answered(reply); err != nil {
			return fmt.Errorf("CPU %d, CSR %#x: %w", i/len(csrs), csrs[i%len(csrs)], err)
		}
	}
	return nil
}

// sstatus is a CSR that every machine with a kernel has, as the stub lists it.
var sstatus = regexp.MustCompile(`<reg name="sstatus"[^>]* regnum="([0-9]+)"`)

const sstatusNumber = 0x100

// The list of CSRs is asked for in pieces. One of 4,096 CSRs, as many as there can be, would take
// half as many again.
const (
	pieceOfCSRs  = 0x400
	piecesOfCSRs = 256
)

func listCSRs(from int) string {
	return fmt.Sprintf("qXfer:features:read:riscv-csr.xml:%x,%x", from, pieceOfCSRs)
}

// firstCSR is the number that the stub has for CSR 0: those of all others follow, also
// of those that it does not list.
func (z Freezer) firstCSR(ctx context.Context) (int, error) {
	var script []string
	for i := range piecesOfCSRs {
		script = append(script, listCSRs(i*pieceOfCSRs))
	}
	replies, err := z.stub(ctx, script)
	if err != nil {
		return 0, err
	}
	list := ""
	for _, piece := range replies {
		if piece == "" || piece[0] != 'm' && piece[0] != 'l' {
			return 0, fmt.Errorf("gdb's stub does not list registers: %.40q after %d bytes", piece, len(list))
		}
		list += piece[1:]
		if piece[0] == 'l' { // the last
			break
		}
	}
	at := sstatus.FindStringSubmatch(list)
	if at == nil {
		return 0, fmt.Errorf("gdb's stub lists no sstatus in %d bytes", len(list))
	}
	n, err := strconv.Atoi(at[1])
	return n - sstatusNumber, err
}
