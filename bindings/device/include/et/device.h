/*
 * What a compute kernel needs from an ET-SoC-1 minion and a stock RISC-V compiler does not know:
 * all headers of the folder but et/cell.h, et/math.h and et/profile.h, for C11, C++17 and
 * preprocessed assembly.
 *
 * Vendor instructions are written by their mnemonics, which et-as translates.
 */
#ifndef ET_DEVICE_H
#define ET_DEVICE_H

#ifdef __ASSEMBLER__
#include "asm.h"
#else
#include "atomic.h"
#include "barrier.h"
#include "cache.h"
#include "hart.h"
#include "kernel.h"
#include "packed.h"
#include "print.h"
#include "scratchpad.h"
#include "tensor.h"
#include "trace.h"
#include "work.h"
#endif

#endif
