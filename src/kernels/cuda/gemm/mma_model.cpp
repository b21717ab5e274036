// Which schedule a product on registers gets without measuring: a model of what bounds it.
#include <algorithm>
#include <cmath>

#include "src/core/rounding.h"
#include "src/kernels/cuda/cheapest.h"
#include "src/kernels/cuda/gemm/mma.h"

namespace tensor::cuda {
namespace {

// Warps down and across so that each has at most 64 by 32 sums of a tile.
constexpr TileSchedule kMmaTiles[] = {{128, 128, 2, 4}, {128, 64, 4, 2}, {64, 128, 2, 4},
                                      {64, 64, 2, 2},   {64, 32, 4, 1},  {32, 64, 2, 2},
                                      {32, 32, 2, 1},   {16, 64, 1, 4},  {16, 128, 1, 4}};
// Slices where the warps of a tile would be few, so that each has many sums all the same.
constexpr TileSchedule kPlainTiles[] = {
    {128, 128, 4, 1, 1, 2, 1}, {128, 128, 4, 2, 1, 2, 1}, {128, 64, 4, 1, 1, 2, 1},
    {64, 128, 2, 2, 1, 2, 1},  {64, 128, 2, 1, 1, 2, 2},  {64, 64, 2, 1, 1, 2, 2},
    {32, 128, 1, 1, 1, 2, 4},  {32, 128, 1, 2, 1, 2, 2},  {32, 64, 1, 1, 1, 2, 4},
    {32, 32, 1, 1, 1, 2, 4},   {16, 64, 1, 1, 1, 2, 4},   {16, 32, 1, 1, 1, 2, 4}};

}  // namespace

// A slice of plain products has eight at least: a warp must have enough to multiply between two
// barriers.
int TileSchedule::tile_k(Multiplier multiplier) const {
  return multiplier == Multiplier::plain ? std::max(16, 8 * slices) : 64 / item_bytes(multiplier);
}

std::string TileSchedule::name() const {
  return std::to_string(tile_m) + "x" + std::to_string(tile_n) + "_s" + std::to_string(stages) +
         (parts > 1 ? "_p" + std::to_string(parts) : "") +
         (slices > 1 ? "_w" + std::to_string(slices) : "");
}

std::int64_t stage_bytes(const TileSchedule& s, Multiplier multiplier, bool is_turned,
                         std::int64_t rows) {
  const std::int64_t item = item_bytes(multiplier), tile_k = s.tile_k(multiplier);
  if (multiplier == Multiplier::plain) return round_up(tile_k * (rows + 4) * item, 128);
  const std::int64_t lines = is_turned ? tile_k : rows, across = is_turned ? rows : tile_k;
  return round_up(lines * (across + (is_turned ? 8 : 16 / item)) * item, 128);
}

std::int64_t sum_bytes(const TileSchedule& s, Multiplier multiplier) {
  return multiplier == Multiplier::plain ? std::int64_t{4} * s.slices * s.tile_m * (s.tile_n + 4)
                                         : 0;
}

std::int64_t shared_bytes(const TileSchedule& s, Multiplier multiplier) {
  return std::max(s.stages * (stage_bytes(s, multiplier, false, s.tile_m) +
                              stage_bytes(s, multiplier, false, s.tile_n)),
                  sum_bytes(s, multiplier));
}

int TileSchedule::sums() const { return tile_m * tile_n / (32 * down * across); }

std::int64_t resident_blocks(const TileSchedule& s, Multiplier multiplier, const Machine& machine) {
  if (multiplier == Multiplier::plain) return resident_plain_blocks(s, machine);
  const DeviceInfo& device = machine.device;
  const double item = item_bytes(multiplier), threads = s.threads();
  // Sums, operands and the rest.
  const double registers = static_cast<double>(s.tile_m) * s.tile_n + 64.0 * threads;
  const double shared = s.stages * s.tile_k(multiplier) * item * (s.tile_m + s.tile_n) * 1.2 + 1024;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::min(
                                       {device.registers / registers, device.threads / threads,
                                        static_cast<double>(device.shared_bytes) / shared, 16.0})));
}

TimeParts model_gemm_tiles(const GemmProblem& p, const TileSchedule& s, Multiplier multiplier,
                           const Machine& machine) {
  if (multiplier == Multiplier::plain) return model_gemm_plain(p, s, machine);
  const auto& times = machine.times.gemm_tiles;
  const double block = s.tile_k(multiplier), item = item_bytes(multiplier);
  const std::int64_t tiles = ceil_div(p.m, s.tile_m) * ceil_div(p.n, s.tile_n) * p.batches;
  const std::int64_t steps = ceil_div(ceil_div(p.k, s.tile_k(multiplier)), s.parts);
  const std::int64_t blocks = tiles * s.parts, processors = machine.device.multiprocessors;
  const double on_one =
      std::min(static_cast<double>(resident_blocks(s, multiplier, machine)),
               std::ceil(static_cast<double>(blocks) / static_cast<double>(processors)));
  const double rounds =
      std::ceil(static_cast<double>(blocks) / (static_cast<double>(processors) * on_one));
  // Clocks of a multiprocessor for one step along k of one block.
  const double clock_mhz = machine.clock_mhz;
  const double flops_a_clock =
      mma_tflops(multiplier, machine) * 1e6 / clock_mhz / static_cast<double>(processors);
  const double multiply = 2.0 * s.tile_m * s.tile_n * block / flops_a_clock;
  const double warps = s.threads() / 32.0;
  // Operands from shared memory at 128 bytes a clock: each warp reads its own.
  const double operands = warps * (s.tile_m / s.down + s.tile_n / s.across) * block * item / 128;
  const double arrival = (s.tile_m + s.tile_n) * block * item / machine.arrival;
  const double step = std::max(
      on_one * (std::max({multiply, operands, arrival}) + operands * times.operands_beside),
      times.latency_clocks / (s.stages - 1));
  const double elements = static_cast<double>(s.tile_m) * s.tile_n * on_one;
  const double finish = s.parts > 1
                            ? elements * 4 / times.store_rate
                            : elements * (times.operations + p.operations) / times.operation_rate +
                                  elements * (p.read_bytes + p.written_bytes) / times.store_rate;
  const double clocks = rounds * (static_cast<double>(steps) * step + times.start_clocks + finish);
  const double batches = static_cast<double>(p.batches), m = static_cast<double>(p.m),
               n = static_cast<double>(p.n), k = static_cast<double>(p.k);
  const double results = batches * m * n;
  const double own = results * (p.read_bytes + p.written_bytes);
  const double factors = batches * item * (m * k + n * k);
  // Every tile reads its own rows and columns.
  const double read = static_cast<double>(tiles * (s.tile_m + s.tile_n)) * k * item;
  const double between = s.parts > 1 ? results * 4 * s.parts : 0;
  const double memory = (factors + (s.parts > 1 ? 0 : own)) / machine.memory_gbps / 1e3;
  const double cache = (read + between) / machine.l2_gbps / 1e3;
  const double second =
      s.parts > 1 ? machine.launch_us + times.second_us + (between + own) / machine.l2_gbps / 1e3
                  : 0;
  return {std::max({clocks / clock_mhz, memory, cache}) + second,
          rounds * static_cast<double>(steps) * on_one * multiply / clock_mhz,
          rounds * finish / clock_mhz + second, memory, cache};
}

std::vector<TileSchedule> gemm_tile_schedules(const GemmProblem& p, Multiplier multiplier,
                                              const Machine& machine) {
  const bool is_plain = multiplier == Multiplier::plain;
  std::vector<TileSchedule> candidates;
  constexpr std::int64_t kMostScratch = 16 << 20;  // bytes, of parts of sums
  const std::int64_t results = p.batches * p.m * p.n * std::int64_t{sizeof(float)};
  const auto add_all = [&](auto& tiles) {
    for (TileSchedule s : tiles) {
      s.stages = !machine.copies_async ? 2 : is_plain ? 3 : 4;
      if (!impossible(s, multiplier, machine).empty()) continue;
      const std::int64_t steps = ceil_div(p.k, s.tile_k(multiplier));
      for (const int parts : {1, 2, 3, 4, 6, 8, 12, 16}) {
        if (parts > 1 && (steps < 4 * parts || parts * results > kMostScratch)) continue;
        s.parts = parts;
        candidates.push_back(s);
      }
    }
  };
  if (is_plain)
    add_all(kPlainTiles);
  else
    add_all(kMmaTiles);
  return cheapest_first(candidates, [&](const TileSchedule& s) {
    return model_gemm_tiles(p, s, multiplier, machine).total;
  });
}

}  // namespace tensor::cuda
