/*
 * Tracing from a kernel. Spec: §16
 *
 * Before the kernel starts, firmware gives each hart a control block that says whether it traces,
 * and which part of the buffer is its own. Entries go there with plain stores: a part has lines of
 * its own, and firmware brings it to memory when the kernel ends. When a part is full, writing
 * starts again behind its header.
 */
#ifndef ET_TRACE_H
#define ET_TRACE_H

#include "hart.h"

#define ET_TRACE_STRING 0
#define ET_TRACE_VALUE_U64 6

/* Kinds of entries in the event mask; values are always written. */
#define ET_TRACE_STRINGS 1u

/* Levels of strings. */
#define ET_TRACE_CRITICAL 0u
#define ET_TRACE_ERROR 1u
#define ET_TRACE_WARNING 2u
#define ET_TRACE_INFO 3u
#define ET_TRACE_DEBUG 4u

/* Longest string, with the byte behind it. */
#define ET_TRACE_STRING_BYTES 128

/*
 * The format has no place for the level of a string. Where there is room, the last two bytes of the
 * entry, behind the end of the string, are this one and the level; other readers stop before.
 */
#define ET_TRACE_LEVEL_MARK 0xe7u

/* One for each compute hart; of a hart that does not trace only `disabled` means anything. */
struct et_trace_control {
    uint64_t functions[3]; /* of firmware */
    uint64_t base;         /* of this hart's part */
    uint32_t size;         /* of the part, in bytes */
    uint32_t offset;       /* of the next entry in the part */
    uint32_t threshold;
    uint32_t event_mask;
    uint32_t filter_mask; /* bits 7:0 the highest level of strings */
    uint32_t reserved;
    uint8_t notified;
    uint8_t disabled;
    uint8_t size_header; /* the part starts with 4 bytes instead of 64 */
    uint8_t pad[5];
};
ET_STATIC_ASSERT(sizeof(struct et_trace_control) == 64, "one cache line");
ET_STATIC_ASSERT(offsetof(struct et_trace_control, disabled) == 57, "layout");

/* The control block of this hart. */
ET_INLINE volatile struct et_trace_control *et_trace_own(void)
{
    volatile struct et_trace_control *blocks =
        (volatile struct et_trace_control *)(uintptr_t)0x8004f23000;
    uint64_t hart = et_hart_id();
    return &blocks[hart < 2048 ? hart : hart - 32];
}

/*
 * Makes room for an entry of `bytes`, a multiple of 4, and writes its header; 0 if the hart does
 * not trace, or the entry is larger than the part. Entries are 4-byte aligned only: what follows
 * the header is for stores of words.
 */
ET_INLINE volatile uint32_t *et_trace_entry(volatile struct et_trace_control *control,
                                            uint32_t bytes, uint32_t type)
{
    uint32_t first = control->size_header ? 4 : 64;
    uint32_t at = control->offset;

    if (control->disabled || bytes > control->size - first)
        return NULL;
    if (at > control->size - bytes)
        at = first;
    control->offset = at + bytes;

    volatile uint32_t *entry = (volatile uint32_t *)(uintptr_t)(control->base + at);
    uint64_t cycle = et_cycles();
    entry[0] = (uint32_t)cycle;
    entry[1] = (uint32_t)(cycle >> 32);
    entry[2] = bytes - 16;
    entry[3] = (uint32_t)et_hart_id() | type << 16;
    return entry + 4;
}

/* Traces a value; `tag` says which. */
ET_INLINE void et_trace_u64(uint32_t tag, uint64_t value)
{
    volatile uint32_t *payload = et_trace_entry(et_trace_own(), 32, ET_TRACE_VALUE_U64);

    if (!payload)
        return;
    payload[0] = tag;
    payload[1] = (uint32_t)value;
    payload[2] = (uint32_t)(value >> 32);
    payload[3] = 0;
}

/* True if this hart traces strings of that level. */
ET_INLINE int et_trace_wants(uint32_t level)
{
    volatile struct et_trace_control *control = et_trace_own();
    return !control->disabled && (control->event_mask & ET_TRACE_STRINGS) &&
           level <= (control->filter_mask & 0xff);
}

/* As et_trace_string, for a text that is wanted like those of one level, and is of another. */
ET_INLINE void et_trace_string_as(uint32_t wanted, uint32_t level, const char *text)
{
    volatile struct et_trace_control *control = et_trace_own();
    uint32_t length = 0;

    if (!et_trace_wants(wanted))
        return;
    while (length < ET_TRACE_STRING_BYTES - 1 && text[length])
        length++;

    uint32_t room = (length + 8) & ~7u; /* with at least one 0 */
    uint32_t marked = (length + 10) & ~7u;
    if (marked <= ET_TRACE_STRING_BYTES)
        room = marked;
    volatile uint8_t *payload =
        (volatile uint8_t *)et_trace_entry(control, 16 + room, ET_TRACE_STRING);
    if (!payload)
        return;
    for (uint32_t i = 0; i < room; i++)
        payload[i] = i < length ? (uint8_t)text[i] : 0;
    if (room == marked) {
        payload[room - 2] = ET_TRACE_LEVEL_MARK;
        payload[room - 1] = (uint8_t)level;
    }
}

/* Traces a text, cut to ET_TRACE_STRING_BYTES, if strings of that level are wanted. */
ET_INLINE void et_trace_string(uint32_t level, const char *text)
{
    et_trace_string_as(level, level, text);
}

#endif
