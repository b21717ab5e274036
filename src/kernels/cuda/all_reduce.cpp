// Sums over the devices that divide products: NCCL's kernels, of which there is no text here.
#include "src/kernels/cuda/families.h"

namespace tensor::cuda {
namespace {

// Between two GPUs by NVLink; slower ones change nothing, since there is no other way.
constexpr double kStartUs = 10, kGbps = 150;

// Whether the elements of both lie in one order without gaps, wherever they begin.
bool lie_alike(const Layout& a, const Layout& b) {
  std::int64_t reach = 1;
  for (int axis = 0; axis < a.shape.rank(); ++axis) {
    if (a.shape[axis] > 1 && a.strides[axis] != b.strides[axis]) return false;
    reach += (a.shape[axis] - 1) * a.strides[axis];
  }
  return reach == num_elements(a.shape);
}

std::optional<Implementation> consider_all_reduce(const Isolated& alone, const Machine&) {
  const Graph& graph = alone.laid.graph;
  const Group& group = alone.group;
  if (group.nodes.size() != 1 || !graph.is_op(group.nodes[0], Op::all_reduce)) return std::nullopt;
  const ValueId from = group.reads[0], to = group.nodes[0];
  const auto layout = [&](ValueId id) -> const Layout& { return alone.laid.layouts[at(id)]; };
  if (!lie_alike(layout(from), layout(to))) return std::nullopt;
  Lowered lowered;
  lowered.all_reduced = num_elements(layout(to).shape);
  lowered.description = "nccl_all_reduce_" + std::string(name(graph.type(to).dtype));
  const double bytes = work_of(graph, group).bytes / 2;
  return Implementation{kStartUs + bytes / kGbps / 1e3, [=](const Isolated&) { return lowered; }};
}

}  // namespace

const Family kAllReduce = {"all_reduce", consider_all_reduce};

}  // namespace tensor::cuda
