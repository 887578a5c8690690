// A runtime of the original's interface on simulated cards of two shires.

#ifndef ET_TESTS_FIXTURE_HPP
#define ET_TESTS_FIXTURE_HPP

#include <device-layer/IDeviceLayer.h>
#include <runtime/IRuntime.h>

#include <fstream>
#include <iterator>

#include "check.hpp"

// The folder of the test kernels.
inline std::string kernels;

template <class Work>
std::string refusal(Work work) {
  try {
    work();
  } catch (const rt::Exception& error) {
    return error.what();
  }
  return {};
}

inline std::shared_ptr<dev::IDeviceLayer> layer(std::uint8_t cards = 1) {
  emu::SysEmuOptions options;
  options.minionShiresMask = 0x100000003;
  return dev::IDeviceLayer::createSysEmuDeviceLayer(options, cards);
}

// A runtime with a stream on its first device.
struct Fixture {
  rt::RuntimePtr runtime;
  rt::DeviceId device;
  rt::StreamId stream;

  explicit Fixture(std::uint8_t cards = 1) : runtime(rt::IRuntime::create(layer(cards))) {
    device = runtime->getDevices().at(0);
    stream = runtime->createStream(device);
  }

  rt::KernelId load(const std::string& name) {
    std::ifstream file(kernels + "/" + name + ".elf", std::ios::binary);
    const std::vector<char> elf{std::istreambuf_iterator<char>(file), {}};
    CHECK(!elf.empty());
    const auto loaded = runtime->loadCode(
        stream, reinterpret_cast<const std::byte*>(elf.data()), elf.size());
    CHECK(runtime->waitForEvent(loaded.event_));
    CHECK(loaded.loadAddress_ != nullptr);
    return loaded.kernel_;
  }

  template <class Args>
  rt::EventId launch(rt::KernelId kernel, const Args& args,
                     const rt::KernelLaunchOptions& options = {}) {
    return runtime->kernelLaunch(stream, kernel, reinterpret_cast<const std::byte*>(&args),
                                 sizeof args, options);
  }

  template <class T>
  std::byte* upload(const std::vector<T>& values) {
    std::byte* place = runtime->mallocDevice(device, values.size() * sizeof(T));
    runtime->memcpyHostToDevice(stream, reinterpret_cast<const std::byte*>(values.data()), place,
                                values.size() * sizeof(T));
    return place;
  }

  template <class T>
  std::vector<T> download(const std::byte* place, std::size_t count) {
    std::vector<T> values(count);
    const auto event = runtime->memcpyDeviceToHost(
        stream, place, reinterpret_cast<std::byte*>(values.data()), count * sizeof(T));
    CHECK(runtime->waitForEvent(event));
    return values;
  }
};

inline std::vector<std::uint32_t> numbers(std::size_t count) {
  std::vector<std::uint32_t> values(count);
  for (std::size_t index = 0; index < count; ++index) {
    values[index] = static_cast<std::uint32_t>(index * 2654435761U);
  }
  return values;
}

#endif // ET_TESTS_FIXTURE_HPP
