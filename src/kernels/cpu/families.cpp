// The table of kernel families, and the cost function made from it.
#include "src/kernels/cpu/families.h"

namespace tensor::cpu {
std::span<const Family> cpu_families() {
  static const std::vector<Family> table = {
#ifdef TENSOR_WITH_ONEDNN
      kGemm,        kConv,
#endif
      kTileProduct, kAttention, kRow, kPointwise, kImage, kCopy, kReference,
  };
  return table;
}

CostFn cpu_cost(const Machine& machine) {
  return [machine](const Graph& graph, const Group& group) {
    GroupCost best;
    const auto families = cpu_families();
    for (std::size_t i = 0; i < families.size(); ++i)
      if (const auto time = families[i].estimate(graph, group, machine);
          time && *time < best.microseconds)
        best = {static_cast<int>(i), *time};
    return best;
  };
}

}  // namespace tensor::cpu
