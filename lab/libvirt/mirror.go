package libvirt

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"kerninst/lab/qemu"
	"kerninst/lab/vm"
)

// mirror copies what a machine on another host writes into its run directory here, while it
// writes, so that whoever reads it need not know where it comes from.
//
// It has a connection of its own: a state or a core that goes by the machine's may take minutes, and a
// host that does not answer the mirror is taken for lost.
type mirror struct {
	files   *volumes
	dir     string
	reports []vm.Plugin // whose files are complete when the machine has ended
	over    chan struct{}
	done    chan struct{} // closed when all is here, or err is why not
	err     error
}

// mirrorInterval is how often a file that has not grown is looked at again.
const mirrorInterval = 50 * time.Millisecond

// pieceLimit bounds what is copied at once, in bytes: it has commandLimit to come.
const pieceLimit = 256 << 10

// growing are the files that are copied as they grow.
var growing = []string{qemu.ConsoleFile, qemu.ResultsFile}

// awaited are all files that a machine's QEMU writes.
func awaited(s vm.Spec) []string {
	names := append([]string{pidFile}, growing...)
	if s.Mailbox {
		names = append(names, qemu.MailboxFile)
	}
	for _, p := range s.Plugins {
		if p.Out != "" {
			names = append(names, p.Out)
		}
	}
	return names
}

// follow begins to copy. broken is called, once, when what grows cannot be copied any more.
func follow(files *volumes, s vm.Spec, broken func()) *mirror {
	m := &mirror{files: files, dir: s.Dir, over: make(chan struct{}), done: make(chan struct{})}
	for _, p := range s.Plugins {
		if p.Out != "" {
			m.reports = append(m.reports, p)
		}
	}
	go func() {
		m.err = m.copy()
		close(m.done)
		if m.err != nil {
			broken()
		}
	}()
	return m
}

// stop ends it, as far as it has come.
func (m *mirror) stop() {
	close(m.over)
	<-m.done
	m.files.close()
}

// finish copies what is left when the machine has ended.
func (m *mirror) finish() error {
	close(m.over)
	<-m.done
	defer m.files.close()
	if m.err != nil {
		return m.err
	}
	var errs []error
	for _, p := range m.reports {
		err := m.files.Fetch(context.Background(), p.Out, filepath.Join(m.dir, p.Out))
		if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// copy goes on until the machine is over and there is no more.
func (m *mirror) copy() error {
	at := make([]int64, len(growing))
	for {
		// Asked before: what was written before the end is then there to be read.
		over, grown := closed(m.over), false
		for i, name := range growing {
			n, err := m.piece(name, at[i])
			if err != nil {
				return err
			}
			at[i] += int64(n)
			grown = grown || n > 0
		}
		if over && !grown {
			return nil
		}
		if !grown {
			select {
			case <-time.After(mirrorInterval):
			case <-m.over:
			}
		}
	}
}

// piece copies what there is of a file from an offset on. The console of a machine that goes on
// from a state is here already, as far as the state.
func (m *mirror) piece(name string, from int64) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	if size, err := m.files.size(ctx, name); err != nil || size <= from {
		return 0, err
	}
	b, err := m.files.Read(ctx, name, from, pieceLimit)
	if err != nil || len(b) == 0 {
		return 0, err
	}
	f, err := os.OpenFile(filepath.Join(m.dir, name), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return 0, err
	}
	_, err = f.Write(b)
	return len(b), errors.Join(err, f.Close())
}
