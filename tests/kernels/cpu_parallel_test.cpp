// Threads: how many run, whoever calls.
#include "src/compile.h"
#include "src/core/parallel.h"
#include "src/runtime/program.h"
#include "src/runtime/target.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
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

// Threads of the process in a call for which there were none before.
std::size_t threads_started(const std::function<void()>& body) {
  const auto before = threads_of_process();
  body();
  auto started = threads_of_process();
  for (const std::string& thread : before) started.erase(thread);
  return started.size();
}

TEST(Parallel, AnExecutableHasNoMoreThreadsThanThereAreCores) {
  const Tensor x = tn::Generator(6).normal({1, 16, 40, 40});
  const Tensors expected = network(x, 1)({x});
  for (const int threads : {1, 2, 64}) {
    Tensors all;
    const std::size_t started = threads_started([&] {
      const tn::Executable fast = network(x, threads);
      for (int repeat = 0; repeat < 2; ++repeat) all.push_back(fast({x})[0]);
    });
    // The pool starts some, and where oneDNN is there, that does, too.
    EXPECT_LE(started, static_cast<std::size_t>(2 * (cpu::threads_within(threads) - 1)));
    // Products of 288 and 32 terms, then weights of at most 1. (Eager: on all threads.)
    for (const Tensor& got : all)
      EXPECT_LT(tn::max(tn::abs(got - expected[0])).item<double>(), 1e-4);
  }
}

TEST(Parallel, BitsDependOnNoNumberOfThreads) {
  const Tensor x = tn::Generator(6).normal({1, 3, 40, 40});
  const Tensor filters = tn::Generator(5).normal({32, 3, 3, 3}),
               weight = tn::Generator(6).normal({32, 96}),
               other = tn::Generator(7).normal({32, 32});
  const auto function = [=](const Tensors& in) -> Tensors {
    const Tensor y = tn::gelu(tn::conv2d(in[0], filters, {}, {.padding = 1}));
    const Tensor rows = y.transpose({0, 2, 3, 1}).reshape({1, 1600, 32});
    const Tensor q = tn::matmul(rows, other), sums = tn::sum(rows, {2}, true);
    return {tn::softmax(tn::matmul(q * sums, weight), -1),
            tn::scaled_dot_product_attention(q, rows, rows)};
  };
  std::vector<Tensors> results;
  for (const int threads : {1, 2, 3, 8}) {
    const cpu::Machine machine = cpu::with_threads(cpu::this_machine(1), threads);
    const tn::Executable executable = tn::detail::compile(function, {x.type()}, {.tune_logs = {{}}},
                                                          tn::detail::cpu_target(machine));
    bool is_own = true;
    for (const auto& step : executable.program().engine->steps())
      is_own &= step.description.find("onednn") == std::string::npos;
    if (is_own) results.push_back(executable({x}));
  }
  for (const Tensors& result : results)
    for (std::size_t i = 0; i < result.size(); ++i)
      EXPECT_TRUE(tn::all(result[i] == results[0][i]).item<bool>());
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
