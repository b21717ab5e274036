#include "src/runtime/memory_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "src/core/rounding.h"

namespace tensor {
namespace {

constexpr std::int64_t kAlignment = 64;

std::int64_t aligned(std::int64_t bytes) { return round_up(bytes, kAlignment); }

bool overlap(const Lifetime& a, const Lifetime& b) {
  return a.first <= b.last && b.first <= a.last;
}

// The lowest offset for `block` among those already placed.
std::int64_t lowest_gap(const std::vector<Lifetime>& blocks,
                        const std::vector<std::int64_t>& offsets, std::vector<std::size_t>& placed,
                        std::size_t block) {
  std::int64_t candidate = 0;
  for (const std::size_t other : placed) {  // sorted by offset
    if (!overlap(blocks[other], blocks[block])) continue;
    if (offsets[other] >= candidate + aligned(blocks[block].bytes)) break;
    candidate = std::max(candidate, offsets[other] + aligned(blocks[other].bytes));
  }
  return candidate;
}

MemoryPlan place(const std::vector<Lifetime>& blocks, const std::vector<std::size_t>& order) {
  MemoryPlan plan;
  plan.offsets.resize(blocks.size(), 0);
  std::vector<std::size_t> placed;
  for (const std::size_t block : order) {
    plan.offsets[block] = lowest_gap(blocks, plan.offsets, placed, block);
    plan.bytes = std::max(plan.bytes, plan.offsets[block] + aligned(blocks[block].bytes));
    const auto place_in_order = std::upper_bound(
        placed.begin(), placed.end(), block,
        [&](std::size_t a, std::size_t b) { return plan.offsets[a] < plan.offsets[b]; });
    placed.insert(place_in_order, block);
  }
  return plan;
}

std::int64_t most_alive(const std::vector<Lifetime>& blocks) {
  int last = -1;
  for (const Lifetime& block : blocks) last = std::max(last, block.last);
  std::vector<std::int64_t> change(static_cast<std::size_t>(last) + 2, 0);
  for (const Lifetime& block : blocks) {
    change[static_cast<std::size_t>(block.first)] += aligned(block.bytes);
    change[static_cast<std::size_t>(block.last) + 1] -= aligned(block.bytes);
  }
  std::int64_t alive = 0, most = 0;
  for (const auto step : change) most = std::max(most, alive += step);
  return most;
}

// Places the block that reaches highest first from now on, as long as that helps now and then.
void raise_the_highest(const std::vector<Lifetime>& blocks, std::vector<std::size_t> order,
                       MemoryPlan& best) {
  // Each takes the square of the number of blocks.
  constexpr std::size_t kComparisons = std::size_t{1} << 26;  // a tenth of a second
  const std::size_t tries =
      std::min<std::size_t>(64, kComparisons / (blocks.size() * blocks.size()));
  MemoryPlan plan = place(blocks, order);
  for (std::size_t i = 0; i < tries && best.bytes > best.lower_bound; ++i) {
    const auto highest = std::find_if(order.begin(), order.end(), [&](std::size_t block) {
      return plan.offsets[block] + aligned(blocks[block].bytes) == plan.bytes;
    });
    std::rotate(order.begin(), highest, highest + 1);
    plan = place(blocks, order);
    if (plan.bytes < best.bytes) {
      plan.lower_bound = best.lower_bound;
      best = plan;
    }
  }
}

}  // namespace

MemoryPlan plan_memory(const std::vector<Lifetime>& blocks) {
  MemoryPlan best;
  best.lower_bound = most_alive(blocks);
  if (blocks.empty()) return best;
  best.bytes = std::numeric_limits<std::int64_t>::max();
  const auto try_by = [&](auto key) {
    if (best.bytes == best.lower_bound) return;
    std::vector<std::size_t> order(blocks.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return key(blocks[a]) > key(blocks[b]); });
    MemoryPlan plan = place(blocks, order);
    plan.lower_bound = best.lower_bound;
    if (plan.bytes < best.bytes) best = std::move(plan);
    raise_the_highest(blocks, std::move(order), best);
  };
  try_by([](const Lifetime& b) { return b.bytes; });
  try_by([](const Lifetime& b) { return b.bytes * (b.last - b.first + 1); });
  try_by([](const Lifetime& b) { return -b.first; });
  return best;
}

}  // namespace tensor
