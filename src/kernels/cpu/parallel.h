// Loops over tasks on all threads of a machine. This is the only place that knows OpenMP: the
// runtime is libgomp, the one that oneDNN uses, so that one pool of threads serves both.
#pragma once

#include <cstdint>

namespace tensor::cpu {

using Task = void (*)(const void* body, std::int64_t task, int thread);

/// Calls task(body, i, thread) for i = 0 ... count-1, each thread taking neighbouring ones;
/// `thread` < threads. With one thread, or one task, in the caller's thread.
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

}  // namespace tensor::cpu
