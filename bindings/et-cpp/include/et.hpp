// C++17 over the C interface: handles that free themselves, and statuses as exceptions.

#ifndef ET_HPP
#define ET_HPP

#include <et.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace et {

// A call that failed: the status, and the message with all causes.
class Error : public std::runtime_error {
public:
  Error(et_status status, const std::string& message)
      : std::runtime_error(message), status_(status) {}

  et_status status() const noexcept { return status_; }

private:
  et_status status_;
};

// Throws unless a call went well.
inline void check(et_status status) {
  if (status != ET_OK) {
    throw Error(status, et_last_error());
  }
}

// Nanoseconds of a timeout; negative ones are none, those too large are without an end.
inline std::uint64_t nanoseconds(std::chrono::duration<double> timeout) {
  const double count = timeout.count() * 1e9;
  if (!(count > 0)) {
    return 0;
  }
  return count < 1.8e19 ? static_cast<std::uint64_t>(count) : ET_FOREVER;
}

// Calls a function that writes a text into a buffer, with one that is large enough. Of two tries
// the second fits, unless the text grows meanwhile, which none does.
template <class Write>
std::string text(Write write) {
  std::string buffer(256, '\0');
  std::size_t needed = 0;
  et_status status = write(&buffer[0], buffer.size(), &needed);
  if (status == ET_BUFFER_TOO_SMALL) {
    buffer.resize(needed);
    status = write(&buffer[0], buffer.size(), &needed);
  }
  check(status);
  buffer.resize(needed == 0 ? 0 : needed - 1);
  return buffer;
}

// What was done about a device that did not work.
struct RecoveryStep {
  et_remedy remedy;
  std::chrono::nanoseconds took;
  // `ET_OK` if the device works since, else what is wrong with it.
  et_status status;
  std::string message;
};

// A device that works again, or always did; in a `RecoveryError`, one that does not.
struct Recovery {
  // What was wrong, or is still; `ET_OK` if the device worked.
  et_status ill;
  std::string message;
  std::vector<RecoveryStep> steps;
  // What the steps may have destroyed. Without queues, every handle of before is stale.
  bool lost_queues;
  bool lost_compute;
  bool lost_memory;
};

// A device that nothing helps that is allowed.
class RecoveryError : public Error {
public:
  RecoveryError(et_status status, const std::string& message, Recovery recovery)
      : Error(status, message), recovery_(std::move(recovery)) {}

  const Recovery& recovery() const noexcept { return recovery_; }

private:
  Recovery recovery_;
};

// A handle that one object owns.
template <class Raw, et_status (*Free)(Raw)>
class Handle {
public:
  Handle() noexcept : raw_{0} {}
  explicit Handle(Raw raw) noexcept : raw_(raw) {}
  Handle(Handle&& other) noexcept : raw_(other.release()) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      reset();
      raw_ = other.release();
    }
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { reset(); }

  // The handle of the C interface, which stays this object's.
  Raw raw() const noexcept { return raw_; }
  explicit operator bool() const noexcept { return raw_.id != 0; }
  // Gives the handle away.
  Raw release() noexcept { return std::exchange(raw_, Raw{0}); }

private:
  void reset() noexcept {
    if (raw_.id != 0) {
      // What is left to fail here is a callback that closes its own device; the library keeps it.
      static_cast<void>(Free(release()));
    }
  }

  Raw raw_;
};

// The end of an operation.
class Event : public Handle<et_event, et_event_free> {
public:
  using Handle::Handle;

  // Waits; throws if the operation failed, or the time runs out, which cancels nothing.
  void wait(std::chrono::duration<double> timeout) const {
    check(et_event_wait(raw(), nanoseconds(timeout), nullptr));
  }
  // `ET_NOT_READY` before the operation has ended, else what became of it.
  et_status status() const { return et_event_status(raw()); }
  bool is_done() const { return status() != ET_NOT_READY; }
  // How far the operation is; it only goes forward.
  et_event_state state() const {
    et_event_state state{};
    check(et_event_state_get(raw(), &state));
    return state;
  }
};

// Memory on a device.
class Memory : public Handle<et_mem, et_mem_free> {
public:
  using Handle::Handle;

  std::uint64_t address() const {
    std::uint64_t address = 0;
    check(et_mem_address(raw(), &address));
    return address;
  }
  std::uint64_t bytes() const {
    std::uint64_t bytes = 0;
    check(et_mem_bytes(raw(), &bytes));
    return bytes;
  }
};

// Memory on the host that the device reads and writes directly: memory of its own, or of the
// caller.
class HostBuffer : public Handle<et_host_buffer, et_host_buffer_free> {
public:
  using Handle::Handle;

  void write(std::size_t offset, const void* from, std::size_t bytes) const {
    check(et_host_buffer_write(raw(), offset, from, bytes));
  }
  void read(std::size_t offset, void* to, std::size_t bytes) const {
    check(et_host_buffer_read(raw(), offset, to, bytes));
  }
  // So many values from a byte offset on.
  template <class T>
  std::vector<T> read(std::size_t offset, std::size_t count) const {
    static_assert(std::is_trivially_copyable_v<T>, "the device gives bytes");
    std::vector<T> to(count);
    read(offset, to.data(), count * sizeof(T));
    return to;
  }
  // Why the contents of imported memory are copied; empty if the device reaches it itself.
  std::string why_copied() const {
    return text([&](char* buffer, std::size_t capacity, std::size_t* needed) {
      return et_host_buffer_why_copied(raw(), buffer, capacity, needed);
    });
  }
};

// Device memory that the host uses like its own. One that is destroyed writes back without waiting.
class Mapping : public Handle<et_mapping, et_mapping_free> {
public:
  using Handle::Handle;

  // `ET_MAP_WINDOW` if it is the device's own memory.
  et_map_path path() const {
    et_map_path path{};
    check(et_mapping_path(raw(), &path));
    return path;
  }
  void read(std::size_t offset, void* to, std::size_t bytes) const {
    check(et_mapping_read(raw(), offset, to, bytes));
  }
  // So many values from a byte offset on.
  template <class T>
  std::vector<T> read(std::size_t offset, std::size_t count) const {
    static_assert(std::is_trivially_copyable_v<T>, "the device gives bytes");
    std::vector<T> to(count);
    read(offset, to.data(), count * sizeof(T));
    return to;
  }
  void write(std::size_t offset, const void* from, std::size_t bytes) const {
    check(et_mapping_write(raw(), offset, from, bytes));
  }
  template <class T>
  void write(std::size_t offset, const std::vector<T>& from) const {
    static_assert(std::is_trivially_copyable_v<T>, "the device gets the bytes");
    write(offset, from.data(), from.size() * sizeof(T));
  }
  // Makes what was written visible to the device, and waits for that.
  void flush(std::chrono::duration<double> timeout) const {
    check(et_mapping_flush(raw(), nanoseconds(timeout)));
  }
  // Flushes, and ends the mapping. If it throws, the mapping is there still.
  void unmap(std::chrono::duration<double> timeout) {
    check(et_mapping_unmap(raw(), nanoseconds(timeout)));
    static_cast<void>(release());
  }
};

// An argument that a kernel takes.
struct Parameter {
  std::string name;
  // Bytes from the first argument.
  std::size_t offset;
  et_scalar scalar;
  // What the kernel does with an array, an `et_access`; 0 of a number.
  std::uint32_t access;
};

// A kernel on a device.
class Kernel : public Handle<et_kernel, et_kernel_free> {
public:
  using Handle::Handle;

  std::uint64_t address() const {
    std::uint64_t address = 0;
    check(et_kernel_place(raw(), &address, nullptr));
    return address;
  }
  // What it takes, if its file states that.
  std::optional<std::vector<Parameter>> parameters() const {
    std::size_t count = 0;
    std::uint32_t is_stated = 0;
    check(et_kernel_parameter_count(raw(), &count, &is_stated));
    if (is_stated == 0) {
      return std::nullopt;
    }
    std::vector<Parameter> parameters;
    for (std::size_t index = 0; index < count; ++index) {
      et_parameter parameter{};
      parameter.size = sizeof parameter;
      std::string name = text([&](char* buffer, std::size_t capacity, std::size_t* needed) {
        return et_kernel_parameter(raw(), index, &parameter, buffer, capacity, needed);
      });
      parameters.push_back({std::move(name), parameter.offset,
                            static_cast<et_scalar>(parameter.scalar), parameter.access});
    }
    return parameters;
  }
};

// A kernel file on a device, from which several kernels come. They do not need it any more.
class Module : public Handle<et_module, et_module_free> {
public:
  using Handle::Handle;

  // The kernel that starts where the file says.
  Kernel kernel() const { return kernel_at(nullptr); }
  // The kernel that starts at a function.
  Kernel function(const std::string& name) const { return kernel_at(name.c_str()); }

private:
  Kernel kernel_at(const char* function) const {
    et_kernel kernel{};
    check(et_module_kernel(raw(), function, &kernel));
    return Kernel(kernel);
  }
};

// Memory that kernels trace into, for the log. One launch at a time uses it.
class KernelTrace : public Handle<et_kernel_trace, et_kernel_trace_free> {
public:
  using Handle::Handle;

  // Hands what the last launch has traced to the log, and returns the number of entries.
  std::size_t log(std::chrono::duration<double> timeout) const {
    std::size_t entries = 0;
    check(et_kernel_trace_log(raw(), nanoseconds(timeout), &entries));
    return entries;
  }
};

// A reader of what firmware traces, for the log.
class FirmwareTrace : public Handle<et_firmware_trace, et_firmware_trace_free> {
public:
  using Handle::Handle;

  // Hands what is new to the log, and returns the number of entries.
  std::size_t log(std::chrono::duration<double> timeout) const {
    std::size_t entries = 0;
    check(et_firmware_trace_log(raw(), nanoseconds(timeout), &entries));
    return entries;
  }
};

// A kernel with arguments and options.
class Launch : public Handle<et_launch, et_launch_free> {
public:
  using Handle::Handle;
  explicit Launch(const Kernel& kernel) : Handle(create(kernel)) {}

  // Appends an argument, at its natural alignment.
  Launch& arg(const Memory& memory, std::uint64_t offset = 0) {
    return done(et_launch_arg_mem(raw(), memory.raw(), offset));
  }
  Launch& arg(std::uint32_t value) { return done(et_launch_arg_u32(raw(), value)); }
  Launch& arg(std::int32_t value) { return done(et_launch_arg_i32(raw(), value)); }
  Launch& arg(std::uint64_t value) { return done(et_launch_arg_u64(raw(), value)); }
  Launch& arg(std::int64_t value) { return done(et_launch_arg_i64(raw(), value)); }
  Launch& arg(float value) { return done(et_launch_arg_f32(raw(), value)); }
  // Replaces the arguments by those of a struct.
  template <class Args>
  Launch& args(const Args& args) {
    static_assert(std::is_trivially_copyable_v<Args>, "the device gets the bytes");
    return done(et_launch_args(raw(), &args, sizeof args, alignof(Args)));
  }
  Launch& args(const void* args, std::size_t bytes) {
    return done(et_launch_args(raw(), args, bytes, 0));
  }
  Launch& shires(std::uint64_t mask) { return done(et_launch_shires(raw(), mask)); }
  Launch& flush_l3() { return done(et_launch_flush_l3(raw())); }
  Launch& stack(std::uint64_t bytes) { return done(et_launch_stack(raw(), bytes)); }
  // Has a core file written if the launch fails, with all memory that it keeps.
  Launch& core_dump(const std::string& path) {
    return done(et_launch_core_dump(raw(), path.c_str()));
  }
  Launch& keep(const Memory& memory) { return done(et_launch_keep(raw(), memory.raw())); }
  // Traces as far as the log lets it through now.
  Launch& trace(const KernelTrace& trace) {
    return done(et_launch_kernel_trace(raw(), trace.raw()));
  }
  Launch& trace(const Memory& buffer, std::uint64_t offset, std::uint64_t bytes,
                const et_trace_options& options) {
    return done(et_launch_trace(raw(), buffer.raw(), offset, bytes, &options));
  }

private:
  static et_launch create(const Kernel& kernel) {
    et_launch launch{};
    check(et_launch_create(kernel.raw(), &launch));
    return launch;
  }
  Launch& done(et_status status) {
    check(status);
    return *this;
  }
};

// A queue of operations, which are done in their order.
class Stream : public Handle<et_stream, et_stream_free> {
public:
  using Handle::Handle;

  // Copies memory of the caller, which may be changed when this returns.
  Event copy_to_device(const void* from, std::size_t bytes, const Memory& to,
                       std::uint64_t offset = 0) const {
    return event([&](et_event* out) {
      return et_copy_to_device(raw(), from, bytes, to.raw(), offset, out);
    });
  }
  template <class T>
  Event copy_to_device(const std::vector<T>& from, const Memory& to) const {
    static_assert(std::is_trivially_copyable_v<T>, "the device gets the bytes");
    return copy_to_device(from.data(), from.size() * sizeof(T), to);
  }
  // Copies to memory of the caller, without waiting: `to` is the library's until the event has been
  // waited for, or freed.
  Event copy_to_host(const Memory& from, std::uint64_t offset, void* to, std::size_t bytes) const {
    return event([&](et_event* out) {
      return et_copy_to_host_async(raw(), from.raw(), offset, to, bytes, out);
    });
  }
  // Copies so many values to the host, and waits for it.
  template <class T>
  std::vector<T> read(const Memory& from, std::size_t count, std::chrono::duration<double> timeout,
                      std::uint64_t offset = 0) const {
    static_assert(std::is_trivially_copyable_v<T>, "the device gives bytes");
    std::vector<T> to(count);
    check(et_copy_to_host(raw(), from.raw(), offset, to.data(), count * sizeof(T),
                          nanoseconds(timeout)));
    return to;
  }
  Event copy_on_device(const Memory& from, std::uint64_t from_offset, const Memory& to,
                       std::uint64_t to_offset, std::uint64_t bytes) const {
    return event([&](et_event* out) {
      return et_copy_on_device(raw(), from.raw(), from_offset, to.raw(), to_offset, bytes, out);
    });
  }
  Event fill(const Memory& to, std::uint64_t offset, std::uint64_t bytes, std::uint8_t byte) const {
    return event(
        [&](et_event* out) { return et_fill(raw(), to.raw(), offset, bytes, byte, out); });
  }
  // Sets memory to a pattern of 1, 2, 4, 8 or 16 bytes.
  Event fill(const Memory& to, std::uint64_t offset, std::uint64_t bytes, const void* pattern,
             std::size_t pattern_bytes) const {
    return event([&](et_event* out) {
      return et_fill_pattern(raw(), to.raw(), offset, bytes, pattern, pattern_bytes, out);
    });
  }
  // Several copies as one operation; they are not ordered among themselves.
  Event copy(const std::vector<et_copy>& copies) const {
    return event([&](et_event* out) {
      return et_copy_list(raw(), copies.data(), copies.size(), out);
    });
  }
  // Several pieces of memory to the host as one operation, which is waited for.
  void read(const std::vector<et_read>& reads, std::chrono::duration<double> timeout) const {
    check(et_read_list(raw(), reads.data(), reads.size(), nanoseconds(timeout)));
  }
  // Between parts of a host buffer and memory on the device, without waiting; the buffer is busy
  // until the event has ended.
  Event upload(const HostBuffer& from, const std::vector<et_part>& parts) const {
    return event([&](et_event* out) {
      return et_upload_list(raw(), from.raw(), parts.data(), parts.size(), out);
    });
  }
  Event download(const std::vector<et_part>& parts, const HostBuffer& to) const {
    return event([&](et_event* out) {
      return et_download_list(raw(), parts.data(), parts.size(), to.raw(), out);
    });
  }
  // Copies to another device, in the order of both streams. The event is one of the other device.
  Event copy_to_peer(const Memory& from, std::uint64_t from_offset, const Stream& peer,
                     const Memory& to, std::uint64_t to_offset, std::uint64_t bytes) const {
    return event([&](et_event* out) {
      return et_copy_to_peer(raw(), from.raw(), from_offset, peer.raw(), to.raw(), to_offset, bytes,
                             out);
    });
  }
  // Inputs, a launch and outputs as one operation with one event.
  Event launch_staged(const std::vector<et_copy>& inputs, const Launch& launch,
                      const std::vector<et_part>& outputs, const HostBuffer& into) const {
    return event([&](et_event* out) {
      return et_launch_staged(raw(), inputs.data(), inputs.size(), launch.raw(), outputs.data(),
                              outputs.size(), into.raw(), out);
    });
  }
  Event launch(const Launch& launch) const {
    return event([&](et_event* out) { return et_launch_submit(raw(), launch.raw(), out); });
  }
  // Maps memory for the host, when the earlier operations have ended.
  Mapping map(const Memory& memory, std::uint64_t offset, std::uint64_t bytes, et_access access,
              std::chrono::duration<double> timeout) const {
    et_mapping mapping{};
    check(et_stream_map(raw(), memory.raw(), offset, bytes, access, nanoseconds(timeout),
                        &mapping));
    return Mapping(mapping);
  }
  Event barrier() const {
    return event([&](et_event* out) { return et_stream_barrier(raw(), out); });
  }
  void wait_for(const Event& event) const { check(et_stream_wait_for(raw(), event.raw())); }
  void synchronize(std::chrono::duration<double> timeout) const {
    check(et_stream_synchronize(raw(), nanoseconds(timeout)));
  }
  void abort(std::chrono::duration<double> timeout) const {
    check(et_stream_abort(raw(), nanoseconds(timeout)));
  }

private:
  template <class Submit>
  static Event event(Submit submit) {
    et_event raw{};
    check(submit(&raw));
    return Event(raw);
  }
};

// The service processor of a card, which answers while kernels hang.
class Management : public Handle<et_management, et_management_free> {
public:
  using Handle::Handle;

  std::string asset(et_asset asset) const {
    return text([&](char* buffer, std::size_t capacity, std::size_t* needed) {
      return et_management_asset(raw(), asset, buffer, capacity, needed);
    });
  }
  et_firmware_versions firmware_versions() const {
    return values<et_firmware_versions>(et_management_firmware_versions);
  }
  et_temperatures temperatures() const {
    return values<et_temperatures>(et_management_temperatures);
  }
  et_frequencies frequencies() const { return values<et_frequencies>(et_management_frequencies); }
  et_asic_voltages asic_voltages() const {
    return values<et_asic_voltages>(et_management_asic_voltages);
  }
  et_module_voltages module_voltages() const {
    return values<et_module_voltages>(et_management_module_voltages);
  }
  et_minion_errors minion_errors() const {
    return values<et_minion_errors>(et_management_minion_errors);
  }
  et_memory_rate memory_rate() const { return values<et_memory_rate>(et_management_memory_rate); }
  et_cache_config cache_config() const {
    return values<et_cache_config>(et_management_cache_config);
  }
  et_management_counters counters() const {
    return values<et_management_counters>(et_management_counters_get);
  }
  et_error_counts error_counts(et_error_source source) const {
    return values<et_error_counts>([&](et_management management, et_error_counts* out) {
      return et_management_error_counts(management, source, out);
    });
  }
  std::uint32_t power_mw() const { return number(et_management_power_mw); }
  std::uint32_t tdp_watts() const { return number(et_management_tdp_watts); }
  void set_tdp_watts(std::uint8_t watts) const {
    check(et_management_set_tdp_watts(raw(), watts));
  }
  void set_power_management(bool is_on) const {
    check(et_management_set_power_management(raw(), is_on));
  }
  // Through the step clock, or at once.
  void set_frequency_mhz(et_clock clock, std::uint16_t mhz, bool by_steps = false) const {
    check(et_management_set_frequency_mhz(raw(), clock, mhz, by_steps));
  }
  // Current firmware ignores the count.
  void set_error_threshold(et_error_source source, std::uint8_t count) const {
    check(et_management_set_error_threshold(raw(), source, count));
  }
  std::uint32_t temperature_threshold_c() const {
    return number(et_management_temperature_threshold_c);
  }
  void set_temperature_threshold_c(std::uint8_t celsius) const {
    check(et_management_set_temperature_threshold_c(raw(), celsius));
  }

private:
  template <class Values, class Ask>
  Values values(Ask ask) const {
    Values values{};
    values.size = sizeof values;
    check(ask(raw(), &values));
    return values;
  }
  template <class Ask>
  std::uint32_t number(Ask ask) const {
    std::uint32_t value = 0;
    check(ask(raw(), &value));
    return value;
  }
};

// An open device.
class Device : public Handle<et_device, et_device_close> {
public:
  // Opens a device by its locator, such as "sim:" or "vfio:0000:01:00.0".
  explicit Device(const std::string& locator, const et_device_options* options = nullptr)
      : Handle(open(locator, options)) {}

  // Locators of the devices that can be opened, the simulator included.
  static std::vector<std::string> list() {
    start();
    std::size_t count = 0;
    check(et_device_count(&count));
    std::vector<std::string> locators;
    for (std::size_t index = 0; index < count; ++index) {
      locators.push_back(text([&](char* buffer, std::size_t capacity, std::size_t* needed) {
        return et_device_locator(index, buffer, capacity, needed);
      }));
    }
    return locators;
  }

  et_properties properties() const {
    et_properties properties{};
    properties.size = sizeof properties;
    check(et_device_properties(raw(), &properties));
    return properties;
  }
  et_memory_stats memory_stats() const {
    et_memory_stats stats{};
    stats.size = sizeof stats;
    check(et_memory_stats_get(raw(), &stats));
    return stats;
  }
  // What this program has the device do, and what it has done.
  et_activity activity() const {
    et_activity activity{};
    activity.size = sizeof activity;
    check(et_device_activity(raw(), &activity));
    return activity;
  }
  Memory alloc(std::uint64_t bytes, std::uint64_t align = 0) const {
    et_mem memory{};
    check(et_mem_alloc(raw(), bytes, align, &memory));
    return Memory(memory);
  }
  Stream stream() const {
    et_stream stream{};
    check(et_stream_create(raw(), &stream));
    return Stream(stream);
  }
  Stream stream(et_priority priority) const {
    et_stream_options options{};
    options.size = sizeof options;
    options.priority = priority;
    et_stream stream{};
    check(et_stream_create_with(raw(), &options, &stream));
    return Stream(stream);
  }
  // Zeroed memory on the host that the device reads and writes directly.
  HostBuffer host_buffer(std::size_t bytes) const {
    et_host_buffer buffer{};
    check(et_host_buffer_alloc(raw(), bytes, &buffer));
    return HostBuffer(buffer);
  }
  // Lends memory of the caller to the device, until `released` is called with `user`.
  HostBuffer lend(void* memory, std::size_t bytes, et_access access, et_released released,
                  void* user) const {
    et_host_buffer buffer{};
    check(et_host_buffer_import(raw(), memory, bytes, access, released, user, &buffer));
    return HostBuffer(buffer);
  }
  // Memory of the caller that is made of whole granules is used where it is; 0 if it never is.
  std::size_t import_granule() const {
    std::size_t bytes = 0;
    check(et_device_import_granule(raw(), &bytes));
    return bytes;
  }
  KernelTrace kernel_trace(const et_kernel_trace_options* options = nullptr) const {
    et_kernel_trace trace{};
    check(et_kernel_trace_create(raw(), options, &trace));
    return KernelTrace(trace);
  }
  // Has firmware trace what the log lets through now.
  FirmwareTrace firmware_trace() const {
    et_firmware_trace trace{};
    check(et_firmware_trace_create(raw(), &trace));
    return FirmwareTrace(trace);
  }
  // The way that bytes take to another device.
  et_peer_path peer_path(const Device& other) const {
    std::uint32_t path = 0;
    check(et_device_peer_path(raw(), other.raw(), &path));
    return static_cast<et_peer_path>(path);
  }
  // Copies and fills that the cores do, for `Stream::launch`.
  Launch builtin_copy(const Memory& from, std::uint64_t from_offset, const Memory& to,
                      std::uint64_t to_offset, std::uint64_t bytes) const {
    et_launch launch{};
    check(et_builtin_copy(raw(), from.raw(), from_offset, to.raw(), to_offset, bytes, &launch));
    return Launch(launch);
  }
  Launch builtin_fill(const Memory& to, std::uint64_t offset, std::uint64_t bytes,
                      const void* pattern, std::size_t pattern_bytes) const {
    et_launch launch{};
    check(et_builtin_fill(raw(), to.raw(), offset, bytes, pattern, pattern_bytes, &launch));
    return Launch(launch);
  }
  // The service processor; its calls take at most the device's time for commands.
  Management management() const {
    et_management management{};
    check(et_device_management(raw(), 0, &management));
    return Management(management);
  }
  Kernel load(const std::string& path) const {
    et_kernel kernel{};
    check(et_kernel_load_file(raw(), path.c_str(), &kernel));
    return Kernel(kernel);
  }
  Kernel load(const std::string& name, const void* elf, std::size_t bytes) const {
    et_kernel kernel{};
    check(et_kernel_load(raw(), name.c_str(), elf, bytes, &kernel));
    return Kernel(kernel);
  }
  // Loads a kernel into memory of the caller's from `offset`, which nothing may write while the
  // kernel is of use.
  Kernel load_to(const Memory& memory, std::uint64_t offset, const std::string& name,
                 const void* elf, std::size_t bytes) const {
    et_kernel kernel{};
    check(et_kernel_load_to(raw(), name.c_str(), elf, bytes, memory.raw(), offset, &kernel));
    return Kernel(kernel);
  }
  // Loads a file from which several kernels come, without waiting.
  Module load_module(const std::string& path) const {
    et_module module{};
    check(et_module_load_file(raw(), path.c_str(), &module, nullptr));
    return Module(module);
  }
  // A text about the device and what connects it; empty if that is not known.
  std::string identity(et_identity identity) const {
    return text([&](char* buffer, std::size_t capacity, std::size_t* needed) {
      return et_device_identity(raw(), identity, buffer, capacity, needed);
    });
  }
  void abort(const Event& event, std::chrono::duration<double> timeout) const {
    check(et_device_abort(raw(), event.raw(), nanoseconds(timeout)));
  }
  // Makes the device work again with the gentlest remedy that helps, up to the widest reset that is
  // allowed; each step may take that long. Throws `RecoveryError` if none helps.
  Recovery recover(et_remedy widest = ET_REMEDY_SLOT_RESET,
                   std::chrono::duration<double> timeout = std::chrono::seconds(5)) const {
    et_recovery_policy policy{};
    policy.size = sizeof policy;
    // 0 would be the default.
    policy.timeout_ns = std::max<std::uint64_t>(nanoseconds(timeout), 1);
    policy.widest = static_cast<std::uint32_t>(widest);
    et_recovery raw_recovery{};
    const et_status status = et_device_recover(raw(), &policy, &raw_recovery);
    const std::string message = status == ET_OK ? std::string() : et_last_error();
    const Handle<et_recovery, et_recovery_free> done(raw_recovery);
    if (!done) {
      throw Error(status, message);
    }
    Recovery recovery = recovery_of(done.raw());
    if (status != ET_OK) {
      throw RecoveryError(status, message, std::move(recovery));
    }
    return recovery;
  }

private:
  static Recovery recovery_of(et_recovery done) {
    et_recovery_info info{};
    info.size = sizeof info;
    check(et_recovery_get(done, &info));
    Recovery recovery{};
    recovery.ill = static_cast<et_status>(info.ill);
    recovery.message = text([&](char* buffer, std::size_t capacity, std::size_t* needed) {
      return et_recovery_message(done, buffer, capacity, needed);
    });
    for (std::size_t index = 0; index < info.steps; ++index) {
      et_recovery_step step{};
      step.size = sizeof step;
      check(et_recovery_step_get(done, index, &step));
      std::string message = text([&](char* buffer, std::size_t capacity, std::size_t* needed) {
        return et_recovery_step_message(done, index, buffer, capacity, needed);
      });
      recovery.steps.push_back({static_cast<et_remedy>(step.remedy),
                                std::chrono::nanoseconds(step.took_ns),
                                static_cast<et_status>(step.status), std::move(message)});
    }
    recovery.lost_queues = info.lost_queues != 0;
    recovery.lost_compute = info.lost_compute != 0;
    recovery.lost_memory = info.lost_memory != 0;
    return recovery;
  }
  static void start() { check(et_init(ET_ABI_VERSION)); }
  static et_device open(const std::string& locator, const et_device_options* options) {
    start();
    et_device device{};
    check(et_device_open(locator.c_str(), options, &device));
    return device;
  }
};

} // namespace et

#endif // ET_HPP
