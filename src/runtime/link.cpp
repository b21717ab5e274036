// link: from a fusion plan to a program. Decides where every value lives and builds the kernels.
#include <algorithm>
#include <map>

#include "src/kernels/cpu/copy.h"
#include "src/runtime/program.h"

namespace tensor::detail {
namespace {

std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }

class Linker {
 public:
  Linker(LaidOutGraph laid, FusionPlan plan, const cpu::Machine& machine)
      : program_(std::make_shared<Program>()) {
    program_->laid = std::move(laid);
    program_->plan = std::move(plan);
    program_->machine = machine;
    wires_ = wiring(graph());
    homes_.resize(at(graph().size()));
  }

  std::shared_ptr<const Program> run() {
    place_sources();
    place_outputs();
    place_in_arena();
    for (std::size_t g = 0; g < program_->plan.groups.size(); ++g) add_group(static_cast<int>(g));
    for (std::size_t i = 0; i < graph().outputs().size(); ++i) copy_output(i);
    return program_;
  }

 private:
  const Graph& graph() const { return program_->laid.graph; }
  const Layout& layout(ValueId id) const { return program_->laid.layouts[at(id)]; }

  void place_sources() {
    for (std::size_t i = 0; i < graph().inputs().size(); ++i) {
      homes_[at(graph().inputs()[i])] = {Place::input, i, 0};
      program_->inputs.push_back(graph().type(graph().inputs()[i]));
    }
    for (ValueId id = 0; id < graph().size(); ++id) {
      if (!graph().is_constant(id)) continue;
      homes_[at(id)] = {Place::constant, program_->constants.size(), 0};
      program_->constants.push_back(stored(graph()[id].constant).first());
    }
  }

  // An output that a kernel can write as the caller wants it needs no place in the arena.
  void place_outputs() {
    in_output_.resize(at(graph().size()), false);
    for (std::size_t i = 0; i < graph().outputs().size(); ++i) {
      const ValueId id = graph().outputs()[i];
      program_->outputs.push_back(graph().type(id));
      if (!is_compute(graph(), id) || in_output_[at(id)] ||
          !(layout(id).strides == row_major(layout(id).shape)))
        continue;
      homes_[at(id)] = {Place::output, i, 0};
      in_output_[at(id)] = true;
    }
  }

  void place_in_arena() {
    const auto& groups = program_->plan.groups;
    std::map<ValueId, Lifetime> alive;
    for (int step = 0; step < static_cast<int>(groups.size()); ++step) {
      const Group& group = groups[static_cast<std::size_t>(step)];
      for (const ValueId id : group.writes)
        if (!in_output_[at(id)])
          alive[id] = {num_elements(graph().type(id).shape) * item_size(graph().type(id).dtype),
                       step, step};
      for (const ValueId id : group.reads)
        if (const auto value = alive.find(wires_.root[at(id)]); value != alive.end())
          value->second.last = step;
    }
    for (const ValueId id : graph().outputs())
      if (const auto value = alive.find(wires_.root[at(id)]); value != alive.end())
        value->second.last = static_cast<int>(groups.size());
    std::vector<Lifetime> blocks;
    for (const auto& [id, lifetime] : alive) blocks.push_back(lifetime);
    program_->memory = plan_memory(blocks);
    std::size_t block = 0;
    for (const auto& [id, lifetime] : alive)
      homes_[at(id)] = {Place::arena, 0, program_->memory.offsets[block++]};
  }

  Location location(ValueId id) const {
    Location result = homes_[at(wires_.root[at(id)])];
    result.offset += layout(id).offset * item_size(graph().type(id).dtype);
    return result;
  }

  void add_group(int index) {
    const Group& group = program_->plan.groups[static_cast<std::size_t>(index)];
    Step step;
    step.kernel = cpu::cpu_families()[static_cast<std::size_t>(group.family)].build(
        program_->laid, group, program_->machine);
    for (const ValueId id : group.reads) step.operands.push_back(location(id));
    for (const ValueId id : group.writes) step.operands.push_back(location(id));
    step.group = index;
    program_->scratch_bytes =
        std::max(program_->scratch_bytes, static_cast<std::int64_t>(step.kernel->scratch_bytes()));
    program_->steps.push_back(std::move(step));
  }

  // An output that is a view, an input or a constant goes to the caller's memory at the end.
  void copy_output(std::size_t index) {
    const ValueId id = graph().outputs()[index];
    const Location home = homes_[at(id)];
    if (home.place == Place::output && home.index == index) return;
    Step step;
    step.kernel = cpu::copy_kernel(layout(id), graph().type(id).dtype, program_->machine.threads);
    step.operands = {location(id), {Place::output, index, 0}};
    program_->steps.push_back(std::move(step));
  }

  std::shared_ptr<Program> program_;
  Wiring wires_;
  std::vector<Location> homes_;  // of every root
  std::vector<bool> in_output_;
};

}  // namespace

std::shared_ptr<const Program> link(LaidOutGraph laid, FusionPlan plan,
                                    const cpu::Machine& machine) {
  return Linker(std::move(laid), std::move(plan), machine).run();
}

}  // namespace tensor::detail
