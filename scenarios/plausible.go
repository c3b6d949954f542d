package scenarios

import (
	"fmt"
	"math"

	"kerninst/lab/measure"
)

// What can be said of lmbench's figures on any ISA and kernel: what has to take longer
// than what, since the one contains the other or more of the same, and what a second
// program finds. All in nanoseconds of the guest, also where bytes are moved.

// longer says that one operation takes at least factor times as long as another.
type longer struct {
	name   string
	factor float64
	than   string
	why    string
}

var longers = []longer{
	{"Read", 1, "Null", "a system call that does something"},
	{"Write", 1, "Null", "likewise"},
	{"Fstat", 1, "Null", "likewise"},
	{"SigInstall", 1, "Null", "likewise"},
	{"Stat", 1, "Fstat", "a path is looked up first"},
	{"OpenClose", 1, "Stat", "a path is looked up too, and a descriptor is made"},
	{"Select100", 10, "Null", "a hundred files are asked"},
	{"SigCatch", 2, "Null", "kill and sigreturn"},
	{"ProtFault", 2, "Null", "a fault and sigreturn"},
	{"Ctx/2p/0K", 1, "Null", "a scheduler runs"},
	{"PipeLatency", 2, "Ctx/2p/0K", "there and back are two switches"},
	{"UnixLatency", 1, "PipeLatency", "sockets do more"},
	{"TCPLatency", 1, "UnixLatency", "and those of a network even more"},
	{"ForkExit", 5, "OpenClose", "an address space is made"},
	{"ForkExec", 1.5, "ForkExit", "and another one, for a program"},
	{"ForkSh", 1.5, "ForkExec", "two programs are run"},
	{"PageFaultAnon", 1, "PageFault", "the page is cleared"},
	{"Mmap", 8, "PageFault", "512 KiB by 64 KiB at most are eight faults"},
	{"FileCreate/0K", 1, "OpenClose", "an inode is made"},
	{"FileCreate/10K", 1, "FileCreate/0K", "three pages are written"},
	{"FileDelete/0K", 1, "Null", "a path is looked up"},
	{"FileDelete/10K", 1, "FileDelete/0K", "three pages are freed"},
	{"MemCopy", 1, "MemRead", "what is read is written too"},
	{"MemCopy", 1, "MemWrite", "what is written is read first"},
	{"FileMmapRead", 1, "MemRead", "the same loop, and page faults"},
	{"PipeStream", 2, "FileRead", "each byte is copied twice"},
	{"UnixStream", 2, "FileRead", "likewise"},
	{"TCPStream", 2, "FileRead", "likewise"},
}

// alike are context switches among as many processes: what they do besides is
// subtracted, however much it is.
var alike = [][2]string{
	{"Ctx/2p/0K", "Ctx/2p/16K"}, {"Ctx/2p/0K", "Ctx/2p/64K"}, {"Ctx/8p/0K", "Ctx/8p/16K"}, {"Ctx/16p/0K", "Ctx/16p/16K"},
}

// alikeWithin is the factor by which they may differ. The scheduler finds another state
// before each; without the subtraction, 16 KiB alone make it 3.
const alikeWithin = 1.6

// perWord are the fewest instructions for each word of eight bytes.
var perWord = map[string]float64{"MemRead": 1, "MemWrite": 1, "MemCopy": 2}

// wordsPerOp is how many words an operation with a bandwidth moves: 1 MiB.
const wordsPerOp = 1 << 17

// twice are operations that guest/bench times too, its loop and the clock with them.
var twice = []struct{ bench, name string }{
	{"null", "Null"}, {"read", "Read"}, {"write", "Write"}, {"stat", "Stat"}, {"open", "OpenClose"},
}

const (
	// twiceOps is a multiple of 48 as guest/lmbench's numbers of calls are, which says why.
	twiceOps = 480
	// twiceWithin is by how many instructions the two may differ: a turn of the one's
	// loop, and how the other's call looks at its result.
	twiceWithin = 20
)

func (t *T) plausible(by map[string]*measure.Operation) {
	for _, l := range longers {
		t.longer(l, by)
	}
	for _, a := range alike {
		t.alike(a, by)
	}
	for _, name := range []string{"MemRead", "MemWrite", "MemCopy"} {
		t.atLeast(name+": instructions for a word", by[name].NS/wordsPerOp, perWord[name])
	}
	for _, o := range twice {
		t.atMost(o.name+": instructions by which guest/bench finds another figure",
			math.Abs(t.benches("first", o.bench)[0].Min()-by[o.name].NS), twiceWithin)
	}
}

func (t *T) longer(l longer, by map[string]*measure.Operation) {
	t.atLeast(fmt.Sprintf("%s over %s (%s)", l.name, l.than, l.why), by[l.name].NS/by[l.than].NS, l.factor)
}

func (t *T) alike(a [2]string, by map[string]*measure.Operation) {
	ratio := by[a[0]].NS / by[a[1]].NS
	t.atMost(fmt.Sprintf("factor between %s and %s", a[0], a[1]), math.Max(ratio, 1/ratio), alikeWithin)
}
