// What may be tried for attention with mma.sync: the scores of a row all in registers or block by
// block, as on Hopper (attention_sm90_space.cpp), by warps that need not wait for each other.
#include <algorithm>

#include "src/core/rounding.h"
#include "src/kernels/cuda/attention/mma.h"

namespace tensor::cuda {
namespace {

constexpr int kMostOfSeveral = 128;  // keys of a block, where a row has several

const std::vector<int> kWarps = {1, 2, 3, 4, 6, 8}, kSlabs = {1, 2};

using MmaRule = std::optional<Sketch> (*)(std::int64_t keys, int most, const Machine&);

// All keys of a row fit the registers of a warp.
std::optional<Sketch> whole_rows(std::int64_t keys, int, const Machine&) {
  if (keys > kMostBlockKeys) return std::nullopt;
  const auto block = static_cast<int>(round_up(keys, kAttentionStep));
  return Sketch{"whole_rows_mma",
                {{"warps", kWarps}, {"slabs", kSlabs}, {"block", {block}, true}, {"stages", {1}}}};
}

// Keys come in blocks: the sums of the results grow with them (online softmax), or they come again
// when maximum and sum of the rows are known.
std::optional<Sketch> online(std::int64_t keys, int most, const Machine& machine) {
  const std::vector<int> blocks = key_blocks(keys, most);
  if (blocks.empty()) return std::nullopt;
  const bool is_async = machine.copies_async;
  return Sketch{"online_mma",
                {{"warps", kWarps},
                 {"slabs", kSlabs},
                 {"block", blocks, true},
                 {"stages", is_async ? std::vector<int>{2, 3, 4} : std::vector<int>{1}}}};
}

constexpr MmaRule kMmaRules[] = {whole_rows, online};

std::string fault_of(const AttentionMmaSchedule& s, const AttentionProblem& p,
                     const Machine& machine) {
  if (std::string fault = p.fault(s, machine); !fault.empty()) return fault;
  if (s.warps * s.slabs > ceil_div(p.queries, kAttentionStep))
    return "more warps than queries for them";
  if (s.stages > std::max<std::int64_t>(ceil_div(p.keys, s.block), 2))
    return "more stages than blocks of keys";
  return {};
}

std::vector<float> mma_features_of(const Schedule& schedule, const AttentionProblem& p,
                                   const Machine& machine) {
  const AttentionMmaSchedule s = attention_mma_schedule_of(schedule);
  Features f = features_of(p, machine);
  f.sketch = schedule.sketch;
  f.tile_rows = s.queries(), f.tile_columns = s.block;
  f.tile_depth = static_cast<double>(round_up(p.depth, kAttentionStep));
  f.groups = s.warps, f.row_blocks = s.slabs, f.stages = s.stages, f.threads = s.threads();
  const auto sums = static_cast<double>(s.block < p.keys ? p.features : 0);
  f.registers = 0.5 * s.slabs * (s.block + sums);
  f.shared_bytes = static_cast<double>(p.shared_bytes(s));
  f.blocks = static_cast<double>(ceil_div(p.queries, s.queries()) * p.batches);
  f.resident = resident_blocks(p, s, machine);
  const auto width = static_cast<double>(p.depth + p.features);
  const auto keys = static_cast<double>(round_up(p.keys, s.block));
  f.cache_bytes = 2 * f.blocks * width * (keys + s.queries());
  f.operand_bytes =
      2 * f.blocks * s.warps * width * (keys + kAttentionStep * s.slabs);  // by each warp
  f.time = model_attention_mma(p, s, machine);
  return f.values();
}

}  // namespace

std::vector<Sketch> attention_mma_sketches(std::int64_t keys, int most, const Machine& machine) {
  std::vector<Sketch> sketches;
  for (const MmaRule rule : kMmaRules)
    if (auto sketch = rule(keys, most, machine)) sketches.push_back(std::move(*sketch));
  return sketches;
}

Schedule named(const AttentionMmaSchedule& s, std::int64_t keys) {
  return {s.block >= keys ? "whole_rows_mma" : "online_mma",
          {{"warps", s.warps}, {"slabs", s.slabs}, {"block", s.block}, {"stages", s.stages}}};
}

AttentionMmaSchedule attention_mma_schedule_of(const Schedule& schedule) {
  const auto number = [&](std::string_view name) { return schedule.value(name).value_or(1); };
  return {number("warps"), number("slabs"), schedule.value("block").value_or(kAttentionStep),
          number("stages")};
}

Space attention_mma_space(const AttentionProblem& p, const Machine& machine) {
  Space space;
  space.sketches = attention_mma_sketches(p.keys, kMostOfSeveral, machine);
  // What level 0 takes is always there, as blocks of more queries than there are.
  const Schedule level0 = named(attention_mma_schedules(p, machine).front(), p.keys);
  space.fault = [=](const Schedule& s) {
    return s == level0 ? std::string() : fault_of(attention_mma_schedule_of(s), p, machine);
  };
  space.model_us = [=](const Schedule& s) {
    return model_attention_mma(p, attention_mma_schedule_of(s), machine).total;
  };
  space.features = [=](const Schedule& s) { return mma_features_of(s, p, machine); };
  space.choose(level0);
  return space;
}

}  // namespace tensor::cuda
