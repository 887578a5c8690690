// The thread that calls callbacks of the user.

#ifndef RT_DISPATCHER_H
#define RT_DISPATCHER_H

#include "operation.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <thread>

namespace rt {

// Deals with the ends of operations on a thread of its own: callbacks of the C interface must not
// wait, and those of the user may.
class Dispatcher {
public:
  using End = std::function<void(const std::shared_ptr<Operation>&)>;

  explicit Dispatcher(End end) : state_(std::make_shared<State>()) {
    thread_ = std::thread([state = state_, end = std::move(end)] { run(*state, end); });
  }
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;
  ~Dispatcher() {
    {
      const std::lock_guard lock(state_->mutex);
      state_->isOver = true;
    }
    state_->change.notify_one();
    thread_.join();
  }

  // Has an operation dealt with whenever one of its parts ends.
  void watch(const std::shared_ptr<Operation>& operation) {
    for (const et::Event& part : operation->parts) {
      auto note = std::make_unique<Note>(Note{state_, operation});
      et::check(et_event_on_done(part.raw(), hear, note.get()));
      // It is called exactly once, and frees this.
      static_cast<void>(note.release());
    }
  }

private:
  struct State {
    std::mutex mutex;
    std::condition_variable change;
    std::deque<std::shared_ptr<Operation>> ended;
    bool isOver = false;
  };
  struct Note {
    std::shared_ptr<State> state;
    std::shared_ptr<Operation> operation;
  };

  static void hear(void* user, et_status) {
    const std::unique_ptr<Note> note(static_cast<Note*>(user));
    {
      const std::lock_guard lock(note->state->mutex);
      note->state->ended.push_back(std::move(note->operation));
    }
    note->state->change.notify_one();
  }

  static void run(State& state, const End& end) {
    profiling::IProfilerRecorder::setCurrentThreadName(" callbacks");
    for (;;) {
      std::unique_lock lock(state.mutex);
      state.change.wait(lock, [&] { return state.isOver || !state.ended.empty(); });
      if (state.ended.empty()) {
        return;
      }
      const std::shared_ptr<Operation> next = std::move(state.ended.front());
      state.ended.pop_front();
      lock.unlock();
      end(next);
    }
  }

  std::shared_ptr<State> state_;
  std::thread thread_;
};

} // namespace rt

#endif // RT_DISPATCHER_H
