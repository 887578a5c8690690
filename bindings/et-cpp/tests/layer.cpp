// The C++ layer on a simulated card. Arguments: the folder with the test kernels.

#include <et.hpp>

#include <cstdio>
#include <cstdlib>

namespace {

using namespace std::chrono_literals;

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                 \
      std::exit(1);                                                                                \
    }                                                                                              \
  } while (false)

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
  stream.launch(launch).wait(60s);
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

  // A handle that was given away is no one's.
  et::Memory moved = device.alloc(64);
  et::Memory taken = std::move(moved);
  CHECK(taken && !moved);
  CHECK(statusOf([&] { moved.bytes(); }) == ET_BAD_HANDLE);
  taken = device.alloc(128);
  CHECK(taken.bytes() == 128);

  const et::Stream other = device.stream();
  const et::Event endless = stream.launch(et::Launch(device.load(kernels + "/hang.elf")));
  other.wait_for(endless);
  const et::Event behind = other.barrier();
  CHECK(statusOf([&] { endless.wait(1ms); }) == ET_TIMEOUT);
  device.abort(endless, 60s);
  CHECK(statusOf([&] { endless.wait(60s); }) == ET_LAUNCH_FAILED);
  behind.wait(60s);
  stream.synchronize(60s);
  CHECK(statusOf([&] { et::text([](char*, std::size_t, std::size_t*) { return ET_OTHER; }); }) ==
        ET_OTHER);
  std::printf("layer: passed\n");
  return 0;
}
