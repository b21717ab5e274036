// Memory plan: one arena for all intermediate values, each at a fixed offset for as long as it is
// alive.
#pragma once

#include <cstdint>
#include <vector>

namespace tensor {

/// A block that is alive from step `first` to step `last`, both included.
struct Lifetime {
  std::int64_t bytes = 0;
  int first = 0;
  int last = 0;
};

struct MemoryPlan {
  std::vector<std::int64_t> offsets;  // of every block, 64-byte aligned
  std::int64_t bytes = 0;             // of the arena
  std::int64_t lower_bound = 0;       // the most that is alive at any one step; no plan needs less
};

/// Places large blocks first, each at the lowest offset where it meets no block that is alive at
/// the same time; of a few such orders (by size, by size times lifetime, by first use), and of
/// those that come from placing the block that reaches highest first, the best is kept.
MemoryPlan plan_memory(const std::vector<Lifetime>& blocks);

}  // namespace tensor
