// Which schedule a product on Hopper gets without measuring: a model of what bounds it.
#include <algorithm>
#include <cmath>

#include "src/kernels/cuda/gemm_sm90.h"

namespace tensor::cuda {
namespace {

constexpr int kDepth = 64;

std::int64_t tiles_along(std::int64_t extent, int tile) { return (extent + tile - 1) / tile; }

int rows_of(const GemmSchedule& s) { return s.swapped ? s.features : s.tokens; }
int columns_of(const GemmSchedule& s) { return s.swapped ? s.tokens : s.features; }

std::int64_t stage_bytes(const GemmSchedule& s) {
  return std::int64_t{2} * (s.tokens + s.features) * kDepth;
}

// As many stages as there is room for; blocks of one warpgroup leave room for the next kernel's,
// whose weights then come early.
void add_stages(GemmSchedule& s, const GemmProblem& p, const Machine& machine) {
  const std::int64_t all = machine.device.shared_block_bytes;
  const std::int64_t room = s.groups == 1 ? all / 2 : all;
  const std::int64_t steps = tiles_along(p.depth, kDepth);
  s.stages = 0;
  const std::int64_t fixed = s.needed_shared_bytes(p.staged) + 2048;
  s.stages = static_cast<int>((room - fixed) / stage_bytes(s));
  if (s.stages < 3) s.stages = static_cast<int>((all - fixed) / stage_bytes(s));
  s.stages = static_cast<int>(std::clamp<std::int64_t>(
      s.stages, 0, std::min<std::int64_t>(8, std::max<std::int64_t>(steps, 2))));
}

}  // namespace

std::string GemmSchedule::name() const {
  return std::to_string(tokens) + "x" + std::to_string(features) + "x" + std::to_string(kDepth) +
         (swapped ? "t" : "") + "_s" + std::to_string(stages) + (takes_turns ? "_turns" : "");
}

int GemmSchedule::threads() const { return 128 * groups + (groups > 1 ? 128 : 32); }

std::int64_t GemmSchedule::needed_shared_bytes(bool staged) const {
  const int panels = (swapped ? 1 : (features + 63) / 64) * blocks;
  const int buffers = !staged ? 0 : panels > 1 ? 2 : 1;
  const std::int64_t buffer = ((swapped ? tokens : 64) * 128 + 1023) / 1024 * 1024;
  return stages * stage_bytes(*this) + groups * buffers * buffer;
}

std::string GemmSchedule::fault(std::int64_t shared_bytes, bool staged) const {
  const int teams = takes_turns ? groups : 1;
  if (groups < 1 || groups > 3) return "groups of rows from 1 to 3";
  if (blocks < 1 || blocks > 2) return "one or two blocks of rows a group";
  if (rows_of(*this) != 64 * groups * blocks / teams)
    return "the side of the rows has 64 for each block";
  if (columns_of(*this) % 8 != 0 || columns_of(*this) < 8 || columns_of(*this) > 256)
    return "8 to 256 columns in steps of 8";
  if (blocks * columns_of(*this) > 256) return "at most 128 sums a thread";
  if (staged && features % 64 != 0) return "features in panels of 64";
  if (stages < 2) return "at least two stages";
  // The barriers lie before the tiles, which begin where the swizzle does: every 1,024 bytes.
  const std::int64_t needed = needed_shared_bytes(staged) + 1024;
  if (needed > shared_bytes)
    return "needs " + std::to_string(needed) + " bytes of shared memory, a block has " +
           std::to_string(shared_bytes);
  return {};
}

GemmProblem gemm_problem(const Graph& graph, const Group& group, const Product& product) {
  GemmProblem p{product.batches, product.rows, product.features, product.depth, 0, 0, 0, true};
  const double elements = static_cast<double>(p.batches * p.tokens * p.features);
  const auto bytes = [&](ValueId id) {
    return static_cast<double>(num_elements(graph.type(id).shape) *
                               item_size(graph.type(id).dtype)) /
           elements;
  };
  for (const auto& load : product.code.loads) p.read_bytes += bytes(load.value);
  p.staged = false;
  for (const ValueId id : group.writes) {
    p.written_bytes += bytes(id);
    p.staged |= item_size(graph.type(id).dtype) == 2 && p.features % 8 == 0;
  }
  for (const ValueId id : product.elementwise) {
    const Op op = graph[id].op;
    const bool is_cheap = op == Op::add || op == Op::multiply || op == Op::subtract ||
                          op == Op::astype || op == Op::relu || op == Op::maximum;
    p.operations += is_cheap ? 1 : 16;
  }
  return p;
}

double model_gemm_sm90(const GemmProblem& p, const GemmSchedule& s, const Machine& machine) {
  // Clocks of one multiprocessor (hopper.md of the design: 16-bit wgmma takes N / 2 clocks for 16
  // of k, and its operands 128 bytes a clock; copies arrive at some 56 bytes a clock).
  constexpr double kArrival = 56;
  const double clock_mhz = 0.9e3 * machine.device.clock_ghz;
  const double columns = columns_of(s), blocks = rows_of(s) / 64.0;
  const double steps = static_cast<double>(tiles_along(p.depth, kDepth));
  const double multiply = 4 * blocks * std::max(columns / 2, 16 + columns / 4);
  const double step = std::max(multiply, static_cast<double>(stage_bytes(s)) / kArrival);
  const double elements = static_cast<double>(s.tokens) * s.features;
  const double finish =
      400 + elements * (8 + p.operations) / 128 + elements * (p.read_bytes + p.written_bytes) / 24;
  const std::int64_t tiles =
      tiles_along(p.tokens, s.tokens) * tiles_along(p.features, s.features) * p.batches;
  const std::int64_t processors = machine.device.multiprocessors;
  const double rounds = static_cast<double>((tiles + processors - 1) / processors);
  const double main = steps * step;
  const double clocks = s.takes_turns && rounds > 1
                            ? std::max(rounds * main, (rounds * (main + finish)) / 2) + finish
                            : rounds * (main + finish);
  const double shape = static_cast<double>(p.batches);
  const double tokens = static_cast<double>(p.tokens), features = static_cast<double>(p.features),
               depth = static_cast<double>(p.depth);
  const double bytes = shape * (2 * (tokens * depth + features * depth) +
                                tokens * features * (p.read_bytes + p.written_bytes));
  const double memory = bytes / machine.memory_gbps / 1e3;
  const double cache = static_cast<double>(tiles) * steps * static_cast<double>(stage_bytes(s)) /
                       machine.l2_gbps / 1e3;
  constexpr double kFill = 1.3;  // the first tiles' way from memory, and the last sums' back
  return kFill + std::max({clocks / clock_mhz, memory, cache});
}

std::vector<GemmSchedule> gemm_sm90_schedules(const GemmProblem& p, const Machine& machine) {
  std::vector<GemmSchedule> candidates;
  const auto add = [&](GemmSchedule s) {
    add_stages(s, p, machine);
    if (s.fault(machine.device.shared_block_bytes, p.staged).empty()) candidates.push_back(s);
  };
  // Features as rows: tokens in equal parts.
  if (p.tokens <= 2048)
    for (int parts = 1; parts <= 32; ++parts) {
      const std::int64_t tokens = tiles_along(tiles_along(p.tokens, parts), 8) * 8;
      if (tokens > 256 || tokens * (parts - 1) >= p.tokens) continue;
      for (const int groups : {1, 2, 3}) {
        GemmSchedule s{static_cast<int>(tokens), 64 * groups, 0, groups, 1, true};
        add(s);
      }
    }
  for (const int features : {64, 128, 192, 256})
    for (const int groups : {1, 2, 3}) add({64 * groups, features, 0, groups, 1, false});
  add({256, 128, 0, 2, 2, false});
  add({128, 128, 0, 2, 2, false, true});
  std::vector<double> times;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    times.push_back(model_gemm_sm90(p, candidates[i], machine));
    order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return times[a] < times[b]; });
  std::vector<GemmSchedule> sorted;
  for (const std::size_t i : order) sorted.push_back(candidates[i]);
  return sorted;
}

}  // namespace tensor::cuda
