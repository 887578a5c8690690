#include "ledger.h"

namespace rt {

namespace {

constexpr std::size_t EVENTS = 65536;
// Of a stream, until they are asked for.
constexpr std::size_t MOST_ERRORS = 1024;
// A time at which nothing is waited for. Not the least, from which no other can be subtracted.
constexpr Clock::time_point PAST{};

Clock::time_point after(std::chrono::seconds timeout) {
  const auto now = Clock::now();
  const auto most = std::chrono::duration_cast<std::chrono::seconds>(Clock::time_point::max() - now);
  return timeout < most ? now + std::max(timeout, std::chrono::seconds(0)) : Clock::time_point::max();
}

int number(StreamId id) { return static_cast<int>(id); }

} // namespace

Ledger::Ledger(TellAborted tellAborted, TellEnd tellEnd)
    : tellAborted_(std::move(tellAborted)), tellEnd_(std::move(tellEnd)), events_(EVENTS) {}

void Ledger::close(std::chrono::seconds timeout) {
  const auto end = after(timeout);
  for (const OperationPtr& operation : everything()) {
    // What has not ended by then is aborted when its device closes.
    endQuietly(operation, end);
  }
  dispatcher_.reset();
}

StreamId Ledger::addStream(DeviceId device, et::Stream stream) {
  auto state = std::make_shared<StreamState>();
  state->device = device;
  state->stream = std::move(stream);
  const std::lock_guard lock(mutex_);
  const int number = nextStream_++;
  streams_.emplace(number, std::move(state));
  return static_cast<StreamId>(number);
}

void Ledger::removeStream(StreamId id) {
  const std::lock_guard lock(mutex_);
  if (streams_.erase(number(id)) == 0) {
    throw Exception("stream " + std::to_string(number(id)) + " was destroyed already");
  }
}

std::shared_ptr<StreamState> Ledger::find(StreamId id) const {
  const std::lock_guard lock(mutex_);
  const auto stream = streams_.find(number(id));
  if (stream == streams_.end()) {
    throw Exception("there is no stream " + std::to_string(number(id)));
  }
  return stream->second;
}

OperationPtr Ledger::find(EventId id) const {
  const std::lock_guard lock(mutex_);
  return events_[static_cast<std::size_t>(id)];
}

EventId Ledger::endOf(std::vector<OperationPtr> others, StreamId id, DeviceId device) {
  const auto operation = std::make_shared<Operation>();
  operation->stream = id;
  operation->device = device;
  operation->before = std::move(others);
  const std::lock_guard lock(mutex_);
  operation->id = freeEvent();
  events_[static_cast<std::size_t>(operation->id)] = operation;
  return operation->id;
}

EventId Ledger::happened() {
  const std::lock_guard lock(mutex_);
  return freeEvent();
}

// An abort whose operations have ended, and that was not waited for.
bool Ledger::isOver(const Operation& operation) {
  const auto& others = operation.before;
  return operation.parts.empty() && !others.empty() &&
         std::all_of(others.begin(), others.end(),
                     [](const OperationPtr& other) { return other->isEnding.load(); });
}

// A number that no operation has. Needs the lock.
EventId Ledger::freeEvent() {
  for (std::size_t tries = 0; tries < EVENTS; ++tries) {
    const std::uint16_t id = nextEvent_++;
    if (events_[id] == nullptr || isOver(*events_[id])) {
      events_[id] = nullptr;
      return static_cast<EventId>(id);
    }
  }
  throw Exception("65536 operations are in flight, or were never waited for");
}

EventId Ledger::remember(StreamState& stream, const OperationPtr& operation) {
  const std::lock_guard lock(mutex_);
  operation->id = freeEvent();
  events_[static_cast<std::size_t>(operation->id)] = operation;
  stream.pending.push_back(operation);
  if (dispatcher_ != nullptr) {
    dispatcher_->watch(operation);
  }
  return operation->id;
}

std::vector<OperationPtr> Ledger::pendingOf(StreamId id, const OperationPtr& before) const {
  const std::lock_guard lock(mutex_);
  std::vector<OperationPtr> pending;
  const auto stream = streams_.find(number(id));
  if (stream == streams_.end()) {
    return pending;
  }
  for (const OperationPtr& operation : stream->second->pending) {
    if (operation == before) {
      break;
    }
    pending.push_back(operation);
  }
  return pending;
}

std::vector<OperationPtr> Ledger::everything() const {
  const std::lock_guard lock(mutex_);
  std::vector<OperationPtr> all;
  for (const auto& [id, stream] : streams_) {
    all.insert(all.end(), stream->pending.begin(), stream->pending.end());
  }
  return all;
}

// Deals with what has ended at the front of a stream.
void Ledger::harvest(StreamId id) {
  for (;;) {
    std::unique_lock lock(mutex_);
    const auto stream = streams_.find(number(id));
    if (stream == streams_.end() || stream->second->pending.empty()) {
      return;
    }
    const OperationPtr first = stream->second->pending.front();
    lock.unlock();
    if (first->isEnding || !waitUntilEnd(first, PAST)) {
      return;
    }
  }
}

bool Ledger::wait(EventId id, std::chrono::seconds timeout) {
  const auto end = after(timeout);
  const OperationPtr operation = find(id);
  if (operation == nullptr) {
    return true;
  }
  if (operation->parts.empty()) {
    return waitUntilEnd(operation, end);
  }
  // What was given before it ends before it, and the user may rely on that.
  for (const OperationPtr& earlier : pendingOf(operation->stream, operation)) {
    if (!waitUntilEnd(earlier, end)) {
      return false;
    }
  }
  return waitUntilEnd(operation, end);
}

bool Ledger::wait(StreamId id, std::chrono::seconds timeout) {
  find(id);
  const auto end = after(timeout);
  for (const OperationPtr& operation : pendingOf(id)) {
    if (!waitUntilEnd(operation, end)) {
      return false;
    }
  }
  return true;
}

std::vector<StreamError> Ledger::takeErrors(StreamId id) {
  const auto stream = find(id);
  harvest(id);
  const std::lock_guard lock(mutex_);
  std::vector<StreamError> errors = std::exchange(stream->errors, {});
  if (const std::uint64_t dropped = std::exchange(stream->dropped, 0); dropped != 0) {
    StreamError more(DeviceErrorCode::Unknown, stream->device);
    more.stream_ = id;
    more.text_ = std::to_string(dropped) + " more errors were not kept";
    more.errorContext_.emplace(1);
    errors.push_back(std::move(more));
  }
  return errors;
}

void Ledger::setOnError(StreamErrorCallback callback) {
  std::unique_lock lock(mutex_);
  onError_ = std::move(callback);
  lock.unlock();
  startDispatcher();
}

void Ledger::setOnAborted(KernelAbortedCallback callback) {
  std::unique_lock lock(mutex_);
  onAborted_ = std::move(callback);
  lock.unlock();
  startDispatcher();
}

// Waits until a time for an operation, and deals with its end; false if that comes first.
bool Ledger::waitUntilEnd(const OperationPtr& operation, Clock::time_point end) {
  et_status status = ET_OK;
  for (const OperationPtr& other : operation->before) {
    if (!waitUntilEnd(other, end)) {
      return false;
    }
  }
  for (const et::Event& part : operation->parts) {
    if (!waitUntil(part, end, status)) {
      return false;
    }
  }
  const std::lock_guard lock(operation->ending);
  if (!operation->isEnding.exchange(true)) {
    conclude(operation);
  }
  return true;
}

// The same where no caller could catch what a callback of the user throws.
void Ledger::endQuietly(const OperationPtr& operation, Clock::time_point end) noexcept {
  try {
    waitUntilEnd(operation, end);
  } catch (...) {
  }
}

// Lists or reports what failed, and forgets the operation.
void Ledger::conclude(const OperationPtr& operation) {
  try {
    tellEnd_(*operation);
    for (const et::Event& part : operation->parts) {
      if (const et_status status = et_event_status(part.raw()); status != ET_OK) {
        report(*operation, describe(*operation, part, status));
      }
    }
  } catch (...) {
    forget(operation);
    throw;
  }
  forget(operation);
}

void Ledger::forget(const OperationPtr& operation) {
  const std::lock_guard lock(mutex_);
  if (OperationPtr& known = events_[static_cast<std::size_t>(operation->id)];
      known == operation) {
    known = nullptr;
  }
  const auto stream = streams_.find(number(operation->stream));
  if (stream != streams_.end()) {
    auto& pending = stream->second->pending;
    const auto place = std::find(pending.begin(), pending.end(), operation);
    if (place != pending.end()) {
      pending.erase(place);
    }
  }
}

void Ledger::report(const Operation& operation, const StreamError& error) {
  std::unique_lock lock(mutex_);
  const StreamErrorCallback onError = onError_;
  const KernelAbortedCallback onAborted = onAborted_;
  if (!onError) {
    if (const auto stream = streams_.find(number(operation.stream)); stream != streams_.end()) {
      auto& errors = stream->second->errors;
      if (errors.size() < MOST_ERRORS) {
        errors.push_back(error);
      } else {
        ++stream->second->dropped;
      }
    }
  }
  lock.unlock();
  if (onAborted && error.errorCode_ == DeviceErrorCode::KernelLaunchHostAborted) {
    tellAborted_(operation, error, onAborted);
  }
  if (onError) {
    onError(operation.id, error);
  }
}

void Ledger::startDispatcher() {
  const std::lock_guard lock(mutex_);
  if (dispatcher_ != nullptr) {
    return;
  }
  dispatcher_ = std::make_unique<Dispatcher>([this](const OperationPtr& operation) {
    endQuietly(operation, PAST);
  });
  for (const auto& [id, stream] : streams_) {
    for (const OperationPtr& operation : stream->pending) {
      dispatcher_->watch(operation);
    }
  }
}

} // namespace rt
