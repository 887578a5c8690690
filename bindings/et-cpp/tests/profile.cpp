// Profiles of the original's interface, also as the library reads them that the original writes them
// with. Arguments: the folder with the test kernels.

#include <runtime/IProfileEvent.h>

#ifdef RT_HAS_CEREAL
#include <cereal/archives/json.hpp>
#include <cereal/archives/portable_binary.hpp>
#endif

#include "../compat/src/profile_writer.h"
#include "fixture.hpp"

#include <algorithm>
#include <atomic>
#include <sstream>
#include <thread>
#include <unistd.h>

namespace {

using namespace std::chrono_literals;

// Launches a kernel that adds numbers; returns the event of its launch.
rt::EventId recorded(Fixture& f) {
  const auto kernel = f.load("add");
  std::byte* place = f.upload(numbers(10));
  const struct {
    std::byte* a;
    std::byte* b;
    std::byte* sum;
    std::uint64_t count = 10;
  } args{place, place, place};
  const auto event = f.launch(kernel, args);
  CHECK(f.runtime->waitForStream(f.stream));
  f.runtime->freeDevice(f.device, place);
  return event;
}

#ifdef RT_HAS_CEREAL

// The events of a profile, as cereal reads them.
template <class Archive>
std::vector<rt::profiling::ProfileEvent> eventsIn(const std::string& profile) {
  std::istringstream stream(profile, std::ios::binary);
  Archive archive(stream);
  std::vector<rt::profiling::ProfileEvent> all;
  do {
    archive(all.emplace_back());
  } while (all.back().getClass() != rt::profiling::Class::EndProfiling);
  return all;
}

void checkEvents(const std::vector<rt::profiling::ProfileEvent>& all, rt::EventId launched) {
  using rt::profiling::Class;
  using rt::profiling::Type;
  const auto of = [&](Class cls) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const auto& event) {
      return event.getClass() == cls && event.getEvent().value_or(launched) == launched;
    });
    CHECK(found != all.end());
    return *found;
  };
  CHECK(all.front().getClass() == Class::StartProfiling);
  CHECK(all.front().getVersion() == rt::profiling::kCurrentVersion);
  CHECK(of(Class::SyncTime).getSystemTimeStamp()->time_since_epoch().count() > 0);
  const auto launch = of(Class::KernelLaunch);
  CHECK(launch.getType() == Type::Complete && launch.getDuration()->count() > 0);
  CHECK(launch.getStream().has_value() && launch.getKernelId().has_value());
  CHECK(launch.getNumericThreadId() == static_cast<unsigned long long>(getpid()));
  const auto sent = of(Class::CommandSent), received = of(Class::ResponseReceived);
  CHECK(received.getResponseType() == rt::profiling::ResponseType::Kernel);
  CHECK(*received.getDeviceCmdExecDur() > 0);
  CHECK(launch.getTimeStamp() <= sent.getTimeStamp());
  CHECK(sent.getTimeStamp() <= received.getTimeStamp());
  CHECK(received.getTimeStamp() <= of(Class::DispatchEvent).getTimeStamp());
  const auto alloc = of(Class::MallocDevice), freed = of(Class::FreeDevice);
  CHECK(alloc.getSize() == 40U && alloc.getAlignment() == 64U);
  CHECK(alloc.getAddress() == freed.getAddress());
  CHECK(of(Class::MemoryStats).getAllocatedMemory() >= 4096U);
  CHECK(of(Class::GetDeviceProperties).getDeviceProperties()->computeMinionShireMask_ == 3);
  CHECK(of(Class::GetDeviceProperties).getDeviceProperties()->tdp_ > 0);
}

// An event that is written has all that it had, and looks as if cereal had written it.
template <class Writer, class Input>
rt::profiling::ProfileEvent again(const rt::profiling::ProfileEvent& event) {
  std::stringstream stream;
  Writer writer(stream);
  rt::profiling::write(writer, event);
  writer.end();
  rt::profiling::ProfileEvent found;
  Input archive(stream);
  archive(found);
  return found;
}

void checkReading(const std::string& json, rt::EventId ofJson, const std::string& binary,
                  rt::EventId ofBinary) {
  checkEvents(eventsIn<cereal::JSONInputArchive>(json), ofJson);
  checkEvents(eventsIn<cereal::PortableBinaryInputArchive>(binary), ofBinary);
  rt::profiling::ProfileEvent event(rt::profiling::Type::Instant,
                                    rt::profiling::Class::IdentifyThread);
  event.setTimeStamp(rt::profiling::ProfileEvent::TimePoint(-5ns));
  event.setThreadName("a \"name\"\\\n\x01");
  std::ostringstream own, theirs;
  rt::profiling::BinaryWriter writer(own);
  rt::profiling::write(writer, event);
  {
    cereal::PortableBinaryOutputArchive archive(theirs);
    archive(event);
  }
  CHECK(own.str() == theirs.str());
  event.setBarrier(false);
  event.setDuration(-7ns);
  event.setLoadAddress(~std::uint64_t{0});
  for (const auto& found :
       {again<rt::profiling::JsonWriter, cereal::JSONInputArchive>(event),
        again<rt::profiling::BinaryWriter, cereal::PortableBinaryInputArchive>(event)}) {
    CHECK(found.getTimeStamp() == event.getTimeStamp());
    CHECK(found.getThreadId() == event.getThreadId());
    CHECK(found.getThreadName() == event.getThreadName());
    CHECK(found.getBarrier() == false && found.getDuration() == -7ns);
    CHECK(found.getLoadAddress() == event.getLoadAddress());
  }
  std::puts("profiles: read by cereal");
}

void checkThreads(const std::string& json) {
  const auto all = eventsIn<cereal::JSONInputArchive>(json);
  using rt::profiling::Class;
  for (const Class cls : {Class::MemcpyHostToDevice, Class::ResponseReceived}) {
    CHECK(std::count_if(all.begin(), all.end(), [&](const auto& event) {
            return event.getClass() == cls;
          }) == 200);
  }
}

#else

void checkReading(const std::string&, rt::EventId, const std::string&, rt::EventId) {}
void checkThreads(const std::string&) {}

#endif

void profiles() {
  using Format = rt::IProfiler::OutputType;
  Fixture f;
  rt::IProfiler* profiler = f.runtime->getProfiler();
  const auto record = [&](Format format, rt::EventId& launched) {
    std::ostringstream text;
    // What a user has set for numbers of their own.
    text << std::hex << std::showbase;
    profiler->start(text, format);
    CHECK(!refusal([&] { profiler->start(text, format); }).empty());
    f.runtime->getDeviceProperties(f.device);
    launched = recorded(f);
    profiler->stop();
    const std::string all = text.str();
    f.upload(numbers(10));
    profiler->stop();
    CHECK(text.str() == all);
    return all;
  };
  rt::EventId ofJson{}, ofBinary{};
  const auto timeline = record(Format::Perfetto, ofJson);
  CHECK(timeline.find("traceEvents") != std::string::npos);
  const auto json = record(Format::Json, ofJson);
  CHECK(json.find("\"class\": \"KernelLaunch\"") != std::string::npos);
  const auto binary = record(Format::Binary, ofBinary);
  CHECK(json.find("\"value10\": ") != std::string::npos);
  checkReading(json, ofJson, binary, ofBinary);
  CHECK(binary.at(0) == 1);
  // What several threads do at once is in it whole.
  CHECK(f.runtime->waitForStream(f.stream));
  std::ostringstream shared;
  profiler->start(shared, Format::Json);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&f] {
      const auto stream = f.runtime->createStream(f.device);
      std::byte* place = f.runtime->mallocDevice(f.device, 64);
      const std::byte bytes[64] = {};
      for (int copy = 0; copy < 50; ++copy) {
        f.runtime->memcpyHostToDevice(stream, bytes, place, 64);
      }
      CHECK(f.runtime->waitForStream(stream));
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  profiler->stop();
  checkThreads(shared.str());
  // A stream that throws is not recorded to.
  struct Short : std::streambuf {
    int left = 10;
    int overflow(int c) override { return left-- > 0 ? c : EOF; }
  } few;
  std::ostream throwing(&few);
  throwing.exceptions(std::ios::badbit);
  bool hasThrown = false;
  try {
    profiler->start(throwing, Format::Json);
  } catch (const std::ios_base::failure&) {
    hasThrown = true;
  }
  CHECK(hasThrown);
  f.upload(numbers(10));
  std::ofstream full("/dev/full");
  profiler->start(full, Format::Json);
  CHECK(!refusal([&] { profiler->stop(); }).empty());
}

// Counts what it is told.
struct Counter : rt::profiling::IProfilerRecorder {
  Counter(std::atomic<int>& launches, bool dummy) : launches_(launches), dummy_(dummy) {}
  void start(std::ostream&, OutputType) override {}
  void stop() override {}
  void record(const rt::profiling::ProfileEvent& event) override {
    launches_ += event.getClass() == rt::profiling::Class::KernelLaunch ? 1 : 0;
    throw std::runtime_error("not heard");
  }
  bool isDummy() const override { return dummy_; }
  void recordNowOrAtStart(const rt::profiling::ProfileEvent&) override {}

  std::atomic<int>& launches_;
  const bool dummy_;
};

void recorders() {
  Fixture f;
  std::atomic<int> launches{0};
  CHECK(!refusal([&] { f.runtime->setProfiler(nullptr); }).empty());
  recorded(f);
  auto counter = std::make_unique<Counter>(launches, false);
  const rt::IProfiler* raw = counter.get();
  f.runtime->setProfiler(std::move(counter));
  CHECK(f.runtime->getProfiler() == raw);
  recorded(f);
  recorded(f);
  CHECK(launches == 2);
  f.runtime->setProfiler(std::make_unique<Counter>(launches, true));
  recorded(f);
  CHECK(launches == 2);
  CHECK(rt::profiling::class_from_string("CmaWait") == rt::profiling::Class::CmaWait);
  CHECK(!refusal([&] { rt::profiling::type_from_string("Middle"); }).empty());
}

} // namespace

int main(int, char** arguments) {
  kernels = arguments[1];
  profiles();
  recorders();
  std::puts("profiles: passed");
  return 0;
}
