// Which schedule a product on Hopper gets without measuring: a model of what bounds it.
#include <algorithm>
#include <cmath>

#include "src/core/rounding.h"
#include "src/kernels/cuda/cheapest.h"
#include "src/kernels/cuda/gemm/sm90.h"
#include "src/kernels/cuda/tensor_map.h"

namespace tensor::cuda {
namespace {

int rows_of(const GemmSchedule& s) { return s.swapped ? s.tile_n : s.tile_m; }

constexpr std::int64_t kRowBytes = 128;  // along k, at a time
std::int64_t stage_bytes(const GemmSchedule& s) { return kRowBytes * (s.tile_m + s.tile_n); }

// As many stages as there is room for. With half of the memory the next kernel's block would fit
// beside, but on an H200 that gained less than stages do.
void add_stages(GemmSchedule& s, const GemmProblem& p, const Machine& machine) {
  const std::int64_t steps = p.steps();
  s.stages = 0;
  const std::int64_t room = machine.device.shared_block_bytes - s.needed_shared_bytes(p) - 2048;
  s.stages = static_cast<int>(std::clamp<std::int64_t>(
      room / stage_bytes(s), 0, std::min<std::int64_t>(8, std::max<std::int64_t>(steps, 2))));
}

}  // namespace

std::string GemmSchedule::name(std::int64_t tile_k) const {
  std::string text = std::to_string(tile_m) + "x" + std::to_string(tile_n) + "x" +
                     std::to_string(tile_k) + (swapped ? "t" : "") + "_s" + std::to_string(stages);
  if (takes_turns) text += "_turns";
  if (splits > 1) text += "_k" + std::to_string(splits);
  if (shares > 1) text += "_c" + std::to_string(shares);
  if (!launches_first) text += "_late";
  return text;
}

std::int64_t GemmSchedule::tiles(const GemmProblem& p) const {
  return round_up(ceil_div(p.m, tile_m), shares) * ceil_div(p.n, tile_n) * p.batches;
}

int GemmSchedule::threads(const GemmProblem& p) const {
  return 128 * groups + (hands_over() || p.normalizes ? 128 : 32);
}

bool GemmSchedule::leaves_room(const GemmProblem& p) const {
  if (p.normalizes) return groups == 1 && blocks * columns() <= 96;
  if (p.sums_rows && columns() > (groups == 2 ? 48 : 104)) return false;
  if (p.sums_rows && groups == 2 && blocks * columns() > 72) return false;
  if (p.item_bytes == 1 && blocks * columns() > (groups == 2 ? 56 : 104)) return false;
  return groups < 3 && !hands_over() && blocks * columns() <= 128;
}

bool GemmSchedule::stages_outputs(const GemmProblem& p) const {
  if (boxes_addend(p)) return true;
  if (p.staged_bytes == 1) return !swapped && tile_n % 128 == 0;
  // Of unequal parts of a tile the last block's box would reach into the next tile.
  return p.staged_bytes > 0 && (splits * my_columns() == columns() || tile_m >= p.m);
}

std::int64_t GemmSchedule::needed_shared_bytes(const GemmProblem& p) const {
  int buffers = 0;
  if (stages_outputs(p)) {
    const int panels = (swapped ? 1 : ceil_div(tile_n, 128 / staged_bytes(p))) * blocks;
    buffers = std::min(panels, boxes_addend(p) ? 4 : 2);
  }
  const std::int64_t buffer = (box_rows() * 128 + 1023) / 1024 * 1024;
  const std::int64_t exchanged =
      splits > 1 ? splits * blocks * my_columns() / 8 * groups * 2048 : 0;
  const std::int64_t corrected = swapped ? splits * my_columns() : tile_m;
  const std::int64_t statistics = p.normalizes ? 16 * (takes_turns ? groups : 1) * corrected : 0;
  const std::int64_t row_sums = p.sums_rows && swapped ? 32 * groups * my_columns() : 0;
  return stages * stage_bytes(*this) + groups * buffers * buffer + exchanged + statistics +
         row_sums;
}

std::string GemmSchedule::fault(std::int64_t shared_bytes, const GemmProblem& p) const {
  const int teams = takes_turns ? groups : 1;
  if (groups < 1 || groups > 3) return "groups of rows from 1 to 3";
  if (blocks < 1 || blocks > 2) return "one or two blocks of rows a group";
  if (rows_of(*this) != 64 * groups * blocks / teams)
    return "the side of the rows has 64 for each block";
  if (std::max(tile_m, tile_n / shares) > kMostBoxSide)
    return "a side of a tile is copied as one box, of " + std::to_string(kMostBoxSide) + " at most";
  if (columns() < 8 || columns() > 256 || columns() != p.in_columns(columns()))
    return p.item_bytes == 1 ? "8, 16, 24 or 32 to 256 columns in steps of 16"
                             : "8 to 256 columns in steps of 8";
  // With 192 sums registers are short for what an epilogue reads and writes by itself.
  const double boxed_bytes = boxes_addend(p) ? 2 * p.addend_bytes : 0;
  const bool is_light =
      !p.normalizes && p.operations < 24 && p.read_bytes + p.written_bytes - boxed_bytes < 8.5;
  if (blocks * columns() > (takes_turns && is_light ? 384 : 256))
    return "at most 128 sums a thread, 192 of groups that take turns with little to do";
  // Found by NVRTC, which spills beyond.
  if (swapped && groups == 2 && columns() > 144 && p.operations >= 16 &&
      p.read_bytes + p.written_bytes > 8.5)
    return "at most 144 columns of two groups with much to do";
  // Four warpgroups have 128 registers a thread when the kernel is compiled.
  if (groups == 3 && blocks * columns() > 144) return "at most 72 sums a thread in three groups";
  // Factors that are no constants may lie turned, in panels of 64 features.
  if (!p.is_constant && tile_n % 64 != 0) return "features in panels of 64";
  if (stages_outputs(p) && tile_n % (128 / staged_bytes(p)) != 0)
    return "features in panels of " + std::to_string(128 / staged_bytes(p));
  if (stages < 2) return "at least two stages";
  if (p.sums_rows) {
    if (tile_n % 64 != 0) return "rows are summed by 64 features";
    // Found by NVRTC, too.
    const int most = groups == 3 ? 72 : swapped ? 136 : 256;
    if (blocks * my_columns() > most)
      return "at most " + std::to_string(most) + " columns where rows are summed";
  }
  if (splits > 1) {
    if (!swapped || takes_turns || shares > 1) return "only features as rows are split";
    if (splits > 8 || splits > p.steps()) return "at most 8 splits, each a step";
    if ((splits - 1) * my_columns() >= columns()) return "columns for each of the splits";
  }
  if (shares > 1 && (swapped || tile_n % (8 * shares) != 0 || band % shares != 0 || shares > 2))
    return "weights are shared by two blocks, features not as rows";
  // The barriers lie before the tiles, which begin where the swizzle does: every 1,024 bytes.
  const std::int64_t needed = needed_shared_bytes(p) + 1024;
  if (needed > shared_bytes)
    return "needs " + std::to_string(needed) + " bytes of shared memory, a block has " +
           std::to_string(shared_bytes);
  return {};
}

namespace {

// ---- The model, whose constants are struct TimeModel::GemmSm90. Clocks are those of one
// multiprocessor.

// A tile's step along k: wgmma takes N / 2 clocks for 32 bytes of k, and its operands 128
// bytes a clock.
double clocks_of_step(const GemmProblem& p, const GemmSchedule& s, const Machine& machine) {
  const auto& times = machine.times.gemm_sm90;
  const int processors = machine.device.multiprocessors;
  const auto busy = static_cast<double>(std::min<std::int64_t>(s.tiles(p) * s.splits, processors));
  const double arrival = std::min(times.arrival, times.shared_arrival * processors / busy);
  const double columns = s.columns(), blocks = rows_of(s) / 64.0;
  const double multiply = 4 * blocks * std::max(columns / 2, 16 + columns / 4);
  return std::max(
      {multiply, static_cast<double>(stage_bytes(s)) / arrival, times.stage_clocks / s.stages});
}

// A tile's epilogue. Rates are bytes a clock.
double clocks_of_finish(const GemmProblem& p, const GemmSchedule& s, const Machine& machine) {
  const auto& times = machine.times.gemm_sm90;
  const double elements = static_cast<double>(s.tile_m) * s.tile_n;
  const double added = s.boxes_addend(p) ? 2 * p.addend_bytes : 0;
  // Bytes take as many instructions as what is twice as wide.
  const bool is_stored = added == 0 && (p.staged_bytes == 2 || s.stages_outputs(p));
  const double stored = is_stored ? 2 : 0;
  const double others = p.read_bytes + p.written_bytes - (is_stored ? p.staged_bytes : 0) - added;
  const double rate =
      s.swapped ? times.box_rate
                : std::min(times.pair_rate * (s.takes_turns ? 1 : s.groups), times.most_pair_rate);
  const double added_rate = s.swapped       ? times.small_addend_rate
                            : s.takes_turns ? times.turn_addend_rate
                                            : times.addend_rate;
  const double element = (times.operations + p.operations) / times.operation_rate +
                         stored / times.box_rate + added / added_rate + others / rate;
  double finish = elements * element / s.splits;
  if (p.normalizes) finish += times.norm_clocks;
  if (p.sums_rows) finish += times.row_sum_clocks;
  if (p.normalizes && s.takes_turns && s.blocks == 2) finish *= times.turn_norm;
  if (s.splits > 1)
    finish +=
        times.exchange_clocks + elements * 4 * (s.splits - 1) / s.splits / times.exchange_rate;
  return finish;
}

// How often blocks follow each other. A cluster lies within one of the partitions of 14 to 18
// multiprocessors; another round of clusters would cost more than splitting gains.
double rounds_of(const GemmProblem& p, const GemmSchedule& s, int processors) {
  const int most = s.splits == 3 || s.splits > 4 ? processors * 27 / 32
                   : s.splits == 4               ? processors * 15 / 16
                                                 : processors;
  const int usable = std::max(most / s.splits, 1) * s.splits;
  return static_cast<double>(ceil_div(s.tiles(p) * s.splits, usable));
}

// Of all operands, each once.
double bytes_of(const GemmProblem& p) {
  const double m = static_cast<double>(p.m), n = static_cast<double>(p.n),
               k = static_cast<double>(p.k);
  return static_cast<double>(p.batches) *
         (p.item_bytes * (m * k + n * k) + m * n * (p.read_bytes + p.written_bytes));
}

}  // namespace

TimeParts model_gemm_sm90(const GemmProblem& p, const GemmSchedule& s, const Machine& machine) {
  const auto& times = machine.times.gemm_sm90;
  const double clock_mhz = machine.clock_mhz;
  const auto steps = static_cast<double>(ceil_div(p.steps(), s.splits));
  const double main = steps * clocks_of_step(p, s, machine),
               finish = clocks_of_finish(p, s, machine);
  const double rounds = rounds_of(p, s, machine.device.multiprocessors);
  const double clocks = s.takes_turns && rounds > 1
                            ? std::max(rounds * main, rounds * (main + finish) / 2) + finish
                            : rounds * (main + finish);
  const double memory = bytes_of(p) / machine.memory_gbps / 1e3;
  const double cached = static_cast<double>(s.tiles(p) * s.splits) * steps * kRowBytes *
                        (s.tile_m + static_cast<double>(s.tile_n) / s.shares);
  const double cache = cached / machine.l2_gbps / 1e3;
  const double products = 2e-6 * static_cast<double>(p.batches) * static_cast<double>(p.m) *
                              static_cast<double>(p.n) * static_cast<double>(p.k) /
                              (p.item_bytes == 1 ? machine.byte_tops : machine.tensor_tflops) +
                          times.beside * clocks / clock_mhz;
  return {times.fill_us + std::max({clocks / clock_mhz, products, memory}),
          rounds * main / clock_mhz, (clocks - rounds * main) / clock_mhz, memory, cache};
}

std::vector<GemmSchedule> gemm_sm90_schedules(const GemmProblem& p, const Machine& machine) {
  std::vector<GemmSchedule> candidates;
  const auto add = [&](GemmSchedule s) {
    add_stages(s, p, machine);
    constexpr int kLeastStages = 4;  // of split tiles: with fewer they wait for memory
    if (s.splits > 1 && s.stages < std::min<std::int64_t>(kLeastStages, p.steps())) return;
    if (s.fault(machine.device.shared_block_bytes, p).empty()) candidates.push_back(s);
  };
  // Features as rows: tokens in equal parts.
  if (p.m <= 2048)
    for (int parts = 1; parts <= 32; ++parts) {
      const std::int64_t tile_m = p.in_columns(ceil_div(p.m, parts));
      if (tile_m > 256 || tile_m * (parts - 1) >= p.m) continue;
      for (const int groups : {1, 2, 3})
        for (const int splits : {1, 2, 3, 4, 6, 8}) {
          // A share of a split tile has eight columns at least, of tokens or not.
          const std::int64_t columns =
              parts > 1 ? tile_m : p.in_columns(std::max(tile_m, std::int64_t{8} * splits));
          GemmSchedule s{static_cast<int>(columns), 64 * groups, 0, groups, 1, true};
          s.splits = splits;
          add(s);
        }
    }
  // Weights shared by two blocks are not among them: on an H100 they take 1.1 to 1.5 times as long
  // with up to a thousand tokens. With 12,608 they took 0.94 to 1.1 times as long, which tuning
  // finds out.
  const auto add_large = [&](GemmSchedule s) {
    s.band = s.tile_n > s.tile_m ? 16 : 12;
    add(s);
  };
  for (const int tile_n : {64, 128, 192, 256})
    for (const int groups : {1, 2, 3}) add_large({64 * groups, tile_n, 0, groups, 1, false});
  add_large({256, 128, 0, 2, 2, false});
  for (const int tile_n : {128, 192}) add_large({128, tile_n, 0, 2, 2, false, true});
  return cheapest_first(
      candidates, [&](const GemmSchedule& s) { return model_gemm_sm90(p, s, machine).total; });
}

}  // namespace tensor::cuda
