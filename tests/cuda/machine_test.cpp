// What is known of GPUs: rates that plans are made by, and those that were measured.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/core/median.h"
#include "src/kernels/cuda/family.h"
#include "src/runtime/target.h"
#include "src/trace/trace.h"
#include "tensor/tensor.h"
#include "tests/error_of.h"
#include "tests/families.h"

namespace tensor::cuda {
namespace {

DeviceInfo named_h200() {
  DeviceInfo info = typical_device(90);
  info.name = "NVIDIA H200";
  return info;
}

// A product of square matrices of `size`, as one group.
double roofline_us(const DeviceInfo& device, std::int64_t size, DType dtype) {
  const Graph graph =
      trace([](const std::vector<Tensor>& in) { return std::vector{matmul(in[0], in[1])}; },
            {{{size, size}, dtype}, {{size, size}, dtype}});
  const Wiring wires = wiring(graph);
  const ValueId product = graph.outputs().front();
  return detail::cuda_target(device).roofline_us(graph, make_group(graph, wires, {product}));
}

TEST(Machine, AGpuCanBeUsedAsAnOlderOne) {
  const DeviceInfo h200 = named_h200(), older = h200.limited_to("80");
  EXPECT_EQ(older.capability, 80);
  EXPECT_EQ(older.architecture(), "sm_90a");  // what its machine code is for
  EXPECT_EQ(older.shared_bytes, h200.shared_bytes);
  EXPECT_EQ(h200.tuned_as(), "NVIDIA H200");
  EXPECT_EQ(older.tuned_as(), "NVIDIA H200 as sm_80");  // measurements are not mixed
  const Machine machine = machine_of(older);
  const Graph graph =
      trace([](const std::vector<Tensor>& in) { return std::vector{matmul(in[0], in[1])}; },
            {{{192, 768}, f16}, {{768, 768}, f16}});
  const Wiring wires = wiring(graph);
  const Group group = make_group(graph, wires, {graph.outputs().front()});
  for (const Family& family : cuda_families()) {
    const bool is_of_hopper = std::string_view(family.name).ends_with("sm90");
    if (!is_of_hopper) continue;
    EXPECT_FALSE(estimate_of(family, lay_out(graph), group, machine)) << family.name;
  }
}

TEST(Machine, AGpuIsNotUsedAsANewerOne) {
  const DeviceInfo t4 = typical_device(75);
  for (const char* most : {"", "75", "80", "89"}) {
    EXPECT_EQ(t4.limited_to(most).capability, 75) << most;
    EXPECT_EQ(t4.limited_to(most).tuned_as(), "T4") << most;
  }
  for (const char* most : {"8.0", "90", "sm_80", "0"})
    EXPECT_EQ(check::error_of([&] { t4.limited_to(most); }),
              "TENSOR_MAX_CAPABILITY: got \"" + std::string(most) +
                  "\", need 75, 80, 86 or 89: leave it out for all that the GPU has");
}

TEST(Machine, CeilingsAreTheMachinesRatesWhereNothingWasMeasured) {
  for (const int capability : {75, 80, 86, 89, 90, 100, 120}) {
    const Machine machine = machine_of(typical_device(capability));
    const Ceilings ceilings = ceilings_of(machine);
    EXPECT_FALSE(ceilings.are_measured);
    EXPECT_EQ(ceilings.f16_tflops, machine.tensor_tflops);
    EXPECT_EQ(ceilings.bf16_tflops, machine.tensor_tflops);
    EXPECT_EQ(ceilings.memory_gbps, machine.memory_gbps);
  }
}

TEST(Machine, MeasuringChangesNothingThatPlansAreMadeBy) {
  const Machine h200 = machine_of(typical_device(90)), named = machine_of(named_h200());
  EXPECT_TRUE(ceilings_of(named).are_measured);
  EXPECT_EQ(named.tensor_tflops, h200.tensor_tflops);
  EXPECT_EQ(named.memory_gbps, h200.memory_gbps);
  Features f;
  set_machine(f, named);
  EXPECT_EQ(f.peak_tflops, h200.tensor_tflops);
  EXPECT_NE(ceilings_of(named).f16_tflops, h200.tensor_tflops);
}

TEST(Machine, TheRooflineIsOfWhatWasMeasured) {
  const double flops = 2.0 * 4096 * 4096 * 4096;
  const Ceilings ceilings = ceilings_of(machine_of(named_h200()));
  EXPECT_DOUBLE_EQ(roofline_us(named_h200(), 4096, f16), flops / ceilings.f16_tflops / 1e6);
  EXPECT_DOUBLE_EQ(roofline_us(named_h200(), 4096, bf16), flops / ceilings.bf16_tflops / 1e6);
  EXPECT_DOUBLE_EQ(roofline_us(named_h200(), 64, f16),
                   3 * 64 * 64 * 2 / ceilings.memory_gbps / 1e3);
  const Machine a100 = machine_of(typical_device(80));
  EXPECT_DOUBLE_EQ(roofline_us(a100.device, 4096, f16), flops / a100.tensor_tflops / 1e6);
  EXPECT_DOUBLE_EQ(roofline_us(a100.device, 4096, f32), flops / a100.f32_tflops / 1e6);
  EXPECT_EQ(detail::cuda_target(named_h200()).peak_rates, "measured, those of f32 assumed");
  EXPECT_EQ(detail::cuda_target(a100.device).peak_rates, "assumed");
}

// Of all runs there are: later ones may be a little faster or slower.
TEST(Machine, CeilingsAreTheMediansOfTheBenchmarks) {
  std::vector<double> f16s, bf16s, reads;
  std::ifstream file(TENSOR_TEST_DATA "/../../bench/results/gpu/ceilings.json");
  for (const auto& run : nlohmann::json::parse(file)) {
    if (run["gpu"] != "NVIDIA H200") continue;
    f16s.push_back(run["gemm8192_float16_TF"]);
    bf16s.push_back(run["gemm8192_bfloat16_TF"]);
    reads.push_back(run["read_TBs"]);
  }
  ASSERT_GE(reads.size(), 9u);
  const Ceilings ceilings = ceilings_of(machine_of(named_h200()));
  EXPECT_NEAR(ceilings.f16_tflops / median(f16s), 1, 0.02);
  EXPECT_NEAR(ceilings.bf16_tflops / median(bf16s), 1, 0.02);
  EXPECT_NEAR(ceilings.memory_gbps / median(reads) / 1e3, 1, 0.02);
}

}  // namespace
}  // namespace tensor::cuda
