// Merged parallel products from the plan to the numbers: run, verified, saved, loaded, reported.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "src/runtime/program.h"
#include "src/trace/parallel.h"
#include "src/trace/passes/clean.h"
#include "src/trace/trace.h"
#include "tensor/nn.h"
#include "tensor/tensor.h"
#include "tests/families.h"
#include "tests/temporary_folder.h"

namespace tn = tensor;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

TEST(Parallel, MergedProductsRunAndAreSaved) {
  if (tn::cpu::cpu_families().front().name != "gemm") GTEST_SKIP() << "built without oneDNN";
  tn::Generator random(41);
  constexpr std::int64_t kWidth = 32;
  tn::nn::MultiheadAttention attention = tn::nn::MultiheadAttention::sized(kWidth, 4);
  tn::nn::randomize(attention, 42);
  tn::ConstantNames names;
  for (const auto& p : tn::nn::parameters(attention))
    names.emplace_back("block." + p.name, *p.tensor);
  const auto f = [&](const Tensors& in) -> Tensors {
    const Tensor x = tn::layer_norm(in[0], tn::ones({kWidth}), tn::zeros({kWidth}), 1e-5);
    return {in[0] + attention(x, x, x)};
  };
  const Tensors inputs = {random.normal({2, 9, kWidth})};
  const tn::LaidOutGraph laid = tn::lay_out(
      tn::eliminate_common_and_dead(tn::fold_constants(tn::trace(f, {inputs[0].type()}, names))));
  tn::cpu::Machine machine = tn::cpu::this_machine(2);
  machine.dispatch_us = 100;  // starting a kernel is dear: merging pays
  const tn::FusionPlan plan = tn::fuse(tn::propose_parallel(laid), tn::cpu::cpu_cost(machine));
  auto [merged, lowered] = tn::merge_parallel(laid, plan);
  const tn::Executable fast(tn::detail::link(merged, lowered, tn::detail::cpu_target(machine)));

  std::ostringstream report;
  fast.report(report, inputs, 1);
  for (const char* member : {"query", "key", "value"})
    EXPECT_NE(report.str().find(member), std::string::npos) << report.str();
  EXPECT_NE(report.str().find("@ block.{"), std::string::npos) << report.str();
  for (const tn::GroupCheck& check : tn::verify(fast, inputs))
    EXPECT_TRUE(check.ok()) << check.operators << ' ' << check.error << " > " << check.bound;

  const tn::check::TemporaryFolder folder;
  const std::string path = folder / "plan.safetensors";
  fast.save(path);
  const tn::Executable loaded = tn::load_executable(path);
  EXPECT_EQ(loaded.group_count(), fast.group_count());
  const auto expected = f(inputs)[0].to_vector<double>(), got = fast(inputs)[0].to_vector<double>(),
             again = loaded(inputs)[0].to_vector<double>();
  // Sums of 32 products of numbers near 1, twice one after the other, beside a residual near 1.
  const double bound = 16 * 0x1p-23 * kWidth;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(got[i], expected[i], bound);
    EXPECT_NEAR(again[i], expected[i], bound);
  }
}

}  // namespace
