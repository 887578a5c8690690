/* Layout of trace buffers, by the names of the original (interface specification, section 16). */

#ifndef ET_TRACE_LAYOUT_H
#define ET_TRACE_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define ET_TRACE_ASSERT(what) static_assert(what, "layout of the device")
#else
#define ET_TRACE_ASSERT(what) _Static_assert(what, "layout of the device")
#endif

#define TRACE_MAGIC_HEADER 0x76543210U

enum trace_buffer_type {
    TRACE_MM_BUFFER = 0,
    TRACE_CM_BUFFER = 1,
    TRACE_SP_BUFFER = 2,
    TRACE_CM_UMODE_BUFFER = 3,
    TRACE_SP_STATS_BUFFER = 4,
    TRACE_MM_STATS_BUFFER = 5,
};

enum trace_type {
    TRACE_TYPE_START = 0,
    TRACE_TYPE_STRING = 0,
    TRACE_TYPE_PMC_COUNTER = 1,
    TRACE_TYPE_PMC_COUNTERS_COMPUTE = 2,
    TRACE_TYPE_PMC_COUNTERS_MEMORY = 3,
    TRACE_TYPE_PMC_COUNTERS_SC = 4,
    TRACE_TYPE_PMC_COUNTERS_MS = 5,
    TRACE_TYPE_VALUE_U64 = 6,
    TRACE_TYPE_VALUE_U32 = 7,
    TRACE_TYPE_VALUE_U16 = 8,
    TRACE_TYPE_VALUE_U8 = 9,
    TRACE_TYPE_VALUE_FLOAT = 10,
    TRACE_TYPE_MEMORY = 11,
    TRACE_TYPE_EXCEPTION = 12,
    TRACE_TYPE_CMD_STATUS = 13,
    TRACE_TYPE_POWER_STATUS = 14,
    TRACE_TYPE_CUSTOM_EVENT = 15,
    TRACE_TYPE_USER_PROFILE_EVENT = 16,
    TRACE_TYPE_END = 17,
};

enum trace_cmd_status {
    CMD_STATUS_WAIT_BARRIER = 1,
    CMD_STATUS_RECEIVED = 2,
    CMD_STATUS_EXECUTING = 3,
    CMD_STATUS_FAILED = 4,
    CMD_STATUS_ABORTED = 5,
    CMD_STATUS_SUCCEEDED = 6,
};

typedef struct __attribute__((packed, aligned(64))) {
    uint32_t magic_header;
    struct __attribute__((packed)) {
        uint16_t major;
        uint16_t minor;
        uint16_t patch;
    } version;
    uint16_t type;
    uint32_t data_size;
    uint32_t sub_buffer_size;
    uint16_t sub_buffer_count;
} trace_buffer_std_header_t;
ET_TRACE_ASSERT(sizeof(trace_buffer_std_header_t) == 64);
ET_TRACE_ASSERT(offsetof(trace_buffer_std_header_t, sub_buffer_count) == 20);

typedef struct __attribute__((packed)) {
    uint32_t data_size;
} trace_buffer_size_header_t;
ET_TRACE_ASSERT(sizeof(trace_buffer_size_header_t) == 4);
ET_TRACE_ASSERT(offsetof(trace_buffer_size_header_t, data_size) == 0);

typedef struct __attribute__((packed)) {
    uint64_t cycle;
    uint32_t payload_size;
    uint16_t hart_id;
    uint16_t type;
} trace_entry_header_t;
ET_TRACE_ASSERT(sizeof(trace_entry_header_t) == 16);
ET_TRACE_ASSERT(offsetof(trace_entry_header_t, type) == 14);

typedef struct __attribute__((packed)) {
    trace_entry_header_t header;
    __extension__ char string[];
} trace_string_t;
ET_TRACE_ASSERT(sizeof(trace_string_t) == 16);
ET_TRACE_ASSERT(offsetof(trace_string_t, string) == 16);

typedef struct __attribute__((packed)) {
    trace_entry_header_t header;
    uint64_t value;
    uint8_t counter;
    uint8_t pad[7];
} trace_pmc_counter_t;
ET_TRACE_ASSERT(sizeof(trace_pmc_counter_t) == 32);
ET_TRACE_ASSERT(offsetof(trace_pmc_counter_t, pad) == 25);

typedef struct __attribute__((packed)) {
    trace_entry_header_t header;
    uint64_t hpmcounter3;
    uint64_t hpmcounter4;
    uint64_t hpmcounter5;
    uint64_t hpmcounter6;
    uint64_t hpmcounter7;
    uint64_t hpmcounter8;
} trace_pmc_counters_compute_t;
ET_TRACE_ASSERT(sizeof(trace_pmc_counters_compute_t) == 64);
ET_TRACE_ASSERT(offsetof(trace_pmc_counters_compute_t, hpmcounter8) == 56);

typedef struct __attribute__((packed)) {
    trace_entry_header_t header;
    uint64_t sc_pmc0;
    uint64_t sc_pmc1;
} trace_pmc_counters_sc_t;
ET_TRACE_ASSERT(sizeof(trace_pmc_counters_sc_t) == 32);
ET_TRACE_ASSERT(offsetof(trace_pmc_counters_sc_t, sc_pmc1) == 24);

typedef struct __attribute__((packed)) {
    trace_entry_header_t header;
    uint64_t ms_pmc0;
    uint64_t ms_pmc1;
    uint8_t ms_id;
    uint8_t pad[7];
} trace_pmc_counters_ms_t;
ET_TRACE_ASSERT(sizeof(trace_pmc_counters_ms_t) == 40);
ET_TRACE_ASSERT(offsetof(trace_pmc_counters_ms_t, pad) == 33);

typedef struct __attribute__((packed)) {
    trace_entry_header_t header;
    uint32_t tag;
    uint64_t value;
    uint8_t pad[4];
} trace_value_u64_t;
ET_TRACE_ASSERT(sizeof(trace_value_u64_t) == 32);
ET_TRACE_ASSERT(offsetof(trace_value_u64_t, pad) == 28);

typedef struct __attribute__((packed)) {
    trace_entry_header_t header;
    uint32_t tag;
    uint32_t value;
} trace_value_u32_t;
ET_TRACE_ASSERT(sizeof(trace_value_u32_t) == 24);
ET_TRACE_ASSERT(offsetof(trace_value_u32_t, value) == 20);

typedef struct __attribute__((packed)) {
    trace_entry_header_t header;
    uint32_t tag;
    uint16_t value;
    uint8_t pad[2];
} trace_value_u16_t;
ET_TRACE_ASSERT(sizeof(trace_value_u16_t) == 24);
ET_TRACE_ASSERT(offsetof(trace_value_u16_t, pad) == 22);

typedef struct __attribute__((packed)) {
    trace_entry_header_t header;
    uint32_t tag;
    uint8_t value;
    uint8_t pad[3];
} trace_value_u8_t;
ET_TRACE_ASSERT(sizeof(trace_value_u8_t) == 24);
ET_TRACE_ASSERT(offsetof(trace_value_u8_t, pad) == 21);

typedef struct __attribute__((packed)) {
    trace_entry_header_t header;
    uint64_t src_addr;
    uint64_t size;
    __extension__ uint8_t data[];
} trace_memory_t;
ET_TRACE_ASSERT(sizeof(trace_memory_t) == 32);
ET_TRACE_ASSERT(offsetof(trace_memory_t, data) == 32);

typedef struct __attribute__((packed)) {
    trace_entry_header_t header;
    struct __attribute__((packed)) {
        uint64_t epc;
        uint64_t tval;
        uint64_t status;
        uint64_t cause;
        uint64_t gpr[31];
    } registers;
} trace_execution_stack_t;
ET_TRACE_ASSERT(sizeof(trace_execution_stack_t) == 296);
ET_TRACE_ASSERT(offsetof(trace_execution_stack_t, registers.gpr) == 48);

typedef struct __attribute__((packed)) {
    trace_entry_header_t header;
    struct __attribute__((packed)) {
        uint16_t mesg_id;
        uint8_t cmd_status;
        uint8_t queue_slot_id;
        uint16_t trans_id;
        uint8_t reserved[2];
    } cmd;
} trace_cmd_status_t;
ET_TRACE_ASSERT(sizeof(trace_cmd_status_t) == 24);
ET_TRACE_ASSERT(offsetof(trace_cmd_status_t, cmd.reserved) == 22);

typedef struct __attribute__((packed)) {
    trace_entry_header_t header;
    struct __attribute__((packed)) {
        uint16_t current_power;
        uint8_t throttle_state;
        uint8_t power_state;
        uint8_t current_temp;
        uint8_t pad_1[3];
        uint16_t tgt_freq;
        uint16_t tgt_voltage;
        uint8_t pad_2[4];
    } power;
} trace_power_status_t;
ET_TRACE_ASSERT(sizeof(trace_power_status_t) == 32);
ET_TRACE_ASSERT(offsetof(trace_power_status_t, power.pad_2) == 28);

typedef struct __attribute__((packed)) {
    trace_entry_header_t header;
    uint32_t custom_type;
    uint32_t payload_size;
    __extension__ uint8_t payload[];
} trace_custom_event_t;
ET_TRACE_ASSERT(sizeof(trace_custom_event_t) == 24);
ET_TRACE_ASSERT(offsetof(trace_custom_event_t, payload) == 24);

typedef struct __attribute__((packed)) {
    trace_entry_header_t header;
    uint64_t func;
    uint64_t retiredInsts;
    uint64_t line_region_status;
    uint64_t regionName;
} trace_user_profile_event_t;
ET_TRACE_ASSERT(sizeof(trace_user_profile_event_t) == 48);
ET_TRACE_ASSERT(offsetof(trace_user_profile_event_t, regionName) == 40);

/* The value's bits are those of the number. */
typedef trace_value_u32_t trace_value_float_t;

#undef ET_TRACE_ASSERT

#endif /* ET_TRACE_LAYOUT_H */
