// The threads of oneDNN, which are OpenMP's: how many there are, and where there are none.
#pragma once

#include <functional>

namespace tensor::cpu {

/// Whether this thread's OpenMP threads stayed behind in the parent of this process: fork() copies
/// none of them, and OpenMP would wait for them for ever.
bool has_lost_pool();
/// Runs it in another thread, which has some, and waits. What it throws goes to the caller.
void run_elsewhere(const std::function<void()>& body);

/// Runs it in this thread, or elsewhere if its threads are lost.
template <class Body>
void run_with_pool(const Body& body) {
  if (has_lost_pool())
    run_elsewhere(body);
  else
    body();
}

/// While it lives, parallel regions that oneDNN starts in this thread have `threads` threads; other
/// threads are not concerned.
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
