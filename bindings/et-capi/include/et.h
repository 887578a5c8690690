/* C interface of the ET-SoC-1 host stack. `cargo xtask generate` writes this file from the sources
 * of et-capi, whose README has the rules for handles and pointers. */

#ifndef ET_H
#define ET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Version of this interface: the major number in the upper half, the minor one in the lower. A
// program runs with libraries of the same major and at least the same minor number.
#define ET_ABI_VERSION 1

// A wait without an end, in nanoseconds.
#define ET_FOREVER UINT64_MAX

// What became of a call, or of an operation. Names and numbers never change.
typedef enum et_status {
    // It went well.
    ET_OK = 0,
    // A place outside of its buffer.
    ET_OUT_OF_BOUNDS = 1,
    // An address or length is not a multiple of what the device needs.
    ET_MISALIGNED = 2,
    // An access of a width that the device does not have.
    ET_BAD_WIDTH = 3,
    // More than is ever possible.
    ET_TOO_LARGE = 4,
    // Arguments that make no sense, or belong to another device.
    ET_INVALID = 5,
    // The device cannot do this.
    ET_UNSUPPORTED = 6,
    // From before a reset of the device.
    ET_STALE = 7,
    // The process may not do this.
    ET_PERMISSION = 8,
    // In use; trying again can succeed.
    ET_BUSY = 9,
    // No host memory, or no right to pin more of it.
    ET_NO_HOST_MEMORY = 10,
    // No device memory.
    ET_NO_DEVICE_MEMORY = 11,
    // No bus addresses.
    ET_NO_BUS_ADDRESSES = 12,
    // No file descriptors, interrupt vectors or the like.
    ET_NO_HANDLES = 13,
    // Time ran out. What was waited for goes on.
    ET_TIMEOUT = 14,
    // The device broke the protocol.
    ET_PROTOCOL = 15,
    // The cores must be reset, see `et_device_reset_compute`.
    ET_NEEDS_COMPUTE_RESET = 16,
    // The device must be reset, see `et_device_reset`.
    ET_NEEDS_RESET = 17,
    // The device is gone.
    ET_LOST = 18,
    // The device was closed.
    ET_CLOSED = 19,
    // Something else; the message says what.
    ET_OTHER = 20,
    // The device failed a copy.
    ET_COPY_FAILED = 30,
    // The device refused or failed a launch; `et_event_failure` has the details.
    ET_LAUNCH_FAILED = 31,
    // The device refused a command.
    ET_REFUSED = 32,
    // The operation was aborted. A kernel that had begun ends with `ET_LAUNCH_FAILED`, since it
    // has a report.
    ET_ABORTED = 33,
    // A task of a graph failed.
    ET_TASK_FAILED = 40,
    // The run of a graph was cancelled, or its deadline passed.
    ET_CANCELLED = 41,
    // A pointer that must not be null is null.
    ET_NULL_POINTER = 64,
    // The handle is 0, was freed, or never was one.
    ET_BAD_HANDLE = 65,
    // The handle is of another kind.
    ET_WRONG_KIND = 66,
    // The operation has not ended.
    ET_NOT_READY = 67,
    // The buffer of the caller is too small for the text.
    ET_BUFFER_TOO_SMALL = 68,
    // The `size` of a struct is none that any version of the library had, or is from a newer
    // version and asks for something that this one does not have.
    ET_BAD_STRUCT_SIZE = 69,
    // The header is of another version than the library.
    ET_ABI_MISMATCH = 70,
    // A text is not UTF-8.
    ET_NOT_UTF8 = 71,
    // The call may wait, and was made in a callback, which must not.
    ET_IN_CALLBACK = 72,
    // A file could not be read or written.
    ET_FILE = 73,
    // `et_init` was not called.
    ET_NOT_INITIALISED = 74,
    // A defect of the library; please report it.
    ET_INTERNAL = 127,
} et_status;

// Where an operation is. It only goes forward.
typedef enum et_event_state {
    // It waits for others, or for room.
    ET_EVENT_QUEUED = 0,
    // The device has been sent it, or the first part of it.
    ET_EVENT_READY = 1,
    // The device has answered, and the host is not done with that: a kernel has failed, and its
    // report is fetched.
    ET_EVENT_EXECUTED = 2,
    // It has ended well.
    ET_EVENT_COMPLETE = 3,
    // It has failed.
    ET_EVENT_FAILED = 4,
} et_event_state;

// Where a task is. It only goes forward.
typedef enum et_task_state {
    // It waits for others.
    ET_TASK_WAITING = 1,
    // It can run.
    ET_TASK_READY = 2,
    // The device schedules it.
    ET_TASK_DELEGATED = 3,
    // A worker has it.
    ET_TASK_RUNNING = 4,
    // It has run, and what it wrote is there for the tasks behind it; for the host when the run
    // has ended.
    ET_TASK_EXECUTED = 5,
    // It has run, and what it wrote can be used. Final.
    ET_TASK_DONE = 6,
    // It failed. Final.
    ET_TASK_FAILED_ITSELF = 7,
    // It was cancelled. Final.
    ET_TASK_CANCELLED = 8,
    // A task it waits for failed or was cancelled. Final.
    ET_TASK_NOT_RUN = 9,
    // Its condition was false: it did not run, and those behind it go on. Final.
    ET_TASK_SKIPPED = 10,
} et_task_state;

// How the host reaches what it has mapped.
typedef enum et_map_path {
    // The device's own memory, through its BAR.
    ET_MAP_WINDOW = 1,
    // A copy in host memory.
    ET_MAP_COPY = 2,
} et_map_path;

// How a task uses memory.
typedef enum et_access {
    // It reads it.
    ET_READS = 1,
    // It writes it without reading it.
    ET_WRITES = 2,
    // It reads and writes it.
    ET_UPDATES = 3,
} et_access;

// A text about the module.
typedef enum et_asset {
    // Name of the manufacturer.
    ET_ASSET_MANUFACTURER = 1,
    // Part number.
    ET_ASSET_PART_NUMBER = 2,
    // Serial number.
    ET_ASSET_SERIAL_NUMBER = 3,
    // Revision of the chip.
    ET_ASSET_CHIP_REVISION = 4,
    // Revision of the driver; current firmware leaves it empty.
    ET_ASSET_DRIVER_REVISION = 5,
    // PCIe address; current firmware leaves it empty.
    ET_ASSET_PCIE_ADDRESS = 6,
    // PCIe ports and their speed.
    ET_ASSET_PCIE_PORTS = 7,
    // Size of the memory in MB.
    ET_ASSET_MEMORY_SIZE = 8,
    // Revision of the module.
    ET_ASSET_MODULE_REVISION = 9,
    // Form factor.
    ET_ASSET_FORM_FACTOR = 10,
    // Vendor and part number of the memory.
    ET_ASSET_MEMORY_VENDOR = 11,
    // Type of the memory.
    ET_ASSET_MEMORY_TYPE = 12,
} et_asset;

// A clock that can be set.
typedef enum et_clock {
    // That of the minions.
    ET_CLOCK_MINIONS = 1,
    // That of the network on chip.
    ET_CLOCK_NETWORK = 2,
} et_clock;

// How a word is compared with a value.
typedef enum et_comparison {
    // `==`
    ET_EQUAL = 1,
    // `!=`
    ET_NOT_EQUAL = 2,
    // `<`
    ET_LESS = 3,
    // `<=`
    ET_LESS_OR_EQUAL = 4,
    // `>`
    ET_GREATER = 5,
    // `>=`
    ET_GREATER_OR_EQUAL = 6,
} et_comparison;

// What is watched for errors.
typedef enum et_error_source {
    // The DRAM.
    ET_ERRORS_DRAM = 1,
    // The static memory of the shires.
    ET_ERRORS_SRAM = 2,
    // The PCIe link.
    ET_ERRORS_PCIE = 3,
} et_error_source;

// Why a hart stopped.
typedef enum et_exception {
    // It trapped: see `cause` and `value`.
    ET_EXCEPTION_TRAP = 1,
    // The host aborted the kernel.
    ET_EXCEPTION_ABORTED = 2,
    // The kernel gave up.
    ET_EXCEPTION_GAVE_UP = 3,
    // The kernel returned a negative number: see `value`.
    ET_EXCEPTION_RETURNED = 4,
    // An access went to an address without a device.
    ET_EXCEPTION_BUS = 5,
    // It did not answer.
    ET_EXCEPTION_HANG = 6,
    // The tensor unit reported an error.
    ET_EXCEPTION_TENSOR = 7,
    // Something that this version does not know.
    ET_EXCEPTION_OTHER = 8,
} et_exception;

// The way that bytes take in a copy.
typedef enum et_copy_path {
    // The device's engine moves them between device memory and the host memory they are in.
    ET_COPY_DIRECT = 1,
    // The device's engine moves them between device memory and staging memory of the host;
    // between that and memory of the caller, the host's processors move them.
    ET_COPY_STAGED = 2,
    // The device's cores move them, by a kernel: they do not leave its memory.
    ET_COPY_CORES = 3,
} et_copy_path;

// What is wrong with an access to memory. The first four are of `check=memory` and `check=races`,
// the others of `check=races`.
typedef enum et_finding_kind {
    // Nothing: the hart stopped for another reason.
    ET_FINDING_NONE = 0,
    // A byte of it is in no buffer, nor in anything else that kernels may use.
    ET_FINDING_OUT_OF_BOUNDS = 1,
    // It is in a buffer that has been freed.
    ET_FINDING_USE_AFTER_FREE = 2,
    // It writes code or constants, or what kernels may only read.
    ET_FINDING_READ_ONLY = 3,
    // It reads what nothing has written.
    ET_FINDING_UNINITIALISED = 4,
    // Nothing orders it and an access of another hart.
    ET_FINDING_DATA_RACE = 5,
    // What another hart has written before is still in a cache, or on its way.
    ET_FINDING_NOT_WRITTEN_BACK = 6,
    // It found what its own cache has kept from before.
    ET_FINDING_OLD_COPY = 7,
    // Something that this version does not know.
    ET_FINDING_OTHER = 8,
} et_finding_kind;

// A text about a device and what connects it.
typedef enum et_identity {
    // Name of the backend.
    ET_IDENTITY_BACKEND = 1,
    // Version of the backend.
    ET_IDENTITY_BACKEND_VERSION = 2,
    // The interface below the backend, with its version.
    ET_IDENTITY_INTERFACE = 3,
    // The kernel's driver that has the device.
    ET_IDENTITY_DRIVER = 4,
    // PCI ids and revision, as `lspci -n` has them.
    ET_IDENTITY_PCI_IDS = 5,
    // Where the device is on the bus, `domain:bus:device.function`.
    ET_IDENTITY_PCI_ADDRESS = 6,
    // Who may use it at a time: `exclusive` for one owner, `one each` where each opening makes a
    // device of its own.
    ET_IDENTITY_SHARING = 7,
    // Version of the runtime.
    ET_IDENTITY_RUNTIME_VERSION = 8,
} et_identity;

// How much a message matters; a higher number matters less.
typedef enum et_log_level {
    // Something failed.
    ET_LOG_ERROR = 1,
    // Something is not as it should be.
    ET_LOG_WARN = 2,
    // What users want to know.
    ET_LOG_INFO = 3,
    // What helps to find mistakes.
    ET_LOG_DEBUG = 4,
    // Every step.
    ET_LOG_TRACE = 5,
} et_log_level;

// What an instruction does to memory.
typedef enum et_memory_access {
    // Reads.
    ET_MEMORY_LOAD = 1,
    // Writes.
    ET_MEMORY_STORE = 2,
    // Reads and writes at once.
    ET_MEMORY_ATOMIC = 3,
    // Reads a whole line of 64 bytes, as the tensor unit does.
    ET_MEMORY_LINE = 4,
    // Something that this version does not know.
    ET_MEMORY_OTHER = 5,
} et_memory_access;

// The way from the memory of one device to that of another.
typedef enum et_peer_path {
    // They are one device: `et_copy_on_device`.
    ET_PEER_SAME_DEVICE = 1,
    // Through the host, by `et_copy_to_peer`: the registers of at least one of them keep other
    // devices out of its memory.
    ET_PEER_HOST_REFUSED = 2,
    // Through the host: nothing maps the memory of one on the bus of the other.
    ET_PEER_HOST_NOT_MAPPED = 3,
    // Through the host, for a reason that this version does not know.
    ET_PEER_HOST = 4,
} et_peer_path;

// Who schedules kernels, and what runs them.
typedef enum et_place {
    // The first of the others that can run the graph: resident, cores, streams.
    ET_PLACE_AUTO = 0,
    // Single harts, scheduled by the host.
    ET_PLACE_CORES = 1,
    // Single harts, scheduled by one of them.
    ET_PLACE_RESIDENT = 2,
    // Each task is a launch.
    ET_PLACE_STREAMS = 3,
} et_place;

// How much of a recorded run is written.
typedef enum et_trace_detail {
    // When each task ran and on which worker, and the dependencies.
    ET_DETAIL_TASKS = 0,
    // Also where each task waited: for a worker, and in the hands of one.
    ET_DETAIL_PHASES = 1,
    // Also how many tasks wait for a worker over time, and how many workers do nothing although
    // some do.
    ET_DETAIL_OVERHEAD = 2,
} et_trace_detail;

// Power state of the module.
typedef enum et_power_state {
    // Maximum power.
    ET_POWER_MAXIMUM = 0,
    // Managed power.
    ET_POWER_MANAGED = 1,
    // Safe power.
    ET_POWER_SAFE = 2,
    // Low power.
    ET_POWER_LOW = 3,
} et_power_state;

// How soon commands of a stream are sent when there is not room for all that are ready.
typedef enum et_priority {
    // What a stream has if nothing is said.
    ET_PRIORITY_NORMAL = 0,
    // When no other stream has anything to send, or 256 commands have gone before.
    ET_PRIORITY_LOW = 1,
    // Before the others, of which one may go after each 16 commands.
    ET_PRIORITY_HIGH = 2,
} et_priority;

// Whose statistics.
typedef enum et_processor {
    // The service processor's.
    ET_SERVICE_PROCESSOR = 1,
    // The master minion's.
    ET_MASTER_MINION = 2,
} et_processor;

// Something that can be done about a device that does not work, from the gentlest to the most
// violent.
typedef enum et_remedy {
    // All work in flight is aborted.
    ET_REMEDY_ABORT = 1,
    // A reset of the cores, as by `et_device_reset_compute`.
    ET_REMEDY_COMPUTE_RESET = 2,
    // A reset of the operations firmware, as by `et_device_reset_operations`.
    ET_REMEDY_OPERATIONS_RESET = 3,
    // A reset of the PCI function, as by `et_device_reset`.
    ET_REMEDY_FUNCTION_RESET = 4,
    // A reset of everything behind the slot.
    ET_REMEDY_SLOT_RESET = 5,
    // A reset of the whole chip, as by `et_device_reset_chip`.
    ET_REMEDY_CHIP_RESET = 6,
} et_remedy;

// Type of a number.
typedef enum et_scalar {
    // `uint8_t`.
    ET_U8 = 1,
    // `uint16_t`.
    ET_U16 = 2,
    // `uint32_t`.
    ET_U32 = 3,
    // `uint64_t`.
    ET_U64 = 4,
    // `int8_t`.
    ET_I8 = 5,
    // `int16_t`.
    ET_I16 = 6,
    // `int32_t`.
    ET_I32 = 7,
    // `int64_t`.
    ET_I64 = 8,
    // Half precision.
    ET_F16 = 9,
    // `float`.
    ET_F32 = 10,
    // `double`.
    ET_F64 = 11,
} et_scalar;

// How bad an event of the card is.
typedef enum et_severity {
    // For information.
    ET_SEVERITY_INFO = 0,
    // A warning.
    ET_SEVERITY_WARNING = 1,
    // Critical.
    ET_SEVERITY_CRITICAL = 2,
    // Fatal.
    ET_SEVERITY_FATAL = 3,
} et_severity;

// State of the throttle.
typedef enum et_throttle_state {
    // Power idle.
    ET_THROTTLE_IDLE = 0,
    // Power up.
    ET_THROTTLE_UP = 1,
    // Power down.
    ET_THROTTLE_DOWN = 2,
    // Power safe.
    ET_THROTTLE_SAFE = 3,
} et_throttle_state;

// What a statistic counts.
typedef enum et_unit {
    // mW.
    ET_MILLIWATTS = 1,
    // °C.
    ET_CELSIUS = 2,
    // mV.
    ET_MILLIVOLTS = 3,
    // MHz.
    ET_MEGAHERTZ = 4,
    // %.
    ET_PERCENT = 5,
    // MB/s.
    ET_MEGABYTES_PER_SECOND = 6,
    // One that this version does not know.
    ET_OTHER_UNIT = 7,
} et_unit;

// Type of a word of memory.
typedef enum et_word {
    // `uint32_t`
    ET_WORD_U32 = 1,
    // `uint64_t`
    ET_WORD_U64 = 2,
    // `int32_t`
    ET_WORD_I32 = 3,
    // `int64_t`
    ET_WORD_I64 = 4,
} et_word;

// An open device.
typedef struct et_device {
    // A number to be looked up; 0 is no device.
    uint64_t id;
} et_device;

// A kernel on a device.
typedef struct et_kernel {
    // A number to be looked up; 0 is no kernel.
    uint64_t id;
} et_kernel;

// Memory on a device.
typedef struct et_mem {
    // A number to be looked up; 0 is no memory.
    uint64_t id;
} et_mem;

// A kernel with arguments and options.
typedef struct et_launch {
    // A number to be looked up; 0 is no launch.
    uint64_t id;
} et_launch;

// How a device is opened; 0 everywhere is the default.
typedef struct et_device_options {
    // `sizeof(et_device_options)`.
    size_t size;
    // How long it may take to boot.
    uint64_t boot_timeout_ns;
    // How long a call may wait for room while its stream makes no progress.
    uint64_t command_timeout_ns;
    // How long closing may wait for what is in flight.
    uint64_t shutdown_timeout_ns;
    // How long the device may answer nothing before it is asked whether it is there.
    uint64_t watchdog_ns;
    // How long a wait polls before it sleeps.
    uint64_t spin_ns;
    // Most host memory for copies, in bytes.
    uint64_t staging_bytes;
    // Most commands in flight, at most 4096.
    uint32_t in_flight;
    // 1: copies may start and end at any byte of device memory. Firmware allows it, and cards are
    // not documented to.
    uint32_t byte_copies;
    // How long to try again while another process has the device; 0 for not at all.
    uint64_t busy_timeout_ns;
} et_device_options;

// What a device says about itself; 0 where it does not say.
typedef struct et_properties {
    // `sizeof(et_properties)`, set by the caller.
    size_t size;
    // Shires that kernels can use, a bit for each.
    uint64_t shire_mask;
    // First address of the memory for users.
    uint64_t memory_base;
    // Its bytes.
    uint64_t memory_bytes;
    // Scratchpad of a shire, in bytes.
    uint64_t local_memory_bytes;
    // Second-level cache, in bytes.
    uint64_t l2_bytes;
    // Third-level cache, in bytes.
    uint64_t l3_bytes;
    // Most bytes of a part of a copy.
    uint64_t dma_max_bytes;
    // Addresses and lengths of copies are multiples of this.
    uint64_t dma_align_bytes;
    // Cycles of device times in a second.
    uint64_t timestamp_hz;
    // Number of shires.
    uint32_t shires;
    // Number of cores.
    uint32_t cores;
    // Number of hardware threads.
    uint32_t harts;
    // A cache line, in bytes.
    uint32_t cache_line_bytes;
    // Frequency of the cores at boot.
    uint32_t frequency_mhz;
    // Bandwidth of the memory in MB/s.
    uint32_t memory_bandwidth_mbps;
    // Version of the firmware's interface.
    uint32_t api_version_major;
    // Version of the firmware's interface.
    uint32_t api_version_minor;
    // Version of the firmware's interface.
    uint32_t api_version_patch;
    // Thermal design power.
    uint32_t tdp_watts;
    // 1 if the host can use device memory without copies.
    uint32_t cpu_access;
    // Submission queues.
    uint32_t queues;
    // Most parts of a copy in one command.
    uint32_t dma_max_parts;
    // 0.
    uint32_t reserved;
    // An `et_copy_path`: between ordinary memory and the device.
    uint32_t copy_ordinary;
    // An `et_copy_path`: between host memory of the library and the device. Memory that was
    // imported and that the device cannot reach is moved once more.
    uint32_t copy_host_buffer;
    // An `et_copy_path`: `et_copy_on_device`.
    uint32_t copy_on_device;
    // An `et_copy_path`: `et_builtin_copy`.
    uint32_t copy_builtin;
} et_properties;

// What a program has a device do at the moment, and what it has done since the device was opened
// or reset. Two looks and the time between them give a load.
typedef struct et_activity {
    // `sizeof(et_activity)`, set by the caller.
    size_t size;
    // Streams that have a handle, those of the library itself included.
    uint64_t streams;
    // Operations that were accepted.
    uint64_t accepted;
    // Those of them that have not ended.
    uint64_t pending;
    // Commands that the device has and has not answered, those of the library itself included.
    uint64_t in_flight;
    // Device memory that is managed, in bytes.
    uint64_t memory_bytes;
    // How much of it is in use.
    uint64_t memory_used_bytes;
    // Memory handles that are live.
    uint64_t buffers;
    // Kernels that have run, well or not.
    uint64_t launches;
    // Bytes that were copied to the device.
    uint64_t to_device_bytes;
    // Bytes that were copied from the device.
    uint64_t to_host_bytes;
    // Shires that kernels can run on, a bit for each.
    uint64_t available_shires;
    // Shires that kernels have which have not ended, a bit for each: it is busy, or will be.
    uint64_t launched_shires;
    // For how many cycles of the minions' clock each shire has run kernels. The device says so
    // when a kernel has ended.
    uint64_t busy_cycles[32];
} et_activity;

// The end of an operation.
typedef struct et_event {
    // A number to be looked up; 0 is no event.
    uint64_t id;
} et_event;

// When an operation was where. Host times are nanoseconds since the device was opened, device
// times are cycles.
typedef struct et_timeline {
    // `sizeof(et_timeline)`, set by the caller.
    size_t size;
    // The call was made.
    uint64_t queued_ns;
    // The first command was sent.
    uint64_t sent_ns;
    // The last answer came.
    uint64_t completed_ns;
    // The device took the first command; 0 if it does not say, as below.
    uint64_t device_start_cycles;
    // How long it waited in the device.
    uint64_t device_wait_cycles;
    // How long it was executed.
    uint64_t device_execute_cycles;
} et_timeline;

// To be called at the end of something, in whichever thread sees it. It must not wait, and must
// not throw.
typedef void (*et_callback)(void *user, enum et_status status);

// To be called when an operation is somewhere, as `et_callback` is at its end.
typedef void (*et_state_callback)(void *user, enum et_event_state state);

// What is known of a launch that failed.
typedef struct et_failure {
    // A number to be looked up; 0 is no failure.
    uint64_t id;
} et_failure;

// Options of an executor; 0 everywhere is the default.
typedef struct et_executor_options {
    // `sizeof(et_executor_options)`.
    size_t size;
    // Shires whose harts are workers.
    uint64_t shire_mask;
    // How long kernels may go on when the executor is freed.
    uint64_t close_grace_ns;
    // An `et_place`.
    uint32_t place;
    // Most host threads for host functions.
    uint32_t workers;
    // Harts that run tasks.
    uint32_t cores;
    // Must be 0.
    uint32_t reserved;
} et_executor_options;

// What runs graphs on a device.
typedef struct et_executor {
    // A number to be looked up; 0 is no executor.
    uint64_t id;
} et_executor;

// An immutable graph.
typedef struct et_graph {
    // A number to be looked up; 0 is no graph.
    uint64_t id;
} et_graph;

// Options of a run; 0 everywhere is the default.
typedef struct et_run_options {
    // `sizeof(et_run_options)`.
    size_t size;
    // Ends the run so long after its launch.
    uint64_t deadline_ns;
    // If not 0, it is recorded when each task runs, for `et_run_write_profile`.
    uint32_t trace;
    // Must be 0.
    uint32_t reserved;
} et_run_options;

// A launched graph.
typedef struct et_run {
    // A number to be looked up; 0 is no run.
    uint64_t id;
} et_run;

// Graphs that follow one another task by task.
typedef struct et_flow {
    // A number to be looked up; 0 is no flow.
    uint64_t id;
} et_flow;

// A finished recording.
typedef struct et_profile {
    // A number to be looked up; 0 is no profile.
    uint64_t id;
} et_profile;

// What is in the core file of a launch.
typedef struct et_core_file {
    // `sizeof(et_core_file)`, set by the caller.
    size_t size;
    // Bytes of the file.
    uint64_t bytes;
    // Harts whose registers are in it.
    uint64_t harts;
    // Regions of memory.
    uint64_t regions;
    // Regions of which not all is in it.
    uint64_t incomplete;
} et_core_file;

// State of a hart of a launch that failed.
typedef struct et_hart {
    // `sizeof(et_hart)`, set by the caller.
    size_t size;
    // Number of the hart.
    uint32_t hart;
    // An `et_exception`.
    uint32_t exception;
    // Of a trap: the CSR `scause`.
    uint64_t cause;
    // Of a trap: the CSR `stval`; else what the kernel returned, in two's complement.
    uint64_t value;
    // Where it stopped in the kernel; 0 if unknown.
    uint64_t pc;
    // Cycle counter at that time.
    uint64_t cycles;
    // 1 if `registers` are known.
    uint64_t has_registers;
    // x1 to x31.
    uint64_t registers[31];
} et_hart;

// What a check has found where a hart stopped.
typedef struct et_finding {
    // `sizeof(et_finding)`, set by the caller.
    size_t size;
    // An `et_finding_kind`; all that follows is 0 if it is `ET_FINDING_NONE`.
    uint32_t kind;
    // An `et_memory_access`.
    uint32_t access;
    // Address of the access.
    uint64_t address;
    // Bytes of the access.
    uint64_t bytes;
    // Address of the buffer nearest to it, as it was used then; 0 if there is none.
    uint64_t buffer;
    // Bytes of that buffer.
    uint64_t buffer_bytes;
    // 1 if that buffer has been freed.
    uint32_t buffer_is_freed;
    // What another hart did before, an `et_memory_access`; 0 if no other is part of it.
    uint32_t other_access;
    // Number of that hart; its own if it did that itself, in another way.
    uint64_t other_hart;
    // Where that hart was in the kernel; 0 if unknown.
    uint64_t other_pc;
} et_finding;

// What tasks and edges are given to.
typedef struct et_graph_builder {
    // A number to be looked up; 0 is no builder.
    uint64_t id;
} et_graph_builder;

// A host function of a graph: gets its `user` pointer, the index of the task, and the arguments in
// words of 8 bytes, which last until it returns. Returns 0 if it went well, else any other number,
// which is in the message of the failure. It may wait, and must not throw.
typedef int32_t (*et_task_function)(void *user, uint32_t task, const uint64_t *args, size_t words);

// To be called when something is the caller's again, in whichever thread sees it. It must not
// wait, and must not throw. Calls of this library in it are `ET_IN_CALLBACK`.
typedef void (*et_released)(void *user);

// The description of a task.
typedef struct et_task {
    // A number to be looked up; 0 is no task.
    uint64_t id;
} et_task;

// Bytes on the host that copies of a graph read or write.
typedef struct et_host_data {
    // A number to be looked up; 0 is no data.
    uint64_t id;
} et_host_data;

// A process that has a device, by its own words.
typedef struct et_holder {
    // `sizeof(et_holder)`, set by the caller.
    size_t size;
    // Process id; 0 if no process is known to have the device.
    uint32_t pid;
    // Number of the user that it acts for.
    uint32_t user;
    // 1 if it says for which user it acts.
    uint32_t has_user;
    // 0.
    uint32_t reserved;
} et_holder;

// Memory on the host that the device reads and writes directly.
typedef struct et_host_buffer {
    // A number to be looked up; 0 is no buffer.
    uint64_t id;
} et_host_buffer;

// Where a kernel traces to.
typedef struct et_trace_options {
    // `sizeof(et_trace_options)`.
    size_t size;
    // Shires to trace.
    uint64_t shire_mask;
    // Harts of each shire.
    uint64_t thread_mask;
    // Bytes of the part of a hart at which it counts as full, 0 for all.
    uint32_t threshold;
    // Kinds of entries.
    uint32_t event_mask;
    // Levels.
    uint32_t filter_mask;
    // Must be 0.
    uint32_t reserved;
} et_trace_options;

// A queue of operations, which are done in their order.
typedef struct et_stream {
    // A number to be looked up; 0 is no stream.
    uint64_t id;
} et_stream;

// A copy of a list: of memory of the caller to the device, or within the device.
typedef struct et_copy {
    // Memory of the caller to be copied; null for a copy within the device.
    const void *from;
    // Memory on the device to be copied, if `from` is null.
    struct et_mem from_mem;
    // First byte of it.
    uint64_t from_offset;
    // Where it is copied to.
    struct et_mem to;
    // First byte of it.
    uint64_t to_offset;
    // Number of bytes.
    uint64_t bytes;
} et_copy;

// A copy of a list: of memory on the device to memory of the caller.
typedef struct et_read {
    // What is copied.
    struct et_mem from;
    // First byte of it.
    uint64_t from_offset;
    // Memory of the caller.
    void *to;
    // Number of bytes.
    size_t bytes;
} et_read;

// A part of a host buffer, and memory on the device.
typedef struct et_part {
    // First byte in the host buffer.
    size_t host_offset;
    // Memory on the device.
    struct et_mem mem;
    // First byte of it.
    uint64_t offset;
    // Number of bytes.
    uint64_t bytes;
} et_part;

// To be called with a message: `level` is an `et_log_level`, `target` says who speaks, as
// `et_runtime::link`. Both texts are there during the call only. Any thread of the library may
// call it, at any time and several at once; it must not throw, and must call nothing of the
// library.
typedef void (*et_log_callback)(void *user, uint32_t level, const char *target, const char *text);

// The service processor of a card: temperatures, clocks, errors, firmware. It shares nothing with
// copies and launches but the card, so it answers while kernels hang.
typedef struct et_management {
    // A number to be looked up; 0 is no management.
    uint64_t id;
} et_management;

// A version.
typedef struct et_firmware_version {
    // Changes that break programs.
    uint16_t major;
    // Additions.
    uint16_t minor;
    // Repairs.
    uint16_t patch;
    // 0.
    uint16_t reserved;
} et_firmware_version;

// Versions of the firmware.
typedef struct et_firmware_versions {
    // `sizeof(et_firmware_versions)`, set by the caller.
    size_t size;
    // The release all of them belong to.
    struct et_firmware_version release;
    // First boot loader.
    struct et_firmware_version boot_loader_1;
    // Second boot loader, the service processor's runtime.
    struct et_firmware_version boot_loader_2;
    // Master minion.
    struct et_firmware_version master_minion;
    // Worker minions.
    struct et_firmware_version worker_minion;
    // Machine mode of the minions.
    struct et_firmware_version machine_minion;
    // Power management controller.
    struct et_firmware_version power_controller;
} et_firmware_versions;

// Temperatures in °C.
typedef struct et_temperatures {
    // `sizeof(et_temperatures)`, set by the caller.
    size_t size;
    // Minion shires, average.
    int32_t minion_average_c;
    // Minion shires, lowest.
    int32_t minion_lowest_c;
    // Minion shires, highest.
    int32_t minion_highest_c;
    // I/O shire, now.
    int32_t io_shire_c;
    // I/O shire, lowest.
    int32_t io_shire_lowest_c;
    // I/O shire, highest.
    int32_t io_shire_highest_c;
    // Power management controller.
    int32_t power_controller_c;
    // 0.
    uint32_t reserved;
} et_temperatures;

// How long the device was in a state.
typedef struct et_residency {
    // `sizeof(et_residency)`, set by the caller.
    size_t size;
    // In all.
    uint64_t total_ns;
    // Average of a stay.
    uint64_t average_ns;
    // Longest stay.
    uint64_t longest_ns;
    // Shortest stay.
    uint64_t shortest_ns;
} et_residency;

// Clocks in MHz.
typedef struct et_frequencies {
    // `sizeof(et_frequencies)`, set by the caller.
    size_t size;
    // Minion shires.
    uint32_t minion_mhz;
    // Network on chip.
    uint32_t noc_mhz;
    // Memory shires.
    uint32_t memory_shire_mhz;
    // Memory.
    uint32_t ddr_mhz;
    // PCIe shire.
    uint32_t pcie_shire_mhz;
    // I/O shire.
    uint32_t io_shire_mhz;
} et_frequencies;

// Voltages in mV, as measured in the chip.
typedef struct et_asic_voltages {
    // `sizeof(et_asic_voltages)`, set by the caller.
    size_t size;
    // Memory.
    uint32_t ddr_mv;
    // L2 caches.
    uint32_t l2_cache_mv;
    // Maxions.
    uint32_t maxion_mv;
    // Minions.
    uint32_t minion_mv;
    // PCIe shire.
    uint32_t pcie_shire_mv;
    // Network on chip.
    uint32_t noc_mv;
    // I/O shire.
    uint32_t io_shire_mv;
    // VDDQLP.
    uint32_t vddqlp_mv;
    // VDDQ.
    uint32_t vddq_mv;
    // 0.
    uint32_t reserved;
} et_asic_voltages;

// Voltages in mV that the regulators are set to; 0 of one whose codes are not known.
typedef struct et_module_voltages {
    // `sizeof(et_module_voltages)`, set by the caller.
    size_t size;
    // Memory.
    float ddr_mv;
    // L2 caches.
    float l2_cache_mv;
    // Maxions.
    float maxion_mv;
    // Minions.
    float minion_mv;
    // PCIe.
    float pcie_mv;
    // Network on chip.
    float noc_mv;
    // PCIe logic.
    float pcie_logic_mv;
    // 0.
    uint32_t reserved;
} et_module_voltages;

// Errors that error correction has found.
typedef struct et_error_counts {
    // `sizeof(et_error_counts)`, set by the caller.
    size_t size;
    // Corrected ones.
    uint32_t corrected;
    // Uncorrectable ones.
    uint32_t uncorrectable;
} et_error_counts;

// Errors of the master minion.
typedef struct et_minion_errors {
    // `sizeof(et_minion_errors)`, set by the caller.
    size_t size;
    // Hangs.
    uint32_t hangs;
    // Exceptions.
    uint32_t exceptions;
} et_minion_errors;

// Present requests to the memory.
typedef struct et_memory_rate {
    // `sizeof(et_memory_rate)`, set by the caller.
    size_t size;
    // Reads in a second.
    uint32_t reads_per_s;
    // Writes in a second.
    uint32_t writes_per_s;
} et_memory_rate;

// How the memory of each shire is divided, in KiB.
typedef struct et_cache_config {
    // `sizeof(et_cache_config)`, set by the caller.
    size_t size;
    // Scratchpad.
    uint32_t scratchpad_kib;
    // Its part of the L2 cache.
    uint32_t l2_kib;
    // Its part of the L3 cache.
    uint32_t l3_kib;
    // 0.
    uint32_t reserved;
} et_cache_config;

// Values that the service processor has kept since it began.
typedef struct et_statistics {
    // A number to be looked up; 0 is no list.
    uint64_t id;
} et_statistics;

// A value over the time since statistics began.
typedef struct et_statistic {
    // `sizeof(et_statistic)`, set by the caller.
    size_t size;
    // Average.
    uint64_t average;
    // Least.
    uint64_t least;
    // Greatest.
    uint64_t greatest;
    // An `et_unit`.
    uint32_t unit;
    // 0.
    uint32_t reserved;
} et_statistic;

// Something that the card has announced by itself.
typedef struct et_card_event {
    // `sizeof(et_card_event)`, set by the caller.
    size_t size;
    // When it was seen, in nanoseconds since the device was opened.
    uint64_t seen_ns;
    // Two numbers whose meaning depends on the kind.
    uint64_t syndromes[2];
    // Its kind, by the number that the interface specification has for it (section 17.4).
    uint32_t kind;
    // An `et_severity`.
    uint32_t severity;
    // How often it has happened.
    uint32_t count;
    // 0.
    uint32_t reserved;
} et_card_event;

// Counts of what has come from the service processor since it was opened.
typedef struct et_management_counters {
    // `sizeof(et_management_counters)`, set by the caller.
    size_t size;
    // Responses that no command waits for; they are ignored.
    uint64_t stray_responses;
    // Messages that are none of the interface; they are ignored.
    uint64_t malformed_messages;
    // Events.
    uint64_t events;
    // Events that were dropped here, because no one took them.
    uint64_t events_lost;
    // Times the queue was found full, so that the service processor may have dropped events.
    uint64_t full_queues;
} et_management_counters;

// Device memory that the host has mapped.
typedef struct et_mapping {
    // A number to be looked up; 0 is no mapping.
    uint64_t id;
} et_mapping;

// Usage of the memory of a device, in bytes.
typedef struct et_memory_stats {
    // `sizeof(et_memory_stats)`, set by the caller.
    size_t size;
    // All of it.
    uint64_t total_bytes;
    // What is free.
    uint64_t free_bytes;
    // What is allocated.
    uint64_t used_bytes;
    // The largest free block.
    uint64_t largest_free_bytes;
    // The most that was ever allocated at one time.
    uint64_t peak_used_bytes;
    // Number of allocated blocks.
    uint64_t live_blocks;
} et_memory_stats;

// A kernel file on a device, of which one or more functions are to be launched.
typedef struct et_module {
    // A number to be looked up; 0 is no module.
    uint64_t id;
} et_module;

// An argument that a kernel takes.
typedef struct et_parameter {
    // `sizeof(et_parameter)`, set by the caller.
    size_t size;
    // Where it is, in bytes from the first argument.
    size_t offset;
    // An `et_scalar`: the type of a number, or of the elements of an array. 0 if this version does
    // not know it.
    uint32_t scalar;
    // An `et_access`: what the kernel does with an array whose address it gets; 0 of a number.
    uint32_t access;
} et_parameter;

// What `et_device_recover` may do; 0 everywhere is the default.
typedef struct et_recovery_policy {
    // `sizeof(et_recovery_policy)`.
    size_t size;
    // Limit of each remedy, and of each check after it; 0 for 5 s.
    uint64_t timeout_ns;
    // An `et_remedy`: the widest reset that is allowed; 0 for `ET_REMEDY_SLOT_RESET`.
    uint32_t widest;
    // 0.
    uint32_t reserved;
} et_recovery_policy;

// What was done about a device that did not work.
typedef struct et_recovery {
    // A number to be looked up; 0 is no recovery.
    uint64_t id;
} et_recovery;

// What a recovery was about and what it has cost.
typedef struct et_recovery_info {
    // `sizeof(et_recovery_info)`, set by the caller.
    size_t size;
    // Number of the steps. If the recovery helped, the last one did.
    size_t steps;
    // An `et_status`: what was wrong, or is still if nothing helped; `ET_OK` if the device worked.
    uint32_t ill;
    // 1 if work in flight and queues may be lost, and every handle of before is stale.
    uint32_t lost_queues;
    // 1 if the state of the cores may be lost.
    uint32_t lost_compute;
    // 1 if the contents of device memory may be lost.
    uint32_t lost_memory;
} et_recovery_info;

// A step of a recovery.
typedef struct et_recovery_step {
    // `sizeof(et_recovery_step)`, set by the caller.
    size_t size;
    // How long it took, with the check after it.
    uint64_t took_ns;
    // An `et_remedy`: what was done; 0 for one that this version does not know.
    uint32_t remedy;
    // An `et_status`: `ET_OK` if the device works since, else what is wrong with it.
    uint32_t status;
} et_recovery_step;

// Options of a stream; 0 everywhere is the default.
typedef struct et_stream_options {
    // `sizeof(et_stream_options)`.
    size_t size;
    // An `et_priority`.
    uint32_t priority;
    // Must be 0.
    uint32_t reserved;
} et_stream_options;

// What went wrong in a stream without anyone hearing of it.
typedef struct et_error_list {
    // A number to be looked up; 0 is no list.
    uint64_t id;
} et_error_list;

// Who traces, and what; 0 everywhere is the default.
typedef struct et_kernel_trace_options {
    // `sizeof(et_kernel_trace_options)`.
    size_t size;
    // Shires that trace, a bit for each; 0 for all.
    uint64_t shire_mask;
    // Harts of each that trace, a bit for each; 0 for all.
    uint64_t thread_mask;
    // Bytes of each hart's part, which begins again when it is full; 0 for 4096.
    uint32_t bytes_per_hart;
    // An `et_log_level`: texts that matter less are not written. 0 for what `et_log_to` lets
    // through for `et::kernel`.
    uint32_t level;
} et_kernel_trace_options;

// Memory that kernels write texts into, for the log.
typedef struct et_kernel_trace {
    // A number to be looked up; 0 is none.
    uint64_t id;
} et_kernel_trace;

// A reader of what firmware says.
typedef struct et_firmware_trace {
    // A number to be looked up; 0 is none.
    uint64_t id;
} et_firmware_trace;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the number of kernels that the runtime brings along.
enum et_status et_builtin_count(size_t *count);

// Returns the name of one of them. `needed` may be null.
enum et_status et_builtin_name(size_t index, char *buffer, size_t capacity, size_t *needed);

// Returns the arguments of one of them, in the language of C, such as `uint8_t *dst, uint64_t n`.
// `needed` may be null.
enum et_status et_builtin_arguments(size_t index, char *buffer, size_t capacity, size_t *needed);

// Gives a kernel by its name, put on the device if it is not there, to be launched with the
// arguments that `et_builtin_arguments` says.
enum et_status et_builtin_kernel(struct et_device device,
                                 const char *name,
                                 struct et_kernel *kernel);

// Describes a copy within a device that its cores do, from any byte to any byte, for
// `et_launch_submit`. The two places must not overlap.
enum et_status et_builtin_copy(struct et_device device,
                               struct et_mem from,
                               uint64_t from_offset,
                               struct et_mem to,
                               uint64_t to_offset,
                               uint64_t bytes,
                               struct et_launch *launch);

// Describes a fill of device memory that the cores do, from any byte on, for `et_launch_submit`:
// with a pattern of 1, 2, 4, 8 or 16 bytes.
enum et_status et_builtin_fill(struct et_device device,
                               struct et_mem to,
                               uint64_t offset,
                               uint64_t bytes,
                               const void *pattern,
                               size_t pattern_bytes,
                               struct et_launch *launch);

// Opens a device by its locator, such as "sim:", "sim:shires=2,dram=1GiB" or
// "vfio:0000:01:00.0".
//
// `options` may be null.
enum et_status et_device_open(const char *locator,
                              const struct et_device_options *options,
                              struct et_device *device);

// Closes a device: waits a while for what is in flight, then aborts it. Streams, memory and so on
// remain handles, to be freed, and answer `ET_CLOSED`.
enum et_status et_device_close(struct et_device device);

// Returns the number of devices that can be opened, the simulator included.
enum et_status et_device_count(size_t *count);

// Returns the locator of a device that can be opened.
enum et_status et_device_locator(size_t index, char *buffer, size_t capacity, size_t *needed);

// Returns what a device says about itself. The caller sets `properties->size`.
enum et_status et_device_properties(struct et_device device, struct et_properties *properties);

// Counts what a program has a device do. The caller sets `activity->size`.
enum et_status et_device_activity(struct et_device device, struct et_activity *activity);

// Aborts one operation, whether it runs or waits, and waits until it has ended; with a timeout of
// 0 it only asks for that.
//
// `ET_INVALID` if it has ended already or belongs to another device.
enum et_status et_device_abort(struct et_device device, struct et_event event, uint64_t timeout_ns);

// Resets the cores: aborts everything and restarts them. Memory and kernels stay.
enum et_status et_device_reset_compute(struct et_device device, uint64_t timeout_ns);

// Resets the whole device and opens it again, even one that does not answer any more. Every
// stream, memory, kernel and event of before is stale.
//
// After an error the device is closed; a reset may be tried again.
enum et_status et_device_reset(struct et_device device, uint64_t timeout_ns);

// Resets the operations firmware by the service processor, even if it hangs. Memory keeps its
// contents, but everything that was made of the device is stale, as after `et_device_reset`.
enum et_status et_device_reset_operations(struct et_device device, uint64_t timeout_ns);

// Resets the whole chip by the service processor: memory is lost, an installed firmware image
// runs, and everything that was made of the device is stale, as after `et_device_reset`.
enum et_status et_device_reset_chip(struct et_device device, uint64_t timeout_ns);

// Takes what has arrived from the device, without waiting, and calls callbacks; `messages` may be
// null. Only needed by programs that never wait.
enum et_status et_device_poll(struct et_device device, size_t *messages);

// Waits for an operation, for at most `timeout_ns`; 0 only looks. Returns the status of the
// operation, or `ET_TIMEOUT`, which cancels nothing. `timeline` may be null.
//
// Any number of threads may wait.
enum et_status et_event_wait(struct et_event event,
                             uint64_t timeout_ns,
                             struct et_timeline *timeline);

// Returns the status of an operation without waiting: `ET_NOT_READY` before it has ended.
enum et_status et_event_status(struct et_event event);

// Returns the number of the operation, which no other one of the device ever has.
enum et_status et_event_operation(struct et_event event, uint64_t *operation);

// Has a function called when the operation has ended, at once if it has. It is called exactly
// once, whether or not the event is freed before.
enum et_status et_event_on_done(struct et_event event, et_callback callback, void *user);

// Returns how far an operation is, without waiting.
enum et_status et_event_state_get(struct et_event event, enum et_event_state *state);

// Has a function called once the operation is in `state`, an `et_event_state`, or a later one, at
// once if it is already; it gets the state. It is called exactly once, whether or not the event
// is freed before.
enum et_status et_event_on_state(struct et_event event,
                                 uint32_t state,
                                 et_state_callback callback,
                                 void *user);

// Returns the details of a failed launch; `ET_INVALID` if the operation is none or did not fail.
enum et_status et_event_failure(struct et_event event, struct et_failure *failure);

// Returns the number with which the device answered a copy or launch that it failed or refused
// (interface specification, sections 7.6 and 7.8); `ET_INVALID` if the operation has no such
// answer.
enum et_status et_event_device_status(struct et_event event, uint32_t *status);

// Frees an event. The operation goes on; if it fails and no call has heard of that, the failure is
// in the stream's list of errors.
enum et_status et_event_free(struct et_event event);

// Makes an executor. `options` may be null.
enum et_status et_executor_create(struct et_device device,
                                  const struct et_executor_options *options,
                                  struct et_executor *executor);

// Frees an executor: cancels what has not started, and stops what runs after a while.
enum et_status et_executor_free(struct et_executor executor);

// Launches a graph. `options` may be null.
enum et_status et_graph_launch(struct et_executor executor,
                               struct et_graph graph,
                               const struct et_run_options *options,
                               struct et_run *run);

// Makes a flow: a task of a graph that is launched in it begins as soon as those of earlier graphs
// of the flow have ended that use what it uses. Tasks that depend on one that did not complete
// fail, until `et_flow_finish` has said what went wrong. Of use as long as the executor.
enum et_status et_flow_create(struct et_executor executor, struct et_flow *flow);

// Frees a flow. What was launched goes on.
enum et_status et_flow_free(struct et_flow flow);

// Launches a graph behind those of the flow. `options` may be null.
enum et_status et_flow_launch(struct et_flow flow,
                              struct et_graph graph,
                              const struct et_run_options *options,
                              struct et_run *run);

// Makes a run that ends when all that the flow writes to some bytes by now is written; it fails if
// that did not complete.
enum et_status et_flow_settled(struct et_flow flow,
                               struct et_mem mem,
                               uint64_t offset,
                               uint64_t bytes,
                               struct et_run *run);

// Waits until all that was launched in the flow has ended, for at most `timeout_ns`; later tasks
// depend on none of it. Returns what `et_run_wait` would for the first graph that did not end
// well.
enum et_status et_flow_finish(struct et_flow flow, uint64_t timeout_ns);

// Waits until a run has ended, for at most `timeout_ns`; 0 only looks. Returns `ET_OK` if all
// tasks have run, `ET_TASK_FAILED` and `ET_CANCELLED` if not, and `ET_TIMEOUT`, which cancels
// nothing.
enum et_status et_run_wait(struct et_run run, uint64_t timeout_ns);

// Returns how many tasks have ended, in any way, and how many there are. Either may be null.
enum et_status et_run_progress(struct et_run run, size_t *ended, size_t *tasks);

// Returns where a task is, an `et_task_state`.
enum et_status et_run_task_state(struct et_run run, uint32_t task, enum et_task_state *state);

// Cancels what has not started.
enum et_status et_run_cancel(struct et_run run);

// Has a function called when a run has ended, at once if it has.
enum et_status et_run_on_done(struct et_run run, et_callback callback, void *user);

// Returns one of the tasks that failed by themselves, by its index from 0 in the order in which
// they did: which task, its status and its message. `ET_NOT_READY` before the run has ended,
// `ET_OUT_OF_BOUNDS` if there are not as many. `task`, `status` and `needed` may be null.
enum et_status et_run_failure(struct et_run run,
                              size_t index,
                              uint32_t *task,
                              enum et_status *status,
                              char *buffer,
                              size_t capacity,
                              size_t *needed);

// Writes a run that has ended as a file that Perfetto and Chrome open, and `et report`: when each
// task ran and on which worker, as far as an `et_trace_detail` says, if its options asked for a
// trace; besides, what did not succeed and why, and what was skipped. With a recording of the
// device from before the launch to the end, how much of its memory was in use meanwhile; a
// recording of which the id is 0 is none. `ET_NOT_READY` before the run has ended.
enum et_status et_run_write_profile(struct et_run run,
                                    uint32_t detail,
                                    struct et_profile recorded,
                                    const char *path);

// Frees a run, which goes on.
enum et_status et_run_free(struct et_run run);

// Returns what is in the core file that the launch asked for; the caller sets `core->size`.
// `ET_INVALID` if it asked for none, or if none could be written, which the stream's list of
// errors says.
enum et_status et_failure_core_file(struct et_failure failure, struct et_core_file *core);

// Returns the number of harts that failed, and the mask of their shires; the latter may be null.
enum et_status et_failure_harts(struct et_failure failure, size_t *harts, uint64_t *shire_mask);

// Returns the state of one of them, by its index from 0. The caller sets `hart->size`.
enum et_status et_failure_hart(struct et_failure failure, size_t index, struct et_hart *hart);

// Returns the function in which a hart stopped, and the bytes from its start; an empty text if
// that is unknown. `distance` and `needed` may be null.
enum et_status et_failure_function(struct et_failure failure,
                                   size_t index,
                                   uint64_t *distance,
                                   char *buffer,
                                   size_t capacity,
                                   size_t *needed);

// Returns the source file and line in which a hart stopped; an empty text and 0 if that is
// unknown. `line` and `needed` may be null.
enum et_status et_failure_source(struct et_failure failure,
                                 size_t index,
                                 uint32_t *line,
                                 char *buffer,
                                 size_t capacity,
                                 size_t *needed);

// Returns the instruction at which a hart stopped and its neighbours, a line for each, with a mark
// at the one; an empty text if they are unknown. `needed` may be null.
enum et_status et_failure_code(struct et_failure failure,
                               size_t index,
                               char *buffer,
                               size_t capacity,
                               size_t *needed);

// Returns the whole report as a text of several lines. `needed` may be null.
enum et_status et_failure_text(struct et_failure failure,
                               char *buffer,
                               size_t capacity,
                               size_t *needed);

// Frees the details of a failure.
enum et_status et_failure_free(struct et_failure failure);

// Returns what a check of the simulated card has found where a hart stopped, by the hart's index
// from 0; of the kind `ET_FINDING_NONE` if it stopped for another reason. The caller sets
// `finding->size`.
enum et_status et_failure_finding(struct et_failure failure,
                                  size_t index,
                                  struct et_finding *finding);

// Returns the function in which the other hart of a finding was, and the bytes from its start; an
// empty text if that is unknown, or there is none. `distance` and `needed` may be null.
enum et_status et_failure_other_function(struct et_failure failure,
                                         size_t index,
                                         uint64_t *distance,
                                         char *buffer,
                                         size_t capacity,
                                         size_t *needed);

// Returns the source file and line in which the other hart of a finding was; an empty text and 0
// if that is unknown, or there is none. `line` and `needed` may be null.
enum et_status et_failure_other_source(struct et_failure failure,
                                       size_t index,
                                       uint32_t *line,
                                       char *buffer,
                                       size_t capacity,
                                       size_t *needed);

// Makes a builder without tasks.
enum et_status et_graph_builder_create(struct et_graph_builder *builder);

// Frees a builder.
enum et_status et_graph_builder_free(struct et_graph_builder builder);

// Registers a kernel, for any number of tasks.
enum et_status et_graph_kernel(struct et_graph_builder builder,
                               struct et_kernel kernel,
                               uint32_t *function);

// Registers a host function, for any number of tasks. It may be called on any thread until the
// last run of the graph has ended, several times at once.
enum et_status et_graph_function(struct et_graph_builder builder,
                                 et_task_function call,
                                 void *user,
                                 uint32_t *function);

// As `et_graph_function`; besides, `released` is called with `user`, exactly once, unless this
// call fails: when the builder, the graph and its runs are gone, and the function is never called
// again, also where a task went on behind the end of its run.
enum et_status et_graph_function_owned(struct et_graph_builder builder,
                                       et_task_function call,
                                       void *user,
                                       et_released released,
                                       uint32_t *function);

// In a host function: returns whether its run was cancelled, so that a long function can return
// early. Elsewhere `ET_INVALID`.
enum et_status et_task_is_cancelled(bool *is_cancelled);

// Describes a task that runs a function, by its number from `et_graph_kernel` or
// `et_graph_function`.
enum et_status et_task_create(struct et_graph_builder builder,
                              uint32_t function,
                              struct et_task *task);

// Frees a description that was not added.
enum et_status et_task_free(struct et_task task);

// Appends the address of device memory to the arguments, and declares its use, an `et_access`.
enum et_status et_task_arg_mem(struct et_task task,
                               struct et_mem mem,
                               uint64_t offset,
                               uint64_t bytes,
                               uint32_t access);

// Declares the use of device memory, an `et_access`, whose address the task does not get.
enum et_status et_task_uses_mem(struct et_task task,
                                struct et_mem mem,
                                uint64_t offset,
                                uint64_t bytes,
                                uint32_t access);

// Declares the use of host data, an `et_access`.
enum et_status et_task_uses_host_data(struct et_task task,
                                      struct et_host_data data,
                                      uint32_t access);

// Replaces the arguments by bytes, as `et_launch_args`.
enum et_status et_task_args(struct et_task task, const void *args, size_t bytes, size_t align);

// Appends a number to the arguments, at its natural alignment, as C does.
enum et_status et_task_arg_u32(struct et_task task, uint32_t value);

// Appends a number to the arguments.
enum et_status et_task_arg_u64(struct et_task task, uint64_t value);

// Appends a number to the arguments.
enum et_status et_task_arg_f32(struct et_task task, float value);

// Names a task, for messages.
enum et_status et_task_name(struct et_task task, const char *name);

// Runs the kernel on these shires only, where tasks become launches.
enum et_status et_task_shires(struct et_task task, uint64_t mask);

// Splits the task into so many parts, which run on different harts at the same time as far as
// there are any. It is complete when all are. A launch on a stream has one for each of its harts
// instead.
enum et_status et_task_parts(struct et_task task, uint32_t parts);

// Runs the task only if the word at `offset`, an `et_word` aligned to its length, compares so, an
// `et_comparison`, with `value` when everything before the task has ended. If not, the task is
// skipped: those behind it go on. A value with a sign is one that was converted to `uint64_t`.
enum et_status et_task_only_if(struct et_task task,
                               struct et_mem mem,
                               uint64_t offset,
                               uint32_t word,
                               uint32_t comparison,
                               uint64_t value);

// Declares memory of a device that the graph has for itself, at a multiple of `align` bytes, a
// power of two; 0 is 64. Tasks of the graph use it as other memory; nothing else does, and it has
// no address. It shares its bytes with other such memory if the order of the tasks allows. A task
// may read only what earlier ones write.
enum et_status et_graph_transient(struct et_graph_builder builder,
                                  struct et_device device,
                                  uint64_t bytes,
                                  uint64_t align,
                                  struct et_mem *mem);

// As `et_graph_edge`; besides, the memory of the graph that `before` writes lives until `after`
// has ended.
enum et_status et_graph_edge_and_retain(struct et_graph_builder builder,
                                        uint32_t before,
                                        uint32_t after);

// Adds a task and frees its description, which stays if that fails. Gives the index of the task,
// which may be null; tasks are in program order, and wait for earlier ones with whose use of
// memory their own conflicts.
enum et_status et_graph_add(struct et_graph_builder builder,
                            struct et_task task,
                            uint32_t *task_index);

// Adds a copy of all of `from` to device memory. `task_index` may be null.
enum et_status et_graph_copy_in(struct et_graph_builder builder,
                                struct et_host_data from,
                                struct et_mem to,
                                uint64_t offset,
                                uint32_t *task_index);

// Adds a copy from device memory to all of `to`. `task_index` may be null.
enum et_status et_graph_copy_out(struct et_graph_builder builder,
                                 struct et_mem from,
                                 uint64_t offset,
                                 struct et_host_data to,
                                 uint32_t *task_index);

// Runs one task after another, whatever they declare.
enum et_status et_graph_edge(struct et_graph_builder builder, uint32_t before, uint32_t after);

// Makes the graph and frees the builder, also if that fails, for example because tasks wait for
// each other in a circle.
enum et_status et_graph_build(struct et_graph_builder builder, struct et_graph *graph);

// Frees a graph. Its runs go on.
enum et_status et_graph_free(struct et_graph graph);

// Makes so many zero bytes.
enum et_status et_host_data_create(size_t bytes, struct et_host_data *data);

// Copies into host data. Waits for a copy of a graph that uses it.
enum et_status et_host_data_write(struct et_host_data data,
                                  size_t offset,
                                  const void *from,
                                  size_t bytes);

// Copies out of host data. Waits for a copy of a graph that uses it.
enum et_status et_host_data_read(struct et_host_data data, size_t offset, void *to, size_t bytes);

// Frees host data, once the last graph that uses it is gone.
enum et_status et_host_data_free(struct et_host_data data);

// Returns a text about an open device, an `et_identity`; an empty one if its backend does not say
// that. `needed` may be null.
enum et_status et_device_identity(struct et_device device,
                                  uint32_t identity,
                                  char *buffer,
                                  size_t capacity,
                                  size_t *needed);

// Returns what a device is that can be opened, as a text. `needed` may be null.
enum et_status et_device_description(size_t index, char *buffer, size_t capacity, size_t *needed);

// Returns who has a device now, so that it cannot be opened, and the command line of that process.
// The caller sets `holder->size`; `needed` may be null.
enum et_status et_device_holder(size_t index,
                                struct et_holder *holder,
                                char *command,
                                size_t capacity,
                                size_t *needed);

// Returns the bytes in which memory of the caller can be used where it is: it begins and ends on a
// multiple. 0 if its contents are always copied.
enum et_status et_device_import_granule(struct et_device device, size_t *bytes);

// Lends memory of the caller to a device, as a host buffer. `access`, an `et_access`, is what the
// device does with it: it reads for uploads, and writes for downloads.
//
// The memory is the library's until `released` is called, exactly once, unless this call fails:
// when the buffer was freed and the last copy that uses it has ended. Meanwhile the caller may
// look at it, and may change what no copy uses, but neither during this call nor during
// `et_host_buffer_free`. `released` may be null for memory that is there as long as the process.
//
// The device reaches the memory itself if it is made of whole granules and the system agrees. Else
// its contents are copied now, and, if it is lent for writing, back by `et_host_buffer_free`, if
// no copy uses the buffer then; `et_host_buffer_why_copied` says so.
enum et_status et_host_buffer_import(struct et_device device,
                                     void *memory,
                                     size_t bytes,
                                     uint32_t access,
                                     et_released released,
                                     void *user,
                                     struct et_host_buffer *buffer);

// Returns why the contents of imported memory are copied; an empty text if the device reaches the
// memory itself. `ET_BUSY` while a copy of the device uses it. `needed` may be null.
enum et_status et_host_buffer_why_copied(struct et_host_buffer buffer,
                                         char *text,
                                         size_t capacity,
                                         size_t *needed);

// Frees a host buffer, once the device is done with it. Imported memory that no copy uses is the
// caller's again when the call returns.
enum et_status et_host_buffer_free(struct et_host_buffer buffer);

// Loads a kernel from an ELF file in memory. `name` is for messages.
enum et_status et_kernel_load(struct et_device device,
                              const char *name,
                              const void *elf,
                              size_t bytes,
                              struct et_kernel *kernel);

// Loads a kernel as `et_kernel_load` does, into memory of the caller's from `offset`. Nothing may
// write there while the kernel is of use. `ET_OUT_OF_BOUNDS` if it does not fit,
// `ET_MISALIGNED` if the file demands another place.
enum et_status et_kernel_load_to(struct et_device device,
                                 const char *name,
                                 const void *elf,
                                 size_t bytes,
                                 struct et_mem mem,
                                 uint64_t offset,
                                 struct et_kernel *kernel);

// Loads a kernel from an ELF file, by whose path it is called in messages.
enum et_status et_kernel_load_file(struct et_device device,
                                   const char *path,
                                   struct et_kernel *kernel);

// Frees a kernel, once the last launch of it has ended.
enum et_status et_kernel_free(struct et_kernel kernel);

// Returns where a kernel is on its device, and how long it is. Either may be null.
enum et_status et_kernel_place(struct et_kernel kernel, uint64_t *address, uint64_t *bytes);

// Describes a launch of a kernel on all shires, without arguments.
enum et_status et_launch_create(struct et_kernel kernel, struct et_launch *launch);

// Frees a description. Launches of it go on.
enum et_status et_launch_free(struct et_launch launch);

// Replaces the arguments by bytes; `align` is the alignment of the struct, a power of two up to
// 4096, and 0 is 8. Memory whose address is in them is kept by `et_launch_keep` or by the caller.
enum et_status et_launch_args(struct et_launch launch,
                              const void *args,
                              size_t bytes,
                              size_t align);

// Appends the address of device memory at an offset, and keeps the memory until the launch has
// ended.
enum et_status et_launch_arg_mem(struct et_launch launch, struct et_mem mem, uint64_t offset);

// Keeps device memory until the launch has ended.
enum et_status et_launch_keep(struct et_launch launch, struct et_mem mem);

// Appends a number at its natural alignment, as C does.
enum et_status et_launch_arg_u32(struct et_launch launch, uint32_t value);

// Appends a number.
enum et_status et_launch_arg_i32(struct et_launch launch, int32_t value);

// Appends a number.
enum et_status et_launch_arg_u64(struct et_launch launch, uint64_t value);

// Appends a number.
enum et_status et_launch_arg_i64(struct et_launch launch, int64_t value);

// Appends a number.
enum et_status et_launch_arg_f32(struct et_launch launch, float value);

// Runs on these shires only.
enum et_status et_launch_shires(struct et_launch launch, uint64_t mask);

// Evicts the third-level cache before the kernel starts.
enum et_status et_launch_flush_l3(struct et_launch launch);

// Gives every hart a stack of at least this many bytes.
enum et_status et_launch_stack(struct et_launch launch, uint64_t bytes);

// Has a core file written to `path`, in place of what may be there, if the launch fails: with the
// registers, the kernel, its stacks if `et_launch_stack` has given it some, and all memory that
// the launch keeps, which gdb opens. It is there when the event has failed, see
// `et_failure_core_file`. What is not in it is in the stream's list of errors.
enum et_status et_launch_core_dump(struct et_launch launch, const char *path);

// Lets the kernel trace into a part of device memory, whose address and length are multiples of
// 64.
enum et_status et_launch_trace(struct et_launch launch,
                               struct et_mem buffer,
                               uint64_t offset,
                               uint64_t bytes,
                               const struct et_trace_options *options);

// Does several copies as one operation; they are not ordered among themselves. Memory of the
// caller may be changed when the call returns. All copies are checked before the first is sent.
enum et_status et_copy_list(struct et_stream stream,
                            const struct et_copy *copies,
                            size_t count,
                            struct et_event *event);

// Copies several pieces of device memory to memory of the caller as one operation, and waits for
// it. The places must not overlap. After a failure they may be partly written, or zeroed.
enum et_status et_read_list(struct et_stream stream,
                            const struct et_read *reads,
                            size_t count,
                            uint64_t timeout_ns);

// Copies parts of a host buffer to the device as one operation, without waiting. The buffer is
// busy until that has ended.
enum et_status et_upload_list(struct et_stream stream,
                              struct et_host_buffer from,
                              const struct et_part *copies,
                              size_t count,
                              struct et_event *event);

// Copies device memory to parts of a host buffer as one operation, without waiting. The rest of
// the buffer stays as it is; it is busy until the operation has ended.
enum et_status et_download_list(struct et_stream stream,
                                const struct et_part *copies,
                                size_t count,
                                struct et_host_buffer to,
                                struct et_event *event);

// Copies memory of the caller to the device, launches a kernel, and copies what it made to parts
// of a host buffer: as one operation with one event. `inputs`, in which `from` is never null, may
// be changed when the call returns; the host buffer is busy until the operation has ended.
enum et_status et_launch_staged(struct et_stream stream,
                                const struct et_copy *inputs,
                                size_t input_count,
                                struct et_launch launch,
                                const struct et_part *outputs,
                                size_t output_count,
                                struct et_host_buffer into,
                                struct et_event *event);

// Copies from the device of a stream to that of another stream, `peer`, without waiting: when the
// earlier operations of both have ended. The data goes through the host in pieces. The event is
// one of the other device.
enum et_status et_copy_to_peer(struct et_stream stream,
                               struct et_mem from,
                               uint64_t from_offset,
                               struct et_stream peer,
                               struct et_mem to,
                               uint64_t to_offset,
                               uint64_t bytes,
                               struct et_event *event);

// Returns the way that bytes take from one device to another, an `et_peer_path`, which is the same
// in both directions.
enum et_status et_device_peer_path(struct et_device device, struct et_device other, uint32_t *path);

// Has a function called for each message that the filter lets through: a level (`debug`), or
// levels of targets (`warn,et_runtime=trace`). What was asked for before ends.
//
// Without a function messages are lines on standard error, which the environment variable `ET_LOG`
// asks for too. `ET_BUSY` if the program hears them as a user of Rust's `tracing`.
enum et_status et_log_to(const char *filter, et_log_callback callback, void *user);

// Opens the service processor of an open device. Its calls take at most `timeout_ns`; 0 is the
// device's `command_timeout_ns`.
enum et_status et_device_management(struct et_device device,
                                    uint64_t timeout_ns,
                                    struct et_management *management);

// Opens the service processor of a card alone, which needs no operations firmware: a card whose
// firmware does not start can be updated and reset. `options` may be null.
enum et_status et_management_open(const char *locator,
                                  const struct et_device_options *options,
                                  struct et_management *management);

// Frees a management. One that was opened alone closes its card with the last call that uses it.
enum et_status et_management_free(struct et_management management);

// Returns a text about the module, an `et_asset`; an empty one if the firmware does not know it.
// `needed` may be null.
enum et_status et_management_asset(struct et_management management,
                                   uint32_t asset,
                                   char *buffer,
                                   size_t capacity,
                                   size_t *needed);

// Returns the versions of the firmware that runs. The caller sets `versions->size`, and so on
// below.
enum et_status et_management_firmware_versions(struct et_management management,
                                               struct et_firmware_versions *versions);

// Returns the time since the service processor was started, in whole minutes.
enum et_status et_management_uptime(struct et_management management, uint64_t *uptime_ns);

// Returns temperatures.
enum et_status et_management_temperatures(struct et_management management,
                                          struct et_temperatures *temperatures);

// Returns the highest temperature so far, in °C.
enum et_status et_management_highest_temperature_c(struct et_management management,
                                                   uint32_t *celsius);

// Returns the temperature above which the clock is reduced, in °C.
enum et_status et_management_temperature_threshold_c(struct et_management management,
                                                     uint32_t *celsius);

// Sets the temperature above which the clock is reduced, in °C.
enum et_status et_management_set_temperature_threshold_c(struct et_management management,
                                                         uint8_t celsius);

// Returns the power of the module, in mW.
enum et_status et_management_power_mw(struct et_management management, uint32_t *milliwatts);

// Returns the power state of the module: an `et_power_state`, or another number of the firmware's.
enum et_status et_management_power_state(struct et_management management, uint32_t *state);

// Returns the thermal design power, in watts.
enum et_status et_management_tdp_watts(struct et_management management, uint32_t *watts);

// Sets the thermal design power, in watts.
enum et_status et_management_set_tdp_watts(struct et_management management, uint8_t watts);

// Has the firmware manage power, or not.
enum et_status et_management_set_power_management(struct et_management management, bool is_on);

// Sets a clock, an `et_clock`, in MHz; through the step clock, or at once.
enum et_status et_management_set_frequency_mhz(struct et_management management,
                                               uint32_t clock,
                                               uint16_t mhz,
                                               bool by_steps);

// Sets how many errors of an `et_error_source` are announced at once. Current firmware ignores the
// number.
enum et_status et_management_set_error_threshold(struct et_management management,
                                                 uint32_t source,
                                                 uint8_t count);

// Returns how long the throttle was in a state, an `et_throttle_state`.
enum et_status et_management_throttle_residency(struct et_management management,
                                                uint32_t state,
                                                struct et_residency *residency);

// Returns how long the module was in a power state, an `et_power_state`.
enum et_status et_management_power_residency(struct et_management management,
                                             uint32_t state,
                                             struct et_residency *residency);

// Returns clocks.
enum et_status et_management_frequencies(struct et_management management,
                                         struct et_frequencies *frequencies);

// Returns voltages that the chip measures.
enum et_status et_management_asic_voltages(struct et_management management,
                                           struct et_asic_voltages *voltages);

// Returns voltages that the regulators are set to.
enum et_status et_management_module_voltages(struct et_management management,
                                             struct et_module_voltages *voltages);

// Returns errors since the last reset of the chip, of an `et_error_source`.
enum et_status et_management_error_counts(struct et_management management,
                                          uint32_t source,
                                          struct et_error_counts *counts);

// Returns errors of the master minion.
enum et_status et_management_minion_errors(struct et_management management,
                                           struct et_minion_errors *errors);

// Returns present requests to the memory.
enum et_status et_management_memory_rate(struct et_management management,
                                         struct et_memory_rate *rate);

// Returns the used part of the memory, in percent.
enum et_status et_management_memory_used_percent(struct et_management management,
                                                 uint32_t *percent);

// Returns how the memory of the shires is divided.
enum et_status et_management_cache_config(struct et_management management,
                                          struct et_cache_config *config);

// Returns averages and extremes that an `et_processor` has kept.
enum et_status et_management_statistics(struct et_management management,
                                        uint32_t processor,
                                        struct et_statistics *statistics);

// Returns the number of values in a list.
enum et_status et_statistics_count(struct et_statistics statistics, size_t *count);

// Returns a value of a list, and its name, as `minion_power`. The caller sets `statistic->size`;
// `needed` may be null.
enum et_status et_statistics_get(struct et_statistics statistics,
                                 size_t index,
                                 struct et_statistic *statistic,
                                 char *name,
                                 size_t capacity,
                                 size_t *needed);

// Frees a list of values.
enum et_status et_statistics_free(struct et_statistics statistics);

// Takes the next event of the card; `ET_TIMEOUT` if none comes within `timeout_ns`. The last 1024
// are kept until they are taken. The caller sets `event->size`; an event whose name found no room
// is gone. `needed` may be null.
enum et_status et_management_event(struct et_management management,
                                   uint64_t timeout_ns,
                                   struct et_card_event *event,
                                   char *name,
                                   size_t capacity,
                                   size_t *needed);

// Returns what has come from the service processor since it was opened.
enum et_status et_management_counters_get(struct et_management management,
                                          struct et_management_counters *counters);

// Installs a firmware image, which runs from the next reset of the chip on; what the service
// processor refuses changes nothing. `name` is what its log calls the image.
enum et_status et_management_update_firmware(struct et_management management,
                                             const void *image,
                                             size_t bytes,
                                             const char *name);

// Maps device memory for the host: what `use`, an `et_access`, says is what the host does with it.
//
// Waits for what the stream was given before, for at most `timeout_ns`. Of `ET_WRITES` nothing is
// fetched; all of it should be written then, since nothing says what the rest has afterwards. A
// part that is written has one mapping at a time, else `ET_BUSY`. Kernels and copies are not kept
// from it.
enum et_status et_stream_map(struct et_stream stream,
                             struct et_mem mem,
                             uint64_t offset,
                             uint64_t bytes,
                             uint32_t use,
                             uint64_t timeout_ns,
                             struct et_mapping *mapping);

// Returns how the host reaches mapped memory, an `et_map_path`.
enum et_status et_mapping_path(struct et_mapping mapping, enum et_map_path *path);

// Reads mapped memory from byte `offset` on. `ET_UNSUPPORTED` if it was mapped for writing alone.
enum et_status et_mapping_read(struct et_mapping mapping, size_t offset, void *to, size_t bytes);

// Writes mapped memory from byte `offset` on. The device sees it after `et_mapping_flush` or
// `et_mapping_unmap`, and may see it before. `ET_UNSUPPORTED` if it was mapped for reading.
enum et_status et_mapping_write(struct et_mapping mapping,
                                size_t offset,
                                const void *from,
                                size_t bytes);

// Makes what was written visible to the device, and waits for that. After `ET_TIMEOUT` it goes on,
// and the next flush waits again.
enum et_status et_mapping_flush(struct et_mapping mapping, uint64_t timeout_ns);

// Ends a mapping, with everything written visible to the device, and frees it. If that fails the
// mapping is there still, to be ended once more or freed.
enum et_status et_mapping_unmap(struct et_mapping mapping, uint64_t timeout_ns);

// Frees a mapping. What was written is written back without waiting for the end of that; a failure
// of it is in the stream's list of errors.
enum et_status et_mapping_free(struct et_mapping mapping);

// Allocates memory on the device at a multiple of `align` bytes, a power of two; 0 is 64. Its
// contents are undefined.
enum et_status et_mem_alloc(struct et_device device,
                            uint64_t bytes,
                            uint64_t align,
                            struct et_mem *mem);

// Frees memory, once the last operation that uses it has ended.
enum et_status et_mem_free(struct et_mem mem);

// Returns the address of memory on its device.
enum et_status et_mem_address(struct et_mem mem, uint64_t *address);

// Returns the length of memory, as asked for.
enum et_status et_mem_bytes(struct et_mem mem, uint64_t *bytes);

// Returns how much memory of a device is used. The caller sets `stats->size`.
enum et_status et_memory_stats_get(struct et_device device, struct et_memory_stats *stats);

// Allocates zeroed host memory that a device reads and writes directly.
enum et_status et_host_buffer_alloc(struct et_device device,
                                    size_t bytes,
                                    struct et_host_buffer *buffer);

// Copies into a host buffer. `ET_BUSY` while a copy of the device uses it.
enum et_status et_host_buffer_write(struct et_host_buffer buffer,
                                    size_t offset,
                                    const void *from,
                                    size_t bytes);

// Copies out of a host buffer. `ET_BUSY` while a copy of the device uses it.
enum et_status et_host_buffer_read(struct et_host_buffer buffer,
                                   size_t offset,
                                   void *to,
                                   size_t bytes);

// Loads a kernel file that is in memory. It is copied once, and the call does not wait for that;
// launches need not, either, since they do so themselves. `name` is for messages; `event`, of the
// copy, may be null.
enum et_status et_module_load(struct et_device device,
                              const char *name,
                              const void *elf,
                              size_t bytes,
                              struct et_module *module,
                              struct et_event *event);

// Loads a kernel file by its path, as `et_module_load`.
enum et_status et_module_load_file(struct et_device device,
                                   const char *path,
                                   struct et_module *module,
                                   struct et_event *event);

// Gives the kernel that starts at a function, or at the entry that the file names if `function` is
// null. It needs the module no longer.
enum et_status et_module_kernel(struct et_module module,
                                const char *function,
                                struct et_kernel *kernel);

// Frees a module. The file stays as long as a kernel of it.
enum et_status et_module_free(struct et_module module);

// Returns the number of arguments that a kernel takes, and 1 in `is_stated` if its file states
// them with `ET_ARGUMENTS`; if not, both are 0, and anything is passed on. `is_stated` may be
// null.
//
// A launch with other arguments than those stated is `ET_INVALID`.
enum et_status et_kernel_parameter_count(struct et_kernel kernel,
                                         size_t *count,
                                         uint32_t *is_stated);

// Returns an argument that a kernel takes, and its name. The caller sets `parameter->size`;
// `parameter` and `needed` may be null.
enum et_status et_kernel_parameter(struct et_kernel kernel,
                                   size_t index,
                                   struct et_parameter *parameter,
                                   char *name,
                                   size_t capacity,
                                   size_t *needed);

// Returns all that a kernel takes as a text, such as `x: in f32[], n: u64`; an empty one if its
// file does not state it. `needed` may be null.
enum et_status et_kernel_signature(struct et_kernel kernel,
                                   char *buffer,
                                   size_t capacity,
                                   size_t *needed);

// Starts to record the operations of a device.
enum et_status et_profile_start(struct et_device device);

// Stops to record, and gives what was recorded.
enum et_status et_profile_stop(struct et_device device, struct et_profile *profile);

// Returns the number of recorded operations, and of those for which there was no room; the latter
// may be null.
enum et_status et_profile_count(struct et_profile profile, size_t *operations, uint64_t *dropped);

// Writes a recording as a file that Perfetto and Chrome open.
enum et_status et_profile_write(struct et_profile profile, const char *path);

// Frees a recording.
enum et_status et_profile_free(struct et_profile profile);

// Makes a device work again, with the gentlest remedy that helps: an abort of all work in flight,
// then wider and wider resets as far as the policy allows. After each it is checked whether the
// device works. One that works and has nothing in flight is left alone.
//
// `policy` may be null. If nothing helps, returns what is wrong still; the device is closed then,
// or does not work, and a later call may try more. `recovery`, which may be null, is written in
// both cases, and is to be freed; after every other failure its `id` is 0.
enum et_status et_device_recover(struct et_device device,
                                 const struct et_recovery_policy *policy,
                                 struct et_recovery *recovery);

// Returns what a recovery was about and what it has cost. The caller sets `info->size`.
enum et_status et_recovery_get(struct et_recovery recovery, struct et_recovery_info *info);

// Returns what was wrong, or is still if nothing helped, with all causes; an empty text if the
// device worked. `needed` may be null.
enum et_status et_recovery_message(struct et_recovery recovery,
                                   char *buffer,
                                   size_t capacity,
                                   size_t *needed);

// Returns a step, by its index from 0. The caller sets `step->size`.
enum et_status et_recovery_step_get(struct et_recovery recovery,
                                    size_t index,
                                    struct et_recovery_step *step);

// Returns what is wrong after a step, with all causes; an empty text if the device works since.
// `needed` may be null.
enum et_status et_recovery_step_message(struct et_recovery recovery,
                                        size_t index,
                                        char *buffer,
                                        size_t capacity,
                                        size_t *needed);

// Frees what is known of a recovery.
enum et_status et_recovery_free(struct et_recovery recovery);

// To be called first, with `ET_ABI_VERSION`: checks that header and library fit. May be called any
// number of times.
//
// `ET_ABI_MISMATCH` names both versions.
enum et_status et_init(uint32_t abi_version);

// Returns the version of the interface that the library has.
uint32_t et_abi_version(void);

// Returns the version of the library, such as "0.1.0".
const char *et_version(void);

// Returns the name of a status code, such as `ET_TIMEOUT`; of other numbers `unknown`.
const char *et_status_name(int32_t status);

// Returns the message of the last call of this thread that failed, with all causes; empty if none
// did. Valid until the next call of this thread that fails.
const char *et_last_error(void);

// Makes a stream.
enum et_status et_stream_create(struct et_device device, struct et_stream *stream);

// Makes a stream with options, which may be null.
enum et_status et_stream_create_with(struct et_device device,
                                     const struct et_stream_options *options,
                                     struct et_stream *stream);

// Frees a stream. What it was given is done.
enum et_status et_stream_free(struct et_stream stream);

// Waits until all operations are done, failed ones included.
enum et_status et_stream_synchronize(struct et_stream stream, uint64_t timeout_ns);

// Aborts the operations of a stream, and waits until all of them are done.
enum et_status et_stream_abort(struct et_stream stream, uint64_t timeout_ns);

// Makes later operations of a stream wait for an event of any stream of any device. Only its end
// counts: if the operation fails, the stream goes on.
enum et_status et_stream_wait_for(struct et_stream stream, struct et_event event);

// Makes an event for the end of everything before it.
enum et_status et_stream_barrier(struct et_stream stream, struct et_event *event);

// Copies memory of the caller to the device. It may be changed when the call returns.
//
// `event` may be null here and below; a failure is then in the stream's list of errors.
enum et_status et_copy_to_device(struct et_stream stream,
                                 const void *from,
                                 size_t bytes,
                                 struct et_mem to,
                                 uint64_t offset,
                                 struct et_event *event);

// Copies device memory to memory of the caller, and waits for it. After a failure `to` may be
// partly written, or zeroed.
enum et_status et_copy_to_host(struct et_stream stream,
                               struct et_mem from,
                               uint64_t offset,
                               void *to,
                               size_t bytes,
                               uint64_t timeout_ns);

// Copies device memory to memory of the caller, without waiting. The bytes are there when a call
// has returned that the operation has ended well, or its callback is called. Until then `to`
// belongs to the library; freeing the event gives it back, and it is not written then.
enum et_status et_copy_to_host_async(struct et_stream stream,
                                     struct et_mem from,
                                     uint64_t offset,
                                     void *to,
                                     size_t bytes,
                                     struct et_event *event);

// Copies the first bytes of a host buffer to the device, without waiting. The buffer is busy until
// that has ended.
enum et_status et_upload(struct et_stream stream,
                         struct et_host_buffer from,
                         struct et_mem to,
                         uint64_t offset,
                         uint64_t bytes,
                         struct et_event *event);

// Copies device memory to the start of a host buffer, without waiting. The buffer is busy until
// that has ended.
enum et_status et_download(struct et_stream stream,
                           struct et_mem from,
                           uint64_t offset,
                           uint64_t bytes,
                           struct et_host_buffer to,
                           struct et_event *event);

// Copies within the memory of a device. The two places must not overlap.
enum et_status et_copy_on_device(struct et_stream stream,
                                 struct et_mem from,
                                 uint64_t from_offset,
                                 struct et_mem to,
                                 uint64_t to_offset,
                                 uint64_t bytes,
                                 struct et_event *event);

// Sets device memory to a byte.
enum et_status et_fill(struct et_stream stream,
                       struct et_mem to,
                       uint64_t offset,
                       uint64_t bytes,
                       uint8_t byte,
                       struct et_event *event);

// Sets device memory to a pattern of 1, 2, 4, 8 or 16 bytes, which begins at its first byte and is
// cut off at its end.
enum et_status et_fill_pattern(struct et_stream stream,
                               struct et_mem to,
                               uint64_t offset,
                               uint64_t bytes,
                               const void *pattern,
                               size_t pattern_bytes,
                               struct et_event *event);

// Launches a kernel, which comes with its arguments and options. The same description may be
// launched again.
enum et_status et_launch_submit(struct et_stream stream,
                                struct et_launch launch,
                                struct et_event *event);

// Takes the errors of operations whose events were freed or never given, and the panics of
// callbacks; a new list gathers from then on.
enum et_status et_stream_take_errors(struct et_stream stream, struct et_error_list *list);

// Returns the number of errors in a list, and of those that did not find room in it. `dropped` may
// be null.
enum et_status et_error_list_count(struct et_error_list list, size_t *count, uint64_t *dropped);

// Returns one error of a list: its status, the number of its operation, and its message. `status`,
// `operation` and `needed` may be null.
enum et_status et_error_list_get(struct et_error_list list,
                                 size_t index,
                                 enum et_status *status,
                                 uint64_t *operation,
                                 char *buffer,
                                 size_t capacity,
                                 size_t *needed);

// Frees a list of errors.
enum et_status et_error_list_free(struct et_error_list list);

// Makes memory that kernels trace into; `options` may be null.
enum et_status et_kernel_trace_create(struct et_device device,
                                      const struct et_kernel_trace_options *options,
                                      struct et_kernel_trace *trace);

// Has a launch trace there, as far as the log lets it through now. One launch at a time may, and
// `et_kernel_trace_log` is called between two of them.
enum et_status et_launch_kernel_trace(struct et_launch launch, struct et_kernel_trace trace);

// Takes what the last launch has traced, and hands it to the log, each entry with hart and time,
// and with the level at which the kernel wrote it. `entries`, their number, may be null.
enum et_status et_kernel_trace_log(struct et_kernel_trace trace,
                                   uint64_t timeout_ns,
                                   size_t *entries);

// Frees the memory, when no launch uses it any more.
enum et_status et_kernel_trace_free(struct et_kernel_trace trace);

// Has firmware trace what `et_log_to` lets through for `et::firmware` now, and makes a reader of
// it.
enum et_status et_firmware_trace_create(struct et_device device, struct et_firmware_trace *trace);

// Fetches what firmware has traced since the last call, 9 MiB, and hands it to the log. `entries`,
// their number, may be null.
enum et_status et_firmware_trace_log(struct et_firmware_trace trace,
                                     uint64_t timeout_ns,
                                     size_t *entries);

// Frees a reader.
enum et_status et_firmware_trace_free(struct et_firmware_trace trace);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ET_H */
