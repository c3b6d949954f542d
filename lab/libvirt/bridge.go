package libvirt

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"sync"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"kerninst/lab/qmp"
)

// commandLimit bounds one command to QEMU.
const commandLimit = 10 * time.Second

// bridge speaks QMP on a pipe and libvirt's monitor passthrough behind it, so
// that a qmp.Client on the pipe is the monitor of a domain with all that it is
// for a local QEMU: deadlines, refusals with their class, events kept for late
// readers.
type bridge struct {
	conn *conn
	dom  golibvirt.Domain
	pipe net.Conn // our end

	mu sync.Mutex // held while a line is written
}

// newBridge returns a bridge and a client that will connect through it.
func newBridge(c *conn, dom golibvirt.Domain) (*bridge, *qmp.Client) {
	ours, theirs := net.Pipe()
	b := &bridge{conn: c, dom: dom, pipe: ours}
	client := qmp.New(func(context.Context) (net.Conn, error) {
		go b.serve()
		return theirs, nil
	}, qmp.Options{Timeout: commandLimit})
	return b, client
}

// close ends the client's connection.
func (b *bridge) close() { b.pipe.Close() }

// serve greets as QEMU does and answers commands until either side ends.
func (b *bridge) serve() {
	defer b.close()
	version, err := b.run(`{"execute":"query-version"}`)
	if err != nil || b.write(map[string]any{"QMP": map[string]any{"version": version["return"], "capabilities": []string{}}}) != nil {
		return
	}
	for r := bufio.NewReader(b.pipe); ; {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return
		}
		reply, err := b.answer(line)
		if err != nil || b.write(reply) != nil {
			return
		}
	}
}

// answer does one command. The id is taken out on the way there, since libvirt
// puts in one of its own.
func (b *bridge) answer(line []byte) (map[string]any, error) {
	var cmd map[string]json.RawMessage
	if err := json.Unmarshal(line, &cmd); err != nil {
		return nil, err
	}
	id := cmd["id"]
	delete(cmd, "id")
	if string(cmd["execute"]) == `"qmp_capabilities"` { // libvirt has done so
		return map[string]any{"return": struct{}{}, "id": id}, nil
	}
	stripped, err := json.Marshal(cmd)
	if err != nil {
		return nil, err
	}
	answer, err := b.run(string(stripped))
	if err != nil {
		return nil, err
	}
	reply := map[string]any{"id": id}
	for _, key := range []string{"return", "error"} {
		if v, ok := answer[key]; ok {
			reply[key] = v
		}
	}
	return reply, nil
}

// run passes a command through.
func (b *bridge) run(cmd string) (map[string]json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	text, err := call(ctx, b.conn, "monitor command", func(l *golibvirt.Libvirt) (string, error) {
		return l.QEMUDomainMonitorCommand(b.dom, cmd, 0)
	})
	if err != nil {
		return nil, err
	}
	var answer map[string]json.RawMessage
	return answer, json.Unmarshal([]byte(text), &answer)
}

// event passes one of QEMU's events on.
func (b *bridge) event(e golibvirt.DomainEvent) error {
	line := map[string]any{
		"event":     e.Event,
		"timestamp": map[string]uint64{"seconds": e.Seconds, "microseconds": uint64(e.Microseconds)},
	}
	if json.Valid(e.Details) {
		line["data"] = json.RawMessage(e.Details)
	}
	return b.write(line)
}

func (b *bridge) write(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_, err = b.pipe.Write(append(line, '\n'))
	return err
}
