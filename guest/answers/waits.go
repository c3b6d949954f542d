package main

import (
	"fmt"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// ends are those of a pipe, what is read and what is written.
type ends [2]int

func pipe(flags int) (p ends) {
	must(0, unix.Pipe2(p[:], flags))
	return p
}

func (p ends) close() {
	unix.Close(p[0])
	unix.Close(p[1])
}

func selects(a *asker) {
	var all []ends
	for range 50 {
		all = append(all, pipe(0))
	}
	highest := all[len(all)-1][1]
	ask := func(question string, wait time.Duration, to bool) {
		var r, w unix.FdSet
		for _, p := range all {
			r.Set(p[0])
			if to {
				w.Set(p[1])
			}
		}
		limit := unix.NsecToTimespec(wait.Nanoseconds())
		n, err := unix.Pselect(highest+1, &r, &w, nil, &limit, nil)
		ready := ""
		for k, p := range all {
			if r.IsSet(p[0]) {
				ready += fmt.Sprint(" ", k)
			}
		}
		a.says("Select100", question, n, ok(err), "can be read:"+ready)
	}
	ask("nobody has anything", 0, false)
	ask("nobody has anything, for a while", 2*time.Millisecond, false)
	ask("all can be written", time.Hour, true)
	for _, k := range []int{3, 17, 49} {
		must(unix.Write(all[k][1], []byte("x")))
	}
	ask("three have something", time.Hour, false)
	unix.Close(all[20][1])
	ask("one has ended", time.Hour, false)
	a.says("Select100", "too many", result(unix.Pselect(-1, nil, nil, nil, nil, nil)))
	p := []unix.PollFd{{Fd: int32(all[3][0]), Events: unix.POLLIN}, {Fd: int32(all[20][0]), Events: unix.POLLIN}, {Fd: 9999, Events: unix.POLLIN}, {Fd: -1}}
	n, err := unix.Ppoll(p, &unix.Timespec{}, nil)
	a.says("Select100", "poll", n, ok(err), p[0].Revents, p[1].Revents, p[2].Revents, p[3].Revents)
	epoll(a, all)
	all[20][1] = -1
	for _, p := range all {
		p.close()
	}
	var none unix.FdSet
	none.Set(highest)
	a.says("Select100", "who is closed", result(unix.Pselect(highest+1, &none, nil, nil, &unix.Timespec{}, nil)))
}

func epoll(a *asker, all []ends) {
	e := must(unix.EpollCreate1(0))
	for _, k := range []int{3, 4, 17} {
		a.says("Select100", "epoll_ctl", ok(unix.EpollCtl(e, unix.EPOLL_CTL_ADD, all[k][0], &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(k)})))
	}
	a.says("Select100", "epoll_ctl again", ok(unix.EpollCtl(e, unix.EPOLL_CTL_ADD, all[3][0], &unix.EpollEvent{})), ok(unix.EpollCtl(e, unix.EPOLL_CTL_DEL, all[5][0], nil)))
	got := make([]unix.EpollEvent, 5)
	n, err := unix.EpollWait(e, got, 0)
	a.says("Select100", "epoll_wait", n, ok(err), got[0].Fd+got[1].Fd)
	a.says("Select100", "epoll_wait for nothing", result(unix.EpollWait(e, nil, 0)), result(unix.EpollWait(9999, got, 0)))
	unix.Close(e)
}

func signals(a *asker) {
	came := make(chan os.Signal, 10)
	signal.Notify(came, unix.SIGUSR1, unix.SIGUSR2)
	a.says("SigInstall", "two", "ok")
	for _, s := range []unix.Signal{unix.SIGUSR1, unix.SIGUSR2} {
		a.says("SigCatch", "kill", ok(unix.Kill(unix.Getpid(), s)), <-came)
		a.says("SigCatch", "tgkill", ok(unix.Tgkill(unix.Getpid(), unix.Gettid(), s)), <-came)
	}
	a.says("SigCatch", "nobody", ok(unix.Kill(1<<30, 0)), ok(unix.Kill(unix.Getpid(), 0)), ok(unix.Kill(unix.Getpid(), 99)), ok(unix.Tgkill(unix.Getpid(), 1<<30, 0)))
	signal.Ignore(unix.SIGUSR1)
	a.says("SigCatch", "ignored", ok(unix.Kill(unix.Getpid(), unix.SIGUSR1)), len(came))
	signal.Reset(unix.SIGUSR1, unix.SIGUSR2)
	a.says("SigInstall", "none that cannot be", result(call(unix.SYS_RT_SIGACTION, uintptr(unix.SIGKILL), nowhere, 0, 8)), result(call(unix.SYS_RT_SIGACTION, 99, 0, 0, 8)), result(call(unix.SYS_RT_SIGACTION, 10, 0, 0, 7)))
	var set, was unix.Sigset_t
	set.Val[0] = 1 << (unix.SIGUSR1 - 1)
	must(0, unix.PthreadSigmask(unix.SIG_BLOCK, &set, &was))
	fd := must(unix.Signalfd(-1, &set, unix.SFD_NONBLOCK))
	b := make([]byte, 128)
	a.says("SigCatch", "signalfd, nothing yet", result(unix.Read(fd, b)))
	a.says("SigCatch", "signalfd", ok(unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGUSR1)), result(unix.Read(fd, b)), b[0])
	unix.Close(fd)
	must(0, unix.PthreadSigmask(unix.SIG_SETMASK, &was, nil))
}

func pipes(a *asker) {
	p := pipe(unix.O_NONBLOCK)
	defer p.close()
	b, content := make([]byte, 100000), text(100000)
	a.says("PipeLatency", "empty", result(unix.Read(p[0], b)))
	for _, n := range []int{1, 4096, 5000} {
		sent := result(unix.Write(p[1], content[:n]))
		got, err := unix.Read(p[0], b)
		a.says("PipeLatency", fmt.Sprintf("%d bytes", n), sent, got, ok(err), sum(b[:max(got, 0)]))
	}
	a.says("PipeLatency", "more than there is room for", result(unix.Write(p[1], content)), result(unix.Write(p[1], content)))
	n, err := unix.IoctlGetInt(p[0], unix.TIOCINQ)
	a.says("PipeLatency", "in it", n, ok(err))
	got, err := unix.Read(p[0], b)
	a.says("PipeLatency", "all of it", got, ok(err), sum(b[:max(got, 0)]))
	size, err := unix.FcntlInt(uintptr(p[0]), unix.F_SETPIPE_SZ, 8000)
	a.says("PipeLatency", "smaller", size, ok(err))
	a.says("PipeLatency", "from nowhere", result(call(unix.SYS_WRITE, uintptr(p[1]), nowhere, 10)), result(call(unix.SYS_READ, uintptr(p[0]), nowhere, 10)))
	a.says("PipeLatency", "the wrong way", result(unix.Write(p[0], b)), result(unix.Read(p[1], b)))
	q := pipe(unix.O_NONBLOCK)
	must(unix.Write(p[1], content[:3000]))
	teed, err := unix.Tee(p[0], q[1], 2000, unix.SPLICE_F_NONBLOCK)
	a.says("PipeLatency", "tee", teed, ok(err))
	moved, err := unix.Splice(p[0], nil, q[1], nil, 3000, unix.SPLICE_F_NONBLOCK)
	got, _ = unix.Read(q[0], b)
	a.says("PipeLatency", "splice", moved, ok(err), sum(b[:max(got, 0)]))
	unix.Close(q[0])
	signal.Ignore(unix.SIGPIPE)
	a.says("PipeLatency", "nobody reads", result(unix.Write(q[1], b[:1])))
	signal.Reset(unix.SIGPIPE)
	unix.Close(q[1])
	a.says("PipeLatency", "pipes that cannot be", ok(unix.Pipe2(make([]int, 2), 1<<30)), result(call(unix.SYS_PIPE2, nowhere, 0)))
}

// rings pass a word around, each to the next, as processes do that have work between.
func rings(a *asker) {
	for _, size := range []int{2, 8, 16} {
		all := make([]ends, size)
		for k := range all {
			all[k] = pipe(0)
		}
		for k := 1; k < size; k++ {
			go func() {
				b := make([]byte, 1)
				for n, _ := unix.Read(all[k-1][0], b); n == 1; n, _ = unix.Read(all[k-1][0], b) {
					b[0]++
					must(unix.Write(all[k][1], b))
				}
				unix.Close(all[k][1])
			}()
		}
		b := []byte{0}
		for range 20 {
			must(unix.Write(all[0][1], b))
			must(unix.Read(all[size-1][0], b))
		}
		unix.Close(all[0][1])
		n, err := unix.Read(all[size-1][0], make([]byte, 1))
		a.says("Ctx", fmt.Sprintf("%d in a ring", size), b[0], n, ok(err))
		for _, p := range all {
			unix.Close(p[0])
		}
	}
}
