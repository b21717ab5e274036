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
constexpr TileSchedule kPlainTiles[] = {{128, 128, 16, 16}, {128, 64, 16, 16}, {64, 128, 16, 16},
                                        {64, 64, 16, 16},   {64, 64, 8, 16},   {32, 64, 8, 16},
                                        {64, 32, 16, 8},    {32, 32, 8, 8},    {16, 64, 4, 16}};

}  // namespace

int step_depth(Multiplier multiplier) { return 64 / item_bytes(multiplier); }

std::string TileSchedule::name() const {
  return std::to_string(rows) + "x" + std::to_string(columns) + "_s" + std::to_string(stages) +
         (parts > 1 ? "_p" + std::to_string(parts) : "");
}

std::int64_t resident_blocks(const TileSchedule& s, Multiplier multiplier, const Machine& machine) {
  const DeviceInfo& device = machine.device;
  const double item = item_bytes(multiplier), threads = s.threads(multiplier);
  // Sums, operands and the rest.
  const double registers = static_cast<double>(s.rows) * s.columns + 64.0 * threads;
  const double shared =
      s.stages * step_depth(multiplier) * item * (s.rows + s.columns) * 1.2 + 1024;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::min(
                                       {device.registers / registers, device.threads / threads,
                                        static_cast<double>(device.shared_bytes) / shared, 16.0})));
}

TimeParts model_gemm_tiles(const GemmProblem& p, const TileSchedule& s, Multiplier multiplier,
                           const Machine& machine) {
  const bool is_plain = multiplier == Multiplier::plain;
  const auto& times = machine.times.gemm_tiles;
  const double block = step_depth(multiplier), item = item_bytes(multiplier);
  const std::int64_t tiles = ceil_div(p.m, s.rows) * ceil_div(p.n, s.columns) * p.batches;
  const std::int64_t steps = ceil_div(ceil_div(p.k, step_depth(multiplier)), s.parts);
  const std::int64_t blocks = tiles * s.parts, processors = machine.device.multiprocessors;
  const double on_one =
      std::min(static_cast<double>(resident_blocks(s, multiplier, machine)),
               std::ceil(static_cast<double>(blocks) / static_cast<double>(processors)));
  const double rounds =
      std::ceil(static_cast<double>(blocks) / (static_cast<double>(processors) * on_one));
  // Clocks of a multiprocessor for one step of the depth of one block.
  const double clock_mhz = machine.clock_mhz;
  const double tflops =
      is_plain ? times.plain_share * machine.f32_tflops : mma_tflops(multiplier, machine);
  const double flops_a_clock = tflops * 1e6 / clock_mhz / static_cast<double>(processors);
  const double multiply = 2.0 * s.rows * s.columns * block / flops_a_clock;
  const double warps = s.threads(multiplier) / 32.0;
  // Operands from shared memory at 128 bytes a clock: each warp reads its own; of plain products,
  // each thread fours of its rows and columns, which take two clocks a warp.
  const double operands =
      is_plain ? warps * block * (s.rows / s.down + s.columns / s.across) / 4.0 * 2
               : warps * (s.rows / s.down + s.columns / s.across) * block * item / 128;
  const double arrival = (s.rows + s.columns) * block * item / machine.arrival;
  const double step = std::max(
      on_one * (std::max({multiply, operands, arrival}) + operands * times.operands_beside),
      times.latency_clocks / (s.stages - 1));
  const double elements = static_cast<double>(s.rows) * s.columns * on_one;
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
  const double read = static_cast<double>(tiles * (s.rows + s.columns)) * k * item;
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
  const std::int64_t steps = ceil_div(p.k, step_depth(multiplier));
  constexpr std::int64_t kMostScratch = 16 << 20;  // bytes, of parts of sums
  const std::int64_t results = p.batches * p.m * p.n * std::int64_t{sizeof(float)};
  const auto add_all = [&](auto& tiles) {
    for (TileSchedule s : tiles) {
      if (!is_plain && machine.is_short_of_registers && s.rows * s.columns == 128 * 64) continue;
      for (const int parts : {1, 2, 3, 4, 6, 8, 12, 16}) {
        if (parts > 1 && (steps < 4 * parts || parts * results > kMostScratch)) continue;
        s.parts = parts;
        s.stages = is_plain || !machine.copies_async ? 2 : 4;
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
