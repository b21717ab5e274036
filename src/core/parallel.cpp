#include "src/core/parallel.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "src/core/cores.h"
#include "tensor/error.h"

namespace tensor {
namespace cpu {
namespace {

constexpr int kSpin = 200;  // microseconds

// It is never destroyed: its threads wait until the process ends.
std::atomic<ThreadPool*> the_pool{nullptr};
std::atomic<int> most_threads{0}, most_spin{-1};
thread_local int own_spin = -1, own_threads = 0;

std::optional<int> number_in(std::string_view text) {
  int number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  return error == std::errc() && end == last ? std::optional(number) : std::nullopt;
}

// As OpenMP reads it: "4", or "4,2" for loops and loops in these.
int most_by(const char* name) {
  const char* const text = std::getenv(name);
  if (!text) return std::numeric_limits<int>::max();
  const std::string_view all = text;
  const auto number = number_in(all.substr(0, all.find(',')));
  return number && *number > 0 ? *number : std::numeric_limits<int>::max();
}

int within_limits(int cores) {
  static const int asked = std::min(most_by("OMP_NUM_THREADS"), most_by("OMP_THREAD_LIMIT"));
  const int most = most_threads.load();
  return std::max(1, std::min({cores, asked, most > 0 ? most : cores}));
}

// The thread that asks may have fewer cores than the process.
int pool_limit() { return within_limits(std::max(available_cores(), process_cores())); }

// Without locks, which another thread may hold while this one forks.
ThreadPool& pool() {
  if (ThreadPool* const known = the_pool.load(std::memory_order_acquire)) return *known;
  // fork() copies no other threads: the child forgets the pool, and makes one of its own.
  static const int watching = pthread_atfork(nullptr, nullptr, [] { the_pool = nullptr; });
  static_cast<void>(watching);
  auto fresh = std::make_unique<ThreadPool>(pool_limit());
  ThreadPool* expected = nullptr;
  return the_pool.compare_exchange_strong(expected, fresh.get()) ? *fresh.release() : *expected;
}

int spin_now() {
  if (own_spin >= 0) return own_spin;
  static const int at_first = spin_of(std::getenv("TENSOR_SPIN_US"));
  const int set = most_spin.load(std::memory_order_relaxed);
  return set >= 0 ? set : at_first;
}

}  // namespace

void run_parallel(int threads, std::int64_t count, Task task, const void* body) {
  if (threads < 2 || count < 2) {
    for (std::int64_t i = 0; i < count; ++i) task(body, i, 0);
    return;
  }
  pool().run({threads, count, task, body, std::chrono::microseconds(spin_now())});
}

int threads_within(int asked) { return asked > 0 ? std::min(asked, threads()) : threads(); }

int operator_threads() { return threads_within(own_threads); }

LoopScope::LoopScope(int spin_us, int threads)
    : spin_before_(own_spin), threads_before_(std::exchange(own_threads, threads)) {
  if (spin_us >= 0) own_spin = spin_us;
}
LoopScope::~LoopScope() { own_spin = spin_before_, own_threads = threads_before_; }

int spin_of(const char* text) {
  if (!text) return kSpin;
  const auto number = number_in(text);
  if (!number || *number < 0)
    fail("TENSOR_SPIN_US", "got \"", text,
         "\", need microseconds from 0 on: set it to 200, or not");
  return *number;
}

}  // namespace cpu

int threads() { return cpu::within_limits(available_cores()); }

void set_threads(int count) {
  if (count < 0) fail("set_threads", "got ", count, ", need a number of threads, or 0 for all");
  cpu::most_threads = count;
  cpu::pool().set_limit(cpu::pool_limit());
}

void set_spin(int microseconds) {
  if (microseconds < 0) fail("set_spin", "got ", microseconds, ", need microseconds from 0 on");
  cpu::most_spin = microseconds;
}

void set_executor(std::shared_ptr<Executor> executor) {
  cpu::pool().set_executor(std::move(executor));
}

}  // namespace tensor
