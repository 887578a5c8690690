#include "launch_options.h"

namespace rt {

namespace {

constexpr std::uint64_t PAGE = 4096;

// In the order of `DeviceErrorCode`.
constexpr const char* NAMES[] = {
    "KernelLaunchUnexpectedError",
    "KernelLaunchException",
    "KernelLaunchShiresNotReady",
    "KernelLaunchHostAborted",
    "KernelLaunchInvalidAddress",
    "KernelLaunchTimeoutHang",
    "KernelLaunchInvalidArgsPayloadSize",
    "KernelLaunchCmIfaceMulticastFailed",
    "KernelLaunchCmIfaceUnicastFailed",
    "KernelLaunchSpIfaceResetFailed",
    "KernelLaunchCwMinionsBootFailed",
    "KernelLaunchInvalidArgsInvalidShireMask",
    "KernelLaunchResponseUserError",
    "KernelAbortError",
    "KernelAbortInvalidTagId",
    "KernelAbortTimeoutHang",
    "KernelAbortHostAborted",
    "AbortUnexpectedError",
    "AbortInvalidTagId",
    "DmaUnexpectedError",
    "DmaHostAborted",
    "DmaErrorAborted",
    "DmaInvalidAddress",
    "DmaInvalidSize",
    "DmaCmIfaceMulticastFailed",
    "DmaDriverDataConfigFailed",
    "DmaDriverLinkConfigFailed",
    "DmaDriverChanStartFailed",
    "DmaDriverAbortFailed",
    "TraceConfigUnexpectedError",
    "TraceConfigBadShireMask",
    "TraceConfigBadThreadMask",
    "TraceConfigBadEventMask",
    "TraceConfigBadFilterMask",
    "TraceConfigHostAborted",
    "TraceConfigCmFailed",
    "TraceConfigMmFailed",
    "TraceConfigInvalidConfig",
    "TraceControlUnexpectedError",
    "TraceControlBadRtType",
    "TraceControlBadControlMask",
    "TraceControlComputeMinionRtCtrlError",
    "TraceControlMasterMinionRtCtrlError",
    "TraceControlHostAborted",
    "TraceControlCmIfaceMulticastFailed",
    "ApiCompatibilityUnexpectedError",
    "ApiCompatibilityIncompatibleMajor",
    "ApiCompatibilityIncompatibleMinor",
    "ApiCompatibilityIncompatiblePatch",
    "ApiCompatibilityBadFirmwareType",
    "ApiCompatibilityHostAborted",
    "FirmwareVersionUnexpectedError",
    "FirmwareVersionBadFwType",
    "FirmwareVersionNotAvailable",
    "FirmwareVersionHostAborted",
    "EchoHostAborted",
    "CmResetUnexpectedError",
    "CmResetInvalidShireMask",
    "CmResetFailed",
    "ErrorTypeUnsupportedCommand",
    "ErrorTypeCmSmodeRtException",
    "ErrorTypeCmSmodeRtHang",
    "Unknown",
};
static_assert(std::size(NAMES) == static_cast<std::size_t>(DeviceErrorCode::Unknown) + 1);

} // namespace

std::string StreamError::getString() const {
  std::string text = std::to_string(errorCode_);
  if (stream_) {
    text += " in stream " + std::to_string(static_cast<int>(*stream_));
  }
  if (!text_.empty()) {
    text += ": " + text_;
  }
  return text;
}

KernelLaunchOptions::KernelLaunchOptions() : imp_(std::make_unique<KernelLaunchOptionsImp>()) {}
KernelLaunchOptions::KernelLaunchOptions(const KernelLaunchOptions& other)
    : imp_(std::make_unique<KernelLaunchOptionsImp>(*other.imp_)) {}
KernelLaunchOptions::KernelLaunchOptions(KernelLaunchOptions&& other) noexcept
    : imp_(std::make_unique<KernelLaunchOptionsImp>()) {
  // What is moved from stays a set of defaults.
  std::swap(imp_, other.imp_);
}
KernelLaunchOptions& KernelLaunchOptions::operator=(KernelLaunchOptions other) noexcept {
  std::swap(imp_, other.imp_);
  return *this;
}
KernelLaunchOptions::~KernelLaunchOptions() = default;

void KernelLaunchOptions::setShireMask(std::uint64_t shireMask) { imp_->shireMask = shireMask; }

void KernelLaunchOptions::setBarrier(bool) {}

void KernelLaunchOptions::setFlushL3(bool flushL3) { imp_->flushL3 = flushL3; }

void KernelLaunchOptions::setUserTracing(std::uint64_t buffer, std::uint32_t bufferSize,
                                         std::uint32_t threshold, std::uint64_t shireMask,
                                         std::uint64_t threadMask, std::uint32_t eventMask,
                                         std::uint32_t filterMask) {
  imp_->trace = UserTrace{buffer,     bufferSize, threshold, shireMask,
                          threadMask, eventMask,  filterMask};
}

void KernelLaunchOptions::setStackConfig(std::byte* baseAddress, std::uint64_t size) {
  if (reinterpret_cast<std::uintptr_t>(baseAddress) % PAGE != 0) {
    throw Exception("the base of the stacks is not a multiple of 4096");
  }
  if (size == 0 || size % PAGE != 0) {
    throw Exception("the size of the stacks is not a positive multiple of 4096");
  }
  imp_->stackBytes = size;
}

void KernelLaunchOptions::setCoreDumpFilePath(const std::string& coreDumpFilePath) {
  imp_->coreDumpFilePath = coreDumpFilePath;
}

} // namespace rt

namespace std {
string to_string(rt::DeviceErrorCode code) {
  const auto index = static_cast<size_t>(code);
  return index < std::size(rt::NAMES) ? rt::NAMES[index] : "Unknown";
}
} // namespace std
