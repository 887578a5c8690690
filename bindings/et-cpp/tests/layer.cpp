// The C++ layer on a simulated card. Arguments: the folder with the test kernels.

#include <et.hpp>

#include <cstdio>
#include <fstream>
#include <iterator>

#include "check.hpp"

namespace {

using namespace std::chrono_literals;

struct AddScalar {
  std::uint64_t x;
  std::uint64_t z;
  float s;
  std::uint64_t n;
};

template <class Work>
et_status statusOf(Work work) {
  try {
    work();
  } catch (const et::Error& error) {
    CHECK(*error.what() != '\0');
    return error.status();
  }
  return ET_OK;
}

} // namespace

int main(int, char** arguments) {
  const std::string kernels = arguments[1];
  const std::vector<std::string> locators = et::Device::list();
  CHECK(!locators.empty() && locators[0] == "sim:");
  CHECK(statusOf([] { et::Device("nonsense"); }) != ET_OK);

  const et::Device device("sim:shires=2,dram=1GiB");
  CHECK(device.properties().shires == 2);
  const et::Stream stream = device.stream();
  const et::Kernel kernel = device.load(kernels + "/add_scalar.elf");
  const et::Memory memory = device.alloc(4096);
  CHECK(memory.bytes() == 4096 && device.memory_stats().live_blocks >= 1);

  const std::vector<float> ones(1024, 1.0F);
  stream.copy_to_device(ones, memory).wait(60s);
  et::Launch launch(kernel);
  launch.arg(memory).arg(memory).arg(2.5F).arg(std::uint64_t{1024});
  const et_activity before = device.activity();
  stream.launch(launch).wait(60s);
  const et_activity after = device.activity();
  CHECK(after.launches == before.launches + 1 && after.accepted > before.accepted);
  CHECK(after.pending == 0 && after.launched_shires == 0 && after.available_shires == 0b11);
  CHECK(after.busy_cycles[0] > before.busy_cycles[0] && after.busy_cycles[2] == 0);
  const AddScalar args{memory.address(), memory.address(), 1.0F, 1024};
  const et::Event event = stream.launch(et::Launch(kernel).args(args).keep(memory).shires(1));
  event.wait(60s);
  CHECK(event.is_done() && event.status() == ET_OK);
  CHECK(stream.read<float>(memory, 1024, 60s) == std::vector<float>(1024, 4.5F));
  stream.fill(memory, 8, 8, 0).wait(60s);
  CHECK(stream.read<float>(memory, 2, 60s, 8) == std::vector<float>(2, 0.0F));
  std::vector<float> later(2);
  const et::Event read = stream.copy_to_host(memory, 16, later.data(), 8);
  read.wait(60s);
  CHECK(later[1] == 4.5F);

  const auto parameters = kernel.parameters();
  CHECK(parameters && parameters->size() == 4 && !device.load(kernels + "/hang.elf").parameters());
  const et::Parameter& z = (*parameters)[1];
  CHECK(z.name == "z" && z.offset == 8 && z.scalar == ET_F32 && z.access == ET_WRITES);

  std::ifstream file(kernels + "/add_scalar.elf", std::ios::binary);
  const std::vector<char> elf{std::istreambuf_iterator<char>(file), {}};
  const et::Memory code = device.alloc(16384, 4096);
  const et::Kernel placed = device.load_to(code, 4096, "placed", elf.data(), elf.size());
  CHECK(placed.address() == code.address() + 4096);
  const auto statusAt = [&](std::uint64_t offset) {
    return statusOf([&] { device.load_to(code, offset, "elsewhere", elf.data(), elf.size()); });
  };
  CHECK(statusAt(64) == ET_MISALIGNED);
  CHECK(statusAt(16320) == ET_OUT_OF_BOUNDS && statusAt(20000) == ET_OUT_OF_BOUNDS);
  const et::Module module = device.load_module(kernels + "/entries.elf");
  stream.launch(et::Launch(module.function("third")).arg(memory)).wait(60s);
  CHECK(stream.read<std::uint64_t>(memory, 1, 60s) == std::vector<std::uint64_t>{3});
  stream.launch(et::Launch(module.kernel()).arg(memory)).wait(60s);
  CHECK(stream.read<std::uint64_t>(memory, 1, 60s) == std::vector<std::uint64_t>{1});
  CHECK(statusOf([&] { module.function("fourth"); }) == ET_INVALID);
  CHECK(!device.identity(ET_IDENTITY_BACKEND).empty());

  // Inputs, a launch and outputs at once, on a stream of its own.
  const et::Stream fast = device.stream(ET_PRIORITY_HIGH);
  const std::vector<float> twos(1024, 2.0F);
  const et::HostBuffer result = device.host_buffer(4096);
  et_copy input{};
  input.from = twos.data();
  input.to = memory.raw();
  input.bytes = 4096;
  const et_part whole{0, memory.raw(), 0, 4096};
  fast.launch_staged({input}, launch, {whole}, result).wait(60s);
  CHECK(result.read<float>(0, 1024) == std::vector<float>(1024, 4.5F));
  result.write(0, ones.data(), 4096);
  fast.upload(result, {whole}).wait(60s);
  fast.download({{64, memory.raw(), 0, 64}}, result).wait(60s);
  fast.copy({input}).wait(60s);
  std::vector<float> pieces(4);
  fast.read({{memory.raw(), 0, pieces.data(), 8}, {memory.raw(), 8, pieces.data() + 2, 8}}, 60s);
  CHECK(pieces == std::vector<float>(4, 2.0F));
  fast.launch(device.builtin_fill(memory, 1, 3, "\1", 1)).wait(60s);
  fast.launch(device.builtin_copy(memory, 1, memory, 64, 2)).wait(60s);
  CHECK(fast.read<char>(memory, 8, 60s, 64) == (std::vector<char>{1, 1, 0, 64, 0, 0, 0, 64}));
  fast.fill(memory, 0, 8, "\1\2", 2).wait(60s);
  CHECK(fast.read<char>(memory, 8, 60s) == (std::vector<char>{1, 2, 1, 2, 1, 2, 1, 2}));

  et::Mapping mapped = fast.map(memory, 64, 128, ET_UPDATES, 60s);
  CHECK(mapped.path() == ET_MAP_COPY && mapped.read<char>(1, 2) == (std::vector<char>{1, 0}));
  mapped.write(3, std::vector<char>{7});
  mapped.flush(60s);
  CHECK(fast.read<char>(memory, 8, 60s, 64) == (std::vector<char>{1, 1, 0, 7, 0, 0, 0, 64}));
  CHECK(statusOf([&] { fast.map(memory, 0, 72, ET_READS, 60s); }) == ET_BUSY);
  mapped.unmap(60s);
  CHECK(!mapped && statusOf([&] { mapped.path(); }) == ET_BAD_HANDLE);
  fast.map(memory, 0, 128, ET_READS, 60s).unmap(60s);

  const et::Device second("sim:shires=1,dram=1GiB,serial=A-7");
  const et::Memory there = second.alloc(4096);
  fast.copy_to_peer(memory, 0, second.stream(), there, 0, 4096).wait(60s);
  CHECK(second.stream().read<char>(there, 8, 60s) == fast.read<char>(memory, 8, 60s));
  CHECK(device.peer_path(device) == ET_PEER_SAME_DEVICE);
  const et_properties ways = device.properties();
  CHECK(ways.copy_ordinary == ET_COPY_STAGED && ways.copy_host_buffer == ET_COPY_DIRECT);
  CHECK(ways.copy_on_device == ET_COPY_STAGED && ways.copy_builtin == ET_COPY_CORES);

  // Without a log all is traced: one text for each hart.
  const et::KernelTrace traced = second.kernel_trace();
  et::Launch logging(second.load(kernels + "/trace.elf"));
  logging.arg(std::uint64_t{0}).arg(std::uint64_t{3}).shires(1).trace(traced);
  second.stream().launch(logging).wait(60s);
  CHECK(traced.log(60s) == 64 && traced.log(60s) == 0);
  CHECK(second.firmware_trace().log(60s) != 0);
  CHECK(device.peer_path(second) != ET_PEER_SAME_DEVICE);

  // Memory that is not made of whole pages is copied, and comes back when the buffer is freed.
  CHECK(second.import_granule() != 0);
  std::vector<char> own(64, 7);
  int calls = 0;
  const auto released = [](void* user) { ++*static_cast<int*>(user); };
  {
    const et::HostBuffer lent = second.lend(own.data(), 64, ET_UPDATES, released, &calls);
    CHECK(!lent.why_copied().empty());
    second.stream().download({{0, there.raw(), 0, 8}}, lent).wait(60s);
  }
  CHECK(calls == 1 && own[1] == 2 && own[8] == 7);

  // An endless kernel is aborted, and what was made before stays.
  CHECK(second.recover().steps.empty());
  second.stream().launch(et::Launch(second.load(kernels + "/hang.elf")));
  const et::Recovery aborted = second.recover(ET_REMEDY_COMPUTE_RESET, 60s);
  CHECK(aborted.ill == ET_TIMEOUT && !aborted.message.empty() && aborted.steps.size() == 1);
  CHECK(aborted.steps[0].remedy == ET_REMEDY_ABORT && aborted.steps[0].status == ET_OK);
  CHECK(aborted.steps[0].took > 0ns && aborted.steps[0].message.empty());
  CHECK(!aborted.lost_queues && !aborted.lost_compute && !aborted.lost_memory);
  CHECK(second.stream().read<char>(there, 8, 60s) == fast.read<char>(memory, 8, 60s));
  CHECK(statusOf([&] { second.recover(ET_REMEDY_ABORT); }) == ET_INVALID);
  // Its firmware hangs after the last command of opening it.
  et_device_options options{};
  options.size = sizeof options;
  options.shutdown_timeout_ns = et::nanoseconds(100ms);
  const et::Device ill("sim:shires=1,dram=1GiB,fault=hang:3", &options);
  try {
    ill.recover(ET_REMEDY_COMPUTE_RESET, 100ms);
    CHECK(false);
  } catch (const et::RecoveryError& error) {
    const et::Recovery& done = error.recovery();
    CHECK(error.status() == ET_TIMEOUT && done.ill == ET_TIMEOUT && done.steps.size() == 2);
    CHECK(done.steps[1].remedy == ET_REMEDY_COMPUTE_RESET && !done.steps[1].message.empty());
    CHECK(done.lost_compute && !done.lost_queues && !done.lost_memory);
  }

  const et::Management management = second.management();
  CHECK(management.asset(ET_ASSET_SERIAL_NUMBER) == "A-7");
  CHECK(management.temperatures().minion_average_c > 0 && management.power_mw() > 0);
  CHECK(management.frequencies().minion_mhz > 0 && management.asic_voltages().minion_mv > 0);
  CHECK(management.module_voltages().minion_mv > 0 && management.cache_config().l2_kib > 0);
  CHECK(management.error_counts(ET_ERRORS_DRAM).corrected == 0);
  CHECK(management.minion_errors().hangs == 0 && management.counters().events_lost == 0);
  CHECK(management.memory_rate().size == sizeof(et_memory_rate));
  CHECK(management.firmware_versions().release.major > 0);
  management.set_tdp_watts(25);
  management.set_temperature_threshold_c(70);
  CHECK(management.tdp_watts() == 25 && management.temperature_threshold_c() == 70);
  management.set_power_management(true);
  management.set_frequency_mhz(ET_CLOCK_MINIONS, 450);
  management.set_error_threshold(ET_ERRORS_PCIE, 3);
  CHECK(management.frequencies().minion_mhz == 450);

  // A handle that was given away is no one's.
  et::Memory moved = device.alloc(64);
  et::Memory taken = std::move(moved);
  CHECK(taken && !moved);
  CHECK(statusOf([&] { moved.bytes(); }) == ET_BAD_HANDLE);
  taken = device.alloc(128);
  CHECK(taken.bytes() == 128);

  et::Launch dumped(device.load(kernels + "/trap_load.elf"));
  dumped.arg(std::uint64_t{0}).core_dump("/does/not/exist/failed.core");
  CHECK(statusOf([&] { stream.launch(dumped).wait(60s); }) == ET_LAUNCH_FAILED);

  // Of two streams one is in another queue, where it cannot be sent what waits.
  const et::Stream others[] = {device.stream(), device.stream()};
  const et::Event endless = stream.launch(et::Launch(device.load(kernels + "/hang.elf")));
  std::vector<et::Event> behind;
  for (const et::Stream& other : others) {
    other.wait_for(endless);
    behind.push_back(other.barrier());
    CHECK(!behind.back().is_done());
  }
  CHECK((behind[0].state() == ET_EVENT_QUEUED) != (behind[1].state() == ET_EVENT_QUEUED));
  CHECK(statusOf([&] { endless.wait(1ms); }) == ET_TIMEOUT);
  device.abort(endless, 60s);
  // On a busy machine it may have been aborted before it was started.
  const et_status ended = statusOf([&] { endless.wait(60s); });
  CHECK(ended == ET_LAUNCH_FAILED || ended == ET_ABORTED);
  CHECK(endless.state() == ET_EVENT_FAILED);
  behind[0].wait(60s);
  behind[1].wait(60s);
  stream.synchronize(60s);
  CHECK(statusOf([&] { et::text([](char*, std::size_t, std::size_t*) { return ET_OTHER; }); }) ==
        ET_OTHER);
  std::printf("layer: passed\n");
  return 0;
}
