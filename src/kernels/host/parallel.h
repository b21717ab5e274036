// Loops over tasks on all threads of a machine. This is the only place that knows OpenMP: the
// runtime is libgomp, the one that oneDNN uses, so that one pool of threads serves both.
#pragma once

#include <cstdint>
#include <functional>

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

/// How many threads compute where nobody says so: the available cores, or fewer where OpenMP is
/// told so (OMP_NUM_THREADS, OMP_THREAD_LIMIT, omp_set_num_threads).
int all_threads();

/// Whether this thread's pool stayed behind in the parent of this process: fork() copies none of
/// its threads, and OpenMP would wait for them for ever.
bool has_lost_pool();
/// Runs it in another thread, which has a pool, and waits. What it throws goes to the caller.
void run_elsewhere(const std::function<void()>& body);

/// Runs it in this thread, or elsewhere if the pool is lost. Whatever may start a parallel region
/// goes through this.
template <class Body>
void run_with_pool(const Body& body) {
  if (has_lost_pool())
    run_elsewhere(body);
  else
    body();
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
