#include "src/kernels/cpu/attention/blocks.h"

#include <algorithm>
#include <limits>
#include <string>

#include "src/core/rounding.h"
#include "src/kernels/host/simd/table.h"

namespace tensor::cpu {
namespace {

constexpr std::int64_t kMostQueries = 48;  // of a block: with the keys' block a tile of 64 KiB
constexpr std::int64_t kMostKeys = 352;
constexpr double kPacking = 16;  // of the keys of a part: as long as that many queries

// As long as one thread needs for so many queries.
double longest(const AttentionExtents& e, std::int64_t parts, int threads) {
  return static_cast<double>(ceil_div(e.batches * parts, threads)) *
         (static_cast<double>(ceil_div(e.queries, parts)) + kPacking);
}

// The usual number and others near it, ascending.
std::vector<int> with(std::vector<int> others, std::int64_t usual) {
  others.push_back(static_cast<int>(usual));
  std::sort(others.begin(), others.end());
  others.erase(std::unique(others.begin(), others.end()), others.end());
  return others;
}

std::string fault_of(const AttentionBlocks& b, const AttentionExtents& e) {
  const std::int64_t part = ceil_div(e.queries, b.parts);
  if (b.parts > std::max<std::int64_t>(e.queries / 16, 1)) return "16 queries a part at least";
  if (b.queries > round_up(part, 16)) return "more queries than a part has";
  if (e.has_tiles && b.queries % 16 != 0 && b.queries < part) return "tiles have 16 queries";
  if (b.keys > e.keys) return "more keys than there are";
  if (b.keys < e.keys && b.keys % (2 * simd::table().lanes) != 0)
    return "blocks of keys are panels of " + std::to_string(2 * simd::table().lanes);
  return {};
}

// The usual time, longer by what blocks cost by themselves, and where a tile leaves the cache.
double model(const AttentionBlocks& b, const AttentionExtents& e, int threads, double usual_us) {
  const auto cost = [&](const AttentionBlocks& x) {
    const double tile = static_cast<double>(x.queries * x.keys) * sizeof(float) / (64 << 10);
    return longest(e, x.parts, threads) *
           (1 + 2 / static_cast<double>(x.queries) + 16 / static_cast<double>(x.keys) +
            0.05 * std::max(tile - 1, 0.));
  };
  return usual_us * cost(b) / cost(usual_blocks(e, threads));
}

Features facts(const AttentionBlocks& b, const AttentionExtents& e, const Machine& machine) {
  Features f;
  f.sketch = "streamed";
  f.batches = static_cast<double>(e.batches), f.rows = static_cast<double>(e.queries);
  f.columns = static_cast<double>(e.keys), f.depth = static_cast<double>(e.depth);
  f.second = static_cast<double>(e.features);
  f.flops = 2 * f.batches * f.rows * f.columns * (f.depth + f.second);
  f.item_bytes = e.has_tiles ? 2 : 4;
  f.memory_bytes = f.item_bytes * f.batches * (f.rows + f.columns) * (f.depth + f.second);
  f.tile_rows = static_cast<double>(b.queries), f.tile_columns = static_cast<double>(b.keys);
  f.splits = static_cast<double>(b.parts);
  f.blocks = f.batches * f.splits;
  f.shared_bytes = f.tile_rows * f.tile_columns * sizeof(float);
  f.cache_bytes = f.item_bytes * f.blocks * f.columns * (f.depth + f.second) *
                  static_cast<double>(ceil_div(ceil_div(e.queries, b.parts), b.queries));
  f.processors = machine.threads, f.threads = 1;
  f.memory_gbps = machine.memory_gbps, f.cache_gbps = machine.cache_gbps;
  f.peak_tflops = machine.f32_gflops / 1e3;
  return f;
}

}  // namespace

AttentionBlocks usual_blocks(const AttentionExtents& e, int threads) {
  AttentionBlocks result;
  const std::int64_t key_blocks = ceil_div(e.keys, kMostKeys);
  result.keys = std::min(
      round_up(ceil_div(e.keys, key_blocks), 2 * std::int64_t{simd::table().lanes}), e.keys);
  double best = std::numeric_limits<double>::infinity();
  for (std::int64_t parts = 1; parts <= std::max<std::int64_t>(e.queries / 16, 1); ++parts)
    if (const double time = longest(e, parts, threads); time < 0.98 * best)
      best = time, result.parts = parts;
  const std::int64_t part = ceil_div(e.queries, result.parts);
  result.queries = ceil_div(part, ceil_div(part, kMostQueries));
  if (e.has_tiles) result.queries = std::min(round_up(result.queries, 16), kMostQueries);
  return result;
}

AttentionBlocks blocks_of(const Schedule& schedule) {
  const auto number = [&](std::string_view name) { return schedule.value(name).value_or(1); };
  return {number("parts"), number("queries"), number("keys")};
}

Space attention_space(const AttentionExtents& e, const Machine& machine, double usual_us) {
  const AttentionBlocks usual = usual_blocks(e, machine.threads);
  std::vector<int> keys = {64, 128, 192, 256, 384, 512, 768, 1024};
  if (e.keys < std::numeric_limits<int>::max()) keys = with(keys, e.keys);
  Space space;
  space.sketches = {{"streamed",
                     {{"parts", with({1, 2, 3, 4, 6, 8, 12, 16}, usual.parts)},
                      {"queries", with({8, 16, 32, 48, 64, 96, 128}, usual.queries)},
                      {"keys", with(keys, usual.keys)}}}};
  space.fault = [=](const Schedule& s) { return fault_of(blocks_of(s), e); };
  space.model_us = [=, threads = machine.threads](const Schedule& s) {
    return model(blocks_of(s), e, threads, usual_us);
  };
  space.features = [=](const Schedule& s) {
    Features f = facts(blocks_of(s), e, machine);
    f.time.total = model(blocks_of(s), e, machine.threads, usual_us);
    return f.values();
  };
  const auto number = [](std::int64_t n) { return static_cast<int>(n); };
  space.choose({"streamed",
                {{"parts", number(usual.parts)},
                 {"queries", number(usual.queries)},
                 {"keys", number(usual.keys)}}});
  return space;
}

}  // namespace tensor::cpu
