/*
 * The tensor unit of a minion; only its thread 0 may use it. Spec: ISA §3.8
 *
 * Every operation is started by one write to a control register, from the fields of a struct: what
 * is left out is 0. It goes on while the hart does; et_tensor_wait waits. The matrix C of a
 * multiply is in the float registers: columns 0 to 7 of row i in f[2i], 8 to 15 in f[2i + 1]. The
 * compiler does not know that: a function that multiplies must not use floats of its own in
 * between, and names the registers as clobbered, as ET_TENSOR_CLOBBER does.
 *
 *     et_tensor_load((struct et_tensor_load_args){.from = a, .stride = 64, .rows = 16});
 *     et_tensor_wait(ET_WAIT_LOAD_0);
 *
 * Errors are bits of et_tensor_error (cache.h). The et_..._word functions only build the words.
 */
#ifndef ET_TENSOR_H
#define ET_TENSOR_H

#include "scratchpad.h"

enum et_tensor_event {
    ET_WAIT_LOAD_0 = 0,
    ET_WAIT_LOAD_1 = 1,
    ET_WAIT_LOAD_L2_0 = 2,
    ET_WAIT_LOAD_L2_1 = 3,
    ET_WAIT_FMA = 7,
    ET_WAIT_STORE = 8,
    ET_WAIT_REDUCE = 9,
    ET_WAIT_QUANT = 10
};

/* Waits until the operations of that kind are done. */
#define et_tensor_wait(event) ET_CSR_WRITE(ET_CSR_TENSOR_WAIT, (event))

/* Says to the compiler that the float registers hold something else now. */
#define ET_TENSOR_CLOBBER()                                                                       \
    __asm__ volatile("" : : : "f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7", "f8", "f9", "f10",  \
                     "f11", "f12", "f13", "f14", "f15", "f16", "f17", "f18", "f19", "f20", "f21", \
                     "f22", "f23", "f24", "f25", "f26", "f27", "f28", "f29", "f30", "f31",        \
                     "memory")

/* `value` in the bits from `low` on, `count` of them. */
ET_INLINE uint64_t et_field(uint64_t value, unsigned low, unsigned count)
{
    return (value & (((uint64_t)1 << count) - 1)) << low;
}

/* A line address, or a stride between lines. */
ET_INLINE uint64_t et_line_field(uint64_t address)
{
    return address & 0xffffffffffc0;
}

/* ---- masks ---------------------------------------------------------------------------------- */

/* Which of 16 rows the masked operations do. */
ET_INLINE void et_tensor_mask(uint16_t rows)
{
    ET_CSR_WRITE(ET_CSR_TENSOR_MASK, rows);
}

/*
 * Makes the mask of a convolution: row i is done if the point i, which starts at (row, column) and
 * goes on by the steps, lies inside of rows times columns.
 */
struct et_tensor_conv_args {
    int8_t row_step, column_step;
    uint16_t rows, columns;
    int16_t row, column;
};

ET_INLINE void et_tensor_conv(struct et_tensor_conv_args how)
{
    ET_CSR_WRITE(ET_CSR_TENSOR_CONV_SIZE,
                 et_field((uint64_t)how.row_step, 56, 8) | et_field(how.rows, 32, 16) |
                     et_field((uint64_t)how.column_step, 24, 8) | et_field(how.columns, 0, 16));
    ET_CSR_WRITE(ET_CSR_TENSOR_CONV_CTRL,
                 et_field((uint64_t)how.row, 32, 16) | et_field((uint64_t)how.column, 0, 16));
}

/* Which minions load together: a group's number, minions and neighbourhoods that are in it. */
ET_INLINE void et_tensor_coop(unsigned group, unsigned minions, unsigned neighbourhoods)
{
    ET_CSR_WRITE(ET_CSR_TENSOR_COOP, et_field(group, 0, 5) | et_field(minions, 8, 8) |
                                         et_field(neighbourhoods, 16, 4));
}

/* ---- loads ---------------------------------------------------------------------------------- */

enum et_tensor_layout {
    ET_LAYOUT_PLAIN = 0,
    ET_LAYOUT_INTERLEAVE8 = 1,
    ET_LAYOUT_INTERLEAVE16 = 2,
    ET_LAYOUT_TRANSPOSE8 = 5,
    ET_LAYOUT_TRANSPOSE16 = 6,
    ET_LAYOUT_TRANSPOSE32 = 7
};

struct et_tensor_load_args {
    const void *from; /* a multiple of 64 */
    uint64_t stride;  /* between rows in memory, a multiple of 64 */
    unsigned rows;    /* lines that are written, 1..16 */
    unsigned line;    /* first of them in the L1 scratchpad, 0..47 */
    unsigned layout;  /* ET_LAYOUT_... */
    unsigned offset;  /* 16-byte part of a row that is taken, 0..3, unless plain */
    unsigned id;      /* 0 or 1: what is waited for */
    unsigned masked;  /* 1: only rows of the mask */
    unsigned coop;    /* 1: with the minions of et_tensor_coop */
    unsigned to_b;    /* 1: into TenB, for the multiply that comes next; plain, not masked */
};

ET_INLINE uint64_t et_tensor_load_word(struct et_tensor_load_args how)
{
    return et_field(how.masked, 63, 1) | et_field(how.coop, 62, 1) | et_field(how.layout, 59, 3) |
           et_field(how.line, 53, 6) | et_field(how.to_b, 52, 1) |
           et_line_field((uintptr_t)how.from) | et_field(how.offset, 4, 2) |
           et_field(how.rows - 1, 0, 4);
}

/* Loads into the L1 scratchpad, or into TenB. */
ET_INLINE void et_tensor_load(struct et_tensor_load_args how)
{
    ET_CSR_START(ET_CSR_TENSOR_LOAD, et_tensor_load_word(how),
                 et_line_field(how.stride) | et_field(how.id, 0, 1));
}

struct et_tensor_load_l2_args {
    const void *from; /* a multiple of 64 */
    uint64_t stride;  /* between rows in memory, a multiple of 64 */
    unsigned rows;    /* 1..16 */
    unsigned line;    /* first in the shire's L2 scratchpad, of 64 bytes each */
    unsigned id;      /* 0 or 1: what is waited for */
    unsigned masked;  /* 1: only rows of the mask */
};

ET_INLINE uint64_t et_tensor_load_l2_word(struct et_tensor_load_l2_args how)
{
    return et_field(how.masked, 63, 1) | et_field(how.line >> 2, 48, 15) |
           et_line_field((uintptr_t)how.from) | et_field(how.line, 4, 2) |
           et_field(how.rows - 1, 0, 4);
}

/* Copies rows of 64 bytes into the L2 scratchpad of the own shire. Both threads may do that. */
ET_INLINE void et_tensor_load_l2(struct et_tensor_load_l2_args how)
{
    ET_CSR_START(ET_CSR_TENSOR_LOAD_L2, et_tensor_load_l2_word(how),
                 et_line_field(how.stride) | et_field(how.id, 0, 1));
}

/* ---- multiply ------------------------------------------------------------------------------- */

enum et_tensor_type { ET_TENSOR_FP32 = 0, ET_TENSOR_FP16 = 1, ET_TENSOR_INT8 = 3 };

struct et_tensor_fma_args {
    unsigned type;       /* ET_TENSOR_... */
    unsigned rows;       /* of A and C, 1..16 */
    unsigned columns;    /* of B and C: 4, 8, 12 or 16 */
    unsigned depth;      /* columns of A, rows of B, 1..16; words: pairs of fp16, fours of int8 */
    unsigned a_line;     /* first line of A in the L1 scratchpad */
    unsigned a_offset;   /* first column of A that is used, in words */
    unsigned b_line;     /* first line of B, unless it is in TenB */
    unsigned b_in_ten_b; /* 1: B was loaded with to_b */
    unsigned first;      /* 1: C = A * B; 0: C += A * B */
    unsigned masked;     /* 1: only rows of the mask */
    unsigned a_unsigned; /* int8 */
    unsigned b_unsigned; /* int8 */
    unsigned to_floats;  /* int8: 1 leaves C in the float registers, 0 in TenC */
};

ET_INLINE uint64_t et_tensor_fma_word(struct et_tensor_fma_args how)
{
    return et_field(how.masked, 63, 1) | et_field(how.columns / 4 - 1, 55, 2) |
           et_field(how.rows - 1, 51, 4) | et_field(how.depth - 1, 47, 4) |
           et_field(how.a_offset, 43, 4) | et_field(how.to_floats, 23, 1) |
           et_field(how.b_unsigned, 22, 1) | et_field(how.a_unsigned, 21, 1) |
           et_field(how.b_in_ten_b, 20, 1) | et_field(how.b_line, 12, 6) |
           et_field(how.a_line, 4, 6) | et_field(how.type, 1, 3) | et_field(how.first, 0, 1);
}

#define et_tensor_fma(...) ET_CSR_WRITE(ET_CSR_TENSOR_FMA, et_tensor_fma_word(__VA_ARGS__))

/* ---- quantise ------------------------------------------------------------------------------- */

enum et_tensor_step {
    ET_QUANT_END = 0,
    ET_QUANT_I32_TO_F32 = 1,
    ET_QUANT_F32_TO_I32 = 2,
    ET_QUANT_RELU = 3,
    ET_QUANT_ADD_ROW = 4,
    ET_QUANT_ADD_COLUMN = 5,
    ET_QUANT_MUL_ROW = 6,
    ET_QUANT_MUL_COLUMN = 7,
    ET_QUANT_CLAMP_I8 = 8,
    ET_QUANT_CLAMP_U8 = 9,
    ET_QUANT_PACK = 10
};

struct et_tensor_quant_args {
    uint64_t steps;    /* up to ten ET_QUANT_..., 4 bits each, the first in the lowest */
    unsigned line;     /* of the first vector in the L1 scratchpad; each takes one */
    unsigned rows;     /* 1..16 */
    unsigned columns;  /* 4, 8, 12 or 16 */
    unsigned register_; /* first float register, 0..31 */
};

ET_INLINE uint64_t et_tensor_quant_word(struct et_tensor_quant_args how)
{
    return et_field(how.register_, 57, 5) | et_field(how.columns / 4 - 1, 55, 2) |
           et_field(how.rows - 1, 51, 4) | et_field(how.line, 45, 6) | et_field(how.steps, 0, 40);
}

#define et_tensor_quant(...) ET_CSR_WRITE(ET_CSR_TENSOR_QUANT, et_tensor_quant_word(__VA_ARGS__))

/* ---- stores --------------------------------------------------------------------------------- */

struct et_tensor_store_args {
    void *to;           /* a multiple of the bytes of a row */
    uint64_t stride;    /* between rows in memory, a multiple of 16 */
    unsigned rows;      /* 1..16 */
    unsigned chunks;    /* of 16 bytes in a row: 1, 2 or 4 */
    unsigned register_; /* first float register, 0..31 */
    unsigned step;      /* from register to register, 1..4 */
    unsigned minions;   /* that store together: 1, 2 or 4; chunks * minions is 4 at most */
};

ET_INLINE uint64_t et_tensor_store_word(struct et_tensor_store_args how)
{
    return et_field(how.step - 1, 62, 2) | et_field(how.register_, 57, 5) |
           et_field(how.chunks - 1, 55, 2) | et_field(how.rows - 1, 51, 4) |
           et_field(how.minions - 1, 49, 2) | ((uintptr_t)how.to & 0xfffffffffff0);
}

/* Stores from the float registers. */
ET_INLINE void et_tensor_store(struct et_tensor_store_args how)
{
    ET_CSR_START(ET_CSR_TENSOR_STORE, et_tensor_store_word(how), how.stride & 0xfffffffffff0);
}

struct et_tensor_store_lines_args {
    void *to;        /* a multiple of 64 */
    uint64_t stride; /* between rows in memory, a multiple of 64 */
    unsigned rows;   /* 1..16 */
    unsigned line;   /* first in the L1 scratchpad */
    unsigned step;   /* from line to line, 1..4 */
};

ET_INLINE uint64_t et_tensor_store_lines_word(struct et_tensor_store_lines_args how)
{
    return et_field(how.step - 1, 62, 2) | et_field(how.line, 56, 6) |
           et_field(how.rows - 1, 51, 4) | (uint64_t)1 << 48 | et_line_field((uintptr_t)how.to);
}

/* Stores lines of the L1 scratchpad. */
ET_INLINE void et_tensor_store_lines(struct et_tensor_store_lines_args how)
{
    ET_CSR_START(ET_CSR_TENSOR_STORE, et_tensor_store_lines_word(how), et_line_field(how.stride));
}

/* ---- reduce --------------------------------------------------------------------------------- */

enum et_tensor_function {
    ET_REDUCE_FADD = 0,
    ET_REDUCE_FMAX = 2,
    ET_REDUCE_FMIN = 3,
    ET_REDUCE_ADD = 4,
    ET_REDUCE_MAX = 6,
    ET_REDUCE_MIN = 7,
    ET_REDUCE_MOVE = 8
};

enum et_tensor_role { ET_SEND = 0, ET_RECEIVE = 1, ET_BROADCAST = 2, ET_TREE = 3 };

struct et_tensor_reduce_args {
    unsigned role;      /* ET_SEND ... */
    unsigned partner;   /* ET_SEND, ET_RECEIVE: the other minion, as et_global_minion has it */
    unsigned level;     /* ET_BROADCAST, ET_TREE: pairs are 2^level apart */
    unsigned function;  /* ET_REDUCE_..., of the receiver */
    unsigned register_; /* first float register, 0..31 */
    unsigned count;     /* registers, 0..127 */
};

ET_INLINE uint64_t et_tensor_reduce_word(struct et_tensor_reduce_args how)
{
    uint64_t whom = how.role < ET_BROADCAST ? et_field(how.partner, 3, 13)
                                            : et_field(how.level, 3, 4);
    return et_field(how.register_, 57, 5) | et_field(how.function, 24, 4) |
           et_field(how.count, 16, 7) | whom | et_field(how.role, 0, 2);
}

/* Exchanges float registers with another minion, which must do its part. */
#define et_tensor_reduce(...)                                                                     \
    ET_CSR_WRITE(ET_CSR_TENSOR_REDUCE, et_tensor_reduce_word(__VA_ARGS__))

#endif
