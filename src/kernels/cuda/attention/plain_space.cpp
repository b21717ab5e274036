// What may be tried for attention in float32.
#include <algorithm>

#include "src/core/rounding.h"
#include "src/kernels/cuda/attention/plain.h"

namespace tensor::cuda {
namespace {

// Warps have some queries each, and slices of them a part of every block of keys.
Sketch plain_rows(const Machine& machine) {
  return {"plain_rows",
          {{"rows", {4, 8, 16, 20, 24, 32}},
           {"warps", {1, 2, 4}},
           {"slices", {1, 2, 3, 4, 5, 6, 7, 8}},
           {"keys", {16, 24, 32, 40, 48, 56, 64}},
           {"stages", machine.copies_async ? std::vector<int>{1, 2, 3} : std::vector<int>{1}}}};
}

Schedule named(const AttentionPlainSchedule& s) {
  return {"plain_rows",
          {{"rows", s.rows},
           {"warps", s.warps},
           {"slices", s.slices},
           {"keys", s.keys},
           {"stages", s.stages}}};
}

std::string fault_of(const AttentionPlainSchedule& s, const AttentionProblem& p,
                     const Machine& machine) {
  if (std::string fault = p.fault(s, machine); !fault.empty()) return fault;
  if (s.rows * (s.warps - 1) >= p.queries) return "more warps than queries for them";
  if (s.rows >= 2 * round_up(p.queries, std::int64_t{4})) return "more rows than queries";
  if (s.keys * (s.slices - 1) >= p.keys) return "more slices than keys for them";
  if (s.keys >= 2 * round_up(p.keys, std::int64_t{8})) return "more keys than there are";
  if (s.stages > std::max<std::int64_t>(ceil_div(p.keys, s.block()), 2))
    return "more stages than blocks of keys";
  return {};
}

std::vector<float> plain_features_of(const Schedule& schedule, const AttentionProblem& p,
                                     const Machine& machine) {
  const AttentionPlainSchedule s = attention_plain_schedule_of(schedule);
  Features f = features_of(p, machine);
  // To cost models it is what multiplies as products in float32 do; it has a second product.
  f.sketch = "plain_tiles";
  f.tile_rows = s.queries(), f.tile_columns = s.block();
  f.tile_depth = static_cast<double>(p.depth);
  f.splits = s.slices, f.groups = s.warps, f.row_blocks = s.rows / 4.0;
  f.stages = s.stages, f.threads = s.threads();
  f.registers = attention_plain_registers(p, s);
  f.shared_bytes = static_cast<double>(p.shared_bytes(s));
  f.blocks = static_cast<double>(ceil_div(p.queries, s.queries()) * p.batches);
  f.resident = static_cast<double>(resident_blocks(p, s, machine));
  const auto width = static_cast<double>(p.depth + p.features);
  const auto keys = static_cast<double>(round_up(p.keys, std::int64_t{s.block()}));
  f.cache_bytes = p.item_bytes * f.blocks * width * (keys + s.queries());
  f.operand_bytes = p.item_bytes * f.blocks * keys * s.warps *
                    (static_cast<double>(p.depth) * s.rows / s.keys + width + s.rows);
  f.time = model_attention_plain(p, s, machine);
  return f.values();
}

}  // namespace

AttentionPlainSchedule attention_plain_schedule_of(const Schedule& schedule) {
  const auto number = [&](std::string_view name, int otherwise) {
    return schedule.value(name).value_or(otherwise);
  };
  return {number("rows", 4), number("warps", 1), number("slices", 1), number("keys", 16),
          number("stages", 1)};
}

Space attention_plain_space(const AttentionProblem& p, const Machine& machine) {
  Space space;
  space.sketches = {plain_rows(machine)};
  // What level 0 takes is always there, as blocks of more queries than there are.
  const Schedule level0 = named(attention_plain_schedules(p, machine).front());
  space.fault = [=](const Schedule& s) {
    return s == level0 ? std::string() : fault_of(attention_plain_schedule_of(s), p, machine);
  };
  space.model_us = [=](const Schedule& s) {
    return model_attention_plain(p, attention_plain_schedule_of(s), machine).total;
  };
  space.features = [=](const Schedule& s) { return plain_features_of(s, p, machine); };
  space.choose(level0);
  return space;
}

}  // namespace tensor::cuda
