/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The BPF target has no architecture headers of its own; the generic ones hold. */
#include <asm-generic/types.h>
