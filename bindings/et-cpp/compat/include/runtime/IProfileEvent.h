// What profiles consist of, by the original's interface.
//
// With the library cereal installed, its archives read and write events; not with
// RT_WITHOUT_CEREAL defined.

#ifndef RT_IPROFILE_EVENT_H
#define RT_IPROFILE_EVENT_H

#include "IProfiler.h"
#include "Types.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>

#if !defined(RT_WITHOUT_CEREAL) && __has_include(<cereal/cereal.hpp>)
#define RT_HAS_CEREAL
#include <cereal/cereal.hpp>
#include <cereal/types/chrono.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/unordered_map.hpp>
#include <cereal/types/variant.hpp>
#endif

namespace rt::profiling {

enum class Version : std::uint16_t {};
constexpr auto kCurrentVersion = Version{3};

enum class Type { Start, End, Complete, Instant, Counter };

enum class Class {
  GetDevices,
  LoadCode,
  UnloadCode,
  MallocDevice,
  FreeDevice,
  CreateStream,
  DestroyStream,
  KernelLaunch,
  MemcpyHostToDevice,
  MemcpyDeviceToHost,
  WaitForEvent,
  WaitForStream,
  DeviceCommand,
  Pmc,
  CommandSent,
  ResponseReceived,
  DispatchEvent,
  GetDeviceProperties,
  StartProfiling,
  EndProfiling,
  CmaCopy,
  CmaWait,
  MemcpyDeviceToDevice,
  SyncTime,
  IdentifyThread,
  MemoryStats,
  COUNT
};

enum class ResponseType { DMARead, DMAWrite, Kernel, DMAP2P, COUNT };

// The names that profiles have for them.
std::string getString(Class value);
std::string getString(Type value);
std::string getString(ResponseType value);
// Throw for a name that there is not.
Class class_from_string(const std::string& name);
Type type_from_string(const std::string& name);
ResponseType response_type_from_string(const std::string& name);

// Something that a runtime did, with what is known of it.
class ProfileEvent {
public:
  using Id = std::uint64_t;
  using Cycles = std::uint64_t;
  using Clock = std::chrono::steady_clock;
  using TimePoint = std::chrono::time_point<Clock>;
  using SystemClock = std::chrono::system_clock;
  using SystemTimePoint = std::chrono::time_point<SystemClock>;
  using Duration = TimePoint::duration;
  // In files, their place in this list says which it is.
  using ExtraValues =
      std::variant<std::uint64_t, EventId, StreamId, DeviceId, KernelId, ResponseType, Duration,
                   DeviceProperties, Version, SystemTimePoint, std::string, bool, std::uint32_t>;
  using ExtraMetadata = std::unordered_map<std::string, ExtraValues>;

  static constexpr char const* kType = "type";
  static constexpr char const* kClass = "class";
  static constexpr char const* kTimeStamp = "timeStamp";
  static constexpr char const* kThreadId = "thread_id";
  static constexpr char const* kExtraMetadata = "extra";

  static constexpr std::string_view kVersion = "version";
  static constexpr std::string_view kDuration = "duration";
  static constexpr std::string_view kEventId = "event";
  static constexpr std::string_view kParentId = "parent_id";
  static constexpr std::string_view kStreamId = "stream";
  static constexpr std::string_view kDeviceId = "device_id";
  static constexpr std::string_view kKernelId = "kernel_id";
  static constexpr std::string_view kResponseType = "rsp_type";
  static constexpr std::string_view kLoadAddr = "load_address";
  static constexpr std::string_view kDeviceCmdStartTs = "device_cmd_start_ts";
  static constexpr std::string_view kDeviceCmdWaitDur = "device_cmd_wait_dur";
  static constexpr std::string_view kDeviceCmdExecDur = "device_cmd_exec_dur";
  static constexpr std::string_view kDeviceProps = "device_properties";
  static constexpr std::string_view kTimePointSystem = "system_timepoint";
  static constexpr std::string_view kThreadName = "thread_name";
  static constexpr std::string_view kServerPid = "server_pid";
  static constexpr std::string_view kBarrier = "barrier";
  static constexpr std::string_view kAddress = "ptr";
  static constexpr std::string_view kAddressSrc = "src_ptr";
  static constexpr std::string_view kAddressDst = "dst_ptr";
  static constexpr std::string_view kSize = "size";
  static constexpr std::string_view kAlignment = "alignment";
  static constexpr std::string_view kMemoryStatsAllocatedMem = "mem.allocated_memory";
  static constexpr std::string_view kMemoryStatsFreeMem = "mem.free_memory";
  static constexpr std::string_view kMemoryStatsMaxContiguousFreeMem =
      "mem.max_contiguous_free_mem";

  ProfileEvent() = default;
  // Of now and of this thread.
  explicit ProfileEvent(Type type, Class cls);
  explicit ProfileEvent(Type type, Class cls, StreamId stream, EventId event,
                        ExtraMetadata extra = {});

  Type getType() const { return type_; }
  Class getClass() const { return class_; }
  TimePoint getTimeStamp() const { return timeStamp_; }
  std::string getThreadId() const { return std::to_string(threadId_); }
  unsigned long long getNumericThreadId() const { return threadId_; }
  ExtraMetadata getExtras() const { return extra_; }

  std::optional<Version> getVersion() const { return get<Version>(kVersion); }
  std::optional<Duration> getDuration() const { return get<Duration>(kDuration); }
  std::optional<EventId> getEvent() const { return get<EventId>(kEventId); }
  std::optional<EventId> getParentId() const { return get<EventId>(kParentId); }
  std::optional<StreamId> getStream() const { return get<StreamId>(kStreamId); }
  std::optional<DeviceId> getDeviceId() const { return get<DeviceId>(kDeviceId); }
  std::optional<KernelId> getKernelId() const { return get<KernelId>(kKernelId); }
  std::optional<ResponseType> getResponseType() const { return get<ResponseType>(kResponseType); }
  std::optional<std::uint64_t> getLoadAddress() const { return get<std::uint64_t>(kLoadAddr); }
  // Cycles of the device.
  std::optional<Cycles> getDeviceCmdStartTs() const { return get<Cycles>(kDeviceCmdStartTs); }
  std::optional<Cycles> getDeviceCmdWaitDur() const { return get<Cycles>(kDeviceCmdWaitDur); }
  std::optional<Cycles> getDeviceCmdExecDur() const { return get<Cycles>(kDeviceCmdExecDur); }
  std::optional<DeviceProperties> getDeviceProperties() const {
    return get<DeviceProperties>(kDeviceProps);
  }
  std::optional<SystemTimePoint> getSystemTimeStamp() const {
    return get<SystemTimePoint>(kTimePointSystem);
  }
  std::optional<std::string> getThreadName() const { return get<std::string>(kThreadName); }
  std::optional<std::uint64_t> getServerPID() const { return get<std::uint64_t>(kServerPid); }
  std::optional<bool> getBarrier() const { return get<bool>(kBarrier); }
  std::optional<std::uint64_t> getAddress() const { return get<std::uint64_t>(kAddress); }
  std::optional<std::uint64_t> getAddressSrc() const { return get<std::uint64_t>(kAddressSrc); }
  std::optional<std::uint64_t> getAddressDst() const { return get<std::uint64_t>(kAddressDst); }
  // Bytes, as all below.
  std::optional<std::uint64_t> getSize() const { return get<std::uint64_t>(kSize); }
  std::optional<std::uint32_t> getAlignment() const { return get<std::uint32_t>(kAlignment); }
  std::optional<std::uint64_t> getAllocatedMemory() const {
    return get<std::uint64_t>(kMemoryStatsAllocatedMem);
  }
  std::optional<std::uint64_t> getFreeMemory() const {
    return get<std::uint64_t>(kMemoryStatsFreeMem);
  }
  std::optional<std::uint64_t> getMaxContiguousFreeMemory() const {
    return get<std::uint64_t>(kMemoryStatsMaxContiguousFreeMem);
  }

  void setType(Type type) { type_ = type; }
  void setClass(Class cls) { class_ = cls; }
  void setTimeStamp(TimePoint time = Clock::now()) { timeStamp_ = time; }
  void setThreadId(unsigned long long id = currentThread()) { threadId_ = id; }
  void setExtras(ExtraMetadata extra) { extra_ = std::move(extra); }

  // None of these changes what was set before.
  void setDuration(Duration duration) { set(kDuration, duration); }
  void setEvent(EventId event) { set(kEventId, event); }
  void setParentId(EventId parent) { set(kParentId, parent); }
  void setStream(StreamId stream) { set(kStreamId, stream); }
  void setDeviceId(DeviceId device) { set(kDeviceId, device); }
  void setKernelId(KernelId kernel) { set(kKernelId, kernel); }
  void setResponseType(ResponseType type) { set(kResponseType, type); }
  void setLoadAddress(std::uint64_t address) { set(kLoadAddr, address); }
  void setDeviceCmdStartTs(std::uint64_t cycles) { set(kDeviceCmdStartTs, cycles); }
  void setDeviceCmdWaitDur(std::uint64_t cycles) { set(kDeviceCmdWaitDur, cycles); }
  void setDeviceCmdExecDur(std::uint64_t cycles) { set(kDeviceCmdExecDur, cycles); }
  void setDeviceProperties(DeviceProperties properties) { set(kDeviceProps, properties); }
  void setSystemTimeStamp(SystemTimePoint time = SystemClock::now()) {
    set(kTimePointSystem, time);
  }
  void setThreadName(const std::string& name) { set(kThreadName, name); }
  void setServerPID(std::uint64_t process) { set(kServerPid, process); }
  void setBarrier(bool barrier) { set(kBarrier, barrier); }
  void setAddress(std::uint64_t address) { set(kAddress, address); }
  void setAddressSrc(std::uint64_t address) { set(kAddressSrc, address); }
  void setAddressDst(std::uint64_t address) { set(kAddressDst, address); }
  void setSize(std::uint64_t bytes) { set(kSize, bytes); }
  void setAlignment(std::uint32_t bytes) { set(kAlignment, bytes); }
  void setAllocatedMemory(std::uint64_t bytes) { set(kMemoryStatsAllocatedMem, bytes); }
  void setFreeMemory(std::uint64_t bytes) { set(kMemoryStatsFreeMem, bytes); }
  void setMaxContiguousFreeMemory(std::uint64_t bytes) {
    set(kMemoryStatsMaxContiguousFreeMem, bytes);
  }

private:
  // As the system numbers threads.
  static unsigned long long currentThread();

  // Throws if it is of another type, as a file may have it.
  template <class T>
  std::optional<T> get(std::string_view key) const {
    const auto found = extra_.find(std::string(key));
    return found == extra_.end() ? std::nullopt : std::optional<T>(std::get<T>(found->second));
  }

  template <class T>
  void set(std::string_view key, T value) {
    extra_.emplace(key, std::move(value));
  }

  ExtraMetadata extra_;
  TimePoint timeStamp_;
  Type type_{};
  Class class_{};
  unsigned long long threadId_ = 0;
};

} // namespace rt::profiling

#ifdef RT_HAS_CEREAL

namespace rt {

template <class Archive>
void serialize(Archive& archive, DeviceProperties& properties) {
  archive(cereal::make_nvp("frequency", properties.frequency_),
          cereal::make_nvp("available_shires", properties.availableShires_),
          cereal::make_nvp("memory_bw", properties.memoryBandwidth_),
          cereal::make_nvp("memory_size", properties.memorySize_),
          cereal::make_nvp("l3_size", properties.l3Size_),
          cereal::make_nvp("l2_shire_size", properties.l2shireSize_),
          cereal::make_nvp("l2_scp_size", properties.l2scratchpadSize_),
          cereal::make_nvp("cache_line_size", properties.cacheLineSize_),
          cereal::make_nvp("l2_cache_banks", properties.l2CacheBanks_),
          cereal::make_nvp("compute_minion_shire_mask", properties.computeMinionShireMask_),
          cereal::make_nvp("spare_compute_minion_shire_id",
                           properties.spareComputeMinionoShireId_),
          cereal::make_nvp("device_arch_rev", properties.deviceArch_),
          cereal::make_nvp("form_factor", properties.formFactor_),
          cereal::make_nvp("tdp", properties.tdp_));
}

namespace profiling {

template <class Archive>
void save(Archive& archive, const ProfileEvent& event) {
  archive(cereal::make_nvp(ProfileEvent::kType, getString(event.getType())),
          cereal::make_nvp(ProfileEvent::kClass, getString(event.getClass())),
          cereal::make_nvp(ProfileEvent::kTimeStamp, event.getTimeStamp()),
          cereal::make_nvp(ProfileEvent::kThreadId, event.getThreadId()),
          cereal::make_nvp(ProfileEvent::kExtraMetadata, event.getExtras()));
}

template <class Archive>
void load(Archive& archive, ProfileEvent& event) {
  std::string type, cls, thread;
  ProfileEvent::TimePoint time;
  ProfileEvent::ExtraMetadata extra;
  archive(cereal::make_nvp(ProfileEvent::kType, type), cereal::make_nvp(ProfileEvent::kClass, cls),
          cereal::make_nvp(ProfileEvent::kTimeStamp, time),
          cereal::make_nvp(ProfileEvent::kThreadId, thread),
          cereal::make_nvp(ProfileEvent::kExtraMetadata, extra));
  event.setType(type_from_string(type));
  event.setClass(class_from_string(cls));
  event.setTimeStamp(time);
  event.setThreadId(std::stoull(thread));
  event.setExtras(std::move(extra));
}

} // namespace profiling

} // namespace rt

#endif // RT_HAS_CEREAL

#endif // RT_IPROFILE_EVENT_H
