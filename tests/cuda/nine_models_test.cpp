// The kernels of the nine models, compiled for every architecture: none spills registers. That
// needs NVRTC, and no GPU.
#include <gtest/gtest.h>

#include <atomic>
#include <iostream>
#include <map>
#include <mutex>
#include <thread>

#include "src/kernels/cuda/family.h"
#include "src/trace/parallel.h"
#include "tests/cuda/compiled.h"
#include "tests/plans/nine_models.h"

namespace tensor::cuda {
namespace {

// Distinct by their text, which their names hold a hash of.
std::map<std::string, KernelSource> kernels_of(const LaidOutGraph& graph, const Machine& machine) {
  const auto [laid, plan] = merge_parallel(graph, fuse(graph.graph, cuda_cost(machine)));
  std::map<std::string, KernelSource> kernels;
  for (const Group& group : plan.groups) {
    for (const Call& call : lower_group(laid, group, machine).calls)
      kernels.emplace(call.entry, call.source);
  }
  return kernels;
}

class KernelsOfTheNineModels : public testing::TestWithParam<int> {};

TEST_P(KernelsOfTheNineModels, CompileWithoutSpills) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  const Compiler& compiler = Compiler::get();
  const Machine machine = machine_of(typical_device(GetParam()));
  std::map<std::string, KernelSource> kernels;
  for (const auto& [name, make] : nine::nine_models(nine::on_gpu(f16, GetParam())))
    kernels.merge(kernels_of(make(), machine));
  const auto narrow = nine::nine_models(nine::on_gpu(f16, GetParam(), true));
  for (const char* name : {"vit-base-patch16-224", "detr-resnet-50-e3"})
    kernels.merge(kernels_of(narrow.at(name)(), machine));
  std::vector<const KernelSource*> list;
  for (const auto& [name, source] : kernels) list.push_back(&source);
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  const auto work = [&] {
    for (std::size_t i = next++; i < list.size(); i = next++) {
      const std::string log = compiler.compile(*list[i], machine.device.architecture()).log;
      const std::lock_guard lock(mutex);
      EXPECT_EQ(trouble(log), "") << list[i]->name;
    }
  };
  std::thread other(work);
  work();
  other.join();
  std::cout << list.size() << " kernels for " << machine.device.architecture() << '\n';
}

INSTANTIATE_TEST_SUITE_P(Sm, KernelsOfTheNineModels, testing::Values(75, 80, 86, 89, 90, 100, 120),
                         [](const auto& it) { return std::to_string(it.param); });

}  // namespace
}  // namespace tensor::cuda
