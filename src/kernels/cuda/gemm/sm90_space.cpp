// What may be tried for a product on Hopper: one rule for each structure that its kernel can have.
#include <algorithm>
#include <map>

#include "src/core/rounding.h"
#include "src/kernels/cuda/gemm/sm90.h"

namespace tensor::cuda {
namespace {

const std::vector<int> kStages = {2, 3, 4, 5, 6, 7, 8}, kBands = {4, 8, 12, 16, 32},
                       kFeatures = {32, 64, 96, 128, 160, 192, 224, 256};

// ---- The rules. Each says when there is its structure, and which numbers it has.

using Rule = std::optional<Sketch> (*)(const GemmProblem&, const Machine&);

// Tokens are the rows of wgmma: groups of 128 threads multiply one tile together.
std::optional<Sketch> cooperative(const GemmProblem&, const Machine&) {
  return Sketch{"cooperative",
                {{"groups", {1, 2, 3}},
                 {"blocks", {1, 2}},
                 {"features", kFeatures},
                 {"stages", kStages},
                 {"band", kBands},
                 {"late", {0, 1}}}};
}

// Every group has tiles of its own, so that one finishes while another multiplies: where blocks
// have several tiles.
std::optional<Sketch> turns(const GemmProblem& p, const Machine& machine) {
  const std::int64_t most = p.batches * ceil_div(p.m, 64) * ceil_div(p.n, 64);
  if (most <= machine.device.multiprocessors) return std::nullopt;
  return Sketch{"turns",
                {{"groups", {2, 3}},
                 {"blocks", {1, 2}},
                 {"features", kFeatures},
                 {"stages", kStages},
                 {"band", kBands}}};
}

constexpr int kSplits[] = {2, 3, 4, 6, 8};

// Tokens in equal parts, a multiple of eight each; or of fewer tokens than eight for each of the
// blocks that share a tile, as many columns as there are shares.
std::vector<int> parts_of(const GemmProblem& p, bool is_split) {
  const std::int64_t m = p.m;
  std::vector<int> result;
  if (is_split)
    for (const int splits : kSplits)
      if (8 * splits > m) result.push_back(static_cast<int>(p.in_columns(8 * splits)));
  for (int parts = 1; parts <= 32; ++parts) {
    const std::int64_t part = p.in_columns(ceil_div(m, parts));
    if (part <= 256 && part * (parts - 1) < m) result.push_back(static_cast<int>(part));
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

// Features are the rows, since any multiple of eight tokens fits the columns: for few tokens.
constexpr std::int64_t kFewTokens = 2048;
std::optional<Sketch> swapped(const GemmProblem& p, const Machine&) {
  if (p.m > kFewTokens) return std::nullopt;
  return Sketch{"swapped",
                {{"tokens", parts_of(p, false), true},
                 {"groups", {1, 2, 3}},
                 {"blocks", {1, 2}},
                 {"stages", kStages},
                 {"late", {0, 1}}}};
}

// The blocks of a cluster share a tile's k, where there is enough of it.
std::optional<Sketch> split(const GemmProblem& p, const Machine&) {
  if (p.m > kFewTokens || p.steps() < 4) return std::nullopt;
  return Sketch{"split",
                {{"tokens", parts_of(p, true), true},
                 {"groups", {1, 2, 3}},
                 {"splits", {std::begin(kSplits), std::end(kSplits)}},
                 {"stages", kStages},
                 {"late", {0, 1}}}};
}

// Two blocks of a cluster read the weights of neighbouring tiles once, where weights lie as the
// accelerator copies them: those of a constant, which are packed if they do not.
std::optional<Sketch> shared_weights(const GemmProblem& p, const Machine&) {
  if (!p.is_constant || p.m <= 64) return std::nullopt;
  return Sketch{"shared_weights",
                {{"groups", {1, 2, 3}},
                 {"blocks", {1, 2}},
                 {"turns", {0, 1}},
                 {"features", kFeatures},
                 {"stages", kStages},
                 {"band", {4, 8, 16}}}};
}

constexpr Rule kRules[] = {cooperative, turns, swapped, split, shared_weights};

// ---- Schedules and what they stand for.

bool is_late(const GemmSchedule& s) { return !s.launches_first; }

Schedule named(const GemmSchedule& s, const std::vector<Sketch>& sketches) {
  const std::string_view name = s.splits > 1    ? "split"
                                : s.swapped     ? "swapped"
                                : s.shares > 1  ? "shared_weights"
                                : s.takes_turns ? "turns"
                                                : "cooperative";
  const std::map<std::string_view, int> values = {
      {"tokens", s.tile_m}, {"features", s.tile_n}, {"groups", s.groups},
      {"blocks", s.blocks}, {"splits", s.splits},   {"stages", s.stages},
      {"band", s.band},     {"late", is_late(s)},   {"turns", s.takes_turns}};
  Schedule result{std::string(name), {}};
  for (const Sketch& sketch : sketches)
    if (sketch.name == name)
      for (const auto& knob : sketch.knobs)
        result.values.emplace_back(knob.name, values.at(knob.name));
  return result;
}

// The order of tiles that level 0 takes.
int usual_band(const GemmSchedule& s) { return s.tile_n > s.tile_m ? 16 : 12; }

// Of a kernel that there is: why nobody needs it.
std::string pointless(const GemmSchedule& s, const GemmProblem& p, const Machine& machine) {
  const std::int64_t processors = machine.device.multiprocessors, tiles = s.tiles(p);
  const bool is_one_round = tiles * s.splits <= processors;
  if (s.stages > std::max<std::int64_t>(p.steps(), 2)) return "more stages than steps";
  if (s.tile_n > round_up(p.n, 64) || (!s.swapped && s.tile_m > round_up(p.m, 64)))
    return "a side of the tile that the product does not have";
  if (is_late(s) && !is_one_round) return "with several rounds the next kernel is late anyway";
  if (!s.swapped && s.shares == 1 && s.band != usual_band(s)) {
    if (is_one_round) return "the order of tiles matters in several rounds only";
    if (s.band > ceil_div(p.m, s.tile_m)) return "a band has tiles of tokens enough";
  }
  if (s.takes_turns && tiles <= processors) return "groups take turns with several tiles only";
  if (s.splits > 1 && tiles >= processors) return "there are tiles enough without splits";
  if (s.splits > 1 && s.tile_m > p.in_columns(std::max<std::int64_t>(p.m, 8 * s.splits)))
    return "more columns than shares";
  return {};
}

std::string fault_of(const Schedule& schedule, const GemmProblem& p, const Machine& machine) {
  const GemmSchedule s = gemm_schedule_of(schedule);
  const std::string fault = s.fault(machine.device.shared_block_bytes, p);
  return fault.empty() ? pointless(s, p, machine) : fault;
}

std::vector<float> features_of(const Schedule& schedule, const GemmProblem& p,
                               const Machine& machine) {
  const GemmSchedule s = gemm_schedule_of(schedule);
  Features f = features_of(p, p.item_bytes, machine);
  f.sketch = schedule.sketch;
  f.tile_rows = s.tile_m, f.tile_columns = s.tile_n, f.tile_depth = static_cast<double>(p.tile_k());
  f.splits = s.splits, f.shares = s.shares, f.groups = s.groups, f.row_blocks = s.blocks;
  f.stages = s.stages, f.threads = s.threads(p), f.band = s.swapped ? 0 : s.band;
  f.registers = 0.5 * s.blocks * s.columns();
  f.shared_bytes = static_cast<double>(s.needed_shared_bytes(p));
  f.takes_turns = s.takes_turns, f.starts_late = is_late(s);
  f.blocks = static_cast<double>(s.tiles(p) * s.splits);
  const double steps = static_cast<double>(p.steps() * s.tiles(p));
  f.cache_bytes = steps * 128 * (s.tile_m + static_cast<double>(s.tile_n) / s.shares);
  // Every 64 rows read all columns.
  const double row_blocks = (s.swapped ? s.tile_n : s.tile_m) / 64.;
  f.operand_bytes = steps * 128 * row_blocks * (64 + s.columns());
  f.time = model_gemm_sm90(p, s, machine);
  return f.values();
}

}  // namespace

GemmSchedule gemm_schedule_of(const Schedule& schedule) {
  const auto number = [&](std::string_view name, int otherwise) {
    return schedule.value(name).value_or(otherwise);
  };
  GemmSchedule s;
  s.groups = number("groups", 1), s.blocks = number("blocks", 1);
  s.splits = number("splits", 1), s.stages = number("stages", 2), s.band = number("band", 8);
  s.swapped = schedule.sketch == "swapped" || schedule.sketch == "split";
  s.takes_turns = schedule.sketch == "turns" || number("turns", 0) == 1;
  s.shares = schedule.sketch == "shared_weights" ? 2 : 1;
  s.launches_first = number("late", 0) == 0;
  const int rows = 64 * s.blocks * (s.takes_turns ? 1 : s.groups);
  s.tile_m = s.swapped ? number("tokens", 8) : rows;
  s.tile_n = s.swapped ? rows : number("features", 64);
  return s;
}

Space gemm_sm90_space(const GemmProblem& p, const Machine& machine, const GemmSchedule& level0) {
  Space space;
  for (const Rule rule : kRules)
    if (auto sketch = rule(p, machine)) space.sketches.push_back(std::move(*sketch));
  space.fault = [=](const Schedule& s) { return fault_of(s, p, machine); };
  space.impossible = [=](const Schedule& s) {
    return gemm_schedule_of(s).fault(machine.device.shared_block_bytes, p);
  };
  space.model_us = [=](const Schedule& s) {
    return model_gemm_sm90(p, gemm_schedule_of(s), machine).total;
  };
  space.features = [=](const Schedule& s) { return features_of(s, p, machine); };
  space.choose(named(level0, space.sketches));
  return space;
}

}  // namespace tensor::cuda
