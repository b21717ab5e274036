#include "src/kernels/host/parallel.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace tensor::cpu {

void run_parallel(int threads, std::int64_t count, Task task, const void* body) {
#ifdef _OPENMP
  if (threads > 1 && count > 1) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (std::int64_t i = 0; i < count; ++i) task(body, i, omp_get_thread_num());
    return;
  }
#endif
  static_cast<void>(threads);
  for (std::int64_t i = 0; i < count; ++i) task(body, i, 0);
}

#ifdef _OPENMP
int thread_limit() { return omp_get_max_threads(); }

ThreadLimit::ThreadLimit(int threads) : before_(omp_get_max_threads()) {
  omp_set_num_threads(threads);
}
ThreadLimit::~ThreadLimit() { omp_set_num_threads(before_); }
#else
int thread_limit() { return 1; }

ThreadLimit::ThreadLimit(int) : before_(1) {}
ThreadLimit::~ThreadLimit() = default;
#endif

}  // namespace tensor::cpu
