#include "src/kernels/host/parallel.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "src/core/cores.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace tensor::cpu {
namespace {

// ---- After fork()

// A thread that does another one's work, for as long as the process lives.
class Substitute {
 public:
  Substitute() {
    std::thread([this] { serve(); }).detach();
  }
  void run(const std::function<void()>& body) {
    std::unique_lock lock(mutex_);
    body_ = &body;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !body_; });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  [[noreturn]] void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return body_ != nullptr; });
      try {
        (*body_)();
      } catch (...) {
        error_ = std::current_exception();
      }
      body_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* body_ = nullptr;
  std::exception_ptr error_;
};

thread_local bool is_pool_lost = false;
// It belongs to the one thread that a child has at first, and is never destroyed: it waits until
// the process ends.
Substitute* substitute = nullptr;

#ifdef _OPENMP
// The child calls this in the thread that called fork().
void note_fork() {
  is_pool_lost = true;
  substitute = nullptr;
}

void expect_fork() {
  static const int done = pthread_atfork(nullptr, nullptr, note_fork);
  static_cast<void>(done);
}
#endif

}  // namespace

bool has_lost_pool() { return is_pool_lost; }

void run_elsewhere(const std::function<void()>& body) {
  if (!substitute) substitute = new Substitute;
  substitute->run(body);
}

// ---- OpenMP

#ifdef _OPENMP
void run_parallel(int threads, std::int64_t count, Task task, const void* body) {
  const auto run = [&] {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (std::int64_t i = 0; i < count; ++i) task(body, i, omp_get_thread_num());
  };
  if (threads > 1 && count > 1) {
    expect_fork();
    return run_with_pool(run);
  }
  for (std::int64_t i = 0; i < count; ++i) task(body, i, 0);
}

// Not available_cores: OpenMP may have bound this thread to a core (OMP_PROC_BIND), and knows how
// many there were before.
int all_threads() {
  return std::max(1, std::min({within_quota(omp_get_num_procs()), omp_get_max_threads(),
                               omp_get_thread_limit()}));
}

int thread_limit() { return omp_get_max_threads(); }

ThreadLimit::ThreadLimit(int threads) : before_(omp_get_max_threads()) {
  expect_fork();
  omp_set_num_threads(threads);
}
ThreadLimit::~ThreadLimit() { omp_set_num_threads(before_); }
#else
void run_parallel(int, std::int64_t count, Task task, const void* body) {
  for (std::int64_t i = 0; i < count; ++i) task(body, i, 0);
}

int all_threads() { return available_cores(); }

int thread_limit() { return 1; }

ThreadLimit::ThreadLimit(int) : before_(1) {}
ThreadLimit::~ThreadLimit() = default;
#endif

}  // namespace tensor::cpu
