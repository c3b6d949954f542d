// Package ask is what people ask of probes and what they are told, the same on the host
// (lab probe) and in the guest (kinst): flags, the job that is made of them, and the table,
// listing or document that is made of what the daemon answers.
package ask

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"kerninst/agent/near"
	"kerninst/agent/plan"
	"kerninst/agent/probe"
	"kerninst/agent/wire"
)

// Request is what is asked for: which points, what is done there, and while what runs.
type Request struct {
	Specs     []string // as probe.Parse reads them
	Do        []string // actions, where a specification has none of its own
	Predicate string   // likewise
	Mechanism string   // that has to be used, or the point is refused; "": the cheapest
	Without   []string // mechanisms that are not to be used

	SkipRefused      bool // probe those points that are not refused
	List             bool // say what points there are; run nothing
	Many             bool // more than MostPoints are meant
	Why              bool // say which mechanisms were passed over
	JSON             bool
	Inline           bool // functions mean the copies of them that were inlined, too
	Expanded         bool // say which specifications that is; run nothing
	ExitWithWorkload bool
	Live             bool          // say what is counted while the workload runs
	Interval         time.Duration // how often, in guest time
	Sampled          bool          // keep how what is counted grows: Answer.Series
	RingKiB          uint32        // room for what is traced, of each CPU
	TraceTo          string        // a file that is told what is traced as it comes, or "-"

	Argv    []string // the workload; or
	Shell   string   // what sh is given
	Stdin   string   // a file that the workload reads as its standard input, or "-"; "": it has none
	Timeout time.Duration
	// Endless: without a workload, what comes is looked at until somebody says that it is enough.
	Endless bool

	compiled probe.Compiled
	followed *Follower
}

// MostPoints is how many points a probe has unless more are said to be meant.
const MostPoints = 10_000

const specHelp = "A SPEC is kinst:[module]:function:name. function\n" +
	"may have * ? [...], or be one of several that share a name, as t_show#2 or\n" +
	"t_show@ADDRESS; name is a byte offset, %s, or nothing, which is\n" +
	"every instruction.\n" +
	"Actions and predicates are Go expressions on uint64: arg0 to arg5, arg(\"NAME\"), reg(\"NAME\"),\n" +
	"load64(sym(\"NAME\")) and so on of the kernel's variables,\n" +
	"cycles, constants, + - * / %% & | ^ &^ << >> (* / %% << >> with a constant),\n" +
	"conversions as in int32(arg0), pid, tid, cpu,\n" +
	"comm, ret at a return, and what the kernel's types say: arg0.f_inode.i_size,\n" +
	"task.mm, inode(arg1).i_mode. What is found can be kept by keys: count by comm;\n" +
	"by ksym(reg(\"NAME\")), or of what else is an address of code, by what is there."

// Help says what a specification, an action and a predicate are.
func Help() string { return fmt.Sprintf(specHelp, strings.Join(probe.Names(), ", ")) }

// Flags gives a request its flags.
func (r *Request) Flags(f *pflag.FlagSet) {
	f.StringArrayVar(&r.Do, "do", []string{"count"}, "action: "+probe.Actions+"; may be repeated")
	f.StringVar(&r.Predicate, "if", "", "do it only where this `EXPR` holds, as int32(arg0) < 0 && load64(arg1 + 8) != 0")
	f.StringVar(&r.Mechanism, "mechanism", "", "force a mechanism, or refuse")
	f.StringSliceVar(&r.Without, "no-mechanism", nil, "mechanisms not to use, `NAME[,NAME...]`: "+strings.Join(plan.MechanismNames(), ", "))
	f.BoolVar(&r.Why, "why", false, "say which mechanisms were tried before the one that a point has, and why they are not it")
	f.BoolVar(&r.SkipRefused, "skip-refused", false, "probe the points that are not refused")
	f.BoolVar(&r.Live, "live", false, "show what is counted while the workload runs; what the daemon does for that is counted as well, if it comes by")
	f.DurationVar(&r.Interval, "interval", 500*time.Millisecond, "of --live, how often, in guest time")
	f.BoolVar(&r.Sampled, "series", false, "with --json, also how what is counted grew while the workload ran")
	f.Uint32Var(&r.RingKiB, "ring", 1024, "`KIB` of records of a trace that each CPU has room for until they are read, of trace() half as much: a power of two, 4 at least")
	f.StringVar(&r.TraceTo, "trace-to", "", "write what is traced to `FILE` as it comes, a line of JSON for each record; -: to stdout")
	f.BoolVar(&r.ExitWithWorkload, "exit-with-workload", false, "exit with the workload's status")
	f.BoolVar(&r.Inline, "inline", false, "entry and return mean those of inlined copies, too (see lab inline), and kinst:FILE:LINE a line of the source")
	f.BoolVar(&r.Expanded, "expand", false, "with --inline, print what is meant as specifications that mean the same without it, for a shell, a line each; run nothing")
	f.BoolVarP(&r.List, "list", "l", false, "list the points that match: what is there, and by which mechanism or why not; run nothing")
	f.BoolVar(&r.Many, "yes", false, fmt.Sprintf("more than %d points are meant", MostPoints))
	f.BoolVar(&r.JSON, "json", false, "print one JSON document")
	f.StringVar(&r.Shell, "run", "", "workload, for the guest's /bin/sh -c")
	f.StringVar(&r.Stdin, "stdin", "", fmt.Sprintf("`FILE` of at most %d KiB that the workload reads from its stdin; -: what comes by this one, to its end (default: nothing)", mostStdin>>10))
	f.DurationVar(&r.Timeout, "timeout", 60*time.Second, "limit of the workload, in guest time")
}

// Check looks at what needs no kernel to be wrong.
func (r *Request) Check() error {
	known := plan.MechanismNames()
	for _, m := range append([]string{r.Mechanism}, r.Without...) {
		if m != "" && !slices.Contains(known, m) {
			return fmt.Errorf("%q is no mechanism: there are %s%s", m, strings.Join(known, ", "), near.Hint(m, known))
		}
	}
	switch {
	case r.Mechanism != "" && slices.Contains(r.Without, r.Mechanism):
		return fmt.Errorf("--mechanism %s with --no-mechanism %[1]s: no point could be spliced", r.Mechanism)
	case r.RingKiB != 0 && (r.RingKiB < 4 || r.RingKiB&(r.RingKiB-1) != 0 || r.RingKiB > mostRingKiB):
		return fmt.Errorf("--ring %d: want a power of two, from 4 to %d", r.RingKiB, mostRingKiB)
	case r.TraceTo == "-" && r.JSON:
		return errors.New("--trace-to - and --json: both would be written to stdout; choose a file")
	case r.Timeout <= 0:
		return fmt.Errorf("--timeout %v: want more than 0", r.Timeout)
	case r.Live && r.Interval < shortestInterval:
		return fmt.Errorf("--interval %v: want at least %v", r.Interval, shortestInterval)
	case r.Live && r.JSON:
		return errors.New("--live is for people: leave --json out, or take --series")
	case r.Sampled && r.Live:
		return errors.New("--series and --live: what is shown as it comes is not kept; choose one")
	case r.List && (r.Live || r.Sampled || r.TraceTo != ""):
		return errors.New("--list runs nothing that could be followed: leave --live, --series and --trace-to out")
	case r.Expanded && !r.Inline:
		return errors.New("--expand: it prints what --inline makes of specifications, which is not given")
	case r.Expanded && (r.List || r.works()):
		return errors.New("--expand only says what is meant: leave --list and the workload out")
	case r.notText() != "":
		return fmt.Errorf("%q is not UTF-8: what is asked for has to be; a file may have the workload's odd bytes", r.notText())
	case len(r.Specs) == 0:
		return errors.New("no probe given, as in kinst::vfs_read:16")
	case r.Shell != "" && len(r.Argv) > 0:
		return errors.New("--run and -- both give a workload: choose one")
	case r.Stdin != "" && !r.works():
		return errors.New("--stdin: there is no workload that could read it")
	case r.List && r.works():
		return errors.New("--list runs nothing: leave the workload out")
	case !r.List && !r.Expanded && !r.works() && !r.Endless:
		return errors.New("no workload: give --run STRING, or -- CMD ARG; or --list")
	}
	return nil
}

// notText is a part of the request that no message can have; "": there is none.
func (r *Request) notText() string {
	all := slices.Concat(r.Specs, r.Do, r.Argv, []string{r.Predicate, r.Shell})
	k := slices.IndexFunc(all, func(s string) bool { return !utf8.ValidString(s) })
	if k < 0 {
		return ""
	}
	return all[k]
}

// CheckFor looks at what is wrong on an ISA.
func (r *Request) CheckFor(arch string) error {
	has := []string{}
	for _, m := range plan.Mechanisms(arch) {
		has = append(has, m.String())
	}
	// A clone is for who asks for one.
	left := slices.DeleteFunc(plan.Ladder(arch), func(m plan.Mechanism) bool { return slices.Contains(r.Without, m.String()) })
	switch {
	case r.Mechanism != "" && !slices.Contains(has, r.Mechanism):
		return fmt.Errorf("--mechanism %s: %s has %s%s", r.Mechanism, arch, strings.Join(has, ", "), near.Hint(r.Mechanism, has))
	case len(left) == 0:
		return fmt.Errorf("--no-mechanism %s: %s has no other", strings.Join(r.Without, ","), arch)
	}
	return nil
}

// mostStdin is how many bytes a workload can be given: all of a job has to fit into the mailbox.
const mostStdin = wire.MailboxSize / 2

// stdin is what the workload reads.
func (r *Request) stdin() (b []byte, err error) {
	if r.Stdin == "" {
		return nil, nil
	}
	f := os.Stdin
	if r.Stdin != "-" {
		if f, err = os.Open(r.Stdin); err != nil {
			return nil, fmt.Errorf("--stdin: %w", err)
		}
		defer f.Close()
	}
	if b, err = io.ReadAll(io.LimitReader(f, mostStdin+1)); err != nil {
		return nil, fmt.Errorf("--stdin: %w", err)
	}
	if len(b) > mostStdin {
		return nil, fmt.Errorf("--stdin %s: more than %d KiB: have it as a file in the guest, and the workload read that", r.Stdin, mostStdin>>10)
	}
	return b, nil
}

func (r *Request) works() bool { return r.Shell != "" || len(r.Argv) > 0 }

// mostRingKiB is how much memory rings can have.
const mostRingKiB = 8 << 10

// shortestInterval is how often samples can be taken at most, and are at first where they are kept.
const shortestInterval = 10 * time.Millisecond

// sampleNS is how often what is counted is noted; 0: never.
func (r *Request) sampleNS() uint64 {
	switch {
	case r.Live:
		return uint64(r.Interval)
	case r.Sampled:
		return uint64(shortestInterval)
	}
	return 0
}

// The names of a job's steps: see Request.Answer.
const (
	stepSplice   = "splice"
	stepWorkload = "workload"
	stepRead     = "read"
)

// Job is what the daemon does: splice, run, read, undo; or only say what could be. in is what
// actions can be told of the kernel.
func (r *Request) Job(in probe.At) (*wire.Job, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	sp := &wire.Splice{SkipRefused: r.SkipRefused || r.List, OnlyPlan: r.List, RingBytes: r.RingKiB << 10, Choose: r.Mechanism == ""}
	if !r.Many {
		sp.Limit = MostPoints
	}
	var err error
	if sp.Points, err = r.points(in); err != nil {
		return nil, err
	}
	if r.TraceTo != "" && !r.compiled.Traces() {
		return nil, errors.New("--trace-to: nothing is traced: ask for it, as in --do 'trace(tid, comm)'")
	}
	if r.Sampled && r.compiled.Untimed() {
		return nil, errors.New("--series: what trace() keeps has no time: ask for count beside it, or for something to be kept, as in --do 'trace(tid)'")
	}
	splice := &wire.Step{Name: stepSplice, Do: &wire.Step_Splice{Splice: sp}}
	if r.List {
		return &wire.Job{Schema: 1, Steps: []*wire.Step{splice}}, nil
	}
	stdin, err := r.stdin()
	if err != nil {
		return nil, err
	}
	argv := r.Argv
	if r.Shell != "" {
		argv = []string{"/bin/sh", "-c", r.Shell}
	}
	return &wire.Job{Schema: 1, Steps: []*wire.Step{
		splice,
		{Name: stepWorkload, Do: &wire.Step_Run{Run: &wire.Run{Argv: argv, TimeoutNs: uint64(r.Timeout), SampleNs: r.sampleNS(), Live: r.Live, Stdin: stdin}}},
		{Name: stepRead, Do: &wire.Step_Read{Read: &wire.Read{}}},
		{Name: "undo", Do: &wire.Step_Unsplice{Unsplice: &wire.Unsplice{Splice: stepSplice}}},
	}}, nil
}

// points are those of the specifications. What several say of one place is done at one point.
func (r *Request) points(in probe.At) (out []*wire.Point, err error) {
	r.compiled = probe.Compiled{}
	at := map[probe.Spec]*wire.Point{}
	var specs []probe.Spec
	for _, text := range r.Specs {
		s, err := probe.Parse(text)
		if err != nil {
			return nil, err
		}
		specs = append(specs, s)
	}
	apart := probe.Apart(specs, r.Predicate, r.Do)
	for _, s := range specs {
		place := func(s probe.Spec) *wire.Point {
			p := at[s.Place()]
			if p == nil {
				p = s.Point()
				p.Mechanism, p.Without = r.Mechanism, r.Without
				at[s.Place()] = p
				out = append(out, p)
			}
			return p
		}
		p := place(s)
		known := len(p.Actions)
		if p.Actions, err = r.compiled.Add(s, r.Predicate, r.Do, apart, in, p.Actions); err != nil {
			return nil, err
		}
		if left := leaving(p.Actions[known:]); len(left) > 0 && s.Name == "entry" { // of blocks the daemon does it
			s.Name = "return"
			exits := place(s)
			exits.Actions = append(exits.Actions, left...)
		}
	}
	return out, nil
}

// leaving is what is done at the exits of functions whose entries are timed.
func leaving(entered []*wire.Action) (out []*wire.Action) {
	for _, a := range entered {
		if a.Timed == wire.Timed_ENTERS {
			out = append(out, &wire.Action{Name: a.Name, Snippet: a.Snippet, Timed: wire.Timed_LEAVES})
		}
	}
	return out
}
