// y = 2 x + y on a device.
//
// saxpy LOCATOR FOLDER, where the folder has the kernel saxpy.elf.
#include <cstdio>
#include <vector>

#include <et.hpp>

int main(int argc, char** argv) {
  using namespace std::chrono_literals;
  if (argc != 3) {
    std::fputs("usage: saxpy LOCATOR FOLDER\n", stderr);
    return 2;
  }
  try {
    const et::Device device(argv[1]);
    const et::Stream stream = device.stream();
    const et::Kernel kernel = device.load(std::string(argv[2]) + "/saxpy.elf");
    const std::vector<float> x(1000, 3.0F), y(1000, 1.0F);
    const et::Memory dx = device.alloc(4 * x.size()), dy = device.alloc(4 * y.size());
    stream.copy_to_device(x, dx);
    stream.copy_to_device(y, dy);
    const std::uint64_t count = x.size();
    stream.launch(et::Launch(kernel).arg(dx).arg(dy).arg(2.0F).arg(count)).wait(60s);
    if (stream.read<float>(dy, count, 60s) != std::vector<float>(count, 7.0F)) {
      std::fputs("the result is wrong\n", stderr);
      return 1;
    }
    std::puts("1000 elements are right");
  } catch (const et::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
