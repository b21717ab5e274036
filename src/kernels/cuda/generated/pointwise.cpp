// The pointwise family: any group of elementwise operators, of any strides.
#include "src/kernels/cuda/families.h"
#include "src/kernels/cuda/generated/pack_kernel.h"

namespace tensor::cuda {
namespace {

std::optional<double> estimate(const Graph& graph, const Group& group, const Machine& machine) {
  return estimate_packs({}, graph, group, machine);
}

Lowered lower(const LaidOutGraph& laid, const Group& group, const Machine& machine) {
  return lower_packs({}, "pointwise", laid, group, machine);
}

}  // namespace

const Family kPointwise = {"pointwise", estimate, lower};

}  // namespace tensor::cuda
