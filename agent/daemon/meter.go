package daemon

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"

	"kerninst/agent/gen"
	"kerninst/agent/plan"
	"kerninst/agent/splice"
)

// meter is the program that counts from one moment at which no CPU is in the
// kernel to another (guest/bench/meter.c). It maps the counters from a descriptor
// of ours: a daemon that is killed closes its pipe, at which the meter ends too, and
// the splices with it.
type meter struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
	live   []*splice.Live
}

// meter starts counting.
func (d *Daemon) meter() (*meter, error) {
	if d.dev == nil {
		return nil, errors.New("a run cannot be metered without the module")
	}
	m := &meter{live: d.splicer.Live()}
	argv, err := d.cells(m.live)
	if err != nil {
		return nil, err
	}
	shared, err := d.dev.Share()
	if err != nil {
		return nil, err
	}
	defer shared.Close()
	m.cmd = exec.Command(meterFile, argv...)
	m.cmd.ExtraFiles, m.cmd.Stderr = []*os.File{shared}, &m.stderr
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if m.in, err = m.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	m.out = bufio.NewReader(out)
	if err := m.cmd.Start(); err != nil {
		return nil, err
	}
	if line, err := m.out.ReadString('\n'); line != "counting\n" {
		return nil, errors.Join(fmt.Errorf("%s: began with %q (%v)", meterFile, line, err), m.end())
	}
	return m, nil
}

// mapped are the cells that the meter maps, as if those of all areas lay one behind the
// other.
type mapped struct {
	args   []string // for each area, its length and where the device maps it
	behind map[int64]int
	next   int
}

// at is where an area's cells are, by where the device maps them.
func (m *mapped) at(offset int64, n int) int {
	if at, known := m.behind[offset]; known {
		return at
	}
	m.args = append(m.args, strconv.Itoa(n), strconv.FormatInt(offset, 10))
	m.behind[offset] = m.next
	m.next += n
	return m.behind[offset]
}

// cells are the arguments that name the counters of live splices, one word each, or one
// of each CPU.
func (d *Daemon) cells(live []*splice.Live) ([]string, error) {
	m := mapped{behind: map[int64]int{}}
	var counters []string
	for _, l := range live {
		if l.Plan.Snippet.Words() != 1 {
			return nil, fmt.Errorf("%s+%#x has more cells than one: a metered run reads counters", l.Plan.Symbol, uint64(l.Plan.Offset))
		}
		for _, at := range d.words(&m, l.Plan) {
			counters = append(counters, strconv.Itoa(at))
		}
	}
	return append(append([]string{strconv.Itoa(len(m.args) / 2)}, m.args...), counters...), nil
}

// words is where a plan's counter is among what is mapped.
func (d *Daemon) words(m *mapped, of *plan.Plan) (out []int) {
	if len(of.Locals) == 0 {
		area := d.poker.Holding(of.Patch)
		return []int{m.at(area.Offset, area.CodeLen) + int(of.Cell-area.Cells())}
	}
	l := d.poker.Local()
	at := m.at(l.Offset, l.CPUs*l.Len) + int(of.Locals[0]-l.Addr)
	for cpu := range l.CPUs {
		out = append(out, at+cpu*l.Len)
	}
	return out
}

// ways is how many words a plan's counter has.
func (d *Daemon) ways(of *plan.Plan) int {
	if len(of.Locals) == 0 {
		return 1
	}
	return d.poker.Local().CPUs
}

// read ends the counting: what the daemon reports later is what was counted.
func (m *meter) read(d *Daemon) error {
	if err := m.in.Close(); err != nil {
		return err
	}
	base, counts := map[*splice.Live][]uint64{}, map[*splice.Live][]uint64{}
	for _, l := range m.live {
		sum := uint64(0)
		for range d.ways(l.Plan) {
			line, err := m.out.ReadString('\n')
			n, bad := strconv.ParseUint(line[:max(0, len(line)-1)], 10, 64)
			if err != nil || bad != nil {
				return errors.Join(fmt.Errorf("%s: a count is %q", meterFile, line), m.end())
			}
			sum += n
		}
		base[l], counts[l] = []uint64{0}, []uint64{gen.Hits(sum, l.Unit())}
	}
	if err := m.end(); err != nil {
		return err
	}
	d.base, d.counts = base, counts
	return nil
}

// end stops the program, if it has not ended, and says how it ended.
func (m *meter) end() error {
	if m.cmd.ProcessState != nil {
		return nil
	}
	m.in.Close() // it may be closed already
	if err := m.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", meterFile, err, bytes.TrimSpace(m.stderr.Bytes()))
	}
	return nil
}
