package qmp

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os/exec"
	"testing"

	"github.com/digitalocean/go-qemu/qemu"
	goqemu "github.com/digitalocean/go-qemu/qmp"
	"github.com/digitalocean/go-qemu/qmp/raw"
)

// realQEMU starts a QEMU without a machine that dials us, and returns a client
// connected to it. The lab cannot do without QEMU, so neither can its tests.
func realQEMU(t *testing.T) *Client {
	t.Helper()
	sock := t.TempDir() + "/q"
	l, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cmd := exec.Command("qemu-system-x86_64", "-no-user-config", "-nodefaults",
		"-machine", "none", "-display", "none", "-S", "-qmp", "unix:"+sock)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := New(func(context.Context) (net.Conn, error) { return conn, nil }, Options{})
	t.Cleanup(func() { c.Disconnect() })
	connect(t, c)
	return c
}

func TestRealQEMU(t *testing.T) {
	c := realQEMU(t)
	if v := c.Version(); v.QEMU.Major < 7 {
		t.Errorf("version %v", v)
	}
	var schema []json.RawMessage
	if err := c.Execute(soon(t), "query-qmp-schema", nil, &schema); err != nil || len(schema) < 100 {
		t.Errorf("query-qmp-schema: %d entries, %v", len(schema), err)
	}
	var human string
	args := map[string]any{"command-line": "info version"}
	if err := c.Execute(soon(t), "human-monitor-command", args, &human); err != nil || human == "" {
		t.Errorf("human-monitor-command: %q, %v", human, err)
	}
	var refused *Error
	if err := c.Execute(soon(t), "no-such-command", nil, nil); !errors.As(err, &refused) {
		t.Errorf("err = %v, want an *Error", err)
	} else if refused.Class != "CommandNotFound" {
		t.Errorf("class = %q", refused.Class)
	}
}

func TestGoQEMUOnTop(t *testing.T) {
	c := realQEMU(t)
	r := raw.NewMonitor(c)
	status, err := r.QueryStatus()
	if err != nil || status.Running {
		t.Errorf("QueryStatus = %+v, %v", status, err)
	}
	if v, err := r.QueryVersion(); err != nil || v.Qemu.Major < 7 {
		t.Errorf("QueryVersion = %+v, %v", v, err)
	}

	d, err := qemu.NewDomain(c, "test")
	if err != nil {
		t.Fatal(err)
	}
	events, stop, err := d.Events()
	if err != nil {
		t.Fatal(err)
	}
	if s, err := d.Status(); err != nil || s != qemu.StatusPreLaunch {
		t.Errorf("Status = %v, %v", s, err)
	}
	if blocks, err := d.BlockDevices(); err != nil || len(blocks) != 0 {
		t.Errorf("BlockDevices = %v, %v", blocks, err)
	}
	if _, err := d.Run(goqemu.Command{Execute: "cont"}); err != nil {
		t.Error(err)
	}
	if e := <-events; e.Event != "RESUME" {
		t.Errorf("event %q, want RESUME", e.Event)
	}
	close(stop)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

func TestRealShutdownEventIsDelivered(t *testing.T) {
	c := realQEMU(t)
	if err := c.Execute(soon(t), "quit", nil, nil); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	events, err := c.Events(soon(t)) // subscribed only after QEMU has gone
	if err != nil {
		t.Fatal(err)
	}
	var reason any
	for e := range events {
		if e.Event == "SHUTDOWN" {
			reason = e.Data["reason"]
		}
	}
	if reason != "host-qmp-quit" {
		t.Errorf("reason = %v, want host-qmp-quit", reason)
	}
}
