package runner

import (
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kerninst/agent/wire"
	"kerninst/lab/qemu"
)

// Names of the files that make a boot by hand: what comes behind the image's own
// initramfs, and what lies in the mailbox. They are compressed, since most of them
// is filler, and in base64, since people look into all of a run's files.
const (
	argvFile = "qemu.argv"
	jobFile  = "boot.job"
	mailFile = "boot.mail"
)

// byHand writes into the folder to what a boot of the guest needs beside the
// image, and returns a command for a shell that boots it, in a new folder. A guest
// that went on from a state boots from the start and finds the same mail.
func (r *Runner) byHand(g *Guest, to string) (string, error) {
	argv := qemu.ByHand(g.Outcome.Argv)
	at := slices.Index(argv, "-initrd") + 1
	if at == 0 || at == len(argv) {
		return qemu.Quote(argv), nil // QEMU was not even described
	}
	argv[at] = "initrd"
	to, err := filepath.Abs(to)
	if err != nil {
		return "", err
	}
	job, err := marshal(g.Request.Job)
	if err != nil {
		return "", err
	}
	steps := []string{`cd "$(mktemp -d)"`}
	boot := job
	if r.fromGolden(g.Request) {
		boot = nil
		file := filepath.Join(to, mailFile)
		mail, err := wire.SealMail(job)
		if err == nil {
			err = pack(file, func(w io.Writer) error { _, err := w.Write(mail); return err })
		}
		if err != nil {
			return "", err
		}
		steps = append(steps, unpack(file)+" >mailbox", fmt.Sprintf("truncate -s %d mailbox", wire.MailboxSize))
	}
	file := filepath.Join(to, jobFile)
	if err := pack(file, func(w io.Writer) error { return r.Image.WriteJob(w, boot, g.Request.Files...) }); err != nil {
		return "", err
	}
	steps = append(steps, fmt.Sprintf("{ %s && %s; } >initrd", qemu.Quote([]string{"cat", r.Image.Base}), unpack(file)), qemu.Quote(argv))
	return "(" + strings.Join(steps, " && ") + ")", nil
}

// pack writes a file that unpack's command turns back into what write writes.
func pack(file string, write func(io.Writer) error) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	text := base64.NewEncoder(base64.StdEncoding, f)
	z, err := gzip.NewWriterLevel(text, gzip.BestSpeed)
	if err == nil {
		err = errors.Join(write(z), z.Close(), text.Close())
	}
	return errors.Join(err, f.Close())
}

func unpack(file string) string {
	return qemu.Quote([]string{"base64", "-d", file}) + " | gzip -dc"
}
