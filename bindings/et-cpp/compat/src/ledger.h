// The operations of all streams that are in flight, and what becomes of those that fail.

#ifndef RT_LEDGER_H
#define RT_LEDGER_H

#include "dispatcher.h"

#include <runtime/IRuntime.h>

#include <deque>
#include <unordered_map>

namespace rt {

using OperationPtr = std::shared_ptr<Operation>;

struct StreamState {
  DeviceId device;
  et::Stream stream;
  // Held by who submits, so that operations are remembered in the order in which they are done.
  std::mutex submitting;
  // In the order in which they were given.
  std::deque<OperationPtr> pending;
  std::vector<StreamError> errors;
  std::uint64_t dropped = 0;
};

// What an operation is.
struct What {
  Kind kind;
  // Which aborts it, and reports its failures.
  DeviceId device;
  profiling::ResponseType response;
  // Of a launch that asks for a core file.
  std::string coreDumpFilePath = {};
};

class Ledger {
public:
  // Calls the user's callback with the contexts of an aborted kernel.
  using TellAborted =
      std::function<void(const Operation&, const StreamError&, const KernelAbortedCallback&)>;

  // Called once for each operation, when it has ended and before any call or callback says so.
  using TellEnd = std::function<void(const Operation&)>;

  Ledger(TellAborted tellAborted, TellEnd tellEnd);
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // Waits for what is in flight, and calls no callback afterwards.
  void close(std::chrono::seconds timeout);

  StreamId addStream(DeviceId device, et::Stream stream);
  void removeStream(StreamId id);
  std::shared_ptr<StreamState> find(StreamId id) const;

  // Nothing, if it has ended.
  OperationPtr find(EventId id) const;

  // Numbers and remembers an operation whose parts `work` submits. What was submitted before it
  // threw is remembered too.
  template <class Work>
  EventId submit(StreamId id, StreamState& stream, const What& what, Work work) {
    harvest(id);
    const auto operation = std::make_shared<Operation>();
    operation->stream = id;
    operation->device = what.device;
    operation->kind = what.kind;
    operation->coreDumpFilePath = what.coreDumpFilePath;
    operation->response = what.response;
    const std::lock_guard lock(stream.submitting);
    operation->submitted = Clock::now();
    try {
      work(operation->parts);
    } catch (...) {
      if (!operation->parts.empty()) {
        remember(stream, operation);
      }
      throw;
    }
    return remember(stream, operation);
  }

  // An event for the end of others, which is in no order with anything.
  EventId endOf(std::vector<OperationPtr> others, StreamId id, DeviceId device);
  // An event that has happened.
  EventId happened();

  // Operations of a stream that were given before one of them, or all.
  std::vector<OperationPtr> pendingOf(StreamId id, const OperationPtr& before = nullptr) const;
  // False if the time comes first.
  bool wait(StreamId id, std::chrono::seconds timeout);
  bool wait(EventId id, std::chrono::seconds timeout);

  // Has ends dealt with when they come, and not only when the user asks for them.
  void startDispatcher();

  std::vector<StreamError> takeErrors(StreamId id);
  void setOnError(StreamErrorCallback callback);
  void setOnAborted(KernelAbortedCallback callback);

private:
  static bool isOver(const Operation& operation);
  EventId freeEvent();
  EventId remember(StreamState& stream, const OperationPtr& operation);
  std::vector<OperationPtr> everything() const;
  void harvest(StreamId id);
  bool waitUntilEnd(const OperationPtr& operation, Clock::time_point end);
  void endQuietly(const OperationPtr& operation, Clock::time_point end) noexcept;
  void conclude(const OperationPtr& operation);
  void forget(const OperationPtr& operation);
  void report(const Operation& operation, const StreamError& error);

  const TellAborted tellAborted_;
  const TellEnd tellEnd_;
  // Of everything below, and of the states of streams.
  mutable std::mutex mutex_;
  std::unordered_map<int, std::shared_ptr<StreamState>> streams_;
  // In flight, by their numbers.
  std::vector<OperationPtr> events_;
  StreamErrorCallback onError_;
  KernelAbortedCallback onAborted_;
  int nextStream_ = 0;
  std::uint16_t nextEvent_ = 0;
  std::unique_ptr<Dispatcher> dispatcher_;
};

} // namespace rt

#endif // RT_LEDGER_H
