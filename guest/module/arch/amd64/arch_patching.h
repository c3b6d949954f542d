/* SPDX-License-Identifier: GPL-2.0 */
#include <asm/text-patching.h>
