#!/bin/sh
# Makes the files that the tests read, with Debian 13's gcc-14 for each ISA that is named: a kernel, and a module.
set -e
for isa; do
	relax=
	case $isa in
	amd64) gnu=x86_64 flag=-mcmodel=kernel ;;
	arm64) gnu=aarch64 flag=-mgeneral-regs-only ;;
	riscv64) gnu=riscv64 flag=-mcmodel=medany relax=-Wa,-mno-relax ;; # as modules are made
	esac
	common="-O2 -gdwarf-5 $flag -ffreestanding -fno-pie -fno-stack-protector -fno-asynchronous-unwind-tables -ffile-prefix-map=$PWD=."
	"$gnu-linux-gnu-gcc-14" $common -static -nostdlib -no-pie \
		-Wl,--build-id=sha1,-T,fixture.lds,-e,first,--no-warn-rwx-segments,-z,max-page-size=4096,-z,noseparate-code \
		-o "$isa.elf" fixture.c
	chmod -x "$isa.elf"
	for c in fixture module; do
		"$gnu-linux-gnu-gcc-14" $common $relax -c -o "$c.o" "$c.c"
	done
	"$gnu-linux-gnu-ld" -r --build-id=sha1 -o "$isa.ko" fixture.o module.o
	rm fixture.o module.o
done
