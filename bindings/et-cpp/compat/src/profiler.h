#ifndef RT_PROFILER_H
#define RT_PROFILER_H

#include <runtime/IProfiler.h>
#include <runtime/Types.h>

#include <et.hpp>

#include <cstdlib>
#include <fstream>
#include <mutex>
#include <unistd.h>

namespace rt {

// Records all devices; writes a document for each, in their order, with a line break in between.
class Profiler : public IProfiler {
public:
  explicit Profiler(std::vector<et_device> devices) : devices_(std::move(devices)) {}

  void start(std::ostream& outputStream, OutputType outputType) override {
    if (outputType != OutputType::Json) {
      throw Exception("the binary format of profiles is the original library's own");
    }
    const std::lock_guard lock(mutex_);
    if (stream_ != nullptr) {
      throw Exception("the profiler has started already");
    }
    for (const et_device device : devices_) {
      et::check(et_profile_start(device));
    }
    stream_ = &outputStream;
  }

  void stop() override {
    const std::lock_guard lock(mutex_);
    if (stream_ == nullptr) {
      return;
    }
    std::ostream& stream = *std::exchange(stream_, nullptr);
    bool isFirst = true;
    for (const et_device device : devices_) {
      et_profile raw{};
      et::check(et_profile_stop(device, &raw));
      const et::Handle<et_profile, et_profile_free> profile(raw);
      if (!std::exchange(isFirst, false)) {
        stream << '\n';
      }
      write(raw, stream);
    }
    stream.flush();
  }

private:
  static void write(et_profile profile, std::ostream& stream) {
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

  std::vector<et_device> devices_;
  std::mutex mutex_;
  std::ostream* stream_ = nullptr;
};

} // namespace rt

#endif // RT_PROFILER_H
