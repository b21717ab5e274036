#include "src/kernels/cpu/product/blocking.h"

#include <algorithm>

namespace tensor::cpu {
namespace {

constexpr std::int64_t kMostStrips = 16;
// With tiles, rows and weights of a thread's work at a time together fit a second-level cache of
// 2 MiB.
constexpr std::int64_t kTileRowBytes = 1 << 20, kTileStripBytes = 200 << 10;
// Sums that are finished stay in the first-level cache meanwhile, those that wait for it in the
// second.
constexpr std::int64_t kSumBytes = 16 << 10;
constexpr std::int64_t kNearBytes = 4 << 20;  // that are in the last cache
// Of k. Wide vectors take a strip's words so fast that they should be in the first-level
// cache, where 256 are 16 KiB; with 8 lanes the second one brings them in time, and sums that go
// through memory part by part cost more: so many are a filter of 3 x 3 on 256 channels.
constexpr std::int64_t kFewWords = 256, kFewNarrowWords = 2304;
constexpr std::int64_t kMostRows = 1008;
constexpr std::int64_t kLeastRows = 36;  // tiles of 12, 6 or 3 rows
constexpr std::int64_t kTasks = 4;       // for every thread, to be taken over by idle ones
constexpr double kLeastParallel = 1 << 20, kLeastTask = 1 << 18;  // multiplications

// Strips of a group, which rows meet again and again, stay in the second-level cache.
void choose_tiles(const ProductSize& size, std::int64_t most_rows, Blocking& b) {
  const std::int64_t strips = ceil_div(size.n, kStrip), row_bytes = size.k_words * 4;
  const std::int64_t fitting = kTileStripBytes / (row_bytes * kStrip) / 2 * 2;
  b.strips_at_once = std::min(std::clamp<std::int64_t>(fitting, 2, kMostStrips), strips);
  b.block_rows = b.finished_rows = most_rows;
  b.k_words = size.k_words;
  const std::int64_t blocks = ceil_div(size.m, b.block_rows);
  std::int64_t part = std::clamp<std::int64_t>(kTileRowBytes / row_bytes / b.block_rows, 1, blocks);
  // Rows that are gathered should not be gathered by several threads.
  if (!size.in_place && blocks >= b.threads) part = std::min(part, ceil_div(blocks, b.threads));
  b.part_rows = part * b.block_rows;
  b.row_parts = ceil_div(blocks, part);
  const std::int64_t groups = ceil_div(strips, b.strips_at_once);
  if (b.row_parts * size.bundles < (size.in_place ? 4 : 1) * b.threads)
    b.column_parts = std::min<std::int64_t>(groups, size.in_place ? groups : b.threads);
  // What stays in the cache needs not be brought there.
  if (strips * row_bytes * kStrip > kTileRowBytes)
    b.next_lines = ceil_div(b.block_rows, std::min(part, blocks));
}

// Where all strips stay in the second-level cache, rows go by, each once. Otherwise strips go by as
// seldom as possible: a part of k of many rows stays there. `cache` is half of it.
void choose_vectors(const ProductSize& size, double work, std::int64_t cache, Blocking& b) {
  const std::int64_t strips = ceil_div(size.n, kStrip);
  b.is_by_rows = strips * kStrip * size.k_words * 4 <= cache;
  // Short pieces of rows that are gathered from memory would be no streams.
  const bool is_near = size.in_place || size.m * size.k_words * 4 <= kNearBytes;
  const std::int64_t few = simd::table().lanes == 8 ? kFewNarrowWords : kFewWords;
  const std::int64_t most_depth = is_near ? few : 2 * few;
  const std::int64_t parts = b.is_by_rows || size.is_whole ? 1 : ceil_div(size.k_words, most_depth);
  b.k_words = ceil_div(size.k_words, parts);
  const bool goes_through_cache = !size.is_direct || size.has_program;
  const std::int64_t near = size.line_rows > 0 ? size.fitting_rows : cache / (b.k_words * 4);
  const std::int64_t most = std::clamp(near, kLeastRows, kMostRows);
  std::int64_t wanted = 1;
  if (b.threads > 1)
    wanted = ceil_div(std::min(kTasks * b.threads, static_cast<std::int64_t>(work / kLeastTask)),
                      size.bundles);
  std::int64_t blocks = ceil_div(size.m, most);
  if (!b.is_by_rows && !(size.is_direct && size.has_program))
    b.column_parts = std::clamp(ceil_div(wanted, blocks), std::int64_t{1}, ceil_div(strips, 2));
  blocks =
      std::max(blocks, std::min(ceil_div(wanted, b.column_parts), ceil_div(size.m, kLeastRows)));
  b.part_rows = ceil_div(size.m, blocks);
  // The first and the last line of a part are read by two.
  if (size.line_rows > 0 && b.part_rows > size.line_rows / 2)
    b.part_rows = std::min(round_up(b.part_rows, size.line_rows), size.m);
  b.row_parts = ceil_div(size.m, b.part_rows);
  if (b.row_parts * b.column_parts < wanted && !(size.is_direct && size.has_program))
    b.column_parts = std::min(ceil_div(wanted, b.row_parts), ceil_div(strips, 2));
  // What is gathered part by part is gathered anew for other strips: there should be none.
  const bool gathers_once = size.in_place || parts == 1;
  b.strips_at_once = gathers_once ? std::min(strips, kMostStrips) : strips;
  b.strips_at_once = std::min(b.strips_at_once, ceil_div(strips, b.column_parts));
  b.block_rows = b.finished_rows = b.part_rows;
  if (!goes_through_cache) return;
  if (b.is_by_rows) {
    const std::int64_t all = ceil_div(strips, b.column_parts);
    b.strips_at_once = ceil_div(all, ceil_div(all, std::min(b.strips_at_once, kFewStrips)));
    const std::int64_t fitting = kSumBytes / (b.strips_at_once * kStrip * 4);
    b.block_rows = b.finished_rows = std::min(fitting, b.part_rows);
    return;
  }
  const std::int64_t sums = gathers_once ? cache / 4 : cache;
  const std::int64_t fitting = sums / (b.part_rows * kStrip * 4);
  b.strips_at_once = std::min(b.strips_at_once, std::max(fitting / 2 * 2, kFewStrips));
  const std::int64_t sum_bytes = b.part_rows * b.strips_at_once * kStrip * 4;
  b.block_rows = ceil_div(b.part_rows, ceil_div(sum_bytes, cache));
  b.finished_rows = ceil_div(b.block_rows, ceil_div(sum_bytes, kSumBytes));
}

}  // namespace

Blocking blocking_of(const ProductSize& size, const Unit& unit, const Machine& machine) {
  Blocking b;
  const double work = static_cast<double>(size.m) * static_cast<double>(size.n) *
                      static_cast<double>(size.bundles) * static_cast<double>(size.k_words);
  b.threads = work < kLeastParallel ? 1 : machine.threads;
  if (unit.is_tiles)
    choose_tiles(size, unit.most_rows, b);
  else
    choose_vectors(size, work, static_cast<std::int64_t>(machine.near_cache_bytes / 2), b);
  return b;
}

}  // namespace tensor::cpu
