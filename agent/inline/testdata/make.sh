#!/bin/sh
# Makes the files that the tests read, with Debian 13's gcc-14 for each ISA that is named.
set -e
for isa; do
	case $isa in
	amd64) gnu=x86_64 flag=-mcmodel=kernel ;;
	arm64) gnu=aarch64 flag=-mgeneral-regs-only ;;
	riscv64) gnu=riscv64 flag=-mcmodel=medany ;;
	esac
	"$gnu-linux-gnu-gcc-14" -O2 -gdwarf-5 "$flag" -ffreestanding -fno-pie -fno-stack-protector \
		-fno-asynchronous-unwind-tables "-ffile-prefix-map=$PWD=." -static -nostdlib -no-pie \
		-Wl,--build-id=sha1,-T,fixture.lds,-e,first,--no-warn-rwx-segments,-z,max-page-size=4096,-z,noseparate-code \
		-o "$isa.elf" fixture.c
	chmod -x "$isa.elf"
done
