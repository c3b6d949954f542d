package wire

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestMailbox(t *testing.T) {
	for _, job := range [][]byte{{}, []byte("job"), bytes.Repeat([]byte{7}, MaxMail)} {
		mail, err := SealMail(job)
		if err != nil {
			t.Fatal(err)
		}
		box := make([]byte, MailboxSize)
		copy(box, mail)
		got, err := OpenMail(box)
		if err != nil || !bytes.Equal(got, job) {
			t.Errorf("job of %d bytes: got %d bytes, %v", len(job), len(got), err)
		}
	}
	if _, err := SealMail(make([]byte, MaxMail+1)); err == nil {
		t.Error("a job that does not fit was sealed")
	}
}

func TestMailboxRefuses(t *testing.T) {
	if _, err := OpenMail(make([]byte, MailboxSize)); !errors.Is(err, ErrNoMail) {
		t.Errorf("empty: %v", err)
	}
	for _, tt := range []struct {
		name string
		edit func(box []byte)
		says string
	}{
		{"magic", func(b []byte) { b[7]++ }, "magic"},
		{"length", func(b []byte) { b[10] = 0xff }, "a job of"},
		{"shorter", func(b []byte) { b[8]-- }, "check sum"},
		{"check", func(b []byte) { b[12]++ }, "check sum"},
		{"job", func(b []byte) { b[16]++ }, "check sum"},
	} {
		box := make([]byte, MailboxSize)
		mail, _ := SealMail([]byte("some job"))
		copy(box, mail)
		tt.edit(box)
		if job, err := OpenMail(box); err == nil || job != nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: got %q, %v", tt.name, job, err)
		}
	}
	if _, err := OpenMail(nil); err == nil {
		t.Error("no mailbox at all is none")
	}
}
