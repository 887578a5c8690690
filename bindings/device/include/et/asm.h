/*
 * For preprocessed assembly: numbers, and the macros that C has as functions.
 */
#ifndef ET_ASM_H
#define ET_ASM_H

#include "csr.h"

#ifdef __ASSEMBLER__

/* A 64-bit store that needs no line of its own. */
.macro et_store_g64 value, at
    amoswapg.d x0, \value, (\at)
.endm

.macro et_hart_id rd
    csrr    \rd, ET_CSR_HARTID
.endm

/* rd = number of harts of the launch; clobbers t5 and t6. `rd` and `env` must differ. */
.macro et_harts rd, env
    ld      t5, ET_ENV_SHIRE_MASK(\env)
    li      \rd, 0
.Lharts_next_\@:
    beqz    t5, .Lharts_done_\@
    addi    t6, t5, -1
    and     t5, t5, t6
    addi    \rd, \rd, ET_HARTS_PER_SHIRE
    j       .Lharts_next_\@
.Lharts_done_\@:
    /* The master shire has only half of its harts to give. */
    ld      t5, ET_ENV_SHIRE_MASK(\env)
    srli    t5, t5, ET_MASTER_SHIRE
    andi    t5, t5, 1
    slli    t5, t5, 5
    sub     \rd, \rd, t5
.endm

/* rd = rank of this hart in the launch; clobbers t5 and t6. `rd` and `env` must differ. */
.macro et_index rd, env
    csrr    t6, ET_CSR_HARTID
    andi    \rd, t6, 63
    srli    t6, t6, 6
    addi    t5, t6, -ET_MASTER_SHIRE
    bnez    t5, .Lindex_full_\@
    addi    \rd, \rd, -32
.Lindex_full_\@:
    li      t5, 1
    sll     t5, t5, t6
    addi    t5, t5, -1
    ld      t6, ET_ENV_SHIRE_MASK(\env)
    and     t5, t5, t6
.Lindex_next_\@:
    beqz    t5, .Lindex_done_\@
    addi    t6, t5, -1
    and     t5, t5, t6
    addi    \rd, \rd, ET_HARTS_PER_SHIRE
    j       .Lindex_next_\@
.Lindex_done_\@:
.endm

#endif
#endif
