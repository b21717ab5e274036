#include "src/runtime/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace tensor {
namespace {

constexpr std::int64_t kAlignment = 64;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

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

}  // namespace

MemoryPlan plan_memory(const std::vector<Lifetime>& blocks) {
  std::vector<std::size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto by = [&](auto key) {
    std::vector<std::size_t> sorted = order;
    std::stable_sort(sorted.begin(), sorted.end(),
                     [&](std::size_t a, std::size_t b) { return key(blocks[a]) > key(blocks[b]); });
    return place(blocks, sorted);
  };
  MemoryPlan best = by([](const Lifetime& b) { return b.bytes; });
  for (MemoryPlan& other : std::vector<MemoryPlan>{
           by([](const Lifetime& b) { return b.bytes * (b.last - b.first + 1); }),
           by([](const Lifetime& b) { return -b.first; })})
    if (other.bytes < best.bytes) best = std::move(other);
  best.lower_bound = most_alive(blocks);
  return best;
}

}  // namespace tensor
