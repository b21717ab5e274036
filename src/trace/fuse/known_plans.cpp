#include "src/trace/fuse/known_plans.h"

#include <algorithm>
#include <utility>

#include "src/core/key.h"
#include "src/trace/fuse/group_costs.h"

namespace tensor {
namespace {

// Of an axis: one element, one for all indices, or the place of its stride among the others.
void add_axes(Key& key, const Layout& layout) {
  key << layout.shape.rank();
  for (int axis = 0; axis < layout.shape.rank(); ++axis) {
    const std::int64_t stride = layout.strides[axis];
    key << (layout.shape[axis] == 1) << (stride == 0);
    if (layout.shape[axis] != 1 && stride != 0)
      key << std::count_if(layout.strides.begin(), layout.strides.end(),
                           [&](std::int64_t other) { return other < stride; });
  }
}

// Lists are extents, or numbers of every axis of space, which go with them.
void add_attrs(Key& key, const Attrs& attrs) {
  key << attrs.entries().size();
  for (const auto& [name, value] : attrs.entries()) {
    key << name << value.get().index();
    if (!std::holds_alternative<Ints>(value.get())) key << value;
  }
}

// At least 1.
double elements_of(const LaidOutGraph& laid) {
  double elements = 1;
  for (const Node& node : laid.graph.nodes())
    if (node.kind == NodeKind::operation)
      elements += static_cast<double>(num_elements(node.type.shape));
  return elements;
}

bool agree(const FusionPlan& a, const FusionPlan& b) {
  return std::equal(a.groups.begin(), a.groups.end(), b.groups.begin(), b.groups.end(),
                    [](const Group& x, const Group& y) { return x.nodes == y.nodes; });
}

}  // namespace

std::string outline_of(const LaidOutGraph& laid) {
  Key key;
  key << laid.graph.size();
  for (ValueId id = 0; id < laid.graph.size(); ++id) {
    const Node& node = laid.graph[id];
    key << node.kind << node.type.dtype;
    add_axes(key, laid.layouts[at(id)]);
    if (node.kind != NodeKind::operation) continue;
    key << node.op << node.inputs.size();
    for (const ValueId input : node.inputs) key << input;
    if (info(node.op).pattern != Pattern::view) add_attrs(key, node.attrs);
  }
  for (const ValueId id : laid.graph.outputs()) key << id;
  return key.take();
}

std::optional<LikeFusion> fuse_like(const std::vector<FusionPlan>& known, const Fusible& fusible,
                                    const CostFn& cost) {
  const Wiring wires = wiring(fusible.laid.graph);
  fusion::GroupCosts costs(fusible.laid, cost);
  const auto like = [&](const FusionPlan& plan) -> std::optional<LikeFusion> {
    LikeFusion result;
    for (const Group& group : plan.groups) {
      Group same = make_group(fusible.laid.graph, wires, group.nodes);
      const ParallelRun run = run_of(fusible.laid.graph, same);
      const GroupCost& price = run.empty() ? costs.of(same) : costs.of(same, run);
      if (price.family < 0) return std::nullopt;
      result.plan.groups.push_back(fusion::costed(std::move(same), price));
      result.plan.microseconds += price.microseconds;
      if (price.is_measured) result.measured += price.microseconds;
    }
    return result;
  };
  std::optional<LikeFusion> best;
  for (const FusionPlan& plan : known)
    if (auto one = like(plan); one && (!best || one->plan.microseconds < best->plan.microseconds))
      best = std::move(one);
  return best;
}

std::vector<FusionPlan> KnownPlans::near(const LaidOutGraph& laid,
                                         const std::string& device) const {
  const std::string outline = outline_of(laid);
  const double elements = elements_of(laid);
  const Known *below = nullptr, *above = nullptr;
  std::vector<FusionPlan> all;
  const std::lock_guard lock(mutex_);
  for (const Known& known : known_) {
    if (known.device != device || known.outline != outline) continue;
    all.push_back(known.plan);
    if (known.elements <= elements && (!below || known.elements > below->elements)) below = &known;
    if (known.elements >= elements && (!above || known.elements < above->elements)) above = &known;
  }
  if (below && above && agree(below->plan, above->plan)) return {below->plan};
  const double up = above ? above->elements / elements : kNear,
               down = below ? elements / below->elements : kNear;
  if (std::min(up, down) < kNear) return {(up < down ? above : below)->plan};
  return all.size() < kSeveral ? std::vector<FusionPlan>() : all;
}

std::optional<LikeFusion> KnownPlans::fused(const Fusible& fusible, const std::string& device,
                                            const CostFn& cost) const {
  return fuse_like(near(fusible.laid, device), fusible, cost);
}

void KnownPlans::remember(const Fusible& fusible, const std::string& device,
                          const FusionPlan& plan) {
  Known known{device, outline_of(fusible.laid), elements_of(fusible.laid), plan};
  const std::lock_guard lock(mutex_);
  known_.push_front(std::move(known));
  if (known_.size() > kMost) known_.pop_back();
}

}  // namespace tensor
