// C = A B on all harts of a device, and the same on the host.
//
// matmul LOCATOR FOLDER, where the folder has the kernel matmul.elf.
#include <cstdio>
#include <vector>

#include <et.hpp>

namespace {

constexpr std::uint64_t m = 48, n = 64, k = 32;

// Small whole numbers, so that every order of sums is exact.
std::vector<float> numbers(std::uint64_t count, unsigned seed) {
  std::vector<float> values(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>((i * seed) % 13) - 6.0F;
  }
  return values;
}

} // namespace

int main(int argc, char** argv) {
  using namespace std::chrono_literals;
  if (argc != 3) {
    std::fputs("usage: matmul LOCATOR FOLDER\n", stderr);
    return 2;
  }
  try {
    const et::Device device(argv[1]);
    const et::Stream stream = device.stream();
    const et::Kernel kernel = device.load(std::string(argv[2]) + "/matmul.elf");
    const std::vector<float> a = numbers(m * k, 7), b = numbers(k * n, 5);
    const et::Memory da = device.alloc(4 * a.size()), db = device.alloc(4 * b.size());
    const et::Memory dc = device.alloc(4 * m * n);
    stream.copy_to_device(a, da);
    stream.copy_to_device(b, db);
    stream.launch(et::Launch(kernel).arg(da).arg(db).arg(dc).arg(m).arg(n).arg(k)).wait(60s);
    const std::vector<float> c = stream.read<float>(dc, m * n, 60s);
    for (std::uint64_t at = 0; at < m * n; ++at) {
      float sum = 0;
      for (std::uint64_t i = 0; i < k; ++i) {
        sum += a[at / n * k + i] * b[i * n + at % n];
      }
      if (c[at] != sum) {
        std::fprintf(stderr, "element %d is wrong\n", static_cast<int>(at));
        return 1;
      }
    }
    std::printf("%d elements are right\n", static_cast<int>(m * n));
  } catch (const et::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
