// The pool of threads: no task is lost or run twice, whoever comes late; errors reach the caller.
#include "src/core/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/core/parallel.h"
#include "tensor/error.h"
#include "tests/error_of.h"
#include "tests/seed.h"

namespace cpu = tensor::cpu;
namespace tn = tensor;
using cpu::ThreadPool;
using std::chrono::microseconds;

namespace {

template <class Body>
void loop(ThreadPool& pool, int threads, std::int64_t count, const Body& body, int spin_us = 20) {
  pool.run({threads, count,
            [](const void* f, std::int64_t task, int thread) {
              (*static_cast<const Body*>(f))(task, thread);
            },
            &body, microseconds(spin_us)});
}

void compute_for(microseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

TEST(ThreadPool, EveryTaskRunsOnceAndNoTwoThreadsHaveANumber) {
  for (const int threads : {1, 2, 3, 8})
    for (const std::int64_t count : {0, 1, 2, 7, 97, 5000}) {
      ThreadPool pool(threads);
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(count));
      std::vector<std::atomic<int>> busy(static_cast<std::size_t>(threads));
      loop(pool, threads, count, [&](std::int64_t task, int thread) {
        ASSERT_TRUE(thread >= 0 && thread < threads);
        EXPECT_EQ(busy[static_cast<std::size_t>(thread)]++, 0);
        ++runs[static_cast<std::size_t>(task)];
        --busy[static_cast<std::size_t>(thread)];
      });
      for (const auto& n : runs) EXPECT_EQ(n, 1);
    }
}

TEST(ThreadPool, UsesNoMoreThreadsThanItMay) {
  ThreadPool pool(8);
  std::atomic<int> now{0}, most{0};
  const auto task = [&](std::int64_t, int) {
    int seen = ++now;
    for (int before = most; before < seen && !most.compare_exchange_weak(before, seen);) {
    }
    compute_for(microseconds(50));
    --now;
  };
  loop(pool, 3, 200, task);
  EXPECT_LE(most, 3);
  pool.set_limit(2);
  most = 0;
  loop(pool, 8, 200, task);
  EXPECT_LE(most, 2);
}

// A thread that stands still in the middle of a task: everything else is done without it.
TEST(ThreadPool, AThreadThatStandsStillDelaysOneTask) {
  ThreadPool pool(2);
  std::atomic<int> others{0};
  std::atomic<bool> has_stood_still{false};
  constexpr int kCount = 20;
  loop(pool, 2, kCount, [&](std::int64_t, int) {
    if (has_stood_still.exchange(true)) {
      ++others;
      return;
    }
    while (others < kCount - 1) std::this_thread::yield();
  });
  EXPECT_EQ(others, kCount - 1);
}

// Loops of random sizes, some with tasks that take long. A million where TENSOR_POOL_LOOPS says so.
TEST(ThreadPool, LosesNothingInManyLoops) {
  const char* const asked = std::getenv("TENSOR_POOL_LOOPS");
  const int most = asked ? std::atoi(asked) : 1 << 30;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  const std::uint64_t seed = tn::check::seed();
  ThreadPool pool(4);
  std::mt19937_64 random(seed);
  std::vector<int> runs(300);
  int loops = 0;
  for (; loops < most && (asked || std::chrono::steady_clock::now() < end); ++loops) {
    const auto count = static_cast<std::int64_t>(random() % runs.size());
    const int threads = 1 + static_cast<int>(random() % 4), spin = random() % 3 == 0 ? 0 : 20;
    const bool is_slow = random() % 64 == 0;
    const std::uint64_t slow = random();
    loop(
        pool, threads, count,
        [&](std::int64_t task, int) {
          if (is_slow && (slow >> task % 64 & 1)) compute_for(microseconds(slow % 20));
          ++runs[static_cast<std::size_t>(task)];  // a race, if it were run twice
        },
        spin);
    if (random() % 512 == 0) std::this_thread::sleep_for(microseconds(random() % 200));
    for (std::size_t i = 0; i < runs.size(); ++i)
      ASSERT_EQ(std::exchange(runs[i], 0), i < static_cast<std::size_t>(count) ? 1 : 0) << loops;
  }
  std::cout << loops << " loops\n";
}

TEST(ThreadPool, SixteenCallersShareIt) {
  ThreadPool pool(4);
  std::vector<std::thread> callers;
  std::atomic<std::int64_t> sum{0};
  constexpr int kLoops = 200;
  for (int caller = 0; caller < 16; ++caller)
    callers.emplace_back([&, caller] {
      for (int i = 0; i < kLoops; ++i) {
        std::atomic<std::int64_t> own{0};
        loop(pool, 1 + (caller + i) % 5, 50, [&](std::int64_t task, int) {
          own += task;
          if (task % 17 == 0)  // a loop within a loop
            loop(pool, 4, 5, [&](std::int64_t inner, int) { own += inner; });
        });
        EXPECT_EQ(own, 50 * 49 / 2 + 3 * 10);
        sum += own;
      }
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 16 * kLoops * (50 * 49 / 2 + 3 * 10));
}

TEST(ThreadPool, WhatATaskThrowsReachesItsCaller) {
  ThreadPool pool(4);
  for (const int threads : {1, 4})
    for (const std::int64_t bad : {0, 57, 99}) {
      std::string what;
      try {
        loop(pool, threads, 100, [&](std::int64_t task, int) {
          if (task == bad) throw std::runtime_error("task " + std::to_string(task));
        });
      } catch (const std::runtime_error& error) {
        what = error.what();
      }
      EXPECT_EQ(what, "task " + std::to_string(bad));
      std::atomic<int> runs{0};
      loop(pool, threads, 100, [&](std::int64_t, int) { ++runs; });
      EXPECT_EQ(runs, 100);
    }
}

// Threads of a program, which begin when they are told to.
class Program : public tn::Executor {
 public:
  explicit Program(int count) {
    for (int i = 0; i < count; ++i) threads_.emplace_back([this] { serve(); });
  }
  ~Program() override {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  int threads() const override { return static_cast<int>(threads_.size()); }
  void submit(void (*job)(void*), void* data) override {
    const std::lock_guard lock(mutex_);
    jobs_.emplace_back(job, data);
    ++submitted;
    if (!is_held_) changed_.notify_one();
  }
  void hold(bool is_held) {
    {
      const std::lock_guard lock(mutex_);
      is_held_ = is_held;
    }
    changed_.notify_all();
  }
  std::atomic<int> submitted{0}, done{0};

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return is_ending_ || (!is_held_ && !jobs_.empty()); });
      if (jobs_.empty()) return;
      const auto [job, data] = jobs_.back();
      jobs_.pop_back();
      lock.unlock();
      job(data);
      ++done;
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<void (*)(void*), void*>> jobs_;
  bool is_held_ = false, is_ending_ = false;
  std::vector<std::thread> threads_;
};

TEST(ThreadPool, RunsOnTheThreadsOfAProgram) {
  ThreadPool pool(4);
  const auto program = std::make_shared<Program>(3);
  pool.set_executor(program);
  std::atomic<int> runs{0};
  for (int i = 0; i < 100; ++i) loop(pool, 4, 50, [&](std::int64_t, int) { ++runs; });
  EXPECT_EQ(runs, 5000);
  EXPECT_GT(program->submitted, 0);
  // Jobs that come when their loop is long over do nothing, and others meanwhile get along.
  while (program->done < program->submitted) std::this_thread::yield();
  program->hold(true);
  const int before = program->submitted;
  for (int i = 0; i < 100; ++i) loop(pool, 4, 50, [&](std::int64_t, int) { ++runs; });
  EXPECT_EQ(runs, 10000);
  EXPECT_EQ(program->submitted, before + 300);
  program->hold(false);
  for (int i = 0; i < 100; ++i) loop(pool, 4, 50, [&](std::int64_t, int) { ++runs; });
  while (program->done < program->submitted) std::this_thread::yield();
  EXPECT_EQ(runs, 15000);
  pool.set_executor(nullptr);
  const int last = program->submitted;
  loop(pool, 4, 50, [&](std::int64_t, int) { ++runs; });
  EXPECT_EQ(runs, 15050);
  EXPECT_EQ(program->submitted, last);
}

TEST(Threads, AreAsManyAsTheProgramAllows) {
  const int all = tn::threads();
  tn::set_threads(1);
  EXPECT_EQ(tn::threads(), 1);
  EXPECT_EQ(cpu::threads_within(5), 1);
  const auto caller = std::this_thread::get_id();
  cpu::parallel_for(8, 100, [&](std::int64_t, int thread) {
    EXPECT_EQ(thread, 0);
    EXPECT_EQ(std::this_thread::get_id(), caller);
  });
  tn::set_threads(1000);
  EXPECT_EQ(tn::threads(), all);
  EXPECT_EQ(cpu::threads_within(1000), all);
  tn::set_threads(0);
  EXPECT_EQ(tn::threads(), all);
  EXPECT_EQ(tn::check::error_of([] { tn::set_threads(-2); }),
            "set_threads: got -2, need a number of threads, or 0 for all");
}

TEST(Threads, SpinForAsLongAsTheProgramSays) {
  tn::set_spin(0);
  std::atomic<int> runs{0};
  for (int i = 0; i < 50; ++i) cpu::parallel_for(2, 9, [&](std::int64_t, int) { ++runs; });
  {
    const cpu::LoopScope loops(500);
    for (int i = 0; i < 50; ++i) cpu::parallel_for(2, 9, [&](std::int64_t, int) { ++runs; });
  }
  EXPECT_EQ(runs, 900);
  tn::set_spin(cpu::spin_of(std::getenv("TENSOR_SPIN_US")));
  EXPECT_EQ(tn::check::error_of([] { tn::set_spin(-1); }),
            "set_spin: got -1, need microseconds from 0 on");
  EXPECT_EQ(cpu::spin_of("0"), 0);
  EXPECT_EQ(cpu::spin_of("1500"), 1500);
  EXPECT_GT(cpu::spin_of(nullptr), 0);
  for (const std::string text : {"", "-1", "many", "3 "})
    EXPECT_EQ(
        tn::check::error_of([&] { cpu::spin_of(text.c_str()); }),
        "TENSOR_SPIN_US: got \"" + text + "\", need microseconds from 0 on: set it to 200, or not");
}

}  // namespace
