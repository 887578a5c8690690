// A graph: data to the device, a kernel, data back, and a host function that looks at it.
//
// graph LOCATOR FOLDER PROFILE, where the folder has the kernel mul.elf.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <et.h>

namespace {

constexpr std::uint64_t count = 1024;
constexpr std::uint64_t minute = 60'000'000'000;

void check(et_status status)
{
    if (status != ET_OK)
        throw std::runtime_error(std::string(et_status_name(status)) + ": " + et_last_error());
}

// What the host function sees.
struct Shared {
    et_host_data result;
    std::atomic<int> calls;
};

std::int32_t look(void *user, std::uint32_t, const std::uint64_t *args, std::size_t words)
{
    auto *shared = static_cast<Shared *>(user);
    std::vector<float> values(count);
    if (et_host_data_read(shared->result, 0, values.data(), 4 * count) != ET_OK)
        return 1;
    shared->calls++;
    const bool right = words == 1 && args[0] == count
        && std::all_of(values.begin(), values.end(), [](float value) { return value == 6.25f; });
    return right ? 0 : 2;
}

void ended(void *user, et_status status)
{
    static_cast<std::atomic<int> *>(user)->store(status == ET_OK ? 1 : -1);
}

void run(const char *locator, const std::string &folder, const char *path)
{
    et_device device;
    check(et_device_open(locator, nullptr, &device));
    check(et_profile_start(device));
    et_kernel kernel;
    check(et_kernel_load_file(device, (folder + "/mul.elf").c_str(), &kernel));
    et_mem x, z;
    check(et_mem_alloc(device, 4 * count, 0, &x));
    check(et_mem_alloc(device, 4 * count, 0, &z));
    et_host_data input;
    Shared shared{};
    check(et_host_data_create(4 * count, &input));
    check(et_host_data_create(4 * count, &shared.result));
    const std::vector<float> values(count, 2.5f);
    check(et_host_data_write(input, 0, values.data(), 4 * count));

    et_graph_builder builder;
    std::uint32_t mul, host;
    check(et_graph_builder_create(&builder));
    check(et_graph_kernel(builder, kernel, &mul));
    check(et_graph_function(builder, look, &shared, &host));
    check(et_graph_copy_in(builder, input, x, 0, nullptr));
    et_task task;
    check(et_task_create(builder, mul, &task));
    check(et_task_name(task, "z = x * x"));
    check(et_task_arg_mem(task, x, 0, 4 * count, ET_READS));
    check(et_task_arg_mem(task, x, 0, 4 * count, ET_READS));
    check(et_task_arg_mem(task, z, 0, 4 * count, ET_WRITES));
    check(et_task_arg_u64(task, count));
    check(et_graph_add(builder, task, nullptr));
    check(et_graph_copy_out(builder, z, 0, shared.result, nullptr));
    check(et_task_create(builder, host, &task));
    check(et_task_arg_u64(task, count));
    check(et_task_uses_host_data(task, shared.result, ET_READS));
    std::uint32_t last;
    check(et_graph_add(builder, task, &last));
    et_graph graph;
    check(et_graph_build(builder, &graph));

    et_executor executor;
    check(et_executor_create(device, nullptr, &executor));
    for (int turn = 0; turn < 2; turn++) {
        et_run launched;
        std::atomic<int> outcome{0};
        check(et_graph_launch(executor, graph, nullptr, &launched));
        check(et_run_on_done(launched, ended, &outcome));
        check(et_run_wait(launched, minute));
        et_task_state state;
        check(et_run_task_state(launched, last, &state));
        while (outcome == 0)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (state != ET_TASK_DONE || outcome != 1 || shared.calls != turn + 1)
            throw std::runtime_error("the host function did not run");
        check(et_run_free(launched));
    }
    check(et_executor_free(executor));
    et_profile profile;
    check(et_profile_stop(device, &profile));
    check(et_profile_write(profile, path));
    check(et_profile_free(profile));
    check(et_graph_free(graph));
    check(et_host_data_free(input));
    check(et_host_data_free(shared.result));
    check(et_mem_free(x));
    check(et_mem_free(z));
    check(et_kernel_free(kernel));
    check(et_device_close(device));
    std::puts("the graph ran twice");
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 4) {
        std::fputs("usage: graph LOCATOR FOLDER PROFILE\n", stderr);
        return 2;
    }
    try {
        check(et_init(ET_ABI_VERSION));
        run(argv[1], argv[2], argv[3]);
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
