package daemon

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strings"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/plan"
)

// enabledFunctions lists the functions that ftrace calls out of, with flags.
const enabledFunctions = "/sys/kernel/tracing/enabled_functions"

// foreign refuses a plan in a function that somebody redirects when it is
// entered: a live patch, or an ftrace user that changes the instruction
// pointer. Its body is not what runs, or will not be what runs next.
// Kprobes are the module's to find: it looks under the lock that keeps new
// ones away. Most functions call nobody at their entry, which their bytes tell: the
// list is made by the kernel from all functions that there are, and read once for a step.
func (d *Daemon) foreign(p *plan.Plan) (*plan.Refusal, error) {
	entry := p.Asked() - isa.Addr(p.Offset)
	site := make([]byte, min(ktext.MostFtrace, p.Back-entry)) // a function may be shorter
	if err := d.text.Read(entry, site); err != nil {
		return nil, err
	}
	if !d.text.Traced(entry, site) {
		return nil, nil
	}
	if d.redirected == nil {
		list, err := redirections()
		if err != nil {
			return nil, err
		}
		d.redirected = list
	}
	if !d.redirected[p.Symbol] {
		return nil, nil
	}
	return &plan.Refusal{Reason: plan.Foreign,
		Detail: p.Symbol + " is redirected by a live patch or an ftrace user that changes the instruction pointer"}, nil
}

// redirections are the functions that are redirected now; none on a kernel without ftrace.
func redirections() (map[string]bool, error) {
	f, err := os.Open(enabledFunctions)
	if errors.Is(err, os.ErrNotExist) {
		return map[string]bool{}, nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	return redirects(f)
}

// redirects lists the functions with the flag I (IPMODIFY) in the format of
// kernel/trace/ftrace.c, t_show: "name (users) R I D O M ...", a blank in place
// of a flag that is not set.
func redirects(r io.Reader) (map[string]bool, error) {
	out := map[string]bool{}
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		name, rest, _ := strings.Cut(sc.Text(), " ")
		_, flags, ok := strings.Cut(rest, ")")
		if ok && len(flags) >= 4 && strings.Contains(flags[:4], "I") {
			out[name] = true
		}
	}
	return out, sc.Err()
}
