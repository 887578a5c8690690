#include <runtime/IRuntime.h>

#include "launch_options.h"
#include "ledger.h"
#include "memory_map.h"
#include "recording.h"

#include <device-layer/IDeviceLayer.h>

#include <unordered_map>

namespace rt {

namespace {

constexpr std::uint64_t THREADS_OF_A_SHIRE = 64;
// The shire of the firmware, which needs one half of it; interface specification, section 14.
constexpr std::uint16_t SPARE_SHIRE = 32;
// The default of waits, for those that take no timeout.
constexpr std::chrono::hours LONGEST_WAIT{24};
// How long the end of the runtime waits for what is in flight.
constexpr std::chrono::seconds LAST_WAIT{10};

// What the C interface refuses is a mistake of the caller here.
template <class Work>
auto checked(Work work) {
  try {
    return work();
  } catch (const et::Error& error) {
    throw Exception(error.what());
  }
}

int number(DeviceId id) { return static_cast<int>(id); }
int number(KernelId id) { return static_cast<int>(id); }

std::uint16_t megabytes(std::uint64_t bytes) { return static_cast<std::uint16_t>(bytes >> 20); }

struct DeviceState {
  explicit DeviceState(const std::string& locator)
      : device(open(locator)), properties(device.properties()) {}

  static et::Device open(const std::string& locator) {
    et_device_options options{};
    options.size = sizeof options;
    // Programs copy any bytes, and know that it works.
    options.byte_copies = 1;
    return et::Device(locator, &options);
  }

  et::Device device;
  et_properties properties;
  MemoryMap memory;
};

struct KernelState {
  DeviceId device;
  std::shared_ptr<et::Kernel> kernel;
};

class Runtime final : public IRuntime {
public:
  explicit Runtime(const std::vector<std::string>& locators)
      : ledger_(
            [this](const Operation& operation, const StreamError& error,
                   const KernelAbortedCallback& callback) {
              tellAborted(operation, error, callback);
            },
            [this](const Operation& operation) { recordEnd(operation); }) {
    std::vector<et_device> raw;
    for (const std::string& locator : locators) {
      devices_.push_back(std::make_unique<DeviceState>(locator));
      raw.push_back(devices_.back()->device.raw());
    }
    recording_ = std::make_unique<Recording>(std::move(raw));
  }

  ~Runtime() override { ledger_.close(LAST_WAIT); }

  std::vector<DeviceId> getDevices() override {
    const Call call(*recording_, Class::GetDevices);
    std::vector<DeviceId> ids;
    for (std::size_t index = 0; index < devices_.size(); ++index) {
      ids.push_back(static_cast<DeviceId>(index));
    }
    return ids;
  }

  DeviceProperties getDeviceProperties(DeviceId id) const override {
    Call call(*recording_, Class::GetDeviceProperties);
    call.note([&](Event& event) { event.setDeviceId(id); });
    const et_properties& found = at(id).properties;
    DeviceProperties properties{};
    properties.frequency_ = found.frequency_mhz;
    properties.availableShires_ = found.shires;
    properties.memoryBandwidth_ = found.memory_bandwidth_mbps;
    properties.memorySize_ = found.memory_bytes;
    properties.l3Size_ = megabytes(found.l3_bytes);
    properties.l2shireSize_ = megabytes(found.l2_bytes);
    properties.l2scratchpadSize_ = megabytes(found.local_memory_bytes);
    properties.cacheLineSize_ = static_cast<std::uint16_t>(found.cache_line_bytes);
    properties.l2CacheBanks_ = 4;
    properties.computeMinionShireMask_ = static_cast<std::uint32_t>(found.shire_mask);
    properties.spareComputeMinionoShireId_ = SPARE_SHIRE;
    properties.deviceArch_ = DeviceProperties::ArchRevision::ETSOC1;
    properties.formFactor_ = DeviceProperties::FormFactor::PCIE;
    properties.tdp_ = static_cast<std::uint8_t>(found.tdp_watts);
    call.note([&](Event& event) { event.setDeviceProperties(properties); });
    return properties;
  }

  DmaInfo getDmaInfo(DeviceId id) const override {
    const et_properties& found = at(id).properties;
    return DmaInfo{found.dma_max_bytes, found.dma_max_parts};
  }

  bool isP2PEnabled(DeviceId one, DeviceId other) const override {
    at(one), at(other);
    return false;
  }

  std::byte* mallocDevice(DeviceId id, std::size_t size, std::uint32_t alignment) override {
    Call call(*recording_, Class::MallocDevice);
    call.note([&](Event& event) {
      event.setDeviceId(id);
      event.setSize(size);
      event.setAlignment(alignment);
    });
    if (size == 0) {
      throw Exception("an allocation of 0 bytes");
    }
    // The original's blocks: programs use all of the last one.
    const std::uint64_t bytes =
        (size + MemoryMap::BLOCK - 1) / MemoryMap::BLOCK * MemoryMap::BLOCK;
    if (bytes < size) {
      throw Exception("an allocation of " + std::to_string(size) + " bytes");
    }
    DeviceState& device = at(id);
    std::byte* const place = checked([&] {
      et::Memory memory =
          device.device.alloc(bytes, std::max<std::uint64_t>(alignment, MemoryMap::BLOCK));
      const std::lock_guard lock(mutex_);
      return device.memory.add(std::move(memory), bytes);
    });
    call.note([&](Event& event) { event.setAddress(address(place)); });
    recordMemory(id);
    return place;
  }

  void freeDevice(DeviceId id, std::byte* buffer) override {
    Call call(*recording_, Class::FreeDevice);
    call.note([&](Event& event) {
      event.setDeviceId(id);
      event.setAddress(address(buffer));
    });
    DeviceState& device = at(id);
    {
      const std::lock_guard lock(mutex_);
      device.memory.remove(buffer);
    }
    recordMemory(id);
  }

  StreamId createStream(DeviceId id) override {
    Call call(*recording_, Class::CreateStream);
    call.note([&](Event& event) { event.setDeviceId(id); });
    DeviceState& device = at(id);
    const StreamId stream =
        checked([&] { return ledger_.addStream(id, device.device.stream()); });
    call.note([&](Event& event) { event.setStream(stream); });
    return stream;
  }

  void destroyStream(StreamId id) override {
    Call call(*recording_, Class::DestroyStream);
    call.note([&](Event& event) { event.setStream(id); });
    // Of what is read, the memory is the user's again afterwards.
    if (!ledger_.wait(id, LONGEST_WAIT)) {
      throw Exception("stream " + std::to_string(static_cast<int>(id)) +
                      " has work that does not end");
    }
    ledger_.removeStream(id);
  }

  LoadCodeResult loadCode(StreamId id, const std::byte* elf, std::size_t elfSize) override {
    return load(id, [&](const et::Device& device, const std::string& name) {
      return device.load(name, elf, elfSize);
    });
  }

  LoadCodeResult loadCodeTo(StreamId id, std::byte* deviceBuffer, const std::byte* elf,
                            std::size_t elfSize) override {
    const Piece place = pieces(ledger_.find(id)->device, deviceBuffer, 1).at(0);
    return load(id, [&](const et::Device& device, const std::string& name) {
      return device.load_to(*place.memory, place.offset, name, elf, elfSize);
    });
  }

  void unloadCode(KernelId id) override {
    Call call(*recording_, Class::UnloadCode);
    call.note([&](Event& event) { event.setKernelId(id); });
    const std::lock_guard lock(mutex_);
    if (kernels_.erase(number(id)) == 0) {
      throw Exception("there is no kernel " + std::to_string(number(id)));
    }
  }

  using IRuntime::kernelLaunch;
  EventId kernelLaunch(StreamId id, KernelId kernelId, const std::byte* args, std::size_t argsSize,
                       const KernelLaunchOptions& options) override {
    Call call(*recording_, Class::KernelLaunch);
    call.note([&](Event& event) {
      event.setStream(id);
      event.setKernelId(kernelId);
    });
    const auto stream = ledger_.find(id);
    const KernelState kernel = find(kernelId);
    call.note([&](Event& event) { event.setLoadAddress(kernel.kernel->address()); });
    if (kernel.device != stream->device) {
      throw Exception("kernel and stream are of different devices");
    }
    return submitted(call, [&] {
      const KernelLaunchOptionsImp& wanted = *options.imp_;
      et::Launch launch(*kernel.kernel);
      launch.args(args, argsSize);
      const std::uint64_t all = at(stream->device).properties.shire_mask;
      const std::uint64_t mask = wanted.shireMask.value_or(all);
      launch.shires(mask);
      if (wanted.flushL3) {
        launch.flush_l3();
      }
      if (wanted.stackBytes) {
        const std::uint64_t harts = THREADS_OF_A_SHIRE * count(mask);
        if (*wanted.stackBytes < harts * MemoryMap::BLOCK) {
          throw Exception("stacks of " + std::to_string(*wanted.stackBytes) + " bytes for " +
                          std::to_string(harts) + " harts, which need 4096 each");
        }
        launch.stack(*wanted.stackBytes / harts);
      }
      if (!wanted.coreDumpFilePath.empty()) {
        // Which memory a kernel uses is not known here.
        for (const auto& memory : memoryOf(stream->device)) {
          launch.keep(*memory);
        }
        launch.core_dump(wanted.coreDumpFilePath);
      }
      if (wanted.trace) {
        trace(launch, stream->device, *wanted.trace);
      }
      const auto work = [&](std::vector<et::Event>& parts) {
        parts.push_back(stream->stream.launch(launch));
      };
      return ledger_.submit(id, *stream,
                            {Kind::Launch, stream->device, ResponseType::Kernel,
                             wanted.coreDumpFilePath},
                            work);
    });
  }

  EventId memcpyHostToDevice(StreamId id, const std::byte* src, std::byte* dst, std::size_t size,
                             bool barrier, const CmaCopyFunction&) override {
    Call call(*recording_, Class::MemcpyHostToDevice);
    noteCopy(call, id, barrier, src, dst, size);
    return copyToDevice(call, id, {{const_cast<std::byte*>(src), dst, size}});
  }

  EventId memcpyDeviceToHost(StreamId id, const std::byte* src, std::byte* dst, std::size_t size,
                             bool barrier, const CmaCopyFunction&) override {
    Call call(*recording_, Class::MemcpyDeviceToHost);
    noteCopy(call, id, barrier, src, dst, size);
    return copyToHost(call, id, {{const_cast<std::byte*>(src), dst, size}});
  }

  EventId memcpyHostToDevice(StreamId id, MemcpyList list, bool barrier,
                             const CmaCopyFunction&) override {
    Call call(*recording_, Class::MemcpyHostToDevice);
    noteStream(call, id, barrier);
    check(list, ledger_.find(id)->device);
    return copyToDevice(call, id, list.operations_);
  }

  EventId memcpyDeviceToHost(StreamId id, MemcpyList list, bool barrier,
                             const CmaCopyFunction&) override {
    Call call(*recording_, Class::MemcpyDeviceToHost);
    noteStream(call, id, barrier);
    check(list, ledger_.find(id)->device);
    return copyToHost(call, id, list.operations_);
  }

  EventId memcpyDeviceToDevice(StreamId streamSrc, DeviceId deviceDst, const std::byte* src,
                               std::byte* dst, std::size_t size, bool barrier) override {
    Call call(*recording_, Class::MemcpyDeviceToDevice);
    noteCopy(call, streamSrc, barrier, src, dst, size);
    call.note([&](Event& event) { event.setDeviceId(deviceDst); });
    const auto stream = ledger_.find(streamSrc);
    if (stream->device == deviceDst) {
      return copyWithin(call, streamSrc, *stream, src, dst, size);
    }
    // The destination is written in order with nothing: its other work is other streams'.
    const et::Stream other = checked([&] { return at(deviceDst).device.stream(); });
    return copyAcross(call, streamSrc, *stream, {stream->device, &stream->stream},
                      {deviceDst, &other}, src, dst, size);
  }

  EventId memcpyDeviceToDevice(DeviceId deviceSrc, StreamId streamDst, const std::byte* src,
                               std::byte* dst, std::size_t size, bool barrier) override {
    Call call(*recording_, Class::MemcpyDeviceToDevice);
    noteCopy(call, streamDst, barrier, src, dst, size);
    call.note([&](Event& event) { event.setDeviceId(deviceSrc); });
    const auto stream = ledger_.find(streamDst);
    if (stream->device == deviceSrc) {
      return copyWithin(call, streamDst, *stream, src, dst, size);
    }
    const et::Stream other = checked([&] { return at(deviceSrc).device.stream(); });
    return copyAcross(call, streamDst, *stream, {deviceSrc, &other},
                      {stream->device, &stream->stream}, src, dst, size);
  }

  bool waitForEvent(EventId id, std::chrono::seconds timeout) override {
    Call call(*recording_, Class::WaitForEvent);
    call.note([&](Event& event) { event.setEvent(id); });
    return ledger_.wait(id, timeout);
  }

  bool waitForStream(StreamId id, std::chrono::seconds timeout) override {
    Call call(*recording_, Class::WaitForStream);
    call.note([&](Event& event) { event.setStream(id); });
    return ledger_.wait(id, timeout);
  }

  std::vector<StreamError> retrieveStreamErrors(StreamId id) override {
    return ledger_.takeErrors(id);
  }

  void setOnStreamErrorsCallback(StreamErrorCallback callback) override {
    ledger_.setOnError(std::move(callback));
  }

  void setOnKernelAbortedErrorCallback(const KernelAbortedCallback& callback) override {
    ledger_.setOnAborted(callback);
  }

  EventId abortCommand(EventId id, std::chrono::milliseconds) override {
    const OperationPtr target = ledger_.find(id);
    if (target == nullptr) {
      return ledger_.happened();
    }
    return checked([&] {
      for (const et::Event& part : target->parts) {
        const et_status status = et_device_abort(at(target->device).device.raw(), part.raw(), 0);
        // It may have ended meanwhile.
        if (status != ET_INVALID) {
          et::check(status);
        }
      }
      return ledger_.endOf({target}, target->stream, target->device);
    });
  }

  EventId abortStream(StreamId id) override {
    const auto stream = ledger_.find(id);
    std::vector<OperationPtr> pending = ledger_.pendingOf(id);
    return checked([&] {
      const et_status status = et_stream_abort(stream->stream.raw(), 0);
      // It was asked for; that is all that can be done without waiting.
      if (status != ET_TIMEOUT) {
        et::check(status);
      }
      return ledger_.endOf(std::move(pending), id, stream->device);
    });
  }

  void setProfiler(std::unique_ptr<profiling::IProfilerRecorder>&& profiler) override {
    recording_->set(std::move(profiler));
  }

  profiling::IProfilerRecorder* getProfiler() const override { return recording_->get(); }

private:
  using Class = profiling::Class;
  using Event = profiling::ProfileEvent;
  using ResponseType = profiling::ResponseType;

  // A device, and the stream to use there.
  struct Side {
    DeviceId device;
    const et::Stream* stream;
  };

  DeviceState& at(DeviceId id) const {
    const auto index = static_cast<std::size_t>(number(id));
    if (number(id) < 0 || index >= devices_.size()) {
      throw Exception("there is no device " + std::to_string(number(id)));
    }
    return *devices_[index];
  }

  KernelState find(KernelId id) const {
    const std::lock_guard lock(mutex_);
    const auto kernel = kernels_.find(number(id));
    if (kernel == kernels_.end()) {
      throw Exception("there is no kernel " + std::to_string(number(id)));
    }
    return kernel->second;
  }

  // Loads a kernel with a call that gets the device and the kernel's name.
  template <class Load>
  LoadCodeResult load(StreamId id, Load load) {
    Call call(*recording_, Class::LoadCode);
    call.note([&](Event& event) { event.setStream(id); });
    const auto stream = ledger_.find(id);
    const LoadCodeResult loaded = checked([&] {
      std::unique_lock lock(mutex_);
      const int number = nextKernel_++;
      lock.unlock();
      const EventId event = ledger_.happened();
      auto kernel = std::make_shared<et::Kernel>(
          load(at(stream->device).device, "kernel " + std::to_string(number)));
      const Address address = kernel->address();
      lock.lock();
      kernels_[number] = KernelState{stream->device, std::move(kernel)};
      return LoadCodeResult{event, static_cast<KernelId>(number),
                            reinterpret_cast<std::byte*>(address)};
    });
    call.note([&](Event& event) {
      event.setEvent(loaded.event_);
      event.setKernelId(loaded.kernel_);
      event.setLoadAddress(address(loaded.loadAddress_));
    });
    return loaded;
  }

  std::vector<std::shared_ptr<et::Memory>> memoryOf(DeviceId id) const {
    const std::lock_guard lock(mutex_);
    return at(id).memory.all();
  }

  std::vector<Piece> pieces(DeviceId id, const std::byte* place, std::size_t size) const {
    const std::lock_guard lock(mutex_);
    return at(id).memory.find(place, size);
  }

  static std::uint64_t count(std::uint64_t mask) {
    std::uint64_t bits = 0;
    for (; mask != 0; mask &= mask - 1) {
      ++bits;
    }
    return std::max<std::uint64_t>(bits, 1);
  }

  void check(const MemcpyList& list, DeviceId device) const {
    const DmaInfo most = getDmaInfo(device);
    if (list.operations_.empty()) {
      throw Exception("a list of no copies");
    }
    if (list.operations_.size() > most.maxElementCount_) {
      throw Exception("a list of " + std::to_string(list.operations_.size()) + " copies, of " +
                      std::to_string(most.maxElementCount_) + " possible");
    }
    for (const MemcpyList::Op& operation : list.operations_) {
      if (operation.size_ == 0 || operation.size_ > most.maxElementSize_) {
        throw Exception("a copy of " + std::to_string(operation.size_) + " bytes, of " +
                        std::to_string(most.maxElementSize_) + " possible in a list");
      }
    }
  }

  void trace(et::Launch& launch, DeviceId device, const UserTrace& wanted) const {
    const auto place = reinterpret_cast<const std::byte*>(wanted.buffer_);
    const std::vector<Piece> found = pieces(device, place, wanted.buffer_size_);
    if (found.size() != 1) {
      throw Exception("a trace buffer is in one allocation");
    }
    et_trace_options options{};
    options.size = sizeof options;
    options.shire_mask = wanted.shireMask_;
    options.thread_mask = wanted.threadMask_;
    options.threshold = wanted.threshold_;
    options.event_mask = wanted.eventMask_;
    options.filter_mask = wanted.filterMask_;
    et::check(et_launch_trace(launch.raw(), found[0].memory->raw(), found[0].offset,
                              found[0].bytes, &options));
  }

  EventId copyToDevice(Call& call, StreamId id, const std::vector<MemcpyList::Op>& copies) {
    const auto stream = ledger_.find(id);
    std::vector<std::vector<Piece>> targets;
    const What what{Kind::Copy, stream->device, ResponseType::DMAWrite};
    for (const MemcpyList::Op& copy : copies) {
      targets.push_back(pieces(stream->device, copy.dst_, copy.size_));
    }
    return submitted(call, [&] {
      return ledger_.submit(id, *stream, what, [&](std::vector<et::Event>& parts) {
        for (std::size_t index = 0; index < copies.size(); ++index) {
          const std::byte* from = copies[index].src_;
          for (const Piece& to : targets[index]) {
            parts.push_back(stream->stream.copy_to_device(from, to.bytes, *to.memory, to.offset));
            from += to.bytes;
          }
        }
      });
    });
  }

  EventId copyToHost(Call& call, StreamId id, const std::vector<MemcpyList::Op>& copies) {
    const auto stream = ledger_.find(id);
    std::vector<std::vector<Piece>> sources;
    const What what{Kind::Copy, stream->device, ResponseType::DMARead};
    for (const MemcpyList::Op& copy : copies) {
      sources.push_back(pieces(stream->device, copy.src_, copy.size_));
    }
    return submitted(call, [&] {
      return ledger_.submit(id, *stream, what, [&](std::vector<et::Event>& parts) {
        for (std::size_t index = 0; index < copies.size(); ++index) {
          std::byte* to = copies[index].dst_;
          for (const Piece& from : sources[index]) {
            parts.push_back(
                stream->stream.copy_to_host(*from.memory, from.offset, to, from.bytes));
            to += from.bytes;
          }
        }
      });
    });
  }

  EventId copyWithin(Call& call, StreamId id, StreamState& stream, const std::byte* src,
                     std::byte* dst, std::size_t size) {
    const auto copy = [&](const Piece& from, const Piece& to, std::uint64_t bytes) {
      return stream.stream.copy_on_device(*from.memory, from.offset, *to.memory, to.offset, bytes);
    };
    return copyPieces(call, id, stream, stream.device, pieces(stream.device, src, size),
                      pieces(stream.device, dst, size), copy);
  }

  EventId copyAcross(Call& call, StreamId id, StreamState& stream, Side source, Side target,
                     const std::byte* src, std::byte* dst, std::size_t size) {
    const auto copy = [&](const Piece& from, const Piece& to, std::uint64_t bytes) {
      return source.stream->copy_to_peer(*from.memory, from.offset, *target.stream, *to.memory,
                                         to.offset, bytes);
    };
    return copyPieces(call, id, stream, target.device, pieces(source.device, src, size),
                      pieces(target.device, dst, size), copy);
  }

  template <class Copy>
  EventId copyPieces(Call& call, StreamId id, StreamState& stream, DeviceId target,
                     std::vector<Piece> from, std::vector<Piece> to, const Copy& copy) {
    const What what{Kind::Copy, target, ResponseType::DMAP2P};
    return submitted(call, [&] {
      return ledger_.submit(id, stream, what, [&](std::vector<et::Event>& parts) {
        for (std::size_t f = 0, t = 0; f < from.size() && t < to.size();) {
          const std::uint64_t bytes = std::min(from[f].bytes, to[t].bytes);
          parts.push_back(copy(from[f], to[t], bytes));
          f += take(from[f], bytes);
          t += take(to[t], bytes);
        }
      });
    });
  }

  // Takes bytes off the start of a piece; 1 if that was all of it.
  static std::size_t take(Piece& piece, std::uint64_t bytes) {
    piece.offset += bytes;
    piece.bytes -= bytes;
    return piece.bytes == 0 ? 1 : 0;
  }

  static std::uint64_t address(const std::byte* place) {
    return reinterpret_cast<std::uint64_t>(place);
  }

  static void noteStream(Call& call, StreamId stream, bool barrier) {
    call.note([&](Event& event) {
      event.setStream(stream);
      event.setBarrier(barrier);
    });
  }

  static void noteCopy(Call& call, StreamId stream, bool barrier, const std::byte* src,
                       const std::byte* dst, std::size_t size) {
    noteStream(call, stream, barrier);
    call.note([&](Event& event) {
      event.setAddressSrc(address(src));
      event.setAddressDst(address(dst));
      event.setSize(size);
    });
  }

  // Does what a call is for, which is to submit an operation.
  template <class Work>
  EventId submitted(Call& call, Work work) {
    const EventId id = checked(work);
    call.note([&](Event& event) {
      event.setEvent(id);
      ledger_.startDispatcher();
    });
    return id;
  }

  void recordMemory(DeviceId id) const {
    const RecorderPtr recorder = recording_->listener();
    if (recorder == nullptr) {
      return;
    }
    et_memory_stats stats{};
    stats.size = sizeof stats;
    if (et_memory_stats_get(at(id).device.raw(), &stats) == ET_OK) {
      Event event(profiling::Type::Counter, Class::MemoryStats);
      event.setDeviceId(id);
      event.setAllocatedMemory(stats.used_bytes);
      event.setFreeMemory(stats.free_bytes);
      event.setMaxContiguousFreeMemory(stats.largest_free_bytes);
      tell(*recorder, event);
    }
  }

  // Records when the device was sent an operation and when it answered. What failed has no times.
  void recordEnd(const Operation& operation) const {
    const RecorderPtr recorder = recording_->listener();
    if (recorder == nullptr) {
      return;
    }
    std::optional<std::uint64_t> start;
    for (const et::Event& part : operation.parts) {
      et_timeline times{};
      times.size = sizeof times;
      if (!operation.response || et_event_wait(part.raw(), 0, &times) != ET_OK) {
        continue;
      }
      // The clock of the device's times is another.
      start = start.value_or(times.queued_ns);
      const auto at = [&](std::uint64_t time) {
        return operation.submitted + std::chrono::nanoseconds(time - *start);
      };
      Event sent(profiling::Type::Instant, Class::CommandSent, operation.stream, operation.id);
      sent.setDeviceId(operation.device);
      sent.setTimeStamp(at(times.sent_ns));
      tell(*recorder, sent);
      Event received(profiling::Type::Instant, Class::ResponseReceived);
      received.setEvent(operation.id);
      received.setResponseType(*operation.response);
      received.setDeviceCmdStartTs(times.device_start_cycles);
      received.setDeviceCmdWaitDur(times.device_wait_cycles);
      received.setDeviceCmdExecDur(times.device_execute_cycles);
      received.setTimeStamp(at(times.completed_ns));
      tell(*recorder, received);
    }
    Event over(profiling::Type::Instant, Class::DispatchEvent);
    over.setEvent(operation.id);
    tell(*recorder, over);
  }

  // Puts the contexts of an aborted kernel where its callback expects them.
  void tellAborted(const Operation& operation, const StreamError& error,
                   const KernelAbortedCallback& callback) {
    const auto& contexts = *error.errorContext_;
    const std::size_t size = contexts.size() * sizeof(ErrorContext);
    try {
      const et::Device& device = at(operation.device).device;
      std::byte* place = mallocDevice(operation.device, size, kCacheLineSize);
      const std::vector<Piece> pieces = this->pieces(operation.device, place, size);
      device.stream().copy_to_device(contexts.data(), size, *pieces[0].memory).wait(LAST_WAIT);
      callback(operation.id, place, size, [this, device = operation.device, place] {
        freeDevice(device, place);
      });
    } catch (const std::exception&) {
      // Without memory for them there are none.
      callback(operation.id, nullptr, 0, [] {});
    }
  }

  // Never changes after the constructor.
  std::vector<std::unique_ptr<DeviceState>> devices_;
  std::unique_ptr<Recording> recording_;
  // Of kernels, and of the memory of devices.
  mutable std::mutex mutex_;
  std::unordered_map<int, KernelState> kernels_;
  int nextKernel_ = 0;
  // Its operations use the devices.
  Ledger ledger_;
};

} // namespace

EventId IRuntime::kernelLaunch(StreamId stream, KernelId kernel, const std::byte* args,
                               std::size_t argsSize, std::uint64_t shireMask, bool barrier,
                               bool flushL3, std::optional<UserTrace> trace,
                               const std::string& coreDumpFilePath) {
  KernelLaunchOptions options;
  options.setShireMask(shireMask);
  options.setBarrier(barrier);
  options.setFlushL3(flushL3);
  options.setCoreDumpFilePath(coreDumpFilePath);
  if (trace) {
    options.setUserTracing(trace->buffer_, trace->buffer_size_, trace->threshold_,
                           trace->shireMask_, trace->threadMask_, trace->eventMask_,
                           trace->filterMask_);
  }
  return kernelLaunch(stream, kernel, args, argsSize, options);
}

RuntimePtr IRuntime::create(const std::shared_ptr<dev::IDeviceLayer>& deviceLayer, Options) {
  if (deviceLayer == nullptr) {
    throw Exception("no device layer");
  }
  std::vector<std::string> locators;
  for (int device = 0; device < deviceLayer->getDevicesCount(); ++device) {
    locators.push_back(deviceLayer->getLocator(device));
  }
  return checked([&] { return std::make_unique<Runtime>(locators); });
}

RuntimePtr IRuntime::create(const std::string& socketPath) {
  return checked([&] {
    return std::make_unique<Runtime>(std::vector<std::string>{"vfio-user:" + socketPath});
  });
}

} // namespace rt
