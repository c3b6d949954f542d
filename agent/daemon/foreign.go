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
// list is made by the kernel from all functions that there are.
func foreign(text *ktext.Text, p *plan.Plan) (*plan.Refusal, error) {
	entry := p.Asked() - isa.Addr(p.Offset)
	site := make([]byte, min(ktext.MostFtrace, p.Back-entry)) // a function may be shorter
	if err := text.Read(entry, site); err != nil {
		return nil, err
	}
	if !text.Traced(site) {
		return nil, nil
	}
	f, err := os.Open(enabledFunctions)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // a kernel without ftrace
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	redirected, err := redirects(f, p.Symbol)
	if err != nil || !redirected {
		return nil, err
	}
	return &plan.Refusal{Reason: plan.Foreign,
		Detail: p.Symbol + " is redirected by a live patch or an ftrace user that changes the instruction pointer"}, nil
}

// redirects looks for a function with the flag I (IPMODIFY) in the format of
// kernel/trace/ftrace.c, t_show: "name (users) R I D O M ...", a blank in place
// of a flag that is not set.
func redirects(r io.Reader, function string) (bool, error) {
	for sc := bufio.NewScanner(r); ; {
		if !sc.Scan() {
			return false, sc.Err()
		}
		name, rest, _ := strings.Cut(sc.Text(), " ")
		_, flags, ok := strings.Cut(rest, ")")
		if ok && name == function && len(flags) >= 4 && strings.Contains(flags[:4], "I") {
			return true, nil
		}
	}
}
