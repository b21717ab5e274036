// Crew: threads that work at the same time as the one that has them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace tensor::detail {

/// For one caller at a time (Pool). Unlike the threads of ThreadPool, which share the pieces of a
/// loop, each has a piece of its own, and may wait for a device in it. Those that have nothing to
/// do sleep.
class Crew {
 public:
  using Work = std::function<void(std::size_t)>;

  Crew() = default;
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  ~Crew() { forget_those_of_parent(); }

  /// work(i) for all i below `count`, all of them at the same time, the first in the calling
  /// thread. Once all have ended, the error of the first that failed is thrown. Threads are made
  /// when there are not enough.
  void run(std::size_t count, const Work& work);

 private:
  class Member {
   public:
    Member() : thread_([this](const std::stop_token& stop) { serve(stop); }) {}

    void start(const Work& work, std::size_t piece);
    /// Until its piece is done: its error.
    std::exception_ptr wait();

   private:
    void serve(const std::stop_token& stop);

    std::mutex mutex_;
    std::condition_variable_any changed_;
    const Work* work_ = nullptr;  // what it does, or is to do
    std::size_t piece_ = 0;
    std::exception_ptr error_;
    std::jthread thread_;  // last: it ends before the rest goes
  };

  // fork() copies no threads: a child neither waits for them nor ends them.
  void forget_those_of_parent();

  using Members = std::deque<Member>;
  std::unique_ptr<Members> members_;  // null: none
  int process_ = 0;                   // whose they are
};

}  // namespace tensor::detail
