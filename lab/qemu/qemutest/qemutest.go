// Package qemutest makes guests of a few dozen bytes, so that the lab can be
// tested against a real QEMU for each ISA in a fraction of a second and without
// any image: they print a text on the console and then end in a chosen way.
package qemutest

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Act is what a guest does after its text.
type Act string

const (
	PowerOff Act = "power off"
	Reset    Act = "reset"
	Hang     Act = "hang"
)

// textAt is where the text lies in every image, in bytes from its start. The
// code before it is padded with zeros, the text ends with one.
const textAt = 0x100

// guest is the code for one ISA, in hexadecimal, with blanks and comments.
type guest struct {
	print string
	acts  map[Act]string
}

var guests = map[string]guest{
	// A multiboot image with its address fields set: loaded at 1 MiB and entered
	// at byte 32 in 32-bit mode. Multiboot Specification 0.6.96 §3.1.
	"amd64": {
		print: `
			02b0ad1b 00000100 fe4f51e4 ; magic, flags, checksum
			00001000 00001000 00000000 00000000 20001000 ; header, load, load end, bss end, entry
			be00011000 ; mov $0x100100, %esi
			66baf803   ; mov $0x3f8, %dx      COM1
			ac         ; 1: lodsb
			84c0       ; test %al, %al
			7403       ; jz 2f
			ee         ; out %al, %dx
			ebf8       ; jmp 1b`,
		acts: map[Act]string{
			PowerOff: `
				66ba0406 ; 2: mov $0x604, %dx     ACPI PM1a control, where SeaBIOS puts it
				66b80020 ; mov $0x2000, %ax       SLP_EN, SLP_TYP 0
				66ef     ; out %ax, %dx
				f4 ebfd  ; 3: hlt; jmp 3b`,
			Reset: `
				b0fe     ; 2: mov $0xfe, %al
				e664     ; out %al, $0x64         keyboard controller: pulse the reset line
				f4 ebfd  ; 3: hlt; jmp 3b`,
			Hang: `f4 ebfd ; 2: hlt; jmp 2b`,
		},
	},
	// A raw image, entered at its start with the MMU off.
	"arm64": {
		print: `
			01080010 ; adr x1, .+0x100
			0220a1d2 ; mov x2, #0x9000000     PL011
			23144038 ; 1: ldrb w3, [x1], #1
			63000034 ; cbz w3, 2f
			43000039 ; strb w3, [x2]
			fdffff17 ; b 1b`,
		acts: map[Act]string{
			PowerOff: `
				00018052 0080b072 ; 2: mov w0, #0x84000008   PSCI SYSTEM_OFF, DEN0022 §5.1
				020000d4 ; hvc #0
				00000014 ; b .`,
			Reset: `
				20018052 0080b072 ; 2: mov w0, #0x84000009   PSCI SYSTEM_RESET
				020000d4 ; hvc #0
				00000014 ; b .`,
			Hang: `00000014 ; 2: b .`,
		},
	},
	// A raw image, entered at its start in S-mode above OpenSBI.
	"riscv64": {
		print: `
			97040000 ; auipc s1, 0
			93840410 ; addi s1, s1, 0x100
			03c50400 ; 1: lbu a0, 0(s1)
			630a0500 ; beqz a0, 2f
			93081000 ; li a7, 1               SBI console putchar
			73000000 ; ecall
			93841400 ; addi s1, s1, 1
			6ff0dffe ; j 1b`,
		acts: map[Act]string{
			PowerOff: srst + `
				13050000 ; li a0, 0               shutdown
				73000000 ; ecall
				6f000000 ; j .`,
			Reset: srst + `
				13051000 ; li a0, 1               cold reboot
				73000000 ; ecall
				6f000000 ; j .`,
			Hang: `6f000000 ; 2: j .`,
		},
	},
}

// srst readies a call of the SBI system reset extension, SBI 2.0 §11.
const srst = `
	b7585253 9b884835 ; 2: li a7, 0x53525354
	13080000 ; li a6, 0
	93050000 ; li a1, 0               no reason
`

// Kernel writes the image of a guest for an ISA and returns its path.
func Kernel(t testing.TB, arch, text string, act Act) string {
	t.Helper()
	g, ok := guests[arch]
	if !ok {
		t.Fatalf("no guest for %s", arch)
	}
	image := make([]byte, textAt, textAt+len(text)+1)
	if n := copy(image, assemble(t, g.print+"\n"+g.acts[act])); n >= textAt {
		t.Fatalf("the code for %s is too long", arch)
	}
	image = append(image, text...)
	return write(t, "kernel", append(image, 0))
}

// Initrd writes an initramfs that nobody reads.
func Initrd(t testing.TB) string {
	t.Helper()
	return write(t, "initrd", make([]byte, 512))
}

func write(t testing.TB, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func assemble(t testing.TB, listing string) []byte {
	t.Helper()
	var digits strings.Builder
	for line := range strings.Lines(listing) {
		code, _, _ := strings.Cut(line, ";")
		digits.WriteString(strings.Join(strings.Fields(code), ""))
	}
	b, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatal(err)
	}
	return b
}
