/* Reads the entries of trace buffers, by the names of the original.
 *
 * One file of a program defines ET_TRACE_DECODER_IMPL before it includes this. */

#ifndef ET_TRACE_DECODER_H
#define ET_TRACE_DECODER_H

#include <et-trace/layout.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the entry behind `prev`, or the first one if it is null; null behind the last. Parts of
 * the buffer follow each other. What makes no sense in a part, such as an entry longer than the
 * rest, ends the part: nothing outside of the buffer is read. */
const trace_entry_header_t *Trace_Decode(const trace_buffer_std_header_t *buffer,
                                         const trace_entry_header_t *prev);

#ifdef ET_TRACE_DECODER_IMPL

/* The entry at an offset of a part, if there is a whole one. */
static const trace_entry_header_t *et_trace_entry(const uint8_t *part, size_t offset, size_t end)
{
    const trace_entry_header_t *entry;

    if (offset > end || end - offset < sizeof *entry)
        return NULL;
    entry = (const trace_entry_header_t *)(const void *)(part + offset);
    if (entry->payload_size > end - offset - sizeof *entry)
        return NULL;
    return entry;
}

const trace_entry_header_t *Trace_Decode(const trace_buffer_std_header_t *buffer,
                                         const trace_entry_header_t *prev)
{
    const uint8_t *start = (const uint8_t *)(const void *)buffer;
    size_t part = 0;
    size_t offset = 0;
    size_t size;

    if (buffer == NULL || buffer->magic_header != TRACE_MAGIC_HEADER ||
        buffer->sub_buffer_size < sizeof *buffer)
        return NULL;
    size = buffer->sub_buffer_size;
    if (prev != NULL) {
        size_t at = (size_t)((const uint8_t *)(const void *)prev - start);

        part = at / size;
        offset = at % size + sizeof *prev + prev->payload_size;
    }
    for (; part < buffer->sub_buffer_count; part++, offset = 0) {
        const uint8_t *here = start + part * size;
        size_t head = part == 0 ? sizeof *buffer : sizeof(trace_buffer_size_header_t);
        size_t end = part == 0
                         ? buffer->data_size
                         : ((const trace_buffer_size_header_t *)(const void *)here)->data_size;
        const trace_entry_header_t *entry;

        if (end > size)
            end = size;
        entry = et_trace_entry(here, offset < head ? head : offset, end);
        if (entry != NULL)
            return entry;
    }
    return NULL;
}

#endif /* ET_TRACE_DECODER_IMPL */

#ifdef __cplusplus
}
#endif

#endif /* ET_TRACE_DECODER_H */
