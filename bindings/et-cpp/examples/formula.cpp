// (a + b + 1) (a + b + 2) as a graph of four kernels, and a host function that looks at the result.
//
// formula LOCATOR FOLDER, where the folder has the kernels add.elf, add_scalar.elf and mul.elf.
#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <vector>

#include <et/graph.hpp>

namespace {

constexpr std::uint64_t count = 16384;

void formula(const et::Device& device, const std::string& folder) {
  using namespace std::chrono_literals;
  const auto alloc = [&] { return device.alloc(4 * count); };
  const et::Memory a = alloc(), b = alloc(), s = alloc(), p = alloc(), q = alloc(), f = alloc();
  const et::HostData two(std::vector<float>(count, 2.0F)), three(std::vector<float>(count, 3.0F));
  const et::HostData result(4 * count);

  et::GraphBuilder builder;
  const auto load = [&](const char* name) {
    return builder.kernel(device.load(folder + "/" + name + ".elf"));
  };
  const et::Function add = load("add"), add_scalar = load("add_scalar"), mul = load("mul");
  const et::Function look = builder.function([&](const et::TaskContext&) {
    const std::vector<float> values = result.read<float>(count);
    if (!std::all_of(values.begin(), values.end(), [](float f) { return f == 42.0F; })) {
      throw std::runtime_error("the result is wrong");
    }
  });

  // What tasks read and write gives the order: both sums wait for s, the product waits for both.
  builder.copy_in(two, a);
  builder.copy_in(three, b);
  builder.add(builder.task(add).input(a).input(b).output(s).arg(count).name("s = a + b"));
  builder.add(builder.task(add_scalar).input(s).output(p).arg(1.0F).arg(count).name("p = s + 1"));
  builder.add(builder.task(add_scalar).input(s).output(q).arg(2.0F).arg(count).name("q = s + 2"));
  builder.add(builder.task(mul).input(p).input(q).output(f).arg(count).name("f = p * q"));
  builder.copy_out(f, result);
  builder.add(builder.task(look).uses(result, ET_READS).name("look"));
  const et::Graph graph = builder.build();

  const et::Executor executor(device);
  executor.launch(graph).wait(60s);
  std::printf("%d elements are right\n", static_cast<int>(count));
}

} // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: formula LOCATOR FOLDER\n", stderr);
    return 2;
  }
  try {
    formula(et::Device(argv[1]), argv[2]);
  } catch (const et::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
