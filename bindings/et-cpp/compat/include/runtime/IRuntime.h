// The original C++ runtime's interface, over the C interface of this one.
//
// Names and defaults are the original's. What is better here: streams keep their order whatever
// the barrier flags say, numbers of events are not given out while an operation has them, and
// misuse that corrupted memory or hung throws `rt::Exception`.

#ifndef RT_IRUNTIME_H
#define RT_IRUNTIME_H

#include "IProfiler.h"
#include "Types.h"

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace dev {
class IDeviceLayer;
}

namespace rt {

class IRuntime {
public:
  virtual ~IRuntime() = default;

  // Opens all devices of a device layer.
  static RuntimePtr create(const std::shared_ptr<dev::IDeviceLayer>& deviceLayer,
                           Options options = getDefaultOptions());
  // Opens a card that another process serves at a socket, see `et-simd`.
  static RuntimePtr create(const std::string& socketPath);

  virtual std::vector<DeviceId> getDevices() = 0;
  virtual DeviceProperties getDeviceProperties(DeviceId device) const = 0;
  virtual DmaInfo getDmaInfo(DeviceId device) const = 0;
  // Copies between devices go through the host, so this is false.
  virtual bool isP2PEnabled(DeviceId one, DeviceId other) const = 0;

  // Throws if there is no memory, and for 0 bytes.
  virtual std::byte* mallocDevice(DeviceId device, std::size_t size,
                                  std::uint32_t alignment = kCacheLineSize) = 0;
  virtual void freeDevice(DeviceId device, std::byte* buffer) = 0;

  virtual StreamId createStream(DeviceId device) = 0;
  // Waits for what the stream was given, for a day at most; its errors are gone.
  virtual void destroyStream(StreamId stream) = 0;

  // The ELF file is copied before this returns. The event has ended, unless a copy of the image to
  // the device is still on its way.
  virtual LoadCodeResult loadCode(StreamId stream, const std::byte* elf, std::size_t elfSize) = 0;
  // Into memory of the user's, which `unloadCode` does not free. Throws if it does not fit, or if
  // the place is not aligned as the file demands.
  virtual LoadCodeResult loadCodeTo(StreamId stream, std::byte* deviceBuffer, const std::byte* elf,
                                    std::size_t elfSize) = 0;
  virtual void unloadCode(KernelId kernel) = 0;

  // The arguments are copied before this returns.
  virtual EventId kernelLaunch(StreamId stream, KernelId kernel, const std::byte* args,
                               std::size_t argsSize,
                               const KernelLaunchOptions& options = KernelLaunchOptions()) = 0;
  EventId kernelLaunch(StreamId stream, KernelId kernel, const std::byte* args,
                       std::size_t argsSize, std::uint64_t shireMask, bool barrier = true,
                       bool flushL3 = false,
                       std::optional<UserTrace> userTraceConfig = std::nullopt,
                       const std::string& coreDumpFilePath = "");

  // Memory of the host must last until the event, though what goes to the device is copied before
  // this returns.
  virtual EventId memcpyHostToDevice(StreamId stream, const std::byte* src, std::byte* dst,
                                     std::size_t size, bool barrier = false,
                                     const CmaCopyFunction& copy = defaultCmaCopyFunction) = 0;
  virtual EventId memcpyDeviceToHost(StreamId stream, const std::byte* src, std::byte* dst,
                                     std::size_t size, bool barrier = true,
                                     const CmaCopyFunction& copy = defaultCmaCopyFunction) = 0;
  // Throw if the list exceeds what `getDmaInfo` says.
  virtual EventId memcpyHostToDevice(StreamId stream, MemcpyList list, bool barrier = false,
                                     const CmaCopyFunction& copy = defaultCmaCopyFunction) = 0;
  virtual EventId memcpyDeviceToHost(StreamId stream, MemcpyList list, bool barrier = true,
                                     const CmaCopyFunction& copy = defaultCmaCopyFunction) = 0;
  // Between two devices this waits for the half of the source.
  virtual EventId memcpyDeviceToDevice(StreamId streamSrc, DeviceId deviceDst,
                                       const std::byte* src, std::byte* dst, std::size_t size,
                                       bool barrier = true) = 0;
  virtual EventId memcpyDeviceToDevice(DeviceId deviceSrc, StreamId streamDst,
                                       const std::byte* src, std::byte* dst, std::size_t size,
                                       bool barrier = true) = 0;

  // False if the time runs out; true if the operation has ended, well or not, or is not known. 0
  // only looks.
  virtual bool waitForEvent(EventId event,
                            std::chrono::seconds timeout = std::chrono::hours(24)) = 0;
  // The same for everything that the stream was given before.
  virtual bool waitForStream(StreamId stream,
                             std::chrono::seconds timeout = std::chrono::hours(24)) = 0;

  // Gives the errors since the last call; none if there is a callback, which gets them.
  virtual std::vector<StreamError> retrieveStreamErrors(StreamId stream) = 0;
  // Called on a thread of the runtime; waits for the operation end after it.
  virtual void setOnStreamErrorsCallback(StreamErrorCallback callback) = 0;
  virtual void setOnKernelAbortedErrorCallback(const KernelAbortedCallback& callback) = 0;

  // The event ends with the operation. Only this operation is aborted.
  virtual EventId
  abortCommand(EventId event,
               std::chrono::milliseconds timeout = std::chrono::milliseconds(5000)) = 0;
  virtual EventId abortStream(StreamId stream) = 0;

  // Has a recorder of the user's own told what the runtime does from now on, in place of the one
  // before, which ends. No other thread may use that one meanwhile.
  virtual void setProfiler(std::unique_ptr<profiling::IProfilerRecorder>&& profiler) = 0;
  // Belongs to the runtime.
  virtual profiling::IProfilerRecorder* getProfiler() const = 0;
};

} // namespace rt

#endif // RT_IRUNTIME_H
