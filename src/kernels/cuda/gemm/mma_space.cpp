// What may be tried for a product on registers: tiles of mma.sync, or of plain arithmetic.
#include <algorithm>

#include "src/core/rounding.h"
#include "src/kernels/cuda/gemm/mma.h"

namespace tensor::cuda {
namespace {

constexpr int kMostThreads = 256;                    // of a block
constexpr int kMostSums = 64, kMostPlainSums = 128;  // of a thread
constexpr std::int64_t kMostScratch = 16 << 20;      // bytes, of parts of sums

bool is_plain(Multiplier multiplier) { return multiplier == Multiplier::plain; }

const std::vector<int> kParts = {1, 2, 3, 4, 6, 8, 12, 16};

// ---- The rules: a GPU has one of them for a product.

// Warps have parts of a tile in registers, of which a ring of stages holds the operands in shared
// memory; k whole or in parts that a second kernel adds up.
Sketch register_tiles(const Machine& machine) {
  const bool is_async = machine.copies_async;
  return {"register_tiles",
          {{"rows", {16, 32, 64, 128, 256}},
           {"columns", {32, 64, 128, 256}},
           {"down", {1, 2, 4, 8}},
           {"across", {1, 2, 4, 8}},
           {"parts", kParts},
           {"stages", is_async ? std::vector<int>{2, 3, 4, 5} : std::vector<int>{2}}}};
}

// Lanes have squares of sums, in fours; slices of warps share the k of a step.
Sketch plain_tiles(const Machine& machine) {
  return {"plain_tiles",
          {{"rows", {16, 32, 64, 128}},
           {"columns", {32, 64, 128, 256}},
           {"down", {1, 2, 4}},
           {"across", {1, 2, 4}},
           {"slices", {1, 2, 4, 8}},
           {"parts", kParts},
           {"stages", machine.copies_async ? std::vector<int>{2, 3, 4} : std::vector<int>{2}}}};
}

}  // namespace

std::string impossible(const TileSchedule& s, Multiplier multiplier, const Machine& machine) {
  const int threads = s.threads(), sums = s.sums();
  if (threads > kMostThreads) return "256 threads at most";
  if (is_plain(multiplier)) {
    if (sums > kMostPlainSums) return "128 sums a thread at most";
    const int down = s.tile_m / s.down / 4, across = s.tile_n / s.across / 8;
    if (s.tile_m % (16 * s.down) != 0 || s.tile_n % (32 * s.across) != 0) return "sums in fours";
    // What is far from a square reads more operands, and keeps them in registers.
    if (down > 2 * across || across > 2 * down) return "a lane's sums in squares, or two";
    // Each brings eight elements along k.
    if (s.slices == 1 && s.down * s.across % 2 != 0) return "an even number of warps";
    // Each has an address, or goes through registers, as before sm_80 all do.
    const int each = (s.tile_m + s.tile_n) * s.tile_k(multiplier) / threads;
    if (each > 32 || (!machine.copies_async && sums + each > 80))
      return "too few threads to bring the operands";
    const bool is_tight = s.slices > 1 || (machine.copies_async && s.stages == 2);
    if (sums == kMostSums && threads == kMostThreads && is_tight && s.parts > 1)
      return "too few registers";
    return shared_bytes(s, multiplier) > machine.device.shared_block_bytes
               ? "too little shared memory"
               : "";
  }
  if (sums > kMostSums) return "64 sums a thread at most";
  if (s.tile_m % (16 * s.down) != 0 || s.tile_n % (16 * s.across) != 0)
    return "16 rows and columns for each warp";
  // What comes through registers takes 16 a thread for as many rows and columns as threads.
  if (s.tile_m + s.tile_n > 2 * threads) return "too few threads to bring the operands";
  if (machine.is_short_of_registers && s.tile_m * s.tile_n == 128 * 64) return "too few registers";
  // Rows of 64 bytes, each with 16 more.
  const std::int64_t shared = s.stages * 80 * std::int64_t{s.tile_m + s.tile_n} + 2048;
  if (shared > machine.device.shared_block_bytes) return "too little shared memory";
  return {};
}

namespace {

// Of a kernel that there is: why nobody needs it.
std::string pointless(const TileSchedule& s, const GemmProblem& p, Multiplier multiplier,
                      const Machine& machine) {
  if (s.sums() < 16) return "more threads than sums to keep them busy";
  if (s.tile_m >= 2 * round_up(p.m, 16)) return "more rows than the product has";
  if (s.tile_n >= 2 * round_up(p.n, 32)) return "more columns than the product has";
  const std::int64_t steps = ceil_div(p.k, s.tile_k(multiplier));
  if (s.stages > std::max<std::int64_t>(steps / s.parts, 2)) return "more stages than steps";
  if (s.parts == 1) return {};
  if (steps < 4 * s.parts) return "parts of four steps at least";
  const std::int64_t results = p.batches * p.m * p.n;
  if (s.parts * results * std::int64_t{sizeof(float)} > kMostScratch) return "too much scratch";
  const std::int64_t tiles = ceil_div(p.m, s.tile_m) * ceil_div(p.n, s.tile_n) * p.batches;
  if (tiles >= 2 * machine.device.multiprocessors * resident_blocks(s, multiplier, machine))
    return "there are tiles enough without parts";
  return {};
}

Schedule named(const TileSchedule& s, Multiplier multiplier) {
  Schedule named{
      is_plain(multiplier) ? "plain_tiles" : "register_tiles",
      {{"rows", s.tile_m}, {"columns", s.tile_n}, {"down", s.down}, {"across", s.across}}};
  if (is_plain(multiplier)) named.values.emplace_back("slices", s.slices);
  named.values.emplace_back("parts", s.parts);
  named.values.emplace_back("stages", s.stages);
  return named;
}

std::vector<float> features_of(const Schedule& schedule, const GemmProblem& p,
                               Multiplier multiplier, const Machine& machine) {
  const TileSchedule s = tile_schedule_of(schedule);
  const double item = item_bytes(multiplier), k = static_cast<double>(p.k);
  Features f = features_of(p, item, machine);
  f.sketch = schedule.sketch;
  f.tile_rows = s.tile_m, f.tile_columns = s.tile_n, f.tile_depth = s.tile_k(multiplier);
  f.splits = s.parts, f.groups = s.down, f.row_blocks = s.across, f.stages = s.stages;
  f.threads = s.threads();
  f.registers = s.sums();
  f.shared_bytes = s.stages * item * (s.tile_m + s.tile_n) * f.tile_depth;
  f.has_second_kernel = s.parts > 1;
  const auto tiles =
      static_cast<double>(ceil_div(p.m, s.tile_m) * ceil_div(p.n, s.tile_n) * p.batches);
  f.blocks = tiles * s.parts;
  f.resident = static_cast<double>(resident_blocks(s, multiplier, machine));
  f.cache_bytes = tiles * k * item * (s.tile_m + s.tile_n);
  // Every warp, or thread, reads its own rows and columns.
  f.operand_bytes = tiles * k * item * (s.tile_m * s.across + s.tile_n * s.down);
  f.time = model_gemm_tiles(p, s, multiplier, machine);
  return f.values();
}

}  // namespace

TileSchedule tile_schedule_of(const Schedule& schedule) {
  const auto number = [&](std::string_view name, int otherwise) {
    return schedule.value(name).value_or(otherwise);
  };
  return {number("rows", 16), number("columns", 32), number("down", 1),  number("across", 1),
          number("parts", 1), number("stages", 2),   number("slices", 1)};
}

Space gemm_tile_space(const GemmProblem& p, Multiplier multiplier, const Machine& machine) {
  Space space;
  space.sketches = {is_plain(multiplier) ? plain_tiles(machine) : register_tiles(machine)};
  // What level 0 takes is always there, as tiles that are larger than the product.
  const Schedule level0 = named(gemm_tile_schedules(p, multiplier, machine).front(), multiplier);
  space.fault = [=](const Schedule& schedule) {
    if (schedule == level0) return std::string();
    const TileSchedule s = tile_schedule_of(schedule);
    const std::string fault = impossible(s, multiplier, machine);
    return fault.empty() ? pointless(s, p, multiplier, machine) : fault;
  };
  space.model_us = [=](const Schedule& s) {
    return model_gemm_tiles(p, tile_schedule_of(s), multiplier, machine).total;
  };
  space.features = [=](const Schedule& s) { return features_of(s, p, multiplier, machine); };
  space.choose(level0);
  return space;
}

}  // namespace tensor::cuda
