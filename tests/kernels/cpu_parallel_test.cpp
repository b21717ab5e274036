// Threads: how many run, whatever the caller or OpenMP's settings say.
#include "src/kernels/host/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <set>
#include <string>
#include <thread>

#include "src/kernels/cpu/kernel.h"
#include "tensor/compile.h"
#include "tensor/tensor.h"

namespace cpu = tensor::cpu;
namespace tn = tensor;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

// By their numbers: those of another test may be about to end.
std::set<std::string> threads_of_process() {
  std::set<std::string> result;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    result.insert(entry.path().filename());
  return result;
}

// A product and a convolution, which are oneDNN's where it is present, and loops of our own.
tn::Executable network(const Tensor& x, int threads) {
  tn::Generator random(5);
  const Tensor filters = random.normal({32, 16, 3, 3}), weight = random.normal({64, 32});
  return tn::compile(
      [=](const Tensors& in) -> Tensors {
        const Tensor y = tn::relu(tn::conv2d(in[0], filters, {}, {.padding = 1}));
        return {tn::softmax(tn::linear(y.transpose({0, 2, 3, 1}), weight), -1)};
      },
      Tensors{x}, {.threads = threads});
}

TEST(Parallel, EveryTaskRunsOnce) {
  for (const int threads : {1, 2, 5}) {
    std::vector<std::atomic<int>> runs(97);
    cpu::parallel_for(threads, 97, [&](std::int64_t task, int thread) {
      EXPECT_GE(thread, 0);
      EXPECT_LT(thread, threads);
      ++runs[static_cast<std::size_t>(task)];
    });
    for (const auto& count : runs) EXPECT_EQ(count, 1);
  }
}

TEST(Parallel, LimitsAreRestored) {
  const int before = cpu::thread_limit();
  {
    const cpu::ThreadLimit outer(3);
    {
      const cpu::ThreadLimit inner(1);
      EXPECT_EQ(cpu::thread_limit(), 1);
    }
    EXPECT_EQ(cpu::thread_limit() == 3 || before == 1, true);  // 1 without OpenMP
    std::thread([&] { EXPECT_EQ(cpu::thread_limit(), before); }).join();
  }
  EXPECT_EQ(cpu::thread_limit(), before);
}

// OpenMP keeps a pool of threads for every thread that starts parallel regions.
TEST(Parallel, AnExecutableHasTheThreadsItWasCompiledFor) {
  const Tensor x = tn::Generator(6).normal({1, 16, 40, 40});
  const Tensors expected = network(x, 1)({x});
  for (const int threads : {1, 2, 2 * static_cast<int>(std::thread::hardware_concurrency()) + 1})
    std::thread([&] {
      const auto before = threads_of_process();
      const int limit = cpu::thread_limit();
      const tn::Executable fast = network(x, threads);
      for (int repeat = 0; repeat < 2; ++repeat) {
        const Tensors got = fast({x});
        // Products of 288 and 32 terms, then weights of at most 1.
        EXPECT_LT(tn::max(tn::abs(got[0] - expected[0])).item<double>(), 1e-4);
      }
      if (limit > 1) {  // else OpenMP is absent or switched off
        auto started = threads_of_process();
        for (const std::string& thread : before) started.erase(thread);
        EXPECT_EQ(started.size(), static_cast<std::size_t>(threads - 1));
      }
      EXPECT_EQ(cpu::thread_limit(), limit);
    }).join();
}

TEST(Parallel, CallersOfDifferentLimitsAtATime) {
  const Tensor x = tn::Generator(7).normal({1, 16, 24, 24});
  std::vector<tn::Executable> nets;
  for (const int threads : {1, 2, 3}) nets.push_back(network(x, threads));
  std::vector<Tensors> expected;
  for (const tn::Executable& net : nets) expected.push_back(net({x}));
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 6; ++caller)
    callers.emplace_back([&, caller] {
      for (int repeat = 0; repeat < 20; ++repeat) {
        const auto i = static_cast<std::size_t>((caller + repeat) % 3);
        // The same primitive on the same number of threads gives the same sums.
        EXPECT_TRUE(tn::all(nets[i]({x})[0] == expected[i][0]).item<bool>());
      }
    });
  for (std::thread& caller : callers) caller.join();
}

}  // namespace
