// Types of `rt::IRuntime`: names, order and layout are those of the original runtime.

#ifndef RT_TYPES_H
#define RT_TYPES_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace rt {

enum class EventId : std::uint16_t {};
enum class StreamId : int {};
enum class DeviceId : int {};
enum class KernelId : int {};

struct Options {
  // Copies to or from device memory that is not allocated throw. They always do.
  bool checkMemcpyDeviceOperations_;
  // A device with another major version of its interface is refused. It always is.
  bool checkDeviceApiVersion_;
};

constexpr Options getDefaultOptions() { return Options{true, true}; }

using RuntimePtr = std::unique_ptr<class IRuntime>;

// What the runtime throws: misuse by the caller, and what the device can never do.
class Exception : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

// Several copies in one.
struct MemcpyList {
  struct Op {
    std::byte* src_;
    std::byte* dst_;
    std::size_t size_;
  };

  void addOp(std::byte* src, std::byte* dst, std::size_t size) {
    operations_.push_back(Op{src, dst, size});
  }

  std::vector<Op> operations_;
};

// State of a hart of a kernel that failed.
struct alignas(64) ErrorContext {
  // 0 hang, 1 trap, 2 aborted by the host, 3 the kernel gave up, 4 it returned an error, 5 error of
  // the tensor unit, 6 error of the bus.
  std::uint64_t type_;
  std::uint64_t cycle_;
  std::uint64_t hartId_;
  std::uint64_t mepc_;
  // Not known, 0.
  std::uint64_t mstatus_;
  std::uint64_t mtval_;
  std::uint64_t mcause_;
  std::int64_t userDefinedError_;
  // x1 to x31.
  std::array<std::uint64_t, 31> gpr_;
};

enum class DeviceErrorCode {
  KernelLaunchUnexpectedError,
  KernelLaunchException,
  KernelLaunchShiresNotReady,
  KernelLaunchHostAborted,
  KernelLaunchInvalidAddress,
  KernelLaunchTimeoutHang,
  KernelLaunchInvalidArgsPayloadSize,
  KernelLaunchCmIfaceMulticastFailed,
  KernelLaunchCmIfaceUnicastFailed,
  KernelLaunchSpIfaceResetFailed,
  KernelLaunchCwMinionsBootFailed,
  KernelLaunchInvalidArgsInvalidShireMask,
  KernelLaunchResponseUserError,
  KernelAbortError,
  KernelAbortInvalidTagId,
  KernelAbortTimeoutHang,
  KernelAbortHostAborted,
  AbortUnexpectedError,
  AbortInvalidTagId,
  DmaUnexpectedError,
  DmaHostAborted,
  DmaErrorAborted,
  DmaInvalidAddress,
  DmaInvalidSize,
  DmaCmIfaceMulticastFailed,
  DmaDriverDataConfigFailed,
  DmaDriverLinkConfigFailed,
  DmaDriverChanStartFailed,
  DmaDriverAbortFailed,
  TraceConfigUnexpectedError,
  TraceConfigBadShireMask,
  TraceConfigBadThreadMask,
  TraceConfigBadEventMask,
  TraceConfigBadFilterMask,
  TraceConfigHostAborted,
  TraceConfigCmFailed,
  TraceConfigMmFailed,
  TraceConfigInvalidConfig,
  TraceControlUnexpectedError,
  TraceControlBadRtType,
  TraceControlBadControlMask,
  TraceControlComputeMinionRtCtrlError,
  TraceControlMasterMinionRtCtrlError,
  TraceControlHostAborted,
  TraceControlCmIfaceMulticastFailed,
  ApiCompatibilityUnexpectedError,
  ApiCompatibilityIncompatibleMajor,
  ApiCompatibilityIncompatibleMinor,
  ApiCompatibilityIncompatiblePatch,
  ApiCompatibilityBadFirmwareType,
  ApiCompatibilityHostAborted,
  FirmwareVersionUnexpectedError,
  FirmwareVersionBadFwType,
  FirmwareVersionNotAvailable,
  FirmwareVersionHostAborted,
  EchoHostAborted,
  CmResetUnexpectedError,
  CmResetInvalidShireMask,
  CmResetFailed,
  ErrorTypeUnsupportedCommand,
  ErrorTypeCmSmodeRtException,
  ErrorTypeCmSmodeRtHang,
  Unknown
};

// An operation that failed. There is always at least one context; that of an operation without any
// is all zeros but for its type.
struct StreamError {
  StreamError() = default;
  explicit StreamError(DeviceErrorCode errorCode, DeviceId device = DeviceId{-1})
      : errorCode_(errorCode), device_(device) {}

  // The whole report.
  std::string getString() const;

  DeviceErrorCode errorCode_ = DeviceErrorCode::Unknown;
  DeviceId device_ = DeviceId{-1};
  std::optional<StreamId> stream_;
  std::optional<std::uint64_t> cmShireMask_;
  std::optional<std::vector<ErrorContext>> errorContext_;
  // What the runtime says about it; an addition to the original.
  std::string text_;
};

using StreamErrorCallback = std::function<void(EventId, const StreamError&)>;

// Gets the place in device memory of the contexts of a kernel that was aborted, which is freed by
// calling the last argument.
using KernelAbortedCallback =
    std::function<void(EventId, std::byte*, std::size_t, std::function<void()>)>;

constexpr auto kCacheLineSize = 64U;

struct LoadCodeResult {
  EventId event_;
  KernelId kernel_;
  std::byte* loadAddress_;
};

struct DeviceProperties {
  enum class FormFactor { PCIE, M2 };
  enum class ArchRevision { ETSOC1, PANTERO, GEPARDO, UNKNOWN = -1 };

  std::uint32_t frequency_;         // MHz
  std::uint32_t availableShires_;   // number
  std::uint32_t memoryBandwidth_;   // MB/s
  std::uint64_t memorySize_;        // bytes
  std::uint16_t l3Size_;            // MB
  std::uint16_t l2shireSize_;       // MB
  std::uint16_t l2scratchpadSize_;  // MB
  std::uint16_t cacheLineSize_;     // bytes
  std::uint16_t l2CacheBanks_;
  std::uint32_t computeMinionShireMask_;
  std::uint16_t spareComputeMinionoShireId_;
  ArchRevision deviceArch_;
  FormFactor formFactor_;
  std::uint8_t tdp_;  // watts
  std::uint64_t p2pBitmap_ = 0;
  std::uint32_t availableChiplets_ = 1;
};

// Where a kernel traces to.
struct UserTrace {
  std::uint64_t buffer_;
  std::uint32_t buffer_size_;
  std::uint32_t threshold_;
  std::uint64_t shireMask_;
  std::uint64_t threadMask_;
  std::uint32_t eventMask_;
  std::uint32_t filterMask_;
};

// Limits of a list of copies.
struct DmaInfo {
  std::uint64_t maxElementSize_;
  std::uint64_t maxElementCount_;
};

// Copies between memory of the caller and memory of the runtime. Accepted for programs that name
// it, and not called: the runtime copies itself.
enum class CmaCopyType { TO_CMA, FROM_CMA };
using CmaCopyFunction =
    std::function<void(const std::byte* src, std::byte* dst, std::size_t size, CmaCopyType type)>;
static constexpr auto defaultCmaCopyFunction = [](const std::byte* src, std::byte* dst,
                                                  std::size_t size, CmaCopyType) {
  std::memcpy(dst, src, size);
};

struct KernelLaunchOptionsImp;

class KernelLaunchOptions {
public:
  KernelLaunchOptions();
  KernelLaunchOptions(const KernelLaunchOptions& other);
  KernelLaunchOptions(KernelLaunchOptions&& other) noexcept;
  KernelLaunchOptions& operator=(KernelLaunchOptions other) noexcept;
  virtual ~KernelLaunchOptions();

  // Default: all shires of the device.
  void setShireMask(std::uint64_t shireMask);
  // Default: true. Streams keep their order in any case.
  void setBarrier(bool barrier);
  // Default: false.
  void setFlushL3(bool flushL3);
  void setUserTracing(std::uint64_t buffer, std::uint32_t bufferSize, std::uint32_t threshold,
                      std::uint64_t shireMask, std::uint64_t threadMask, std::uint32_t eventMask,
                      std::uint32_t filterMask);
  // Address and size are multiples of 4 KiB, or this throws. The stacks are as large as this says;
  // their memory is the runtime's own.
  void setStackConfig(std::byte* baseAddress, std::uint64_t size);
  // Where a core file is to be written if the launch fails, with all memory of the device; no file
  // if the path is empty. It is there when the event has ended; the `StreamError` says so if not all
  // could be written.
  void setCoreDumpFilePath(const std::string& coreDumpFilePath);

  std::unique_ptr<KernelLaunchOptionsImp> imp_;
};

} // namespace rt

namespace std {
string to_string(rt::DeviceErrorCode code);
inline string to_string(const rt::StreamError& error) { return error.getString(); }
} // namespace std

#endif // RT_TYPES_H
