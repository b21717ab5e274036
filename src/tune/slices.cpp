#include "src/tune/slices.h"

#include <algorithm>
#include <set>

#include "src/kernels/work.h"
#include "src/tune/random.h"
#include "tensor/error.h"
#include "tensor/tensor.h"

namespace tensor {
namespace {

constexpr std::uint64_t kSliceSeed = 20232;
constexpr std::size_t kFewestSlices = 3;  // the first, the last, and one between

double effort(const Isolated& problem) {
  constexpr double kFlops = 256;  // of a product, in the time of an element
  const Graph& graph = problem.laid.graph;
  double elements = 0;
  for (ValueId id = 0; id < graph.size(); ++id)
    elements += static_cast<double>(num_elements(graph.type(id).shape));
  return elements + work_of(graph, problem.group).flops / kFlops;
}

// Whether an operator that keeps the first axis may yet look along it.
bool works_along_first_axis(const Attrs& attrs) {
  if (!attrs.has("axis")) return false;
  const Ints axes = attrs.ints("axis");
  return std::count(axes.begin(), axes.end(), 0) > 0;
}

}  // namespace

Slices::Slices(std::int64_t extent, std::size_t count) : extent_(extent) {
  std::set<std::int64_t> chosen = {0, extent - 1};
  Random random(kSliceSeed);
  while (chosen.size() < count)
    chosen.insert(static_cast<std::int64_t>(random.below(static_cast<std::size_t>(extent))));
  indices_.assign(chosen.begin(), chosen.end());
}

std::optional<Slices> Slices::of(const Isolated& problem, double most_effort) {
  const Shape& shape = problem.laid.graph.type(problem.group.writes.front()).shape;
  if (shape.empty()) return std::nullopt;
  const double share = most_effort / effort(problem);
  const auto wanted = static_cast<std::size_t>(share * static_cast<double>(shape[0]));
  const std::size_t count = std::max(wanted, kFewestSlices);
  // Most of them would be as good as all.
  if (share >= 1 || 2 * count > static_cast<std::size_t>(shape[0])) return std::nullopt;
  Slices slices(shape[0], count);
  if (!slices.fit(problem)) return std::nullopt;
  return slices;
}

// Looks for the values with a slice an index. There are such if every operator makes of slices what
// it makes of the whole, but for their number: the axis stays the first one, and none works along
// it. Any other use of the axis changes a type.
bool Slices::fit(const Isolated& problem) {
  const Graph& graph = problem.laid.graph;
  const auto count = static_cast<std::int64_t>(indices_.size());
  std::vector<TensorType> types;
  for (ValueId id = 0; id < graph.size(); ++id) {
    const Node& node = graph[id];
    TensorType type = node.type;
    const bool has_extent = !type.shape.empty() && type.shape[0] == extent_;
    bool varies = node.kind == NodeKind::input && has_extent;
    for (const ValueId input : node.inputs) varies |= varies_[at(input)];
    varies_.push_back(varies);
    if (varies) {
      if (!has_extent) return false;
      type.shape[0] = count;
    }
    types.push_back(type);
    if (!varies || node.kind == NodeKind::input) continue;
    if (works_along_first_axis(node.attrs)) return false;
    std::vector<TensorType> inputs;
    for (const ValueId input : node.inputs) inputs.push_back(types[at(input)]);
    try {
      if (infer(node.op, inputs, attrs(id, node.attrs)) != type) return false;
    } catch (const UserError&) {
      return false;
    }
  }
  return std::all_of(problem.group.writes.begin(), problem.group.writes.end(),
                     [&](ValueId id) { return varies_[at(id)]; });
}

Tensor Slices::taken(ValueId id, const Tensor& value) const {
  if (!varies_[at(id)]) return value;
  return take(value, array(std::span(indices_)), 0);
}

Attrs Slices::attrs(ValueId id, const Attrs& attrs) const {
  Attrs result = attrs;
  if (!varies_[at(id)]) return result;
  for (const char* name : {"shape", "extent"}) {
    if (!attrs.has(name)) continue;
    Ints shape = attrs.ints(name);
    if (!shape.empty() && shape[0] == extent_) shape[0] = std::ssize(indices_);
    result.set(name, shape);
  }
  return result;
}

}  // namespace tensor
