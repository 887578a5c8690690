/*
 * crc32: result[i] = CRC-32 (as in zlib, PNG, Ethernet) of block i of the data.
 *
 *   const uint8_t *data;  uint64_t len;  uint64_t block_len;  uint32_t *result;
 *
 * The data is cut into blocks of block_len bytes, the last may be shorter; there are
 * ceil(len / block_len) results. block_len = 0 means one block. No data, no result.
 *
 * Neighbouring results belong to different parts, so they are stored past the caches, unless there
 * is only one part.
 */
#include <et/device.h>

struct args {
    const uint8_t *data;
    uint64_t len;
    uint64_t block_len;
    uint32_t *result;
};

/* Reflected polynomial 0xEDB88320, four bits at a time: 64 bytes of table stay in one line. */
static const uint32_t ET_ALIGN_LINE table[16] = {
    0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
    0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
};

static uint32_t crc32(const uint8_t *at, uint64_t len)
{
    uint32_t crc = 0xffffffff;
    for (const uint8_t *end = at + len; at < end; at++) {
        crc ^= *at;
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

int64_t et_task(const struct args *args, const struct kernel_environment *env, uint64_t part,
                uint64_t parts)
{
    (void)env;
    uint64_t len = args->len;
    if (len == 0)
        return 0;
    uint64_t block_len = args->block_len == 0 ? len : args->block_len;
    uint64_t blocks = (len - 1) / block_len + 1;

    for (uint64_t i = part; i < blocks; i += parts) {
        uint64_t start = i * block_len;
        uint64_t size = len - start < block_len ? len - start : block_len;
        uint32_t crc = crc32(args->data + start, size);
        if (parts == 1)
            args->result[i] = crc;
        else
            et_store_g32(&args->result[i], crc);
    }
    return 0;
}
ET_TASK_ENTRY;
