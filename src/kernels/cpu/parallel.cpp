#include "src/kernels/cpu/parallel.h"

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

}  // namespace tensor::cpu
