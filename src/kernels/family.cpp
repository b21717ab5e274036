#include "src/kernels/family.h"

#include <algorithm>

#include "src/core/key.h"

namespace tensor {
namespace {

void write(Key& key, const Isolated& alone, ValueId id) {
  const Node& node = alone.laid.graph[id];
  const Layout& layout = alone.laid.layouts[at(id)];
  key << node.kind << node.type << layout.strides << layout.offset;
  if (node.kind == NodeKind::operation) {
    key << node.op << node.attrs << node.inputs.size();
    for (const ValueId input : node.inputs) key << input;
  }
  if (node.kind == NodeKind::constant) add_seen_values(key, node.constant);
}

}  // namespace

const Space* Offer::space() const {
  if (!lazy) return nullptr;
  std::call_once(lazy->made, [&] { lazy->space = lazy->make(); });
  return &*lazy->space;
}

std::string problem_key(const Isolated& alone) {
  Key key;
  key << alone.laid.graph.size();
  for (ValueId id = 0; id < alone.laid.graph.size(); ++id) write(key, alone, id);
  for (const auto* values : {&alone.group.nodes, &alone.group.reads, &alone.group.writes}) {
    key << values->size();
    for (const ValueId id : *values) key << id;
  }
  return key.take();
}

const Offer* cheapest(std::span<const Offer> offers) {
  const auto best = std::min_element(
      offers.begin(), offers.end(),
      [](const Offer& a, const Offer& b) { return a.microseconds < b.microseconds; });
  return best == offers.end() ? nullptr : &*best;
}

GroupCost Offers::cost(const LaidOutGraph& laid, const Group& group) {
  const std::vector<Offer> offers = of(isolate(laid, group));
  const Offer* best = cheapest(offers);
  return best ? GroupCost{best->family, best->microseconds} : GroupCost();
}

CostFn cost_of(std::shared_ptr<Offers> offers) {
  return [offers = std::move(offers)](const LaidOutGraph& laid, const Group& group) {
    return offers->cost(laid, group);
  };
}

FusionPlan scheduled(const LaidOutGraph& laid, FusionPlan plan, Offers& offers) {
  for (Group& group : plan.groups)
    for (const Offer& offer : offers.of(isolate(laid, group)))
      if (const Space* space = offer.family == group.family ? offer.space() : nullptr)
        group.schedule = space->of(group.schedule).text();
  return plan;
}

}  // namespace tensor
