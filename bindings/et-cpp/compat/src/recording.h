// Who is told what a runtime does.

#ifndef RT_RECORDING_H
#define RT_RECORDING_H

#include "profiler.h"

#include <memory>
#include <mutex>
#include <optional>

namespace rt {

using RecorderPtr = std::shared_ptr<profiling::IProfilerRecorder>;

class Recording {
public:
  explicit Recording(std::vector<et_device> devices)
      : own_(std::make_shared<Profiler>(std::move(devices))), recorder_(own_) {}

  void set(std::unique_ptr<profiling::IProfilerRecorder> recorder) {
    if (recorder == nullptr) {
      throw Exception("no profiler");
    }
    RecorderPtr next = std::move(recorder);
    std::unique_lock lock(mutex_);
    recorder_.swap(next);
    own_.reset();
    lock.unlock();
    // The last one ends here, without the lock.
  }

  profiling::IProfilerRecorder* get() const {
    const std::lock_guard lock(mutex_);
    return recorder_.get();
  }

  // Who wants events; null if nobody does.
  RecorderPtr listener() const {
    std::unique_lock lock(mutex_);
    if (own_ != nullptr) {
      return own_->isListening() ? recorder_ : nullptr;
    }
    const RecorderPtr recorder = recorder_;
    lock.unlock();
    return recorder->isDummy() ? nullptr : recorder;
  }

private:
  mutable std::mutex mutex_;
  // The recorder, unless the user has set another.
  std::shared_ptr<Profiler> own_;
  RecorderPtr recorder_;
};

// Hands over an event; what a recorder of the user throws changes nothing of what it is about.
inline void tell(profiling::IProfilerRecorder& recorder,
                 const profiling::ProfileEvent& event) noexcept {
  try {
    recorder.record(event);
  } catch (...) {
  }
}

// A call of the user, which is recorded when it returns or throws.
class Call {
public:
  Call(const Recording& recording, profiling::Class cls) : recorder_(recording.listener()) {
    if (recorder_ != nullptr) {
      event_.emplace(profiling::Type::Complete, cls);
    }
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() {
    if (recorder_ != nullptr) {
      event_->setDuration(profiling::ProfileEvent::Clock::now() - event_->getTimeStamp());
      tell(*recorder_, *event_);
    }
  }

  // Adds what is known of it, if it is recorded.
  template <class Note>
  void note(Note note) {
    if (recorder_ != nullptr) {
      note(*event_);
    }
  }

private:
  RecorderPtr recorder_;
  std::optional<profiling::ProfileEvent> event_;
};

} // namespace rt

#endif // RT_RECORDING_H
