#include <runtime/IProfileEvent.h>

#include <algorithm>
#include <iterator>
#include <sys/syscall.h>
#include <unistd.h>

namespace rt::profiling {

thread_local std::string IProfilerRecorder::threadName_;

namespace {

// In the order of the values.
constexpr const char* CLASSES[] = {
    "GetDevices",         "LoadCode",        "UnloadCode",
    "MallocDevice",       "FreeDevice",      "CreateStream",
    "DestroyStream",      "KernelLaunch",    "MemcpyHostToDevice",
    "MemcpyDeviceToHost", "WaitForEvent",    "WaitForStream",
    "DeviceCommand",      "Pmc",             "CommandSent",
    "ResponseReceived",   "DispatchEvent",   "GetDeviceProperties",
    "StartProfiling",     "EndProfiling",    "CmaCopy",
    "CmaWait",            "MemcpyDeviceToDevice", "SyncTime",
    "IdentifyThread",     "MemoryStats",
};
constexpr const char* TYPES[] = {"Start", "End", "Complete", "Instant", "Counter"};
constexpr const char* RESPONSES[] = {"DMA Read", "DMA Write", "Kernel", "DMA P2P"};

static_assert(std::size(CLASSES) == static_cast<std::size_t>(Class::COUNT));
static_assert(std::size(TYPES) == static_cast<std::size_t>(Type::Counter) + 1);
static_assert(std::size(RESPONSES) == static_cast<std::size_t>(ResponseType::COUNT));

template <class T, std::size_t N>
std::string nameOf(const char* const (&names)[N], T value) {
  const auto index = static_cast<std::size_t>(value);
  return index < N ? names[index] : "Unknown " + std::to_string(index);
}

template <class T, std::size_t N>
T valueOf(const char* const (&names)[N], const std::string& name, const char* what) {
  const auto found = std::find(std::begin(names), std::end(names), name);
  if (found == std::end(names)) {
    throw Exception("there is no " + std::string(what) + " \"" + name + "\" of profile events");
  }
  return static_cast<T>(found - std::begin(names));
}

} // namespace

std::string getString(Class value) { return nameOf(CLASSES, value); }
std::string getString(Type value) { return nameOf(TYPES, value); }
std::string getString(ResponseType value) { return nameOf(RESPONSES, value); }

Class class_from_string(const std::string& name) { return valueOf<Class>(CLASSES, name, "class"); }
Type type_from_string(const std::string& name) { return valueOf<Type>(TYPES, name, "type"); }
ResponseType response_type_from_string(const std::string& name) {
  return valueOf<ResponseType>(RESPONSES, name, "response type");
}

ProfileEvent::ProfileEvent(Type type, Class cls) : type_(type), class_(cls) {
  setTimeStamp();
  setThreadId();
}

ProfileEvent::ProfileEvent(Type type, Class cls, StreamId stream, EventId event,
                           ExtraMetadata extra)
    : ProfileEvent(type, cls) {
  setExtras(std::move(extra));
  setStream(stream);
  setEvent(event);
}

unsigned long long ProfileEvent::currentThread() {
  static thread_local const auto id = static_cast<unsigned long long>(syscall(SYS_gettid));
  return id;
}

} // namespace rt::profiling
