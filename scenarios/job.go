package scenarios

import (
	"fmt"
	"strconv"

	"kerninst/agent/ktext"
	"kerninst/agent/plan"
	"kerninst/agent/wire"
)

// Where the image has the guest's programs.
const (
	benchProgram = "/lib/kerninst/bench/bench"
	daemon       = "/sbin/kerninstd"
)

// Size of the workloads: operations in a sample and samples. Short enough that
// some sample lies between two timer interrupts, also where each operation meets a
// breakpoint; long enough that a tick of the slowest guest clock (100 ns) is about 1/10
// of an instruction an operation. Each system call draws 16 random bits for its stack
// (arm64, riscv64), and each 48th makes new ones for the next (drivers/char/random.c:
// batched_entropy_u16), 2,784 instructions: so that all samples have as many of those.
const (
	ops     = 20 * 48
	samples = 42
)

func job(steps ...*wire.Step) *wire.Job { return &wire.Job{Schema: 1, Steps: steps} }

func splice(name string, points ...*wire.Point) *wire.Step {
	return &wire.Step{Name: name, Do: &wire.Step_Splice{Splice: &wire.Splice{Points: points}}}
}

// announced also tells the oracle where the points are.
func announced(s *wire.Step) *wire.Step {
	s.GetSplice().Announce = true
	return s
}

func mayFail(s *wire.Step) *wire.Step {
	s.MayFail = true
	return s
}

func unsplice(of string) *wire.Step {
	return &wire.Step{Name: "un" + of, Do: &wire.Step_Unsplice{Unsplice: &wire.Unsplice{Splice: of}}}
}

func textDump(name string) *wire.Step {
	return &wire.Step{Name: name, Do: &wire.Step_Dump{Dump: &wire.Dump{}}}
}

func read(name string) *wire.Step {
	return &wire.Step{Name: name, Do: &wire.Step_Read{Read: &wire.Read{}}}
}

// seedWord stands for the run's seed among a program's arguments: a scenario does not know it.
const seedWord = "{seed}"

// seeded puts the seed there, in the job itself.
func seeded(job *wire.Job, seed uint64) *wire.Job {
	for _, s := range job.GetSteps() {
		argv := s.GetRun().GetArgv()
		for k := range argv {
			if argv[k] == seedWord {
				argv[k] = strconv.FormatUint(seed, 10)
			}
		}
	}
	return job
}

func run(name string, argv ...string) *wire.Step {
	return &wire.Step{Name: name, Do: &wire.Step_Run{Run: &wire.Run{Argv: argv}}}
}

// bench runs one of guest/bench's operations, at once on that many CPUs.
func bench(name, op string, copies uint32) *wire.Step {
	s := run(name, benchProgram, op, strconv.Itoa(ops), strconv.Itoa(samples))
	s.GetRun().Copies = copies
	return s
}

func shell(name, command string) *wire.Step { return run(name, "/bin/sh", "-c", command) }

func snapshot(name, against string) *wire.Step {
	return &wire.Step{Name: name, Do: &wire.Step_Snapshot{Snapshot: &wire.Snapshot{Against: against}}}
}

func module(name string, op wire.Module_Op) *wire.Step {
	return &wire.Step{Name: name, Do: &wire.Step_Module{Module: &wire.Module{Op: op}}}
}

func kprobe(name, of string) *wire.Step {
	return &wire.Step{Name: name, Do: &wire.Step_Kprobe{Kprobe: &wire.Kprobe{Splice: of}}}
}

// noOptprobes keeps kprobes what they are. The system's own optimisation of them
// into jumps is a mechanism of its own; only amd64 has the switch.
func noOptprobes() *wire.Step {
	return shell("no-optprobes", "f=/proc/sys/debug/kprobes-optimization; [ ! -e $f ] || echo 0 > $f")
}

func unkprobe(of string) *wire.Step {
	return &wire.Step{Name: "un" + of, Do: &wire.Step_Kprobe{Kprobe: &wire.Kprobe{Remove: true}}}
}

// kprobes are as many as a splice had points, each with its own count.
func kprobes(name, of string) *wire.Step {
	return &wire.Step{Name: name, Do: &wire.Step_Kprobe{Kprobe: &wire.Kprobe{Splice: of, All: true}}}
}

// kprobesBeside are those around each point of a live splice, of which the kernel refuses
// some.
func kprobesBeside(name, of string) *wire.Step {
	return &wire.Step{Name: name, Do: &wire.Step_Kprobe{Kprobe: &wire.Kprobe{Splice: of, All: true, Beside: true}}}
}

func unkprobes(of string) *wire.Step {
	return &wire.Step{Name: "un" + of, Do: &wire.Step_Kprobe{Kprobe: &wire.Kprobe{All: true, Remove: true}}}
}

// at is the point at an offset, which must be spliceable.
func at(function string, offset uint64) *wire.Point {
	return &wire.Point{Function: function, Offset: offset}
}

// cheap is the first point of a function where the snippet needs to save
// nothing: what the figures are about.
func cheap(function string) *wire.Point {
	return &wire.Point{Function: function, Search: true, Cheap: true}
}

// jumping is the first point of a function that jumps, calls or returns.
func jumping(function string) *wire.Point {
	return &wire.Point{Function: function, Search: true, Jumps: true}
}

// byTrap has a point reached by a breakpoint.
func byTrap(p *wire.Point) *wire.Point {
	p.Mechanism = plan.Trap.String()
	return p
}

// somewhere is the first point of a function that can be spliced at all.
func somewhere(function string) *wire.Point {
	return &wire.Point{Function: function, Search: true}
}

// entry is the cheapest point that each call of a function comes to once.
func entry(function string) *wire.Point {
	return &wire.Point{Function: function, Entry: true}
}

// syscallEntry is the function of a system call, which many scenarios splice.
func syscallEntry(arch, name string) string { return ktext.Syscall(arch, name) }

func nth(name string, i int) string { return fmt.Sprintf("%s-%d", name, i) }
