// Detect measures how soon the lab says that a guest has died: on the way up, of
// a panic, because its daemon died, or because QEMU was killed. It prints how many
// of the trials were told within two seconds, and the worst.
//
// The clock starts when the guest's console says that it is about to die, as this
// program reads it, or when QEMU gets its signal; and it stops when the lab's line
// about that guest is here, by which it has looked into what was left. So the time
// holds all that somebody waits for. A trial that comes out as anything but what
// was done to the guest is an error.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"kerninst/lab/status"
	"kerninst/scenarios"
)

// bound is what somebody may wait for until the lab knows.
const bound = 2 * time.Second

const (
	trialLimit = 5 * time.Minute        // of one trial, so that a hang ends by itself
	poll       = 2 * time.Millisecond   // how often a console is looked at
	maxDelay   = 700 * time.Millisecond // until QEMU is killed, since the console's mark
)

// death is a way to die.
type death struct {
	name, scenario string
	mark           string // on the console; dying begins there
	kill           bool   // QEMU, some time behind the mark
	want           int    // exit status
}

var deaths = []death{
	{"panic", "fault-panic", scenarios.FaultMark, false, status.ExitCrashed},
	{"daemon killed", "fault-daemon", scenarios.FaultMark, false, status.ExitCrashed},
	{"QEMU killed", "fault-wait", scenarios.FaultMark, true, status.ExitLabFailed},
	{"panic at boot", "fault-boot-panic", "Kernel panic - not syncing", false, status.ExitBootFailed},
}

func main() {
	n := flag.Int("n", 20, "trials")
	arches := flag.String("arch", "amd64,arm64,riscv64", "ISAs, separated by commas, taken in turn")
	seed := flag.Uint64("seed", 1, "seed of the moments at which QEMU is killed")
	flag.Parse()
	isas := strings.Split(*arches, ",")
	rng := rand.New(rand.NewPCG(*seed, 0))
	var worst time.Duration
	within, where := 0, ""
	for i := range *n {
		d, arch := deaths[i%len(deaths)], isas[i/len(deaths)%len(isas)]
		took, err := try(d, arch, time.Duration(rng.Int64N(int64(maxDelay))))
		if err != nil {
			fmt.Fprintf(os.Stderr, "detect: %s on %s: %v\n", d.name, arch, err)
			os.Exit(status.ExitFailed)
		}
		fmt.Fprintf(os.Stderr, "%s on %s: %.2f s\n", d.name, arch, took.Seconds())
		if took <= bound {
			within++
		}
		if took > worst {
			worst, where = took, d.name+" on "+arch
		}
	}
	fmt.Printf("crash or death detected within %v: %d of %d; worst %.2f s, %s\n", bound, within, *n, worst.Seconds(), where)
}

// try has a guest die and says how long the lab took to say so.
func try(d death, arch string, delay time.Duration) (took time.Duration, err error) {
	temp, err := os.MkdirTemp("", "detect")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	cmd := exec.Command("bin/lab", "run", "--arch", arch, "--scenario", d.scenario, "--out", filepath.Join(temp, "out"))
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "XDG_RUNTIME_DIR=")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	limit := time.AfterFunc(trialLimit, func() { cmd.Process.Kill() })
	defer limit.Stop()
	told := make(chan time.Time, 1)
	go tell(stderr, d.scenario, told)
	died, err := dies(d, temp, delay, told)
	end := <-told // the lab has closed its output by then, so Wait may be called
	_ = cmd.Wait()
	switch code := cmd.ProcessState.ExitCode(); {
	case err != nil:
		return 0, err
	case code != d.want:
		return 0, fmt.Errorf("exit status %d, want %d", code, d.want)
	case end.IsZero():
		return 0, errors.New("the lab said nothing of its guest")
	}
	return max(0, end.Sub(died)), nil
}

// tell sends the time of the lab's line about its guest, when the lab has closed
// its output; the zero time if there was none.
func tell(lab io.Reader, scenario string, told chan<- time.Time) {
	var at time.Time
	for lines := bufio.NewScanner(lab); lines.Scan(); {
		if said := lines.Text(); at.IsZero() && strings.HasPrefix(said, scenario+".guest: ") && strings.Contains(said, " after ") {
			at = time.Now()
		}
	}
	told <- at
}

// dies returns the time at which a guest begins to die, having seen to it if it is
// QEMU that is to be killed.
func dies(d death, temp string, delay time.Duration, told chan time.Time) (time.Time, error) {
	// What is measured must not be told by the lab, so the console is read as it grows; how
	// often is part of the error of what is measured.
	for ; ; time.Sleep(poll) {
		select {
		case at := <-told: // the lab is over
			told <- at
			return at, errors.New("the lab ended before the guest said that it dies")
		default:
		}
		logs, err := filepath.Glob(filepath.Join(temp, "kerninst-*", "r*", "console.log"))
		if err != nil {
			return time.Time{}, err
		}
		for _, log := range logs {
			text, err := os.ReadFile(log)
			at := time.Now()
			if err != nil || !bytes.Contains(text, []byte(d.mark)) {
				continue
			}
			if d.kill {
				time.Sleep(delay) // so that it dies at a moment that neither its console nor our looking at that has chosen
				return time.Now(), killQEMU(filepath.Dir(log))
			}
			return at, nil
		}
	}
}

// killQEMU kills the QEMU that works in a run directory.
func killQEMU(dir string) error {
	procs, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		return err
	}
	for _, p := range procs {
		if cwd, err := os.Readlink(p); err != nil || cwd != dir {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(p)))
		if err != nil {
			return err
		}
		return syscall.Kill(pid, syscall.SIGKILL)
	}
	return fmt.Errorf("no process works in %s", dir)
}
