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

/// While it lives, parallel regions that libraries start in this thread (oneDNN's) have `threads`
/// threads; other threads are not concerned.
class ThreadLimit {
 public:
  explicit ThreadLimit(int threads);
  ~ThreadLimit();
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  int before_;
};

/// How many threads such a region would have now.
int thread_limit();

}  // namespace tensor::cpu
