// The original runtime's interface on simulated cards. Arguments: the folder with the test kernels.

#define ET_TRACE_DECODER_IMPL
#include <et-trace/decoder.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <thread>
#include <unistd.h>

#include "fixture.hpp"

namespace {

using namespace std::chrono_literals;

// A file that is empty.
std::string temporary() {
  char path[] = "/tmp/et-compat-XXXXXX";
  const int file = mkstemp(path);
  CHECK(file >= 0);
  close(file);
  return path;
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void properties() {
  Fixture f;
  const auto properties = f.runtime->getDeviceProperties(f.device);
  CHECK(properties.cacheLineSize_ == 64);
  CHECK(properties.memorySize_ >= std::uint64_t{1} << 30);
  CHECK(properties.computeMinionShireMask_ == 3 && properties.spareComputeMinionoShireId_ == 32);
  CHECK(f.runtime->getDmaInfo(f.device).maxElementCount_ >= 1);
  CHECK(!f.runtime->isP2PEnabled(f.device, f.device));
  CHECK(!refusal([&] { f.runtime->getDeviceProperties(rt::DeviceId{7}); }).empty());
}

void memory() {
  Fixture f;
  std::set<std::byte*> places;
  for (std::size_t size = 1; size < 100; ++size) {
    std::byte* place = f.runtime->mallocDevice(f.device, size, 64);
    CHECK(reinterpret_cast<std::uintptr_t>(place) % 64 == 0);
    CHECK(places.insert(place).second);
  }
  for (std::byte* place : places) {
    f.runtime->freeDevice(f.device, place);
  }
  CHECK(!refusal([&] { f.runtime->freeDevice(f.device, *places.begin()); }).empty());
  CHECK(!refusal([&] { f.runtime->mallocDevice(f.device, 0); }).empty());
  CHECK(!refusal([&] { f.runtime->mallocDevice(f.device, std::size_t{1} << 60); }).empty());
  CHECK(!refusal([&] { f.runtime->mallocDevice(f.device, SIZE_MAX); }).empty());
}

void copies() {
  Fixture f;
  const auto values = numbers(300'000);
  std::byte* place = f.upload(values);
  CHECK(f.download<std::uint32_t>(place, values.size()) == values);
  // Any place and length.
  std::byte odd[5] = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}, std::byte{5}};
  f.runtime->memcpyHostToDevice(f.stream, odd, place + 7, 5);
  const auto back = f.download<std::byte>(place + 6, 7);
  CHECK(std::equal(odd, odd + 5, back.begin() + 1));
  // What was read before an event is there when that event is.
  std::vector<std::uint32_t> first(1000);
  std::uint32_t second = 0;
  f.runtime->memcpyDeviceToHost(f.stream, place + 4000, reinterpret_cast<std::byte*>(first.data()),
                                4000);
  const auto last =
      f.runtime->memcpyDeviceToHost(f.stream, place, reinterpret_cast<std::byte*>(&second), 4);
  CHECK(f.runtime->waitForEvent(last));
  CHECK(std::equal(first.begin(), first.end(), values.begin() + 1000));
  // Outside of what is allocated.
  const auto outside = [&](const std::byte* from, std::size_t size) {
    return refusal([&] {
      f.runtime->memcpyDeviceToHost(f.stream, from, reinterpret_cast<std::byte*>(&second), size);
    });
  };
  CHECK(outside(place, 2 << 20).find("allocated") != std::string::npos);
  CHECK(!outside(nullptr, 1).empty());
  CHECK(f.runtime->waitForEvent(f.runtime->memcpyHostToDevice(f.stream, odd, place, 0)));
}

void lists() {
  Fixture f;
  auto values = numbers(4096);
  std::byte* place = f.runtime->mallocDevice(f.device, 16384);
  auto* host = reinterpret_cast<std::byte*>(values.data());
  rt::MemcpyList there;
  for (std::size_t part = 0; part < 4; ++part) {
    there.addOp(host + part * 4096, place + part * 4096, 4096);
  }
  CHECK(f.runtime->waitForEvent(f.runtime->memcpyHostToDevice(f.stream, there)));
  std::vector<std::uint32_t> back(4096);
  rt::MemcpyList here;
  here.addOp(place + 8192, reinterpret_cast<std::byte*>(back.data()) + 8192, 8192);
  here.addOp(place, reinterpret_cast<std::byte*>(back.data()), 8192);
  CHECK(f.runtime->waitForEvent(f.runtime->memcpyDeviceToHost(f.stream, here)));
  CHECK(back == values);
  const auto most = f.runtime->getDmaInfo(f.device);
  while (there.operations_.size() <= most.maxElementCount_) {
    there.addOp(host, place, 1);
  }
  const auto send = [&](const rt::MemcpyList& list) {
    return refusal([&] { f.runtime->memcpyHostToDevice(f.stream, list); });
  };
  CHECK(send(there).find("copies, of") != std::string::npos);
  rt::MemcpyList large;
  large.addOp(host, place, most.maxElementSize_ + 1);
  CHECK(!send(large).empty());
  CHECK(!send(rt::MemcpyList()).empty());
}

void copiesBetweenDevices() {
  Fixture f(2);
  const rt::DeviceId other = f.runtime->getDevices().at(1);
  const rt::StreamId its = f.runtime->createStream(other);
  const auto values = numbers(5000);
  std::byte* from = f.upload(values);
  std::byte* to = f.runtime->mallocDevice(other, 20'000);
  std::byte* again = f.runtime->mallocDevice(f.device, 20'000);
  // Each side of the other's stream, and within one device.
  CHECK(f.runtime->waitForEvent(
      f.runtime->memcpyDeviceToDevice(f.stream, other, from, to, 20'000)));
  CHECK(f.runtime->waitForEvent(
      f.runtime->memcpyDeviceToDevice(other, f.stream, to, again, 20'000)));
  CHECK(f.download<std::uint32_t>(again, 5000) == values);
  CHECK(f.runtime->waitForEvent(f.runtime->memcpyDeviceToDevice(
      its, other, to, f.runtime->mallocDevice(other, 20'000), 20'000)));
  std::byte* third = f.runtime->mallocDevice(f.device, 20'000);
  f.runtime->memcpyDeviceToDevice(f.stream, f.device, from, third, 20'000);
  CHECK(f.download<std::uint32_t>(third, 5000) == values);

  // Neither call waits for what is before it, and what is aborted ends alone.
  const auto endless = f.launch(f.load("hang"), 0);
  std::byte* late = f.runtime->mallocDevice(other, 20'000);
  const auto first = f.runtime->memcpyDeviceToDevice(f.stream, other, from, late, 20'000);
  const auto unwanted = f.runtime->memcpyDeviceToDevice(f.stream, other, third, to, 20'000);
  CHECK(f.runtime->waitForEvent(f.runtime->abortCommand(unwanted)));
  CHECK(!f.runtime->waitForEvent(first, 0s) && !f.runtime->waitForEvent(endless, 0s));
  CHECK(f.runtime->waitForEvent(f.runtime->abortCommand(endless)));
  CHECK(f.runtime->waitForStream(f.stream));
  const auto errors = f.runtime->retrieveStreamErrors(f.stream);
  CHECK(errors.size() == 2 && errors[0].device_ == other && errors[1].device_ == f.device);
  CHECK(f.runtime->waitForEvent(f.runtime->memcpyDeviceToDevice(other, f.stream, late, again, 20'000)));
  CHECK(f.download<std::uint32_t>(again, 5000) == values);
}

struct AddScalar {
  std::byte* x;
  std::byte* z;
  float s;
  std::uint64_t n;
};

struct Fill {
  std::byte* dst;
  std::uint64_t value;
  std::uint64_t n;
};

void launches() {
  Fixture f;
  const auto kernel = f.load("add_scalar");
  const std::vector<float> ones(1000, 1.0F);
  std::byte* place = f.upload(ones);
  for (int round = 0; round < 300; ++round) {
    f.launch(kernel, AddScalar{place, place, 1.0F, 1000});
  }
  CHECK(f.runtime->waitForStream(f.stream));
  CHECK(f.download<float>(place, 1000) == std::vector<float>(1000, 301.0F));
  // Arguments that do not fit into a command.
  std::array<std::byte, 3000> large{};
  const Fill fill{place, 0, 4000};
  std::memcpy(large.data(), &fill, sizeof fill);
  rt::KernelLaunchOptions options;
  options.setShireMask(2);
  options.setFlushL3(true);
  f.launch(f.load("memset"), large, options);
  CHECK(f.download<float>(place, 1000) == std::vector<float>(1000));
  CHECK(f.runtime->retrieveStreamErrors(f.stream).empty());
  // The older form.
  const AddScalar args{place, place, -300.0F, 1000};
  f.runtime->kernelLaunch(f.stream, kernel, reinterpret_cast<const std::byte*>(&args), sizeof args,
                          std::uint64_t{1}, true, false);
  CHECK(f.download<float>(place, 1)[0] == -300.0F);

  options.setShireMask(4);
  CHECK(!refusal([&] { f.launch(kernel, args, options); }).empty());
  options.setShireMask(0);
  CHECK(!refusal([&] { f.launch(kernel, args, options); }).empty());
  std::vector<std::byte> huge(100 << 20);
  CHECK(!refusal([&] {
           f.runtime->kernelLaunch(f.stream, kernel, huge.data(), huge.size());
         }).empty());
  const std::vector<std::byte> nonsense(1000);
  CHECK(!refusal([&] { f.runtime->loadCode(f.stream, nonsense.data(), nonsense.size()); }).empty());
  f.runtime->unloadCode(kernel);
  CHECK(!refusal([&] { f.runtime->unloadCode(kernel); }).empty());
  CHECK(!refusal([&] { f.launch(kernel, args); }).empty());

  // In memory of the user's.
  std::byte* code = f.runtime->mallocDevice(f.device, 16384);
  const auto elf = contents(kernels + "/add_scalar.elf");
  const auto loadTo = [&](std::byte* to) {
    return f.runtime->loadCodeTo(f.stream, to, reinterpret_cast<const std::byte*>(elf.data()),
                                 elf.size());
  };
  const auto loaded = loadTo(code + 4096);
  CHECK(loaded.loadAddress_ == code + 4096);
  f.launch(loaded.kernel_, args);
  CHECK(f.download<float>(place, 1)[0] == -600.0F);
  f.runtime->unloadCode(loaded.kernel_);
  CHECK(!refusal([&] { loadTo(code + 4); }).empty());
  CHECK(!refusal([&] { loadTo(code + 16384 - 64); }).empty());
  CHECK(!refusal([&] { loadTo(nullptr); }).empty());
  f.runtime->freeDevice(f.device, code);
  CHECK(!refusal([&] { loadTo(code); }).empty());
}

void stacks() {
  Fixture f;
  const auto kernel = f.load("stack_probe");
  std::byte* out = f.runtime->mallocDevice(f.device, 64 * 16);
  std::byte* base = f.runtime->mallocDevice(f.device, 64 * 16384);
  const struct {
    std::uint64_t bytes;
    std::byte* out;
  } args{12'000, out};
  rt::KernelLaunchOptions options;
  options.setShireMask(1);
  // The default is too small for it.
  f.launch(kernel, args, options);
  f.runtime->waitForStream(f.stream);
  CHECK(!f.runtime->retrieveStreamErrors(f.stream).empty());
  options.setStackConfig(base, 64 * 16384);
  f.launch(kernel, args, options);
  f.runtime->waitForStream(f.stream);
  CHECK(f.runtime->retrieveStreamErrors(f.stream).empty());
  CHECK(!refusal([&] { options.setStackConfig(base + 64, 4096); }).empty());
  CHECK(!refusal([&] { options.setStackConfig(base, 5000); }).empty());
  options.setStackConfig(base, 4096);
  CHECK(!refusal([&] { f.launch(kernel, args, options); }).empty());
}

void failures() {
  Fixture f;
  const auto kernel = f.load("trap_load");
  const std::uint64_t hart = 5;
  CHECK(f.runtime->waitForEvent(f.launch(kernel, hart)));
  auto errors = f.runtime->retrieveStreamErrors(f.stream);
  CHECK(errors.size() == 1);
  const rt::StreamError& error = errors[0];
  CHECK(error.errorCode_ == rt::DeviceErrorCode::KernelLaunchException);
  CHECK(error.stream_ == f.stream && error.device_ == f.device);
  CHECK(error.cmShireMask_ == 1U);
  CHECK(error.errorContext_.value().size() == 1);
  const rt::ErrorContext& context = error.errorContext_.value()[0];
  CHECK(context.type_ == 1 && context.hartId_ == hart);
  CHECK(context.mcause_ == 5 && context.mtval_ == 0 && context.mepc_ != 0);
  CHECK(error.getString().find("KernelLaunchException") == 0);
  CHECK(std::to_string(error).find("load_from_null") != std::string::npos);
  CHECK(f.runtime->retrieveStreamErrors(f.stream).empty());
  // With a core file, in which is all memory of the device.
  const std::string core = temporary();
  rt::KernelLaunchOptions dumped;
  dumped.setShireMask(1);
  dumped.setCoreDumpFilePath(core);
  f.upload(std::vector<char>{'i', 'n', ' ', 't', 'h', 'e', ' ', 'c', 'o', 'r', 'e'});
  f.launch(kernel, hart, dumped);
  CHECK(f.runtime->waitForStream(f.stream));
  CHECK(f.runtime->retrieveStreamErrors(f.stream)[0].getString().find(core) == std::string::npos);
  CHECK(contents(core).find("\x7f" "ELF") == 0);
  CHECK(contents(core).find("in the core") != std::string::npos);
  std::remove(core.c_str());
  dumped.setCoreDumpFilePath("/does/not/exist/failed.core");
  f.launch(kernel, hart, dumped);
  CHECK(f.runtime->waitForStream(f.stream));
  CHECK(f.runtime->retrieveStreamErrors(f.stream)[0].getString().find(
            "no core file could be written to /does/not/exist") != std::string::npos);
  // Returned by the kernel: there is a context too.
  CHECK(f.runtime->waitForEvent(f.launch(f.load("negative_return"), hart)));
  errors = f.runtime->retrieveStreamErrors(f.stream);
  CHECK(errors.size() == 1 && errors[0].errorContext_.value()[0].userDefinedError_ == -7);

  // With a callback, which is over before the wait is, nothing is listed.
  std::atomic<int> calls{0};
  rt::EventId about{};
  f.runtime->setOnStreamErrorsCallback([&](rt::EventId event, const rt::StreamError& failed) {
    CHECK(failed.errorContext_.value()[0].type_ == 1);
    about = event;
    // It may wait, even for what it is about.
    CHECK(f.runtime->waitForEvent(event));
    for (int turn = 0; turn < 1000; ++turn) {
      std::this_thread::yield();
    }
    ++calls;
  });
  const auto event = f.launch(kernel, hart);
  CHECK(f.runtime->waitForStream(f.stream));
  CHECK(calls == 1 && about == event);
  CHECK(f.runtime->retrieveStreamErrors(f.stream).empty());
  // Good work goes on.
  const auto values = numbers(100);
  CHECK(f.download<std::uint32_t>(f.upload(values), 100) == values);
  // It comes without a wait.
  f.launch(kernel, hart);
  while (calls != 2) {
    std::this_thread::yield();
  }
  f.runtime->setOnStreamErrorsCallback(
      [](rt::EventId, const rt::StreamError&) { throw std::runtime_error("a mistake"); });
  f.launch(kernel, hart);
  try {
    f.runtime->waitForStream(f.stream);
  } catch (const std::runtime_error&) {
  }
  CHECK(f.runtime->waitForStream(f.stream));
}

void aborts() {
  Fixture f;
  const auto hang = f.load("hang");
  const auto other = f.runtime->createStream(f.device);
  const auto endless = f.launch(hang, 0);
  const auto behind = f.runtime->createStream(f.device);
  CHECK(!f.runtime->waitForEvent(endless, 0s));
  CHECK(!f.runtime->waitForStream(f.stream, 0s));
  CHECK(f.runtime->waitForEvent(f.runtime->abortCommand(endless)));
  CHECK(f.runtime->waitForEvent(endless, 0s));
  auto errors = f.runtime->retrieveStreamErrors(f.stream);
  CHECK(errors.size() == 1);
  CHECK(errors[0].errorCode_ == rt::DeviceErrorCode::KernelLaunchHostAborted);
  CHECK(errors[0].errorContext_.value()[0].type_ == 2);
  // What has ended, and what never was.
  CHECK(f.runtime->waitForEvent(f.runtime->abortCommand(endless)));

  std::atomic<int> calls{0};
  f.runtime->setOnKernelAbortedErrorCallback(
      [&](rt::EventId, std::byte* context, std::size_t size, const std::function<void()>& free) {
        CHECK(context != nullptr && size % sizeof(rt::ErrorContext) == 0 && size != 0);
        free();
        ++calls;
      });
  std::vector<rt::EventId> all;
  for (int count = 0; count < 3; ++count) {
    all.push_back(f.launch(hang, 0));
  }
  CHECK(f.runtime->waitForEvent(f.runtime->abortStream(f.stream)));
  for (const rt::EventId event : all) {
    CHECK(f.runtime->waitForEvent(event, 0s));
  }
  CHECK(calls == 3);
  CHECK(f.runtime->retrieveStreamErrors(f.stream).size() == 3);
  for (const rt::StreamId stream : {other, behind}) {
    CHECK(f.runtime->waitForStream(stream, 0s));
    CHECK(f.runtime->retrieveStreamErrors(stream).empty());
    f.runtime->destroyStream(stream);
  }
}

void events() {
  Fixture f(2);
  const auto hang = f.load("hang");
  const auto endless = f.launch(hang, 0);
  // Many threads wait for one event.
  std::vector<std::thread> threads;
  std::atomic<int> woken{0};
  for (int count = 0; count < 20; ++count) {
    threads.emplace_back([&] {
      CHECK(f.runtime->waitForEvent(endless));
      ++woken;
    });
  }
  CHECK(f.runtime->waitForEvent(f.runtime->abortCommand(endless)));
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(woken == 20);
  CHECK(f.runtime->retrieveStreamErrors(f.stream).size() == 1);
  // Numbers wrap, and none is given out twice at a time.
  const rt::DeviceId second = f.runtime->getDevices().at(1);
  const auto other = f.runtime->createStream(second);
  const auto stuck = f.launch(hang, 0);
  std::byte* place = f.runtime->mallocDevice(second, 64);
  const std::byte zero[64] = {};
  for (int count = 0; count < 70'000; ++count) {
    CHECK(f.runtime->memcpyHostToDevice(other, zero, place, 64) != stuck);
  }
  CHECK(f.runtime->waitForStream(other));
  CHECK(!f.runtime->waitForEvent(stuck, 0s));
  CHECK(f.runtime->waitForEvent(f.runtime->abortStream(f.stream)));
}

void streams() {
  Fixture f;
  for (int count = 0; count < 10'000; ++count) {
    f.runtime->destroyStream(f.runtime->createStream(f.device));
  }
  const auto stream = f.runtime->createStream(f.device);
  f.runtime->destroyStream(stream);
  CHECK(!refusal([&] { f.runtime->destroyStream(stream); }).empty());
  CHECK(!refusal([&] { f.runtime->waitForStream(stream); }).empty());
  CHECK(!refusal([&] { f.runtime->retrieveStreamErrors(stream); }).empty());
  // Several threads, each with its own.
  std::vector<std::thread> threads;
  for (int count = 0; count < 8; ++count) {
    threads.emplace_back([&f] {
      const auto mine = f.runtime->createStream(f.device);
      std::byte* place = f.runtime->mallocDevice(f.device, 4096);
      for (std::uint32_t round = 0; round < 200; ++round) {
        std::uint32_t back = 0;
        f.runtime->memcpyHostToDevice(mine, reinterpret_cast<std::byte*>(&round), place, 4);
        f.runtime->memcpyDeviceToHost(mine, place, reinterpret_cast<std::byte*>(&back), 4);
        CHECK(f.runtime->waitForStream(mine));
        CHECK(back == round);
      }
      f.runtime->freeDevice(f.device, place);
      f.runtime->destroyStream(mine);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

void traces() {
  Fixture f;
  const auto kernel = f.load("trace");
  constexpr std::size_t SIZE = 64 * 4096;
  std::byte* buffer = f.upload(std::vector<std::byte>(SIZE));
  rt::KernelLaunchOptions options;
  options.setShireMask(1);
  options.setUserTracing(reinterpret_cast<std::uint64_t>(buffer), SIZE, 0, 1, ~std::uint64_t{0},
                         0xFFFFFFFF, 0xFFFFFFFF);
  const struct {
    std::uint64_t values = 3;
    std::uint64_t level = 0;
  } args;
  f.launch(kernel, args, options);
  auto bytes = f.download<std::byte>(buffer, SIZE);
  CHECK(f.runtime->retrieveStreamErrors(f.stream).empty());
  std::vector<std::byte> aligned(SIZE + 64);
  void* start = aligned.data();
  std::size_t room = aligned.size();
  std::align(64, SIZE, start, room);
  std::memcpy(start, bytes.data(), SIZE);
  const auto* header = static_cast<const trace_buffer_std_header_t*>(start);
  std::set<std::string> texts;
  std::size_t values = 0;
  const trace_entry_header_t* entry = nullptr;
  while ((entry = Trace_Decode(header, entry)) != nullptr) {
    if (entry->type == TRACE_TYPE_STRING) {
      texts.insert(reinterpret_cast<const trace_string_t*>(entry)->string);
    } else {
      CHECK(entry->type == TRACE_TYPE_VALUE_U64);
      const auto* value = reinterpret_cast<const trace_value_u64_t*>(entry);
      CHECK(value->value == (std::uint64_t{entry->hart_id} << 32) + value->tag);
      ++values;
    }
  }
  CHECK(texts.size() == 64 && texts.count("hart 0063 of shire 00") == 1);
  CHECK(values == 64 * 3);
  // What makes no sense is not followed.
  std::memset(start, 0xFF, 64);
  CHECK(Trace_Decode(header, nullptr) == nullptr);
}

void deviceLayers() {
  setenv("ET_DEVICE", "sim:shires=1,dram=1GiB sim:shires=2,dram=1GiB", 1);
  const auto named = dev::IDeviceLayer::createPcieDeviceLayer();
  CHECK(named->getDevicesCount() == 2);
  CHECK(named->getLocator(1) == "sim:shires=2,dram=1GiB");
  const auto runtime = rt::IRuntime::create(std::shared_ptr<dev::IDeviceLayer>(
      dev::IDeviceLayer::createPcieDeviceLayer()));
  CHECK(runtime->getDevices().size() == 2);
  CHECK(runtime->getDeviceProperties(rt::DeviceId{1}).computeMinionShireMask_ == 3);
  setenv("ET_DEVICE", "  ", 1);
  CHECK(!refusal([] { dev::IDeviceLayer::createPcieDeviceLayer(); }).empty());
  setenv("ET_DEVICE", "nonsense:", 1);
  CHECK(!refusal([] {
           rt::IRuntime::create(std::shared_ptr<dev::IDeviceLayer>(
               dev::IDeviceLayer::createPcieDeviceLayer()));
         }).empty());
  unsetenv("ET_DEVICE");
  CHECK(dev::IDeviceLayer::createPcieDeviceLayer()->getDevicesCount() == 1);
  emu::SysEmuOptions options;
  options.minionShiresMask = 0x100000005;
  CHECK(!refusal([&] { dev::IDeviceLayer::createSysEmuDeviceLayer(options); }).empty());
  CHECK(!refusal([] { rt::IRuntime::create(std::shared_ptr<dev::IDeviceLayer>()); }).empty());
  CHECK(!refusal([] { rt::IRuntime::create(std::string("/no/such/socket")); }).empty());
}

} // namespace

int main(int, char** arguments) {
  kernels = arguments[1];
  const std::pair<const char*, void (*)()> tests[] = {
      {"properties", properties},
      {"memory", memory},
      {"copies", copies},
      {"lists", lists},
      {"copies between devices", copiesBetweenDevices},
      {"launches", launches},
      {"stacks", stacks},
      {"failures", failures},
      {"aborts", aborts},
      {"events", events},
      {"streams", streams},
      {"traces", traces},
      {"device layers", deviceLayers},
  };
  for (const auto& [name, test] : tests) {
    test();
    std::printf("%s: passed\n", name);
    std::fflush(stdout);
  }
  return 0;
}
