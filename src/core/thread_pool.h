// A pool of threads that run loops of independent tasks. A thread that stands still, since others
// have its core, delays what it is at and nothing else: what it has not begun others take over, and
// nobody waits for it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tensor/threads.h"

namespace tensor::cpu {

using Task = void (*)(const void* body, std::int64_t task, int thread);

/// task(body, i, thread) for i = 0 ... count-1, `thread` < threads.
struct Loop {
  int threads;
  std::int64_t count;
  Task task;
  const void* body;
  std::chrono::microseconds spin;  // before a thread sleeps that finds nothing to do
};

class Region;

class ThreadPool {
 public:
  /// At most `limit` threads compute at a time, as long as there are not more callers.
  explicit ThreadPool(int limit);
  /// Waits for its threads; no loop may run.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// Any number of threads at a time, and tasks themselves. What a task throws goes to the caller;
  /// then some others are left out.
  void run(const Loop& loop);
  void set_limit(int limit);
  /// Its threads take the place of the pool's own; nullptr: these again.
  void set_executor(std::shared_ptr<Executor> executor);

 private:
  friend class Region;
  using Lock = std::unique_lock<std::mutex>;

  Lock lock();
  Region& open(const Loop& loop, int threads);
  void close(Region& region);
  int helpers_for(int threads);
  void make_regions(int threads);
  Region* joinable();
  void help(Region& region, Lock& lock);
  void leave(Region& region);
  void serve();
  bool await_work(std::chrono::microseconds spin, Lock& lock);
  void help_late(Region& region);

  std::mutex mutex_;
  std::condition_variable work_;
  std::atomic<std::uint32_t> opened_{0};  // regions, for those who look for work
  std::atomic<int> limit_;
  // All that follows is guarded by the mutex.
  std::vector<std::unique_ptr<Region>> regions_;
  std::vector<Region*> free_, open_;
  int room_ = 0;  // threads that every free region has room for
  std::vector<std::thread> threads_;
  std::shared_ptr<Executor> executor_;
  int callers_ = 0, helping_ = 0, spinning_ = 0, sleeping_ = 0;
  bool is_ending_ = false;
};

}  // namespace tensor::cpu
