// How many threads oneDNN has, and what a forked child does, to whom they are lost.
#include "src/kernels/cpu/onednn_threads.h"

#include <pthread.h>

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

// Of OpenMP's functions; its header is not there for every compiler.
extern "C" {
void omp_set_num_threads(int);
int omp_get_max_threads(void);
}

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

// The child calls this in the thread that called fork().
void note_fork() {
  is_pool_lost = true;
  substitute = nullptr;
}

void expect_fork() {
  static const int done = pthread_atfork(nullptr, nullptr, note_fork);
  static_cast<void>(done);
}

}  // namespace

bool has_lost_pool() { return is_pool_lost; }

void run_elsewhere(const std::function<void()>& body) {
  if (!substitute) substitute = new Substitute;
  substitute->run(body);
}

int thread_limit() { return omp_get_max_threads(); }

ThreadLimit::ThreadLimit(int threads) : before_(omp_get_max_threads()) {
  expect_fork();
  omp_set_num_threads(threads);
}
ThreadLimit::~ThreadLimit() { omp_set_num_threads(before_); }

}  // namespace tensor::cpu
