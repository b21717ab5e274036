#include "src/kernels/family.h"

#include <locale>
#include <sstream>

namespace tensor {
namespace {

// Single numbers become part of kernels' text, and indices are checked before a kernel takes them.
bool values_count(const Tensor& constant) {
  return constant.size() == 1 || !is_floating(constant.dtype());
}

void write(std::ostringstream& key, const Isolated& alone, ValueId id) {
  const Node& node = alone.laid.graph[id];
  const Layout& layout = alone.laid.layouts[at(id)];
  key << static_cast<int>(node.kind) << node.type << layout.strides << layout.offset;
  if (node.kind == NodeKind::operation) {
    key << static_cast<int>(node.op) << '(' << node.attrs << ')';
    for (const ValueId input : node.inputs) key << '%' << input;
  }
  if (node.kind == NodeKind::constant && values_count(node.constant))
    for (const double value : node.constant.to_vector<double>()) key << ' ' << value;
  key << ';';
}

}  // namespace

const Space* Offer::space() const {
  if (!lazy) return nullptr;
  std::call_once(lazy->made, [&] { lazy->space = lazy->make(); });
  return &*lazy->space;
}

std::string problem_key(const Isolated& alone) {
  std::ostringstream key;
  key.imbue(std::locale::classic());
  key << std::hexfloat;  // no two numbers share a text
  for (ValueId id = 0; id < alone.laid.graph.size(); ++id) write(key, alone, id);
  for (const auto* values : {&alone.group.nodes, &alone.group.reads, &alone.group.writes}) {
    for (const ValueId id : *values) key << '%' << id;
    key << ';';
  }
  return key.str();
}

GroupCost Offers::cost(const LaidOutGraph& laid, const Group& group) {
  GroupCost best;
  for (const Offer& offer : of(isolate(laid, group)))
    if (offer.microseconds < best.microseconds) best = {offer.family, offer.microseconds};
  return best;
}

FusionPlan scheduled(const LaidOutGraph& laid, FusionPlan plan, Offers& offers) {
  for (Group& group : plan.groups)
    for (const Offer& offer : offers.of(isolate(laid, group)))
      if (const Space* space = offer.family == group.family ? offer.space() : nullptr)
        group.schedule = space->of(group.schedule).text();
  return plan;
}

}  // namespace tensor
