// Attention, composed of operators that the compiler may fuse again.
#include <cmath>
#include <limits>

#include "src/ops/promote.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

void check_shapes(const Tensor& q, const Tensor& k, const Tensor& v) {
  constexpr std::string_view kWhere = "scaled_dot_product_attention";
  for (const Tensor& x : {q, k, v})
    if (x.rank() < 2) fail(kWhere, "got the shape ", x.shape(), ", need (..., tokens, features)");
  if (q.shape(-1) != k.shape(-1))
    fail(kWhere, "got queries of ", q.shape(-1), " features and keys of ", k.shape(-1),
         ", need as many");
  if (k.shape(-2) != v.shape(-2))
    fail(kWhere, "got ", k.shape(-2), " keys and ", v.shape(-2), " values, need as many");
}

}  // namespace

// A query whose keys are all masked gets NaN, as the formula says.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const Tensor& mask) {
  check_shapes(q, k, v);
  const Tensor all[] = {q, k, v};
  const DType dtype = floating_result_type(all, "scaled_dot_product_attention");
  // Scaling q rather than the product keeps the scores of 16-bit types in range.
  const Tensor scaled = cast(q, dtype) * (1 / std::sqrt(static_cast<double>(q.shape(-1))));
  Tensor scores = matmul(scaled, swapaxes(cast(k, dtype), -1, -2));
  if (mask.defined()) {
    if (mask.dtype() == boolean)
      scores = where(mask, scores, -std::numeric_limits<double>::infinity());
    else if (is_floating(mask.dtype()))
      scores = scores + cast(mask, dtype);
    else
      fail("scaled_dot_product_attention", "got a mask of ", mask.dtype(),
           ", need bool or a floating type");
  }
  return matmul(softmax(scores, -1), cast(v, dtype));
}

}  // namespace tensor
