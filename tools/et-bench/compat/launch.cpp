// Prints how many nanoseconds a launch and its wait take through the original runtime's interface.
// Arguments: the ELF file of a kernel without arguments of its own, and how many launches.

#include <device-layer/IDeviceLayer.h>
#include <runtime/IRuntime.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

int main(int count, char** arguments) {
  if (count != 3) {
    std::fprintf(stderr, "usage: %s KERNEL LAUNCHES\n", arguments[0]);
    return 2;
  }
  std::ifstream file(arguments[1], std::ios::binary);
  const std::vector<char> elf{std::istreambuf_iterator<char>(file), {}};
  const long launches = std::strtol(arguments[2], nullptr, 10);
  if (elf.empty() || launches <= 0) {
    std::fprintf(stderr, "no kernel, or no number of launches\n");
    return 2;
  }
  try {
    std::shared_ptr<dev::IDeviceLayer> layer = dev::IDeviceLayer::createPcieDeviceLayer();
    const auto runtime = rt::IRuntime::create(layer);
    const auto stream = runtime->createStream(runtime->getDevices().at(0));
    const auto loaded = runtime->loadCode(
        stream, reinterpret_cast<const std::byte*>(elf.data()), elf.size());
    runtime->waitForEvent(loaded.event_);
    const std::uint64_t values[4] = {1, 2, 3, 4};
    const rt::KernelLaunchOptions options;
    const auto launch = [&] {
      const auto event = runtime->kernelLaunch(
          stream, loaded.kernel_, reinterpret_cast<const std::byte*>(values), sizeof values,
          options);
      runtime->waitForEvent(event);
    };
    launch();
    const auto start = std::chrono::steady_clock::now();
    for (long done = 0; done < launches; ++done) {
      launch();
    }
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
    std::printf("%.3f\n", taken.count() / static_cast<double>(launches));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
