package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// behaviours are what FreeBSD documents of its kinst (kinst(4), and Margiolis' paper, §II and
// §V), and what its users expect who come here: what is typed into a shell in the guest, and
// what is answered. GETPPID is the function behind that system call, BENCH a program that
// calls it 900 times after 100 to warm up.
var behaviours = []struct {
	name, command string
	code          int
	want          string // a regular expression
	where         string // each: on each ISA; amd64: there alone; empty: elsewhere only with -full
}{
	{"an instruction by its offset counts arrivals", `kinst -l kinst::GETPPID: | awk '!/refused/ {print $1; exit}' >/tmp/first; kinst "$(cat /tmp/first)" -- BENCH`,
		0, `kinst::GETPPID:\d+ +\w+ +1000\n`, "each"},
	{"the empty name is every instruction of the function", `kinst kinst::GETPPID: --skip-refused -- BENCH`,
		0, `(?s)kinst::GETPPID:\d+ .* 1000\n.*kinst::GETPPID:\d+ .* 1000\n.*kinst::GETPPID:\d+ .* 1000\n`, "each"},
	{"entry is once a call", `kinst kinst::GETPPID:entry -- BENCH`, 0, `kinst::GETPPID:\d+ +\w+ +1000\n`, "each"},
	{"return is once a call", `kinst kinst::GETPPID:return -- BENCH`, 0, `kinst::GETPPID:\d+ +\w+ +1000\n`, "each"},
	{"points are listed with what is there", `kinst -l kinst::vfs_read:`, 0, `(?s)kinst::vfs_read:\d+ +0xffff[0-9a-f]+ +\S.*(ret|ret\w*) +\w+\n`, "each"},
	{"a probe prints process and command, as printf of pid and execname does", `kinst "kinst::GETPPID:entry trace(pid, comm)" -- BENCH`,
		0, ` 1000 records\n0\.\d{9} s +CPU 0 +kinst::GETPPID:\d+ +(\d+) bench *\n`, ""},
	{"no record of the workload is of before it began", `for k in 0 1 2 3 4 5 6 7 8 9; do kinst 'kinst::GETPPID:entry /comm == "bench"/ trace(pid)' -- BENCH; done | grep -c "^-"`, 1, `^0\n$`, ""},
	{"a predicate on the command", `kinst 'kinst::vfs_read:entry /comm == "wc"/' 'kinst::vfs_read:return /comm == "nobody"/' -- wc -c /proc/mounts`,
		0, `(?s)count +[1-9]\d*\n.*count +0\n|vfs_read:\d+ +\w+ +[1-9]\d*\nkinst::vfs_read:\d+ +\w+ +0\n`, ""},
	{"patterns stand for functions", `kinst -l 'kinst::ksys_r*:entry'`, 0, `(?s)ksys_read:\d+ .*ksys_readahead:\d+ |(?s)ksys_readahead:\d+ .*ksys_read:\d+ `, ""},
	{"an offset that is no instruction's", `kinst kinst::vfs_read:100001 -- true`, 1, `refused +outside the function: .*`, ""},
	{"a function that is none", `kinst kinst::vfs_reed:entry -- true`, 1, `no such function: the kernel has no function vfs_reed; there is .*vfs_read`, ""},
	{"a function that is in others alone", `kinst kinst::file_start_write:entry -- true; kinst --inline kinst::file_start_write:entry --skip-refused --run 'echo >/tmp/x'`, 0,
		`(?s)--inline finds the copies.*kinst::vfs_write:\d+ +\w+ +[1-9]\d* +include/linux/fs\.h:\d+ file_start_write\n`, ""},
	{"an argument by its name", `kinst 'kinst::ksys_read:entry /comm == "wc" && arg("count") == arg2/' -- wc -c /proc/mounts; kinst 'kinst::ksys_read:entry /arg("count") != arg2/' -- wc -c /proc/mounts; kinst 'kinst::vfs_read:entry sum(arg("fill"))' -- true`, 2,
		`(?s)kinst::ksys_read:\d+ +\w+ +[^\n]*\b[1-9]\d*\n.*kinst::ksys_read:\d+ +\w+ +[^\n]*\b0\n.*vfs_read has no argument fill: it has file, buf, count, pos; did you mean file\?`, "amd64"},
	{"an argument of copies by its name", `kinst --inline 'kinst::file_start_write:entry /comm == "sh"/ max(file(arg("file")).f_flags)' --skip-refused --run 'echo >/tmp/x'; kinst --inline 'kinst::file_start_write:entry sum(arg("fill"))' -- true`, 2,
		`(?s)kinst::vfs_write:\d+ +\w+ +max\(file\(reg\("\w+"\)\)\.f_flags\) +[1-9]\d*\b.*kinst: kinst::file_start_write:entry: file_start_write has no argument fill: it has file; did you mean file\?`, ""},
	{"what a guest has not been told of", `kinst --inline -l kinst:fs/file.c:3; kinst --inline -l kinst::vfs_read:entry`, 2, `(?s)fs/file\.c:3, in the kernel: what is known was made for .*, not for lines.*vfs_read:entry: what is known was made for .*, not for vfs_read`, ""},
	{"rings are as large as the question says, whatever they were", `kinst 'kinst::GETPPID:entry trace(tid)' --ring 64 -- BENCH | grep -c " bench\|CPU 0"; kinst kinst::GETPPID:entry -- BENCH; kinst 'kinst::GETPPID:entry trace(tid)' --ring 128 -- BENCH | grep records`, 0,
		`(?s)^1000\n.*kinst::GETPPID:\d+ +\w+ +1000\n.* 1000 records\n`, ""},
	{"what is traced until the end is what is counted", `for k in 1 2 3 4 5; do kinst kinst::do_exit:entry 'kinst::do_exit:entry trace(tid)' -- true | awk '/count/ {n = $NF} / records$/ {print (n > 0 && $(NF-1) == n)}'; done | sort -u`, 0, `^1\n$`, "amd64"},
	{"a task's name need not be a text", `cp /bin/busybox "$(printf '/tmp/\377\376x')"; (exec -a sleep "$(printf '/tmp/\377\376x')" 30) & sleep 0.5; kinst 'kinst::hrtimer_nanosleep:entry time' --run 'sleep 0.2'; kill $!; wait`, 0, `hrtimer_nanosleep:entry +time\n.*there at first`, ""},
	{"a question has to be a text", `kinst "$(printf 'kinst::vfs_read:entry /comm == "\377"/')" -- true`, 2, `is not UTF-8`, ""},
	{"a module that is not there", `kinst kinst:nonsense:vfs_read:entry -- true`, 1, `module nonsense is not loaded`, ""},
	{"functions that are unsafe to trace", `kinst kinst::NOINSTR:8 -- true`, 1, `NOINSTR:8 +refused +\S`, "each"},
	{"an offset that is no number", `kinst kinst::vfs_read:here -- true`, 2, `"here" is neither a byte offset`, ""},
	{"no field of that name", `kinst 'kinst::vfs_read:entry sum(arg0.f_inod)' -- true`, 2, `column 10: struct file has no field f_inod; did you mean f_inode\?`, ""},
	{"while the workload runs, a table is drawn anew", `kinst --live --interval 100ms kinst::GETPPID:entry --run 'BENCH; sleep 0.5; BENCH'`, 0,
		`(?s)after 0\.\d s .* 100\d .*after .* 200\d .*\nkinst::GETPPID:\d+ +\w+ +200\d\n`, ""},
	{"the last table has all that is traced", `kinst --live --interval 20s 'kinst::GETPPID:entry /comm == "bench"/ trace(pid)' --run 'BENCH >/dev/null' | head -1`, 0,
		`(?s)after \d+\.\d s[^\n]*\n *kinst::GETPPID:\d+ +[^\n]*trace\(pid\)\s+1000 [^\n]*\nkinst::GETPPID:\d+ .* 1000 records\n`, ""},
	{"a variable that is none", `kinst 'kinst::vfs_read:entry max(load64(sym("jiffiez")))' -- true`, 1, `sym\("jiffiez"\): the kernel has no symbol of that name; did you mean jiffies\?`, ""},
	{"of functions that share a name one is chosen", `kinst -l kinst::t_show:entry; kinst kinst::t_show#3:entry "kinst::t_show@0x$(grep ' t t_show$' /proc/kallsyms | sort | head -1 | cut -d' ' -f1):entry" -- cat /sys/kernel/tracing/available_tracers`, 0,
		`(?s)ambiguous function: \d functions of the kernel are named t_show: choose t_show#1 or t_show@0xffff[0-9a-f]+ \(behind \w+\), t_show#2 .*kinst::t_show#3:\d+ +\w+ +\d+\nkinst::t_show#1:\d+ +\w+ +\d+\n`, ""},
	{"what virtual time needs besides is listed", `kinst -l 'kinst::do_wait:entry vtime'`, 0, `kinst::do_wait:\d+ .*\n(?s).*kinst::finish_task_switch\S*:\d+ +0xffff[0-9a-f]+ .*\n\(kinst::finish_task_switch\S* is spliced besides, `, ""},
	{"what is too much for one point", `A='hist(arg2) by pid' B='avg(arg0.f_inode.i_size) by pid, cpu'; for s in 23 entry; do kinst kinst::vfs_read:$s --do 'stack(4)' --do "$A" --do "$B" -- true; done; kinst 'kinst::vfs_read:23 stack(4)' "kinst::vfs_read:9 $A" "kinst::vfs_read:9 /pid > 0/ $B" -- true | grep -c vfs_read:`, 0,
		`(?s)than amd64 has registers: do stack, which takes most, at another instruction.*than amd64 has registers.*\n[1-9]\d*\n$`, "amd64"},
	{"without a workload it counts until it is told to end", `kinst kinst::GETPPID:entry >/tmp/until 2>&1 & sleep 2; BENCH >/dev/null; kill $!; wait; cat /tmp/until`, 0,
		`kinst: until Ctrl-C\s+kinst::GETPPID:\d+ +\w+ +100\d\n`, ""},
	{"jobs wait for each other, and say so", `kinst kinst::GETPPID:entry >/tmp/until 2>&1 & first=$!; sleep 2; kinst kinst::GETPPID:entry -- BENCH >/tmp/second 2>&1 & sleep 3; kill $first; wait; cat /tmp/second`, 0,
		`(?s)kinst: waiting for kerninstd, which does another job\s.*kinst::GETPPID:\d+ +\w+ +1000\n`, ""},
	{"a workload that is interrupted has counted", `kinst kinst::GETPPID:entry --run 'BENCH; sleep 50' >/tmp/until 2>&1 & sleep 3; kill $!; wait; cat /tmp/until`, 0,
		`(?s)kinst::GETPPID:\d+ +\w+ +100\d\n.*workload: exit status 130`, ""},
	{"what a pattern and a name ask of one place is done there", `kinst 'kinst::GETPPID*:entry max(cpu)' kinst::GETPPID:entry -- BENCH`, 0,
		`max\(cpu\) +0\n.* count +1000\n`, ""},
	{"an error that is returned is below 0", `kinst 'kinst::do_sys_openat2:return /ret < 0/ count by ret' --run 'cat /nonesuch'`, 0, ` -2 +1\n`, ""},
	{"who is called by a copy comes back to the kernel's own code", `kinst kinst::vfs_read:entry kinst::ksys_read:entry --mechanism clone --do 'stack(3)' -- wc -c /proc/mounts`, 0,
		`vfs_read\+0x\w+\n +ksys_read\+0x\w+\n`, "amd64"},
	{"addresses are as the kernel prints them", `kinst 'kinst::vfs_read:entry trace(arg0, arg2)' -- wc -c /proc/mounts`, 0, `vfs_read:\d+ +0xf+[0-9a-f]{9,} \d+\n`, ""},
	{"no argument of that number", `kinst 'kinst::vfs_read:entry max(arg4)' -- true`, 2, `column 5: vfs_read has no arg4: it has 4 arguments, arg0 is `, ""},
	{"what can never be", `kinst 'kinst::vfs_read:entry /arg2 < 0/' -- true`, 2, `column 1: arg2 < 0 is false whatever comes`, ""},
	{"what is wrong everywhere", `kinst 'kinst::vfs_read:entry sum(ret)' -- true`, 1, `known only where it does, as in kinst::vfs_read:return`, ""},
	{"several questions, one after the other", `printf '["kinst::GETPPID:entry /comm == \"bench\"/", "--run", "BENCH"]\n["--json", "-l", "kinst::GETPPID:entry"]\n' | kinst --batch`, 0, `(?s)kinst::GETPPID:\d+ +\w+ +1000\n.*"status": "passed"`, ""},
	{"one of them cannot be asked", `echo '["kinst::vfs_read:here"] ["kinst::vfs_read:entry", "--", "true"]' | kinst --batch; echo $?; echo kinst | kinst --batch`, 2, `"here" is neither a byte offset(?s).*\n2\nkinst: a question is an array`, ""},
	{"what is kept by addresses of code has their names", `kinst 'kinst::vfs_read:entry' --do 'count by ksym(arg0.f_op.read_iter)' --do 'count by ksym(arg0)' --run 'echo a | cat'`, 0, `(?s)\n +pipe_read +\d+\n.*\n +0x[0-9a-f]{16} +\d+\n`, ""},
	{"the workload's status, if asked for", `kinst --exit-with-workload kinst::vfs_read:entry --run 'exit 7'`, 7, `workload: exit status 7`, ""},
	{"a workload that does not end", `kinst --timeout 3s kinst::GETPPID:entry --run 'BENCH; sleep 50'; echo $?; kinst --json --timeout 1s kinst::GETPPID:entry --run 'sleep 50' | grep -c '"status": "timeout"'`, 0,
		`(?s):\d+ +\w+ +100\d\n.*did not end within 3s: raise --timeout\n5\n.*1\n$`, ""},
	{"what is in the way of a pun is moved", `kinst --json --mechanism pun kinst::GETPPID:23 -- BENCH | tr -d ' \n'`, 0, `"mechanism":"pun",.*"moved":"__do_sys_getppid\+0x19".*"value":1000`, "amd64"},
	{"what was spliced is gone afterwards", `kinst -l kinst::GETPPID: >/tmp/before 2>/dev/null; kinst kinst::GETPPID: --skip-refused -- BENCH >/dev/null 2>&1; kinst -l kinst::GETPPID: 2>/dev/null | diff /tmp/before - && wc -l </tmp/before`, 0, `^\d+\n$`, "each"},
	{"with a workload that nobody has, nothing is left spliced", `kinst kinst::GETPPID:entry -- /no/such/program; kinst -l kinst::GETPPID: | diff /tmp/before - && echo same`, 0, `no such file or directory\n(?s).*same\n$`, "each"},
	{"the kernel's text is read", `sh /tmp/text.sh >/tmp/text; wc -c </tmp/text; kinst kinst::GETPPID:entry --run 'sh /tmp/text.sh | cmp - /tmp/text'`, 0, `(?s)^\d{8}\n.* differ: .*workload: exit status 1\n`, "each"},
	{"of a set of which a part is refused nothing is left in it", `kinst 'kinst::vfs_*:' -- true | grep -c refused; sh /tmp/text.sh | cmp - /tmp/text && echo same`, 0, `\n[1-9]\d*\nsame\n$`, "each"},
	// Who is interrupted before he knows what to do then (143, and the shell says so) has done nothing.
	{"nor of one that is interrupted on its way in or out", `for k in 0.3 1 3; do kinst 'kinst::vfs_*:block' --skip-refused -- true >/tmp/until 2>&1 & sleep $k; kill $!; wait $!; echo $?; cat /tmp/until | tail -1; done; sh /tmp/text.sh | cmp - /tmp/text && echo same`, 0, `(?s)(^|\n)130\n.*same\n$`, ""},
}

// textOf is a program in the shell's language that writes the kernel's text, as /proc/kcore has it:
// neither our module nor our daemon is asked.
const textOf = `from=$((0x$(grep " _stext$" /proc/kallsyms | cut -d" " -f1))) to=$((0x$(grep " _etext$" /proc/kallsyms | cut -d" " -f1)))
od -An -v -w56 -td8 -j64 -N$((56 * $(od -An -v -tu2 -j56 -N2 /proc/kcore))) /proc/kcore | while read -r type offset at _ size _; do
	[ $at -le $from ] && [ $((at + size)) -ge $to ] || continue
	exec dd if=/proc/kcore bs=4096 skip=$(((offset + from - at) / 4096)) count=$(((to - from) / 4096)) 2>/dev/null
done`

// noinstr is a function on each ISA that runs where no probe may.
var noinstr = map[string]string{"amd64": "exc_page_fault", "arm64": "el1h_64_sync_handler", "riscv64": "do_page_fault"}

// TestKinst types into a shell in a guest, as a person does: the examples and the behaviours. What
// is the same code on each ISA is tried on amd64, and by `make proof` on each.
func TestKinst(t *testing.T) {
	t.Parallel()
	for _, arch := range arches {
		t.Run(arch, func(t *testing.T) {
			in := strings.NewReplacer("GETPPID", getppid[arch], "BENCH", "/lib/kerninst/bench/bench null 100 9", "NOINSTR", noinstr[arch])
			g := openShell(t, arch, "--inline", "--copies", "../../scenarios/copies/"+arch+".copies")
			if arch == "amd64" || *full {
				tryExamples(t, g, arch)
			}
			g.run("echo '"+textOf+"' >/tmp/text.sh", 0)
			tried := 0
			for k, b := range behaviours {
				if b.where != "each" && arch != "amd64" && (b.where != "" || !*full) {
					continue
				}
				tried++
				got, code := g.run(in.Replace(b.command), k)
				if code != b.code || !regexp.MustCompile(in.Replace(b.want)).MatchString(got) {
					t.Errorf("%s: %s\nexit status %d, want %d, and what matches %s:\n%s", b.name, in.Replace(b.command), code, b.code, in.Replace(b.want), got)
				}
			}
			t.Logf("proof kinst %s %d", arch, tried)
		})
	}
}

// TestProbeInterrupted: Ctrl-C on the host ends a workload that goes on for ever, and what it did
// until then is told, as kinst does in the guest; what comes by stdin is the workload's if asked for.
func TestProbeInterrupted(t *testing.T) {
	t.Parallel()
	for _, arch := range arches {
		t.Run(arch, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(lab, "probe", "--arch", arch, "--live", "--interval", "100ms", "--timeout", "1h", "--stdin", "-",
				"kinst::"+getppid[arch]+`:entry /comm == "bench"/`, "--run", "cat; /lib/kerninst/bench/bench null 100 9 >/dev/null; while :; do :; done")
			var out bytes.Buffer
			cmd.Stdin, cmd.Stdout = strings.NewReader("given\n"), &out
			said, err := cmd.StderrPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			var heard strings.Builder
			counted := regexp.MustCompile(`:\d+.*  1000  `)
			for in := bufio.NewScanner(said); in.Scan(); {
				heard.WriteString(in.Text() + "\n")
				if counted.MatchString(in.Text()) {
					counted = regexp.MustCompile(`^never$`) // once is enough
					if err := cmd.Process.Signal(os.Interrupt); err != nil {
						t.Error(err)
					}
				}
			}
			err = cmd.Wait()
			want := regexp.MustCompile(`^given\nkinst::` + getppid[arch] + `:\d+ +\w+ .* 1000\n$`)
			if err != nil || !want.MatchString(out.String()) || !strings.Contains(heard.String(), "workload: exit status 130") {
				t.Errorf("%v, want %v:\n%s\n%s", err, want, &out, &heard)
			}
		})
	}
}

// guestShell is a shell in a guest, at a terminal.
type guestShell struct {
	t    *testing.T
	tty  *os.File
	said *bytes.Buffer // and not yet read
	more chan []byte
}

// openShell has a guest whose shell is at a terminal that is the test's. The kernel says there
// what it must, at levels below a warning's (<linux/kern_levels.h>): on a slow host it warns at
// any time, so also in the middle of what the shell says (as of an hrtimer that took long).
func openShell(t *testing.T, arch string, more ...string) *guestShell {
	t.Helper()
	tty, end := openTerminal(t)
	cmd := exec.Command(lab, append([]string{"shell", "--arch", arch}, more...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = end, end, end
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end.Close()
	g := &guestShell{t, tty, &bytes.Buffer{}, make(chan []byte)}
	go func() {
		defer close(g.more)
		for {
			b := make([]byte, 4096)
			n, err := tty.Read(b)
			if err != nil {
				return
			}
			g.more <- b[:n]
		}
	}()
	t.Cleanup(func() {
		fmt.Fprintln(tty, "exit")
		killed := time.AfterFunc(30*time.Second, func() { cmd.Process.Kill() })
		defer killed.Stop()
		for range g.more {
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("lab shell: %v", err)
		}
		tty.Close()
	})
	g.await(regexp.MustCompile(`guest# `))
	if said, code := g.run("dmesg -n 4", 0); code != 0 {
		t.Fatalf("dmesg -n 4 ended with %d: %s", code, said)
	}
	return g
}

// openTerminal makes a pseudoterminal: the test's end, and a program's.
func openTerminal(t *testing.T) (tty, end *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	end, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), "terminal"), end
}

// await reads until something matches, and answers with its groups.
func (g *guestShell) await(want *regexp.Regexp) []string {
	g.t.Helper()
	late := time.After(limit / 2)
	for {
		if m := want.FindStringSubmatch(g.said.String()); m != nil {
			g.said.Reset()
			return m
		}
		select {
		case b, ok := <-g.more:
			if !ok {
				g.t.Fatalf("the terminal closed before %v: %s", want, g.said)
			}
			g.said.Write(b)
		case <-late:
			g.t.Fatalf("nothing matches %v: %s", want, g.said)
		}
	}
}

// run has the shell run a command, the k-th: what it wrote to either stream, and how it
// ended. The marks are not what is typed, which the terminal shows too.
func (g *guestShell) run(command string, k int) (said string, code int) {
	g.t.Helper()
	if _, err := io.WriteString(g.tty, fmt.Sprintf("{ %s; } >/tmp/said 2>&1; echo \"=%%=%d=$?=\"; cat /tmp/said; echo \"=%%\"=%d=end=\n", command, k, k)); err != nil {
		g.t.Fatal(err)
	}
	m := g.await(regexp.MustCompile(fmt.Sprintf(`(?s)=%%=%d=(\d+)=\r*\n(.*?)=%%=%d=end=`, k, k)))
	code, err := strconv.Atoi(m[1])
	if err != nil {
		g.t.Fatal(err)
	}
	return strings.ReplaceAll(m[2], "\r", ""), code
}
