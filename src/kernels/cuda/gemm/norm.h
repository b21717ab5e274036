// LayerNorm in the kernel of the product after it, which multiplies the rows as they come and
// corrects the sums: with rows x of mean m and deviation d, weights g and b of the norm and W of
// the product,
//   norm(x) W = (x W' - m c) / d + b W, where W' = g W (row by row) and c are its columns' sums.
// c is made of W' as it is rounded, so that a row's mean cancels exactly. Sums of the rows, from
// which m and d follow, were made by the kernel that made the rows.
#pragma once

#include <optional>
#include <vector>

#include "src/kernels/cuda/gemm/factor.h"

namespace tensor::cuda {

struct Norm {
  ValueId weight = -1, bias = -1;
  ValueId sums = -1;  // row_sums of what is normalised
  double eps = 0;
};

/// What makes a product's left factor in its group: astype to float32, layer_norm_by_sums, and
/// astype back.
struct Lead {
  ValueId input = -1;  // of the product's type
  Norm norm;
  std::vector<ValueId> nodes;
};
/// nullopt when the left factor of `matmul` is made otherwise, or something else reads a part.
std::optional<Lead> match_lead(const Graph& graph, const Group& group, ValueId matmul);

/// A product's constant right factor [k, n] made ready, as one packed constant: W' of
/// the same type, each feature's elements side by side and filled up to `pitch`, then for each
/// feature its c, then for each its part of b W, then a power of two by which W' was divided, so
/// that small or large weights of the norm do not leave float16's range.
struct NormalizedWeights {
  std::int64_t k = 0, n = 0, pitch = 0;
  DType dtype = f16;
  std::int64_t corrections_at() const { return n * pitch * item_size(dtype); }
  Tensor pack(const Tensor& right, const Tensor& weight, const Tensor& bias) const;
};

}  // namespace tensor::cuda
