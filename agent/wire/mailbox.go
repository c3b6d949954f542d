package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// The mailbox is memory that host and guest share, a PCI device to the guest.
// The host writes one job into it while the guest's CPUs are stopped. All
// numbers are little-endian:
//
//	0   magic   8 bytes
//	8   length  4 bytes, of the job
//	12  check   4 bytes, CRC-32 (IEEE) of the job
//	16  job     length bytes, a marshalled Job
//
// The last byte is the guest's: it sets it just before it looks. A state that is
// to get mail has it clear.
const (
	MailboxSize   = 1 << 20
	MailboxVendor = 0x1af4 // PCI: Red Hat
	MailboxDevice = 0x1110 // shared memory; QEMU docs/specs/ivshmem-spec
	MailboxBAR    = 2

	mailboxMagic  = 0x31626f4a_74736e69 // "instJob1"
	mailboxHeader = 16

	// MailboxLooked is the offset of the guest's byte.
	MailboxLooked = MailboxSize - 1
)

// The watchdog stops a machine whose guest waits for mail: PCI numbers of Intel's
// 6300ESB, as QEMU has it.
const (
	WatchdogVendor = 0x8086
	WatchdogDevice = 0x25ab
)

// MaxMail is the longest job that fits, in bytes.
const MaxMail = MailboxLooked - mailboxHeader

// ErrNoMail says that nobody has written anything.
var ErrNoMail = errors.New("the mailbox is empty")

// SealMail is what the host writes at the beginning of the mailbox.
func SealMail(job []byte) ([]byte, error) {
	if len(job) > MaxMail {
		return nil, fmt.Errorf("a job of %d bytes: the mailbox holds %d", len(job), MaxMail)
	}
	b := make([]byte, mailboxHeader, mailboxHeader+len(job))
	binary.LittleEndian.PutUint64(b, mailboxMagic)
	binary.LittleEndian.PutUint32(b[8:], uint32(len(job)))
	binary.LittleEndian.PutUint32(b[12:], crc32.ChecksumIEEE(job))
	return append(b, job...), nil
}

// OpenMail returns a copy of the job in the mailbox.
func OpenMail(box []byte) ([]byte, error) {
	if len(box) < mailboxHeader {
		return nil, fmt.Errorf("a mailbox of %d bytes: want %d", len(box), MailboxSize)
	}
	magic := binary.LittleEndian.Uint64(box)
	n := binary.LittleEndian.Uint32(box[8:])
	sum := binary.LittleEndian.Uint32(box[12:])
	switch {
	case magic == 0:
		return nil, ErrNoMail
	case magic != mailboxMagic:
		return nil, fmt.Errorf("mailbox: magic %#x, want %#x: lab and daemon must come from the same build", magic, uint64(mailboxMagic))
	case int64(n) > int64(len(box)-mailboxHeader):
		return nil, fmt.Errorf("mailbox: a job of %d bytes in a box of %d", n, len(box))
	}
	job := append([]byte(nil), box[mailboxHeader:mailboxHeader+int(n)]...)
	if got := crc32.ChecksumIEEE(job); got != sum {
		return nil, fmt.Errorf("mailbox: check sum %#x, want %#x", got, sum)
	}
	return job, nil
}
