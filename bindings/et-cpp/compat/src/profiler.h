// The recorder that runtimes have unless they are given another.

#ifndef RT_PROFILER_H
#define RT_PROFILER_H

#include "profile_writer.h"

#include <et.hpp>

#include <cstdlib>
#include <fstream>
#include <mutex>
#include <set>
#include <unistd.h>
#include <utility>
#include <variant>
#include <vector>

namespace rt {

// Writes events when they are recorded, so it needs no memory for them.
class Profiler final : public profiling::IProfilerRecorder {
public:
  explicit Profiler(std::vector<et_device> devices) : devices_(std::move(devices)) {}
  ~Profiler() override {
    try {
      stop();
    } catch (...) {
    }
  }

  void start(std::ostream& outputStream, OutputType outputType) override {
    const std::lock_guard lock(mutex_);
    if (stream_ != nullptr) {
      throw Exception("the profiler has started already");
    }
    try {
      begin(outputStream, outputType);
    } catch (...) {
      // The stream may be one that throws.
      stream_ = nullptr;
      throw;
    }
  }

  void stop() override {
    const std::lock_guard lock(mutex_);
    if (stream_ == nullptr) {
      return;
    }
    // It has stopped, even if the stream throws.
    std::ostream& stream = *std::exchange(stream_, nullptr);
    named_.clear();
    write(profiling::ProfileEvent(profiling::Type::Instant, profiling::Class::EndProfiling));
    if (auto* const json = std::get_if<profiling::JsonWriter>(&format_)) {
      json->end();
    } else if (std::holds_alternative<std::monostate>(format_)) {
      writeTimelines(stream);
    }
    if (!stream.flush()) {
      throw Exception("the stream has not taken all of a profile");
    }
  }

  void record(const profiling::ProfileEvent& event) override {
    const std::lock_guard lock(mutex_);
    if (stream_ != nullptr) {
      identify();
      write(event);
    }
  }

  void recordNowOrAtStart(const profiling::ProfileEvent& event) override {
    const std::lock_guard lock(mutex_);
    if (stream_ != nullptr) {
      write(event);
    } else {
      early_.push_back(event);
    }
  }

  // Returns true if events are written.
  bool isListening() const {
    const std::lock_guard lock(mutex_);
    return stream_ != nullptr && !std::holds_alternative<std::monostate>(format_);
  }

private:
  void begin(std::ostream& outputStream, OutputType outputType) {
    using profiling::Class;
    switch (outputType) {
    case OutputType::Json:
      format_.emplace<profiling::JsonWriter>(outputStream);
      break;
    case OutputType::Binary:
      format_.emplace<profiling::BinaryWriter>(outputStream);
      break;
    case OutputType::Perfetto:
      format_.emplace<std::monostate>();
      for (const et_device device : devices_) {
        et::check(et_profile_start(device));
      }
      break;
    default:
      throw Exception("there is no such format of profiles");
    }
    stream_ = &outputStream;
    profiling::ProfileEvent first(profiling::Type::Instant, Class::StartProfiling);
    first.setExtras({{std::string(profiling::ProfileEvent::kVersion), profiling::kCurrentVersion}});
    write(first);
    // Which time of the day the time stamps are.
    profiling::ProfileEvent time(profiling::Type::Instant, Class::SyncTime);
    time.setSystemTimeStamp();
    write(time);
    for (const profiling::ProfileEvent& event : std::exchange(early_, {})) {
      write(event);
    }
  }

  void write(const profiling::ProfileEvent& event) {
    std::visit(
        [&](auto& format) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(format)>, std::monostate>) {
            profiling::write(format, event);
          }
        },
        format_);
  }

  // Says what the thread is called, before its first event.
  void identify() {
    if (threadName_.empty()) {
      return;
    }
    profiling::ProfileEvent name(profiling::Type::Instant, profiling::Class::IdentifyThread);
    if (named_.insert(name.getNumericThreadId()).second) {
      name.setThreadName(threadName_);
      write(name);
    }
  }

  void writeTimelines(std::ostream& stream) {
    bool isFirst = true;
    for (const et_device device : devices_) {
      et_profile raw{};
      et::check(et_profile_stop(device, &raw));
      const et::Handle<et_profile, et_profile_free> profile(raw);
      if (!std::exchange(isFirst, false)) {
        stream << '\n';
      }
      writeTimeline(raw, stream);
    }
  }

  static void writeTimeline(et_profile profile, std::ostream& stream) {
    char path[] = "/tmp/et-profile-XXXXXX";
    const int file = mkstemp(path);
    if (file < 0) {
      throw Exception("no temporary file for a profile can be made in /tmp");
    }
    close(file);
    const et_status status = et_profile_write(profile, path);
    if (status == ET_OK) {
      stream << std::ifstream(path, std::ios::binary).rdbuf();
    }
    unlink(path);
    et::check(status);
  }

  const std::vector<et_device> devices_;
  // Of everything below.
  mutable std::mutex mutex_;
  // Null while nothing is recorded.
  std::ostream* stream_ = nullptr;
  // None for a timeline, which the devices record.
  std::variant<std::monostate, profiling::JsonWriter, profiling::BinaryWriter> format_;
  std::vector<profiling::ProfileEvent> early_;
  // Threads whose name was written.
  std::set<unsigned long long> named_;
};

} // namespace rt

#endif // RT_PROFILER_H
