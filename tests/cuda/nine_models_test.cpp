// The kernels of the nine models: their names, and, compiled for every architecture, that none
// spills registers. That needs NVRTC, and no GPU.
#include <gtest/gtest.h>

#include <atomic>
#include <iostream>
#include <map>
#include <mutex>
#include <thread>

#include "src/kernels/cuda/family.h"
#include "src/runtime/target.h"
#include "src/trace/parallel.h"
#include "src/tune/tuned_cost.h"
#include "tests/cuda/compiled.h"
#include "tests/cuda/kernel_names.h"
#include "tests/families.h"
#include "tests/plans/nine_models.h"

namespace tensor::cuda {
namespace {

// Distinct by their text, which their names hold a hash of.
class Kernels {
 public:
  explicit Kernels(int capability, bool any_extent = false)
      : machine_(machine_of(typical_device(capability))) {
    machine_.any_extent = any_extent;
  }

  // Of a plan that nothing was measured for.
  void add(const LaidOutGraph& graph) {
    add(graph, fuse(propose_parallel(graph), cuda_cost(machine_)));
  }
  void add(const LaidOutGraph& graph, const FusionPlan& fused) {
    const auto [laid, plan] = merge_parallel(graph, fused);
    for (const Group& group : plan.groups)
      for (const Call& call : lower_group(laid, group, machine_).calls) {
        EXPECT_TRUE(follows_grammar(call.entry)) << call.entry;
        kernels_.emplace(call.entry, call.source);
      }
  }

  void expect_no_trouble() const {
    const std::string architecture = machine_.device.architecture();
    std::vector<const KernelSource*> list;
    for (const auto& [name, source] : kernels_)
      if (is_drawn(source, architecture)) list.push_back(&source);
    std::atomic<std::size_t> next = 0;
    std::mutex mutex;
    const auto work = [&] {
      for (std::size_t i = next++; i < list.size(); i = next++) {
        const std::string log = Compiler::get().compile(*list[i], architecture).log;
        const std::lock_guard lock(mutex);
        EXPECT_EQ(trouble(log), "") << list[i]->name;
      }
    };
    std::thread other(work);
    work();
    other.join();
    std::cout << list.size() << " of " << kernels_.size() << " kernels for " << architecture
              << '\n';
  }

 private:
  Machine machine_;
  std::map<std::string, KernelSource> kernels_;
};

// What an H200 runs by the logs that are part of the library. Not here: bf16, whose plans are the
// same and whose instructions take the same registers (without the logs it is below), and narrow
// residuals beyond those below.
void add_shipped_plans(Kernels& kernels) {
  detail::Target target = detail::cuda_target(typical_device(90));
  target.tuned_as = "NVIDIA H200";
  std::vector<Measurement> log;
  for (const auto& [name, text] : shipped_logs())
    for (const Measurement& m : parse_log(text, name).measurements) log.push_back(m);
  const auto table = std::make_shared<const Table>(log, target.kernels);
  for (const int batch : {1, 8, 64})
    for (const auto& [name, make] : nine::nine_models(nine::on_gpu(f16, 90), batch)) {
      const LaidOutGraph laid = make();
      kernels.add(laid, tuned_fusion(propose_parallel(laid), target, table));
    }
}

class KernelsOfTheNineModels : public ::testing::TestWithParam<int> {};

TEST_P(KernelsOfTheNineModels, CompileWithoutSpills) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  Kernels kernels(GetParam());
  for (const auto& [name, make] : nine::nine_models(nine::on_gpu(f16, GetParam())))
    kernels.add(make());
  for (const auto& [name, make] : nine::programs(nine::on_gpu(f16, GetParam())))
    kernels.add(make());
  const auto narrow = nine::nine_models(nine::on_gpu(f16, GetParam(), true));
  for (const char* name : {"vit-base-patch16-224", "detr-resnet-50-e3"})
    kernels.add(narrow.at(name)());
  if (GetParam() == 90) add_shipped_plans(kernels);
  kernels.expect_no_trouble();
}

INSTANTIATE_TEST_SUITE_P(Sm, KernelsOfTheNineModels,
                         ::testing::Values(75, 80, 86, 89, 90, 100, 120),
                         [](const auto& it) { return std::to_string(it.param); });

class KernelsOfAnyExtent : public ::testing::TestWithParam<int> {};

TEST_P(KernelsOfAnyExtent, CompileWithoutSpills) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  Kernels kernels(GetParam(), true);
  for (const auto& [name, make] : nine::nine_models(nine::on_gpu(f16, GetParam())))
    kernels.add(make());
  for (const auto& [name, make] : nine::programs(nine::on_gpu(f16, GetParam())))
    kernels.add(make());
  if (GetParam() == 90) add_shipped_plans(kernels);
  kernels.expect_no_trouble();
}

INSTANTIATE_TEST_SUITE_P(Sm, KernelsOfAnyExtent, ::testing::Values(80, 90),
                         [](const auto& it) { return std::to_string(it.param); });

class KernelsInBfloat16 : public ::testing::TestWithParam<int> {};

TEST_P(KernelsInBfloat16, CompileWithoutSpills) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  Kernels kernels(GetParam());
  for (const auto& [name, make] : nine::nine_models(nine::on_gpu(bf16, GetParam())))
    kernels.add(make());
  kernels.expect_no_trouble();
}

INSTANTIATE_TEST_SUITE_P(Sm, KernelsInBfloat16, ::testing::Values(80, 90),
                         [](const auto& it) { return std::to_string(it.param); });

class KernelsInTf32 : public ::testing::TestWithParam<int> {};

TEST_P(KernelsInTf32, CompileWithoutSpills) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  Kernels kernels(GetParam());
  Precision precision = nine::on_gpu(f32, GetParam());
  precision.tf32 = true;
  for (const auto& [name, make] : nine::nine_models(precision)) kernels.add(make());
  kernels.expect_no_trouble();
}

INSTANTIATE_TEST_SUITE_P(Sm, KernelsInTf32, ::testing::Values(80, 90),
                         [](const auto& it) { return std::to_string(it.param); });

class KernelsInEightBits : public ::testing::TestWithParam<int> {};

TEST_P(KernelsInEightBits, CompileWithoutSpills) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  Kernels kernels(GetParam());
  Precision precision = nine::on_gpu(f16, GetParam());
  precision.eight_bits = precision.rounds_rows = true;
  for (const int batch : {1, 64}) {
    const auto models = nine::nine_models(precision, batch);
    for (const char* name : {"vit-base-patch16-224", "detr-resnet-50-e3"})
      if (batch == 1 || GetParam() == 90) kernels.add(models.at(name)());
  }
  kernels.expect_no_trouble();
}

INSTANTIATE_TEST_SUITE_P(Sm, KernelsInEightBits, ::testing::Values(75, 80, 86, 89, 90, 100, 120),
                         [](const auto& it) { return std::to_string(it.param); });

}  // namespace
}  // namespace tensor::cuda
