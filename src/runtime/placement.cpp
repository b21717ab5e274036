#include "src/runtime/placement.h"

#include <map>

namespace tensor::detail {
namespace {

class Placer {
 public:
  Placer(const LaidOutGraph& laid, const FusionPlan& plan, bool any_order)
      : graph_(laid.graph),
        laid_(laid),
        plan_(plan),
        any_order_(any_order),
        wires_(wiring(laid.graph)) {
    homes_.resize(at(graph_.size()));
    in_output_.resize(at(graph_.size()), false);
  }

  Placement run() {
    place_sources();
    place_outputs();
    place_in_arena();
    for (ValueId id = 0; id < graph_.size(); ++id) {
      Location location = homes_[at(wires_.root[at(id)])];
      location.offset += laid_.layouts[at(id)].offset * item_size(graph_.type(id).dtype);
      result_.locations.push_back(location);
    }
    return std::move(result_);
  }

 private:
  void place_sources() {
    for (std::size_t i = 0; i < graph_.inputs().size(); ++i)
      homes_[at(graph_.inputs()[i])] = {Place::input, i, 0};
    for (ValueId id = 0; id < graph_.size(); ++id) {
      if (!graph_.is_constant(id)) continue;
      homes_[at(id)] = {Place::constant, result_.constants.size(), 0};
      result_.constants.push_back(id);
    }
  }

  void place_outputs() {
    for (std::size_t i = 0; i < graph_.outputs().size(); ++i) {
      const ValueId id = graph_.outputs()[i];
      const Layout& layout = laid_.layouts[at(id)];
      if (is_compute(graph_, id) && !in_output_[at(id)] &&
          (any_order_ || layout.strides == row_major(layout.shape))) {
        homes_[at(id)] = {Place::output, i, 0};
        in_output_[at(id)] = true;
      } else {
        result_.copied_outputs.push_back(i);
      }
    }
  }

  void place_in_arena() {
    const int end = static_cast<int>(plan_.groups.size());
    std::map<ValueId, Lifetime> alive;
    for (int step = 0; step < end; ++step) {
      const Group& group = plan_.groups[static_cast<std::size_t>(step)];
      for (const ValueId id : group.writes)
        if (!in_output_[at(id)])
          alive[id] = {num_elements(graph_.type(id).shape) * item_size(graph_.type(id).dtype), step,
                       step};
      for (const ValueId id : group.reads)
        if (const auto value = alive.find(wires_.root[at(id)]); value != alive.end())
          value->second.last = step;
    }
    for (const ValueId id : graph_.outputs())
      if (const auto value = alive.find(wires_.root[at(id)]); value != alive.end())
        value->second.last = end;
    std::vector<Lifetime> blocks;
    for (const auto& [id, lifetime] : alive) blocks.push_back(lifetime);
    result_.memory = plan_memory(blocks);
    std::size_t block = 0;
    for (const auto& [id, lifetime] : alive)
      homes_[at(id)] = {Place::arena, 0, result_.memory.offsets[block++]};
  }

  const Graph& graph_;
  const LaidOutGraph& laid_;
  const FusionPlan& plan_;
  const bool any_order_;
  Wiring wires_;
  std::vector<Location> homes_;  // of every root
  std::vector<bool> in_output_;
  Placement result_;
};

}  // namespace

Placement place_values(const LaidOutGraph& laid, const FusionPlan& plan, bool any_order) {
  return Placer(laid, plan, any_order).run();
}

}  // namespace tensor::detail
