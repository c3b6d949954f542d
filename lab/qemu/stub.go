package qemu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// QEMU's stub for gdb speaks gdb's remote serial protocol (gdb's manual, appendix E): packets are
// $DATA#SUM, SUM being the sum of the data's bytes, and each is acknowledged by "+". Nobody need
// be there to speak with: the stub reads what is asked out of a file and answers into another,
// wherever QEMU is (Files), and takes the next request for word that the last answer has come
// (gdbstub.c, gdb_read_byte).

// Names in the run directory of what the stub is asked, and of what it answers.
const (
	askedFile    = "gdb.asked"
	answeredFile = "gdb.answered"
)

// stubChardev is what QEMU calls the two.
const stubChardev = "asked"

const (
	// stubLimit bounds what is answered, in bytes.
	stubLimit = 1 << 20
	// stubInterval is how often the answers are looked at.
	stubInterval = 5 * time.Millisecond
)

// packet is a request as the stub reads it.
func packet(request string) string {
	sum := byte(0)
	for _, c := range []byte(request) {
		sum += c
	}
	return fmt.Sprintf("+$%s#%02x", request, sum)
}

// stub has a machine that is stopped answer requests, in their order. What is asked for here has
// no bytes that would be escaped.
func (z Freezer) stub(ctx context.Context, script []string) (replies []string, err error) {
	if err := z.giveScript(ctx, script); err != nil {
		return nil, err
	}
	if err := z.Files.Await(ctx, answeredFile); err != nil {
		return nil, err
	}
	backend := object{"type": "file", "data": object{"in": z.Files.At(askedFile), "out": z.Files.At(answeredFile)}}
	if err := z.Monitor.Execute(ctx, "chardev-add", object{"id": stubChardev, "backend": backend}, nil); err != nil {
		return nil, err
	}
	inside := Inside{Monitor: z.Monitor, Files: z.Files}
	defer func() {
		_, off := inside.human(ctx, "gdbserver none") // which removes the chardev as well
		err = errors.Join(err, off, z.Files.Remove(ctx, askedFile), z.Files.Remove(ctx, answeredFile))
	}()
	if said, err := inside.human(ctx, "gdbserver chardev:"+stubChardev); err != nil {
		return nil, fmt.Errorf("%w: %s", err, said)
	}
	return z.awaitReplies(ctx, len(script))
}

// giveScript gives QEMU what the stub is to be asked.
func (z Freezer) giveScript(ctx context.Context, script []string) error {
	var all strings.Builder
	for _, request := range script {
		all.WriteString(packet(request))
	}
	return z.Files.Give(ctx, askedFile, []byte(all.String()))
}

// awaitReplies returns when that many requests have been answered.
func (z Freezer) awaitReplies(ctx context.Context, n int) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, jobLimit)
	defer cancel()
	for {
		said, err := z.Files.Read(ctx, answeredFile, 0, stubLimit)
		if err != nil {
			return nil, fmt.Errorf("gdb's stub: %w", err)
		}
		replies, err := packets(said)
		if err != nil || len(replies) >= n {
			return replies, err
		}
		select {
		case <-time.After(stubInterval):
		case <-ctx.Done():
			return nil, fmt.Errorf("gdb's stub answered %d requests of %d: %w", len(replies), n, ctx.Err())
		}
	}
}

// packets are the whole packets that were said so far.
func packets(said []byte) (replies []string, err error) {
	for {
		begin := bytes.IndexByte(said, '$')
		end := bytes.IndexByte(said, '#')
		if begin < 0 || end < 0 || len(said) < end+3 {
			return replies, nil
		}
		if begin > end {
			return nil, fmt.Errorf("gdb's stub: %.40q begins no packet", said)
		}
		reply := string(said[begin+1 : end])
		if whole := packet(reply)[1:]; whole != string(said[begin:end+3]) {
			return nil, fmt.Errorf("gdb's stub: a packet ends with %q: %.40q", said[end:end+3], reply)
		}
		replies, said = append(replies, reply), said[end+3:]
	}
}
