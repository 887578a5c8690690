// Task graphs in C++17: what et.hpp is for devices, over the same C interface.

#ifndef ET_GRAPH_HPP
#define ET_GRAPH_HPP

#include <et.hpp>

#include <functional>
#include <memory>

namespace et {

// What a host function gets, as long as it runs.
class TaskContext {
public:
  TaskContext(std::uint32_t task, const std::uint64_t* args, std::size_t words)
      : task_(task), args_(args), words_(words) {}

  // The index of the task, as `GraphBuilder::add` gave it.
  std::uint32_t task() const noexcept { return task_; }
  std::size_t words() const noexcept { return words_; }
  std::uint64_t word(std::size_t index) const {
    if (index >= words_) {
      throw Error(ET_OUT_OF_BOUNDS, "a task without so many arguments");
    }
    return args_[index];
  }
  // `true` if the run was cancelled: a long function may return early.
  bool is_cancelled() const {
    bool is_cancelled = false;
    check(et_task_is_cancelled(&is_cancelled));
    return is_cancelled;
  }

private:
  std::uint32_t task_;
  const std::uint64_t* args_;
  std::size_t words_;
};

// A host function. The task fails if it throws. What it captures must not own handles of the
// library, which could not be freed where it is destroyed; share what outlives the runs.
using HostFunction = std::function<void(const TaskContext&)>;

// The number of a function in its builder.
enum class Function : std::uint32_t {};

// Bytes on the host that copies of graphs read and write.
class HostData : public Handle<et_host_data, et_host_data_free> {
public:
  // Zeroed.
  explicit HostData(std::size_t bytes) : Handle(create(bytes)) {}
  template <class T>
  explicit HostData(const std::vector<T>& from) : HostData(from.size() * sizeof(T)) {
    write(from);
  }

  // Waits for a copy of a graph that uses it, as `read` does.
  template <class T>
  void write(const std::vector<T>& from, std::size_t offset = 0) const {
    static_assert(std::is_trivially_copyable_v<T>, "the device gets the bytes");
    check(et_host_data_write(raw(), offset, from.data(), from.size() * sizeof(T)));
  }
  template <class T>
  std::vector<T> read(std::size_t count, std::size_t offset = 0) const {
    static_assert(std::is_trivially_copyable_v<T>, "the device gives bytes");
    std::vector<T> to(count);
    check(et_host_data_read(raw(), offset, to.data(), count * sizeof(T)));
    return to;
  }

private:
  static et_host_data create(std::size_t bytes) {
    et_host_data data{};
    check(et_host_data_create(bytes, &data));
    return data;
  }
};

// The description of a task: its arguments in their order, and what it uses besides. What it uses
// gives its place in the order of the tasks.
class Task : public Handle<et_task, et_task_free> {
public:
  using Handle::Handle;

  // The address of memory of which the task reads or writes the first `bytes` from `offset` on, or
  // all.
  Task& input(const Memory& memory, std::uint64_t offset = 0, std::uint64_t bytes = all) {
    return arg(memory, ET_READS, offset, bytes);
  }
  Task& output(const Memory& memory, std::uint64_t offset = 0, std::uint64_t bytes = all) {
    return arg(memory, ET_WRITES, offset, bytes);
  }
  Task& update(const Memory& memory, std::uint64_t offset = 0, std::uint64_t bytes = all) {
    return arg(memory, ET_UPDATES, offset, bytes);
  }
  Task& arg(std::uint32_t value) { return done(et_task_arg_u32(raw(), value)); }
  Task& arg(std::uint64_t value) { return done(et_task_arg_u64(raw(), value)); }
  Task& arg(float value) { return done(et_task_arg_f32(raw(), value)); }
  // Without an argument.
  Task& uses(const Memory& memory, et_access access, std::uint64_t offset = 0,
             std::uint64_t bytes = all) {
    return done(
        et_task_uses_mem(raw(), memory.raw(), offset, rest(memory, offset, bytes), access));
  }
  Task& uses(const HostData& data, et_access access) {
    return done(et_task_uses_host_data(raw(), data.raw(), access));
  }
  // Replaces the arguments by a struct, as `Launch::args`.
  template <class Args>
  Task& args(const Args& args) {
    static_assert(std::is_trivially_copyable_v<Args>, "the device gets the bytes");
    return done(et_task_args(raw(), &args, sizeof args, alignof(Args)));
  }
  Task& name(const std::string& name) { return done(et_task_name(raw(), name.c_str())); }
  Task& shires(std::uint64_t mask) { return done(et_task_shires(raw(), mask)); }
  Task& parts(std::uint32_t parts) { return done(et_task_parts(raw(), parts)); }
  // Skips the task unless the word compares so when all before it has ended.
  Task& only_if(const Memory& memory, std::uint64_t offset, et_word word, et_comparison comparison,
                std::uint64_t value) {
    return done(et_task_only_if(raw(), memory.raw(), offset, word, comparison, value));
  }

private:
  static constexpr std::uint64_t all = ~std::uint64_t{0};

  static std::uint64_t rest(const Memory& memory, std::uint64_t offset, std::uint64_t bytes) {
    if (bytes != all) {
      return bytes;
    }
    const std::uint64_t whole = memory.bytes();
    return offset < whole ? whole - offset : 0;
  }
  Task& arg(const Memory& memory, et_access access, std::uint64_t offset, std::uint64_t bytes) {
    return done(et_task_arg_mem(raw(), memory.raw(), offset, rest(memory, offset, bytes), access));
  }
  Task& done(et_status status) {
    check(status);
    return *this;
  }
};

// An immutable graph, to be launched any number of times.
class Graph : public Handle<et_graph, et_graph_free> {
public:
  using Handle::Handle;
};

// Tasks in program order: each waits for earlier ones with whose use of memory its own conflicts.
class GraphBuilder : public Handle<et_graph_builder, et_graph_builder_free> {
public:
  GraphBuilder() : Handle(create()) {}

  // Registers a kernel or a host function, for any number of tasks. A function may be called on any
  // thread, several times at once; it lives as long as builder, graph or a run.
  Function kernel(const Kernel& kernel) {
    std::uint32_t number = 0;
    check(et_graph_kernel(raw(), kernel.raw(), &number));
    return Function{number};
  }
  Function function(HostFunction function) {
    auto its = std::make_unique<HostFunction>(std::move(function));
    std::uint32_t number = 0;
    check(et_graph_function_owned(raw(), call, its.get(), released, &number));
    static_cast<void>(its.release());
    return Function{number};
  }

  // Describes a task, to be given to `add`.
  Task task(Function function) const {
    et_task task{};
    check(et_task_create(raw(), static_cast<std::uint32_t>(function), &task));
    return Task(task);
  }
  // Adds a task, and returns its index. The description is used up, unless this throws.
  std::uint32_t add(Task& task) {
    std::uint32_t index = 0;
    check(et_graph_add(raw(), task.raw(), &index));
    static_cast<void>(task.release());
    return index;
  }
  std::uint32_t add(Task&& task) { return add(task); }
  // Copies all of the data to memory, or from it.
  std::uint32_t copy_in(const HostData& from, const Memory& to, std::uint64_t offset = 0) {
    std::uint32_t index = 0;
    check(et_graph_copy_in(raw(), from.raw(), to.raw(), offset, &index));
    return index;
  }
  std::uint32_t copy_out(const Memory& from, const HostData& to, std::uint64_t offset = 0) {
    std::uint32_t index = 0;
    check(et_graph_copy_out(raw(), from.raw(), offset, to.raw(), &index));
    return index;
  }
  // Memory that the graph has for itself.
  Memory transient(const Device& device, std::uint64_t bytes, std::uint64_t align = 0) {
    et_mem memory{};
    check(et_graph_transient(raw(), device.raw(), bytes, align, &memory));
    return Memory(memory);
  }
  // Runs one task after another, whatever they declare; with `retain`, what the first writes to
  // memory of the graph lives until the second has ended.
  void edge(std::uint32_t before, std::uint32_t after, bool retain = false) {
    check(retain ? et_graph_edge_and_retain(raw(), before, after)
                 : et_graph_edge(raw(), before, after));
  }
  // Makes the graph; the builder is used up.
  Graph build() {
    et_graph graph{};
    check(et_graph_build(release(), &graph));
    return Graph(graph);
  }

private:
  static et_graph_builder create() {
    et_graph_builder builder{};
    check(et_graph_builder_create(&builder));
    return builder;
  }
  static std::int32_t call(void* user, std::uint32_t task, const std::uint64_t* args,
                           std::size_t words) {
    try {
      (*static_cast<HostFunction*>(user))(TaskContext(task, args, words));
      return 0;
    } catch (...) {
      // Nothing may be thrown through C.
      return 1;
    }
  }
  static void released(void* user) { delete static_cast<HostFunction*>(user); }
};

// A launched graph. It goes on without this object.
class Run : public Handle<et_run, et_run_free> {
public:
  using Handle::Handle;

  // Waits for the end; throws if a task failed, or the time runs out, which cancels nothing.
  void wait(std::chrono::duration<double> timeout) const {
    check(et_run_wait(raw(), nanoseconds(timeout)));
  }
  bool is_done() const { return et_run_wait(raw(), 0) != ET_TIMEOUT; }
  void cancel() const { check(et_run_cancel(raw())); }
  et_task_state state(std::uint32_t task) const {
    et_task_state state{};
    check(et_run_task_state(raw(), task, &state));
    return state;
  }
  // Tasks that have ended, and all.
  std::pair<std::size_t, std::size_t> progress() const {
    std::pair<std::size_t, std::size_t> progress;
    check(et_run_progress(raw(), &progress.first, &progress.second));
    return progress;
  }
  // The message of a task that failed by itself, by its index in the order in which they did.
  std::string failure(std::size_t index, std::uint32_t* task = nullptr) const {
    return text([&](char* buffer, std::size_t capacity, std::size_t* needed) {
      return et_run_failure(raw(), index, task, nullptr, buffer, capacity, needed);
    });
  }
  // A file for Perfetto: when each task ran, if the options of the launch asked for a trace. A
  // recording of the device adds how much memory was in use. The run has ended.
  void write_profile(const std::string& path, et_trace_detail detail = ET_DETAIL_TASKS,
                     et_profile recorded = et_profile{}) const {
    check(et_run_write_profile(raw(), detail, recorded, path.c_str()));
  }
};

// Graphs that follow one another task by task: a task begins as soon as those of earlier graphs
// have ended that use what it uses.
class Flow : public Handle<et_flow, et_flow_free> {
public:
  using Handle::Handle;

  Run launch(const Graph& graph, const et_run_options* options = nullptr) const {
    et_run run{};
    check(et_flow_launch(raw(), graph.raw(), options, &run));
    return Run(run);
  }
  // A run that ends when all that the flow writes to the bytes by now is written.
  Run settled(const Memory& memory, std::uint64_t offset, std::uint64_t bytes) const {
    et_run run{};
    check(et_flow_settled(raw(), memory.raw(), offset, bytes, &run));
    return Run(run);
  }
  // Waits for everything; throws what went wrong with the first graph that did not end well.
  void finish(std::chrono::duration<double> timeout) const {
    check(et_flow_finish(raw(), nanoseconds(timeout)));
  }
};

// Runs graphs on a device.
class Executor : public Handle<et_executor, et_executor_free> {
public:
  explicit Executor(const Device& device, const et_executor_options* options = nullptr)
      : Handle(create(device, options)) {}

  Run launch(const Graph& graph, const et_run_options* options = nullptr) const {
    et_run run{};
    check(et_graph_launch(raw(), graph.raw(), options, &run));
    return Run(run);
  }
  Flow flow() const {
    et_flow flow{};
    check(et_flow_create(raw(), &flow));
    return Flow(flow);
  }

private:
  static et_executor create(const Device& device, const et_executor_options* options) {
    et_executor executor{};
    check(et_executor_create(device.raw(), options, &executor));
    return executor;
  }
};

} // namespace et

#endif // ET_GRAPH_HPP
