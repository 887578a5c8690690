// Operations of a runtime, and what becomes of them.

#ifndef RT_OPERATION_H
#define RT_OPERATION_H

#include <runtime/IProfileEvent.h>

#include <et.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>

namespace rt {

enum class Kind { Copy, Launch, Other };

using Clock = std::chrono::steady_clock;

// One call of the user: of several parts if it is a list of copies, or if it is the end of others,
// as an abort is.
struct Operation {
  EventId id{};
  StreamId stream{};
  DeviceId device{};
  Kind kind = Kind::Other;
  // Of a launch that asked for a core file.
  std::string coreDumpFilePath;
  // How profiles call its answers.
  std::optional<profiling::ResponseType> response;
  // When the first of the parts was submitted.
  Clock::time_point submitted{};
  std::vector<et::Event> parts;
  // Others that end before this.
  std::vector<std::shared_ptr<Operation>> before;

  // Held while the end is dealt with, so that whoever waits waits for that too; but for the
  // callback of the user, which may wait for the operation it is about.
  std::recursive_mutex ending;
  std::atomic<bool> isEnding{false};
};

// Waits for a part until a time; false if it comes first.
inline bool waitUntil(const et::Event& part, Clock::time_point end, et_status& status) {
  const auto left = std::max(end - Clock::now(), Clock::duration::zero());
  status = et_event_wait(part.raw(), et::nanoseconds(left), nullptr);
  // An operation can fail with a timeout of its own, which is an end.
  return status != ET_TIMEOUT || et_event_status(part.raw()) != ET_NOT_READY;
}

// What the device said of a part that failed.
StreamError describe(const Operation& operation, const et::Event& part, et_status status);

} // namespace rt

#endif // RT_OPERATION_H
