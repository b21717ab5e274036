// Loops over independent tasks on the threads of this process: the one door to its pool.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/core/thread_pool.h"

namespace tensor::cpu {

/// Calls task(body, i, thread) for i = 0 ... count-1, in any order; `thread` < threads, and no two
/// at a time have the same. The caller takes part; with one thread, or one task, alone. What a task
/// throws goes to the caller.
void run_parallel(int threads, std::int64_t count, Task task, const void* body);

template <class Body>
void parallel_for(int threads, std::int64_t count, const Body& body) {
  run_parallel(
      threads, count,
      [](const void* f, std::int64_t task, int thread) {
        (*static_cast<const Body*>(f))(task, thread);
      },
      &body);
}

/// `asked`, but no more than tensor::threads(); all of these where 0 are asked for.
int threads_within(int asked);

/// The threads of a reference operator: all of this process's, or those of the executable that it
/// runs in.
int operator_threads();

/// Calls body(begin, end) for pieces of 0 ... count - 1 on the threads of an operator. Pieces are
/// the same for any number of threads, and so are the bits of what they calculate.
template <class Body>
void for_pieces(std::int64_t count, std::int64_t piece, const Body& body) {
  const std::int64_t tasks = count / piece + (count % piece > 0);
  parallel_for(tasks < 2 ? 1 : operator_threads(), tasks, [&](std::int64_t task, int) {
    body(task * piece, std::min(count, (task + 1) * piece));
  });
}

/// While it lives, loops of this thread spin for so long (set_spin; negative: as everywhere), and
/// reference operators take so many threads (0: all).
class LoopScope {
 public:
  explicit LoopScope(int spin_us, int threads = 0);
  ~LoopScope();
  LoopScope(const LoopScope&) = delete;
  LoopScope& operator=(const LoopScope&) = delete;

 private:
  int spin_before_, threads_before_;
};

/// What TENSOR_SPIN_US says, in microseconds; nullptr: the default. UserError on nonsense.
int spin_of(const char* text);

}  // namespace tensor::cpu
