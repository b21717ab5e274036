// The pointwise family: any group of elementwise operators, of any strides.
#include "src/kernels/cuda/families.h"
#include "src/kernels/cuda/generated/pack_kernel.h"

namespace tensor::cuda {
namespace {

std::optional<Implementation> consider_pointwise(const Isolated& alone, const Machine& machine) {
  return consider_packs({}, "pointwise", alone, machine);
}

}  // namespace

const Family kPointwise = {"pointwise", consider_pointwise};

}  // namespace tensor::cuda
