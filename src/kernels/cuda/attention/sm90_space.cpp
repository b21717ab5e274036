// What may be tried for attention on Hopper: batched product, softmax and second product as one
// kernel (GTCO, section IV-D: SSSR-RSRS), the scores of a row all in registers or block by block.
#include <algorithm>

#include "src/core/rounding.h"
#include "src/kernels/cuda/attention/sm90.h"

namespace tensor::cuda {
namespace {

constexpr int kMostTiles = 24;  // of queries, of a block

using Sm90Rule = std::optional<Sketch> (*)(const AttentionProblem&);

// All keys of a row fit the registers of those who multiply: keys and values are read once for as
// many tiles of queries as a block takes.
std::optional<Sketch> whole_rows(const AttentionProblem& p) {
  if (p.keys > kMostBlockKeys) return std::nullopt;
  const auto block = static_cast<int>(round_up(p.keys, kAttentionStep));
  std::vector<int> tiles;
  for (int i = 1; i <= std::max<std::int64_t>(ceil_div(p.queries, 64), 3) && i <= kMostTiles; ++i)
    tiles.push_back(i);
  return Sketch{"whole_rows",
                {{"groups", {1, 2, 3}},
                 {"tiles", tiles, true},
                 {"block", {block}, true},
                 {"stages", {1, 2, 3, 4}}}};
}

// Keys come in blocks, the sums of the results grow with them (online softmax).
std::optional<Sketch> online(const AttentionProblem& p) {
  if (p.keys <= kAttentionStep) return std::nullopt;
  return Sketch{"online",
                {{"groups", {1, 2, 3}},
                 {"block", key_blocks(p.keys, kMostBlockKeys), true},
                 {"stages", {1, 2, 3, 4, 5, 6}}}};
}

// Blocks of a cluster have some of the keys each and join their sums (Dao et al., Flash-Decoding,
// 2023): where there are few queries, all multiprocessors have something to do.
std::optional<Sketch> split_keys(const AttentionProblem& p) {
  if (p.keys <= 2 * kAttentionStep) return std::nullopt;
  return Sketch{"split_keys",
                {{"groups", {1}},
                 {"block", key_blocks(p.keys, kMostBlockKeys), true},
                 {"parts", {2, 3, 4, 5, 6, 7, 8}},
                 {"stages", {1, 2, 3, 4}}}};
}

constexpr Sm90Rule kSm90Rules[] = {whole_rows, online, split_keys};

Schedule named(const AttentionSchedule& s, const AttentionProblem& p) {
  if (s.parts > 1)
    return {"split_keys",
            {{"groups", s.groups}, {"block", s.block}, {"parts", s.parts}, {"stages", s.stages}}};
  if (s.block >= p.keys)
    return {"whole_rows",
            {{"groups", s.groups}, {"tiles", s.tiles}, {"block", s.block}, {"stages", s.stages}}};
  return {"online", {{"groups", s.groups}, {"block", s.block}, {"stages", s.stages}}};
}

// Of a kernel that there is: why nobody needs it.
std::string pointless(const AttentionSchedule& s, const AttentionProblem& p,
                      const Machine& machine) {
  const std::int64_t tiles = ceil_div(p.queries, 64), units = ceil_div(tiles, s.tiles);
  const std::int64_t blocks = ceil_div(ceil_div(p.keys, s.block), s.parts);
  if (s.groups > 1 && s.groups > tiles) return "more groups than tiles of queries";
  if (s.parts > 1) {  // a cluster has one piece of work
    const int resident = p.resident(s, machine.device);
    if (s.parts * units * p.batches > resident * machine.device.multiprocessors)
      return "more clusters than run at once";
    if (s.stages > blocks) return "more stages than blocks of keys";
  }
  if (s.tiles > s.groups && ceil_div(tiles, s.tiles - 1) == units)
    return "fewer tiles a block need as many blocks";
  // What one unit of work reads, and the next one's while that is worked on.
  if (s.stages > std::max<std::int64_t>(2 * blocks, 2)) return "more stages than blocks of keys";
  if (s.stages > 1 && blocks == 1 && units * p.batches <= machine.device.multiprocessors)
    return "more stages than blocks of keys";
  return {};
}

std::string fault_of(const AttentionSchedule& s, const AttentionProblem& p,
                     const Machine& machine) {
  const std::string fault = p.fault(s, machine.device.shared_block_bytes);
  return fault.empty() ? pointless(s, p, machine) : fault;
}

std::vector<float> sm90_features_of(const Schedule& schedule, const AttentionProblem& p,
                                    const Machine& machine) {
  const AttentionSchedule s = attention_schedule_of(schedule);
  Features f = features_of(p, machine);
  // Models that were trained before know nothing of clusters but the number of blocks and the time.
  f.sketch = s.parts > 1 ? "online" : schedule.sketch;
  f.tile_rows = 64. * s.tiles, f.tile_columns = s.block;
  f.tile_depth = static_cast<double>(round_up(p.depth, 64));
  f.groups = s.groups, f.row_blocks = static_cast<double>(s.tiles) / s.groups;
  f.stages = s.stages, f.threads = s.threads();
  f.registers = 0.5 * (s.block + static_cast<double>(s.block < p.keys ? p.features : 0));
  f.shared_bytes = static_cast<double>(p.shared_bytes(s));
  f.blocks = static_cast<double>(ceil_div(ceil_div(p.queries, 64), s.tiles) * p.batches * s.parts);
  f.resident = p.resident(s, machine.device);
  const auto width = static_cast<double>(p.depth + p.features);
  const double keys = static_cast<double>(round_up(p.keys, s.block)) / s.parts;
  f.cache_bytes = 2 * f.blocks * width * (keys + 64. * s.tiles);
  f.operand_bytes = 2 * f.blocks * s.tiles * width * (keys + 64);
  f.time = model_attention_sm90(p, s, machine);
  return f.values();
}

}  // namespace

AttentionSchedule attention_schedule_of(const Schedule& schedule) {
  AttentionSchedule s;
  s.groups = schedule.value("groups").value_or(1);
  s.tiles = schedule.value("tiles").value_or(s.groups);
  s.block = schedule.value("block").value_or(kAttentionStep);
  s.stages = schedule.value("stages").value_or(1);
  s.parts = schedule.value("parts").value_or(1);
  return s;
}

Space attention_sm90_space(const AttentionProblem& p, const Machine& machine) {
  Space space;
  for (const Sm90Rule rule : kSm90Rules)
    if (auto sketch = rule(p)) space.sketches.push_back(std::move(*sketch));
  space.fault = [=](const Schedule& s) { return fault_of(attention_schedule_of(s), p, machine); };
  space.impossible = [=](const Schedule& schedule) -> std::string {
    const AttentionSchedule s = attention_schedule_of(schedule);
    if (s.tiles > kMostTiles) return "at most " + std::to_string(kMostTiles) + " tiles a block";
    return p.fault(s, machine.device.shared_block_bytes);
  };
  space.model_us = [=](const Schedule& s) {
    return model_attention_sm90(p, attention_schedule_of(s), machine).total;
  };
  space.features = [=](const Schedule& s) { return sm90_features_of(s, p, machine); };
  space.choose(named(attention_sm90_schedules(p, machine).front(), p));
  return space;
}

}  // namespace tensor::cuda
