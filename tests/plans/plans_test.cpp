// The plans of the nine models of the paper, made without running them and without memory for their
// weights: never worse than no fusion and than greedy fusion, little memory wasted, and what fuses.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "src/kernels/cpu/kernel.h"
#include "src/kernels/cuda/family.h"
#include "src/kernels/host/simd/table.h"
#include "src/runtime/describe.h"
#include "src/runtime/memory_plan.h"
#include "src/runtime/target.h"
#include "src/trace/parallel.h"
#include "src/trace/passes/cast.h"
#include "src/trace/passes/clean.h"
#include "tests/families.h"
#include "tests/plans/nine_models.h"
#include "tests/trace/greedy_fusion.h"

namespace tn = tensor;
using Tensors = std::vector<tn::Tensor>;

namespace {

// A machine of two cores, the same wherever the test runs.
tn::cpu::Machine two_cores() {
  tn::cpu::Machine machine;
  machine.threads = 2;
  machine.f32_gflops = machine.bf16_gflops = 220;
  machine.memory_gbps = 35, machine.cache_gbps = 80, machine.cache_bytes = 32 << 20;
  machine.simple_gops = 16, machine.special_gops = 3;
  return machine;
}

// The values that the groups write, alive from there to the last group that reads them.
std::vector<tn::Lifetime> lifetimes(const tn::Graph& graph, const tn::FusionPlan& plan) {
  const tn::Wiring wires = tn::wiring(graph);
  std::map<tn::ValueId, tn::Lifetime> alive;
  const int end = static_cast<int>(plan.groups.size());
  for (int step = 0; step < end; ++step) {
    const tn::Group& group = plan.groups[static_cast<std::size_t>(step)];
    for (const tn::ValueId id : group.writes) {
      const tn::TensorType& type = graph.type(id);
      alive[id] = {tn::num_elements(type.shape) * tn::item_size(type.dtype), step,
                   wires.returned[static_cast<std::size_t>(id)] ? end : step};
    }
    for (const tn::ValueId id : group.reads)
      if (const auto value = alive.find(wires.root[static_cast<std::size_t>(id)]);
          value != alive.end())
        value->second.last = std::max(value->second.last, step);
  }
  std::vector<tn::Lifetime> blocks;
  for (const auto& [id, lifetime] : alive) blocks.push_back(lifetime);
  return blocks;
}

TEST(Plans, NeverWorseThanNoFusionAndGreedyFusionAndLittleMemoryIsWasted) {
  const tn::CostFn cost = tn::cpu::cpu_cost(two_cores());
  for (const auto& [name, make] : nine::nine_models()) {
    SCOPED_TRACE(name);
    const tn::LaidOutGraph laid = make();
    const auto begin = std::chrono::steady_clock::now();
    const tn::FusionPlan plan = tn::fuse(tn::propose_parallel(laid), cost);
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
    const double none = tn::no_fusion(laid, cost).microseconds;
    const double greedy = tn::check::greedy_fusion(laid, cost).microseconds;
    EXPECT_LT(plan.microseconds, none);
    EXPECT_LE(plan.microseconds, greedy * (1 + 1e-9));  // both are sums in some order
    const auto [merged, lowered] = tn::merge_parallel(laid, plan);
    const tn::MemoryPlan memory = tn::plan_memory(lifetimes(merged.graph, lowered));
    EXPECT_LE(static_cast<double>(memory.bytes), 1.15 * static_cast<double>(memory.lower_bound));
    std::cout << name << ": planned in " << time.count() << " ms, " << plan.groups.size()
              << " groups; " << plan.microseconds / 1e3 << " ms estimated, " << greedy / 1e3
              << " fused greedily, " << none / 1e3 << " not fused; arena "
              << static_cast<double>(memory.bytes) / 1e6 << " MB, at least "
              << static_cast<double>(memory.lower_bound) / 1e6 << '\n';
  }
}

// The cross-attention of six decoder layers reads the same memory: six keys and six values. Whether
// they run as one product each depends on what it costs to start a kernel.
TEST(Plans, ProductsMergeWhereStartingAKernelIsDear) {
  tn::cpu::Machine machine = two_cores();
  const tn::LaidOutGraph laid = nine::nine_models().at("detr-resnet-50-e3")();
  const auto widest = [&] {
    const tn::CostFn cost = tn::cpu::cpu_cost(machine);
    const tn::FusionPlan plan = tn::fuse(tn::propose_parallel(laid), cost);
    std::size_t most = 0;
    for (const tn::Group& group : plan.groups)
      most = std::max(most, tn::run_of(laid.graph, group).chains.size());
    const auto [merged, lowered] = tn::merge_parallel(laid, plan);
    tn::verify(merged.graph, "test");
    for (const tn::Group& group : lowered.groups) {
      const tn::GroupCost own = cost(merged, group);
      EXPECT_EQ(own.family, group.family);
      EXPECT_NEAR(own.microseconds, group.microseconds, 1e-6 * group.microseconds);
    }
    return most;
  };
  machine.dispatch_us = 0;
  EXPECT_EQ(widest(), 0u);
  machine.dispatch_us = 200;
  EXPECT_EQ(widest(), 6u);
}

std::map<std::string, int> kinds_of(const std::string& model) {
  const tn::LaidOutGraph laid = nine::nine_models().at(model)();
  std::map<std::string, int> count;
  for (const tn::Group& group :
       tn::fuse(tn::propose_parallel(laid), tn::cpu::cpu_cost(two_cores())).groups)
    ++count[tn::detail::operators_of(laid.graph, group)];
  return count;
}

TEST(Plans, BlocksFuseAsTheirCostsSay) {
  auto vit = kinds_of("vit-base-patch16-224");
  EXPECT_EQ(vit["matmul, softmax, matmul"], 12);
  EXPECT_EQ(vit["matmul, add, gelu"], 12);
  EXPECT_EQ(vit["matmul, add, add"], 24);  // the residual sums
  EXPECT_EQ(vit["softmax"], 0);
  EXPECT_EQ(vit["gelu"], 0);
  auto detr = kinds_of("detr-resnet-50-e3");  // batch norms are folded into the convolutions
  EXPECT_EQ(detr["conv2d, add, relu"], 16);
  EXPECT_EQ(detr["conv2d, relu"], 33);
  EXPECT_EQ(detr["conv2d"], 5);  // four shortcuts and the projection after the backbone
  EXPECT_EQ(detr["relu"], 0);
  // No rule of the planner names what it finds.
  for (const std::string file :
       {"fuse.h", "fuse/fuse.cpp", "fuse/compute_graph.cpp", "fuse/cones.cpp", "fuse/search.cpp",
        "fuse/join.cpp", "group.cpp", "node_set.h"}) {
    std::ifstream source(TENSOR_TEST_DATA "/../../src/trace/" + file);
    const std::string text((std::istreambuf_iterator<char>(source)), {});
    ASSERT_FALSE(text.empty()) << file;
    for (const char* word : {"attention", "softmax"})
      EXPECT_EQ(text.find(word), std::string::npos) << file << " names " << word;
  }
}

// Products in bf16 take half the time at least, apart and fused alike.
TEST(Plans, AttentionIsOneGroupInBf16) {
  if (!tn::simd::table().product_pairs) GTEST_SKIP() << "this processor does not multiply bf16";
  tn::cpu::Machine machine = two_cores();
  machine.has_bf16 = true, machine.bf16_gflops = 2 * machine.f32_gflops;
  for (const double tiles : {0.0, 2000.0}) {
    machine.tile_gflops = tiles;
    for (const auto& [model, layers] : {std::pair("vit-base-patch16-224", 12), {"setr-pup", 24}}) {
      const tn::LaidOutGraph laid = nine::nine_models({.dtype = tn::bf16}).at(model)();
      int found = 0;
      for (const tn::Group& group :
           tn::fuse(tn::propose_parallel(laid), tn::cpu::cpu_cost(machine)).groups) {
        const auto softmax =
            std::find_if(group.nodes.begin(), group.nodes.end(),
                         [&](tn::ValueId id) { return laid.graph[id].op == tn::Op::softmax; });
        if (softmax == group.nodes.end()) continue;
        ++found;
        // The class token alone asks in ViT's last layer: no block of queries to keep scores of.
        const tn::Shape& scores = laid.graph.type(*softmax).shape;
        if (scores[scores.rank() - 2] == 1) continue;
        EXPECT_EQ(tn::cpu::cpu_families()[static_cast<std::size_t>(group.family)].name,
                  "attention");
      }
      EXPECT_EQ(found, layers) << model;
    }
  }
}

// The lines in which two texts differ.
std::string difference_of(const std::string& expected, const std::string& got) {
  std::istringstream before(expected), after(got);
  std::string difference, old_line, new_line;
  while (true) {
    const bool has_old = static_cast<bool>(std::getline(before, old_line));
    const bool has_new = static_cast<bool>(std::getline(after, new_line));
    if (!has_old && !has_new) return difference;
    if (has_old && has_new && old_line == new_line) continue;
    if (has_old) difference += "- " + old_line + '\n';
    if (has_new) difference += "+ " + new_line + '\n';
  }
}

// The plan as it was reviewed, in tests/plans. A change is looked at, and then accepted by running
// the tests AreThoseThatWereReviewed with TENSOR_RENEW_PLANS=1.
void expect_reviewed(const std::string& file_name, const std::string& title,
                     const tn::LaidOutGraph& laid, const tn::detail::Target& target) {
  const auto [merged, plan] =
      tn::merge_parallel(laid, tn::fuse(tn::propose_parallel(laid), target.cost()));
  const std::string got = "# " + title + "\n" + tn::detail::plan_text(merged, plan, target);
  const std::string path = TENSOR_TEST_DATA "/../plans/" + file_name;
  if (std::getenv("TENSOR_RENEW_PLANS")) {
    ASSERT_TRUE(std::ofstream(path) << got) << path;
    return;
  }
  std::ifstream file(path);
  const std::string expected((std::istreambuf_iterator<char>(file)), {});
  EXPECT_TRUE(got == expected) << title << " is planned otherwise:\n"
                               << difference_of(expected, got)
                               << "If that is better: TENSOR_RENEW_PLANS=1 plans_tests "
                               << "--gtest_filter=*.AreThoseThatWereReviewed";
}

const std::string kReviewed[] = {"vit-base-patch16-224", "detr-resnet-50-e6", "setr-pup"};

TEST(Plans, AreThoseThatWereReviewed) {
  if (tn::cpu::cpu_families().front().name == "gemm") GTEST_SKIP() << "oneDNN runs some groups";
  setenv("TENSOR_MAX_ISA", "avx2", 1);  // estimates depend on the instruction set, read once
  if (tn::simd::table().name != std::string("avx2"))
    GTEST_SKIP() << "needs AVX2, in a process of its own";
  for (const std::string& name : kReviewed)
    expect_reviewed(name + ".txt", name + ", f32, two cores", nine::nine_models().at(name)(),
                    tn::detail::cpu_target(two_cores()));
}

// As compile() plans them for a Hopper GPU of which nothing was measured; that needs no GPU.
TEST(PlansOnHopper, AreThoseThatWereReviewed) {
  const auto models = nine::nine_models(nine::on_gpu(tn::f16, 90));
  for (const std::string& name : kReviewed)
    expect_reviewed(name + "-sm90.txt", name + ", f16, sm_90", models.at(name)(),
                    tn::detail::cuda_target(tn::cuda::typical_device(90)));
}

}  // namespace
