// C++17 over the C interface: handles that free themselves, and statuses as exceptions.

#ifndef ET_HPP
#define ET_HPP

#include <et.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
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

// A kernel on a device.
class Kernel : public Handle<et_kernel, et_kernel_free> {
public:
  using Handle::Handle;

  std::uint64_t address() const {
    std::uint64_t address = 0;
    check(et_kernel_place(raw(), &address, nullptr));
    return address;
  }
};

// A kernel with arguments and options.
class Launch : public Handle<et_launch, et_launch_free> {
public:
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
  Launch& keep(const Memory& memory) { return done(et_launch_keep(raw(), memory.raw())); }
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
  Event launch(const Launch& launch) const {
    return event([&](et_event* out) { return et_launch_submit(raw(), launch.raw(), out); });
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
  void abort(const Event& event, std::chrono::duration<double> timeout) const {
    check(et_device_abort(raw(), event.raw(), nanoseconds(timeout)));
  }

private:
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
