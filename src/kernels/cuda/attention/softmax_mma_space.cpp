// What may be tried for attention's weights (GTCO, section IV-D: the first half of SSSR-RSRS): the
// scores of a row all in registers, or in blocks that are multiplied twice.
#include <algorithm>

#include "src/core/rounding.h"
#include "src/kernels/cuda/attention/softmax_mma.h"

namespace tensor::cuda {
namespace {

std::string fault_of(const SoftmaxSchedule& s, const SoftmaxProblem& p, const Machine& machine) {
  if (std::string fault = p.fault(s, machine); !fault.empty()) return fault;
  if (s.warps * s.slabs > ceil_div(p.queries, kAttentionStep))
    return "more warps than queries for them";
  return {};
}

std::vector<float> features_of(const Schedule& schedule, const SoftmaxProblem& p,
                               const Machine& machine) {
  const SoftmaxSchedule s = attention_mma_schedule_of(schedule);
  Features f;
  f.batches = static_cast<double>(p.batches), f.rows = static_cast<double>(p.queries);
  f.columns = static_cast<double>(p.keys), f.depth = static_cast<double>(p.depth);
  f.item_bytes = 2;
  f.operations = p.before.operations + p.after.operations;
  f.read_bytes = p.before.read_bytes + p.after.read_bytes;
  f.written_bytes = p.after.written_bytes;
  f.flops = 2 * f.batches * f.rows * f.columns * f.depth * p.passes(s);
  f.memory_bytes = f.batches * (f.item_bytes * (f.rows + f.columns) * f.depth +
                                f.rows * f.columns * (f.read_bytes + f.written_bytes));
  set_machine(f, machine);
  f.sketch = schedule.sketch;
  f.tile_rows = s.queries(), f.tile_columns = s.block;
  f.tile_depth = static_cast<double>(round_up(p.depth, kAttentionStep));
  f.groups = s.warps, f.row_blocks = s.slabs, f.stages = s.stages, f.threads = s.threads();
  f.registers = 0.5 * s.slabs * s.block;
  f.shared_bytes = static_cast<double>(p.shared_bytes(s));
  f.blocks = static_cast<double>(ceil_div(p.queries, s.queries()) * p.batches);
  f.resident = resident_blocks(p, s, machine);
  const double keys = p.passes(s) * static_cast<double>(round_up(p.keys, s.block));
  f.cache_bytes = 2 * f.blocks * f.depth * (keys + s.queries());
  f.operand_bytes =
      2 * f.blocks * s.warps * f.depth * (keys + kAttentionStep * s.slabs);  // by each warp
  f.time = model_softmax_mma(p, s, machine);
  return f.values();
}

}  // namespace

Space softmax_mma_space(const SoftmaxProblem& p, const Machine& machine) {
  Space space;
  // Those of attention, whose names the features know: blocks of keys are multiplied twice here.
  space.sketches = attention_mma_sketches(p.keys, kMostBlockKeys, machine);
  // What level 0 takes is always there, as blocks of more queries than there are.
  const Schedule level0 = named(softmax_mma_schedules(p, machine).front(), p.keys);
  space.fault = [=](const Schedule& s) {
    return s == level0 ? std::string() : fault_of(attention_mma_schedule_of(s), p, machine);
  };
  space.model_us = [=](const Schedule& s) {
    return model_softmax_mma(p, attention_mma_schedule_of(s), machine).total;
  };
  space.features = [=](const Schedule& s) { return features_of(s, p, machine); };
  space.choose(level0);
  return space;
}

}  // namespace tensor::cuda
