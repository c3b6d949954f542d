package main

import (
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

func unixSockets(a *asker) {
	pair(a, "stream", unix.SOCK_STREAM)
	pair(a, "datagrams", unix.SOCK_DGRAM)
	pair(a, "packets", unix.SOCK_SEQPACKET)
	fd := must(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0))
	to := &unix.SockaddrUnix{Name: a.path("socket")}
	a.says("UnixLatency", "connect to nobody", ok(unix.Connect(fd, to)))
	a.says("UnixLatency", "bind", ok(unix.Bind(fd, to)), ok(unix.Bind(fd, to)), ok(unix.Listen(fd, 1)))
	other := must(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0))
	a.says("UnixLatency", "connect", ok(unix.Connect(other, to)), ok(unix.Connect(other, to)))
	here, _, err := unix.Accept(fd)
	a.says("UnixLatency", "accept", ok(err), result(unix.Write(other, []byte("hello"))))
	cred, err := unix.GetsockoptUcred(here, unix.SOL_SOCKET, unix.SO_PEERCRED)
	a.says("UnixLatency", "who is there", ok(err), int(cred.Pid) == os.Getpid(), cred.Uid)
	for _, fd := range []int{fd, other, here} {
		unix.Close(fd)
	}
	a.says("UnixLatency", "sockets that cannot be", result(unix.Socket(99, 1, 0)), result(unix.Socket(unix.AF_UNIX, 99, 0)))
}

func pair(a *asker, name string, kind int) {
	s := must(unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_NONBLOCK, 0))
	b, content := make([]byte, 10000), text(5000)
	a.says("UnixLatency", name+", nothing yet", result(unix.Read(s[0], b)))
	a.says("UnixLatency", name+", sent", result(unix.Write(s[1], content)), result(unix.Write(s[1], content[:7])))
	n, _, err := unix.Recvfrom(s[0], b, unix.MSG_PEEK)
	a.says("UnixLatency", name+", looked at", n, ok(err), sum(b[:max(n, 0)]))
	n, err = unix.Read(s[0], b)
	a.says("UnixLatency", name+", read", n, ok(err), sum(b[:max(n, 0)]))
	file := must(unix.Open("/dev/zero", unix.O_RDONLY, 0))
	a.says("UnixLatency", name+", a file sent", ok(unix.Sendmsg(s[0], []byte("f"), unix.UnixRights(file), nil, 0)))
	unix.Close(file)
	oob := make([]byte, 100)
	n, m, flags, _, err := unix.Recvmsg(s[1], b, oob, unix.MSG_CMSG_CLOEXEC)
	a.says("UnixLatency", name+", with a file", n, m > 0, flags, ok(err))
	if c, err := unix.ParseSocketControlMessage(oob[:m]); err == nil && len(c) == 1 {
		fds, _ := unix.ParseUnixRights(&c[0])
		a.says("UnixLatency", name+", that file", len(fds), result(unix.Read(fds[0], b[:10])))
		unix.Close(fds[0])
	}
	a.says("UnixLatency", name+", from nowhere", result(call(unix.SYS_WRITE, uintptr(s[0]), nowhere, 10)))
	a.says("UnixLatency", name+", shut", ok(unix.Shutdown(s[0], unix.SHUT_WR)), ok(unix.Shutdown(s[0], 77)))
	a.says("UnixLatency", name+", sent then", ok(unix.Sendto(s[0], content, unix.MSG_NOSIGNAL, nil)))
	n, err = unix.Read(s[1], b)
	a.says("UnixLatency", name+", read then", n, ok(err))
	unix.Close(s[0])
	unix.Close(s[1])
}

// tcp asks of connections to itself.
func tcp(a *asker) {
	l := must(net.Listen("tcp4", "127.0.0.1:0"))
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			go func() {
				io.Copy(c, c)
				c.Close()
			}()
		}
	}()
	c := must(net.Dial("tcp4", l.Addr().String()))
	b := make([]byte, 60000)
	for _, n := range []int{1, 100, 60000} {
		sent, err := c.Write(text(n))
		got, err2 := io.ReadFull(c, b[:n])
		a.says("TCPLatency", fmt.Sprintf("%d bytes and back", n), sent, ok(err), got, ok(err2), sum(b[:n]))
	}
	raw := must(c.(*net.TCPConn).SyscallConn())
	raw.Control(func(fd uintptr) {
		on, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY)
		a.says("TCPLatency", "options", on, ok(err), ok(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, 9999, 1)))
		_, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, 9999)
		a.says("TCPLatency", "options that there are not", ok(err), result(call(unix.SYS_WRITE, fd, nowhere, 10)))
	})
	c.(*net.TCPConn).CloseWrite()
	n, err := c.Read(b)
	a.says("TCPLatency", "ended", n, ok(err))
	c.Close()
	l.Close()
	_, err = net.Dial("tcp4", l.Addr().String())
	a.says("TCPLatency", "nobody listens", refused(err))
	u := must(net.ListenPacket("udp4", "127.0.0.1:0"))
	us := must(net.Dial("udp4", u.LocalAddr().String()))
	_, err = us.Write(text(1400))
	n, _, err2 := u.ReadFrom(b)
	a.says("TCPLatency", "a datagram", ok(err), n, ok(err2), sum(b[:n]))
	us.Close()
	u.Close()
}

// refused is an error without the address that it names.
func refused(err error) any {
	if err == nil {
		return "ok"
	}
	return word(err)
}

// streams are a megabyte by each way.
func streams(a *asker) {
	const size = 1 << 20
	content := text(size)
	p := pipe(0)
	s := must(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0))
	for _, way := range []struct {
		name     string
		from, to int
	}{{"PipeStream", p[0], p[1]}, {"UnixStream", s[0], s[1]}} {
		to := os.NewFile(uintptr(way.to), way.name)
		go func() {
			to.Write(content)
			to.Close()
		}()
		from := os.NewFile(uintptr(way.from), way.name)
		got, err := io.ReadAll(from)
		a.says(way.name, "a megabyte", sum(got), ok(err))
		from.Close()
	}
	l := must(net.Listen("tcp4", "127.0.0.1:0"))
	go func() {
		c := must(l.Accept())
		c.Write(content)
		c.Close()
	}()
	c := must(net.Dial("tcp4", l.Addr().String()))
	got, err := io.ReadAll(c)
	a.says("TCPStream", "a megabyte", sum(got), ok(err))
	c.Close()
	l.Close()
}
