// Graphs of the C++ layer on a simulated card. Arguments: the folder with the test kernels.

#include <et/graph.hpp>

#include <atomic>
#include <cstdio>
#include <stdexcept>
#include <thread>

#include "check.hpp"

namespace {

using namespace std::chrono_literals;

template <class Work>
et_status statusOf(Work work) {
  try {
    work();
  } catch (const et::Error& error) {
    return error.status();
  }
  return ET_OK;
}

// Waits for what another thread does.
template <class Condition>
void until(Condition condition) {
  const auto limit = std::chrono::steady_clock::now() + 60s;
  while (!condition()) {
    CHECK(std::chrono::steady_clock::now() < limit);
    std::this_thread::yield();
  }
}

// Says when the last copy of it is gone.
struct Token {
  explicit Token(std::atomic<bool>& flag) : gone(flag) {}
  ~Token() { gone = true; }
  std::atomic<bool>& gone;
};

constexpr std::uint64_t count = 1024;

void kernelsAndCopies(const et::Device& device, const std::string& kernels) {
  const et::Memory x = device.alloc(4 * count), z = device.alloc(4 * count);
  const et::HostData input(std::vector<float>(count, 1.5F)), result(4 * count);
  et::GraphBuilder builder;
  const et::Function mul = builder.kernel(device.load(kernels + "/mul.elf"));
  const et::Function add = builder.kernel(device.load(kernels + "/add_scalar.elf"));
  const et::Memory between = builder.transient(device, 4 * count);
  CHECK(builder.copy_in(input, x) == 0);
  et::Task plus = builder.task(add);
  plus.input(x).output(between, 0, 4 * count).arg(1.0F).arg(count).name("x + 1");
  const std::uint32_t first = builder.add(plus);
  CHECK(first == 1 && !plus);
  const std::uint32_t second = builder.add(
      builder.task(mul).input(between, 0, 4 * count).input(x).output(z).arg(count).parts(2));
  builder.edge(first, second, true);
  const std::uint32_t last = builder.copy_out(z, result);
  const et::Graph graph = builder.build();
  CHECK(!builder && statusOf([&] { builder.build(); }) != ET_OK);

  const et::Executor executor(device);
  for (int turn = 0; turn < 2; ++turn) {
    const et::Run run = executor.launch(graph);
    run.wait(60s);
    CHECK(run.is_done() && run.state(last) == ET_TASK_DONE);
    CHECK(run.progress() == std::make_pair(std::size_t{4}, std::size_t{4}));
    CHECK(result.read<float>(count) == std::vector<float>(count, 3.75F));
  }
}

void hostFunctions(const et::Device& device) {
  std::atomic<bool> gone{false};
  std::atomic<std::uint64_t> sum{0};
  const et::Executor executor(device);
  {
    et::GraphBuilder builder;
    const auto token = std::make_shared<Token>(gone);
    const et::Function add = builder.function([&sum, token](const et::TaskContext& context) {
      CHECK(!context.is_cancelled() && context.words() == 1);
      sum += context.word(0) + context.task();
    });
    const et::Function fail = builder.function([](const et::TaskContext& context) {
      context.word(0);
    });
    builder.add(builder.task(add).arg(std::uint64_t{40}));
    builder.add(builder.task(add).arg(std::uint64_t{1}));
    const std::uint32_t bad = builder.add(builder.task(fail).name("throws"));
    const std::uint32_t after = builder.add(builder.task(add).arg(std::uint64_t{500}));
    builder.edge(bad, after);
    const et::Run run = executor.launch(builder.build());
    CHECK(statusOf([&] { run.wait(60s); }) == ET_TASK_FAILED);
    std::uint32_t task = 0;
    CHECK(run.failure(0, &task).find("throws") != std::string::npos || task == bad);
    CHECK(task == bad && run.state(after) == ET_TASK_NOT_RUN && sum == 42);
  }
  until([&] { return gone.load(); });

  // A builder that comes to nothing frees them too, and one that does not exist takes none.
  gone = false;
  {
    et::GraphBuilder builder;
    builder.function([token = std::make_shared<Token>(gone)](const et::TaskContext&) {});
    CHECK(!gone);
  }
  until([&] { return gone.load(); });
  et::GraphBuilder used;
  const et::Graph nothing = used.build();
  gone = false;
  CHECK(statusOf([&] {
          used.function([token = std::make_shared<Token>(gone)](const et::TaskContext&) {});
        }) == ET_BAD_HANDLE);
  CHECK(gone);
}

// What goes on behind the end of its run is not freed under it.
void aFunctionThatIsGivenUp(const et::Device& device) {
  std::atomic<bool> gone{false}, entered{false}, open{false}, left{false};
  const et::Executor executor(device);
  {
    et::GraphBuilder builder;
    auto token = std::make_shared<Token>(gone);
    const et::Function wait = builder.function([&, token](const et::TaskContext& context) {
      entered = true;
      until([&] { return open.load(); });
      CHECK(context.is_cancelled() && !token->gone);
      left = true;
    });
    token.reset();
    builder.add(builder.task(wait));
    et_run_options options{};
    options.size = sizeof options;
    options.deadline_ns = 50'000'000;
    const et::Run run = executor.launch(builder.build(), &options);
    CHECK(statusOf([&] { run.wait(60s); }) != ET_OK && entered);
  }
  CHECK(!gone && !left);
  open = true;
  until([&] { return gone.load(); });
  CHECK(left);
}

void flows(const et::Device& device, const std::string& kernels) {
  const et::Memory x = device.alloc(4 * count);
  device.stream().fill(x, 0, 4 * count, 0).wait(60s);
  et::GraphBuilder builder;
  const et::Function add = builder.kernel(device.load(kernels + "/add_scalar.elf"));
  builder.add(builder.task(add).update(x).arg(x.address()).arg(1.0F).arg(count));
  const et::Graph graph = builder.build();
  const et::Executor executor(device);
  const et::Flow flow = executor.flow();
  for (int turn = 0; turn < 3; ++turn) {
    flow.launch(graph);
  }
  flow.settled(x, 0, 4 * count).wait(60s);
  CHECK(device.stream().read<float>(x, count, 60s) == std::vector<float>(count, 3.0F));
  flow.finish(60s);
}

} // namespace

int main(int, char** arguments) {
  const std::string kernels = arguments[1];
  const et::Device device("sim:shires=2,dram=1GiB");
  kernelsAndCopies(device, kernels);
  hostFunctions(device);
  aFunctionThatIsGivenUp(device);
  flows(device, kernels);
  std::puts("graphs: passed");
  return 0;
}
