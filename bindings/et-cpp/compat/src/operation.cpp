#include "operation.h"

namespace rt {

namespace {

using Code = DeviceErrorCode;

// By the numbers of the interface specification, section 7.6.
constexpr Code OF_LAUNCH[] = {
    Code::KernelLaunchUnexpectedError,
    Code::KernelLaunchUnexpectedError,
    Code::KernelLaunchException,
    Code::KernelLaunchShiresNotReady,
    Code::KernelLaunchHostAborted,
    Code::KernelLaunchInvalidAddress,
    Code::KernelLaunchTimeoutHang,
    Code::KernelLaunchInvalidArgsPayloadSize,
    Code::KernelLaunchCmIfaceMulticastFailed,
    Code::KernelLaunchCmIfaceUnicastFailed,
    Code::KernelLaunchSpIfaceResetFailed,
    Code::KernelLaunchCwMinionsBootFailed,
    Code::KernelLaunchInvalidArgsInvalidShireMask,
    Code::KernelLaunchResponseUserError,
    Code::KernelLaunchUnexpectedError,
};

// Section 7.8. Two answers have no name in the original.
constexpr Code OF_COPY[] = {
    Code::DmaUnexpectedError,
    Code::DmaUnexpectedError,
    Code::DmaUnexpectedError,
    Code::DmaHostAborted,
    Code::DmaErrorAborted,
    Code::DmaUnexpectedError,
    Code::DmaInvalidAddress,
    Code::DmaInvalidSize,
    Code::DmaCmIfaceMulticastFailed,
    Code::DmaDriverDataConfigFailed,
    Code::DmaDriverLinkConfigFailed,
    Code::DmaDriverChanStartFailed,
    Code::DmaDriverAbortFailed,
};

template <std::size_t N>
Code lookUp(const Code (&codes)[N], std::uint32_t status, Code other) {
  return status < N ? codes[status] : other;
}

Code codeOf(Kind kind, const et::Event& part, et_status status) {
  if (status == ET_ABORTED) {
    switch (kind) {
    case Kind::Launch:
      return Code::KernelLaunchHostAborted;
    case Kind::Copy:
      return Code::DmaHostAborted;
    case Kind::Other:
      return Code::AbortUnexpectedError;
    }
  }
  std::uint32_t answer = 0;
  if (et_event_device_status(part.raw(), &answer) != ET_OK) {
    return Code::Unknown;
  }
  return status == ET_LAUNCH_FAILED ? lookUp(OF_LAUNCH, answer, Code::KernelLaunchUnexpectedError)
                                    : lookUp(OF_COPY, answer, Code::DmaUnexpectedError);
}

std::uint64_t typeOf(std::uint32_t exception) {
  switch (exception) {
  case ET_EXCEPTION_HANG:
    return 0;
  case ET_EXCEPTION_TRAP:
    return 1;
  case ET_EXCEPTION_ABORTED:
    return 2;
  case ET_EXCEPTION_GAVE_UP:
    return 3;
  case ET_EXCEPTION_TENSOR:
    return 5;
  case ET_EXCEPTION_BUS:
    return 6;
  default:
    return 4;
  }
}

ErrorContext contextOf(et_failure failure, std::size_t index) {
  et_hart hart{};
  hart.size = sizeof hart;
  et::check(et_failure_hart(failure, index, &hart));
  ErrorContext context{};
  context.type_ = typeOf(hart.exception);
  context.cycle_ = hart.cycles;
  context.hartId_ = hart.hart;
  context.mepc_ = hart.pc;
  context.mcause_ = hart.cause;
  if (hart.exception == ET_EXCEPTION_TRAP) {
    context.mtval_ = hart.value;
  } else {
    context.userDefinedError_ = static_cast<std::int64_t>(hart.value);
  }
  std::copy(std::begin(hart.registers), std::end(hart.registers), context.gpr_.begin());
  return context;
}

// What is wrong with the core file of a failed launch; empty if nothing is.
std::string missingIn(et_failure failure, const std::string& path) {
  et_core_file core{};
  core.size = sizeof core;
  if (et_failure_core_file(failure, &core) != ET_OK) {
    return "\nno core file could be written to " + path;
  }
  if (core.incomplete != 0) {
    return "\n" + std::to_string(core.incomplete) + " of " + std::to_string(core.regions) +
           " regions are not all in " + path;
  }
  return "";
}

} // namespace

StreamError describe(const Operation& operation, const et::Event& part, et_status status) {
  StreamError error(codeOf(operation.kind, part, status), operation.device);
  error.stream_ = operation.stream;
  // Asked again for the message, which belongs to the last call that failed.
  error.text_ = et_event_status(part.raw()) == ET_OK ? et_status_name(status) : et_last_error();
  std::vector<ErrorContext> contexts;
  et_failure raw{};
  if (et_event_failure(part.raw(), &raw) == ET_OK) {
    const et::Handle<et_failure, et_failure_free> failure(raw);
    std::size_t harts = 0;
    std::uint64_t mask = 0;
    et::check(et_failure_harts(raw, &harts, &mask));
    if (mask != 0) {
      error.cmShireMask_ = mask;
    }
    for (std::size_t index = 0; index < harts; ++index) {
      contexts.push_back(contextOf(raw, index));
    }
    error.text_ = et::text([&](char* buffer, std::size_t capacity, std::size_t* needed) {
      return et_failure_text(raw, buffer, capacity, needed);
    });
    if (!operation.coreDumpFilePath.empty()) {
      error.text_ += missingIn(raw, operation.coreDumpFilePath);
    }
  }
  if (contexts.empty()) {
    // Programs look at the first without asking whether there is one.
    ErrorContext nothing{};
    nothing.type_ = status == ET_ABORTED ? 2 : 4;
    contexts.push_back(nothing);
  }
  error.errorContext_ = std::move(contexts);
  return error;
}

} // namespace rt
