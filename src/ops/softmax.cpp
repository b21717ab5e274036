// softmax and log_softmax along one axis, computed in double whatever the type.
#include <cmath>
#include <limits>

#include "src/ops/lines.h"
#include "src/ops/op.h"
#include "src/ops/promote.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

using Row = std::span<double>;

// The largest element, -inf of none. A row of -inf alone, and one with NaN or +inf, becomes NaN as
// in PyTorch.
double largest(Row row) {
  double result = -std::numeric_limits<double>::infinity();
  for (const double x : row) result = std::max(result, x);
  return result;
}

void softmax_row(Row row) {
  const double top = largest(row);
  double sum = 0;
  for (double& x : row) sum += x = std::exp(x - top);
  for (double& x : row) x /= sum;
}

void log_softmax_row(Row row) {
  const double top = largest(row);
  double sum = 0;
  for (const double x : row) sum += std::exp(x - top);
  const double log_sum = std::log(sum);
  for (double& x : row) x = x - top - log_sum;
}

// Attribute: axis (not negative).
template <Op op>
TensorType infer_softmax(std::span<const TensorType> in, const Attrs& attrs) {
  check_floating(in[0].dtype, info(op).name);
  stored_axis(attrs, in[0].shape.rank(), info(op).name);
  return in[0];
}

template <auto change>
void eval_rows(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  const int axis = static_cast<int>(attrs.integer("axis"));
  dispatch_floating(out.dtype, "softmax", [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    transform_lines<T, T>(in[0], axis, out, change);
  });
}

// Not opaque, which would end a group: attention is to become one kernel where that is cheaper.
constexpr OpInfo kSoftmaxRows[] = {
    {Op::softmax, "softmax", 1, 1, Pattern::reduction, infer_softmax<Op::softmax>,
     eval_rows<softmax_row>},
    {Op::log_softmax, "log_softmax", 1, 1, Pattern::reduction, infer_softmax<Op::log_softmax>,
     eval_rows<log_softmax_row>},
};

Tensor along_axis(Op op, const Tensor& x, int axis) {
  const std::string_view name = info(op).name;
  const int at = normalize_axis(axis, x.rank(), name);
  return apply_op(op, {cast(x, floating_result_type({&x, 1}, name))}, {{"axis", at}});
}

}  // namespace

std::span<const OpInfo> softmax_ops() { return kSoftmaxRows; }

Tensor softmax(const Tensor& x, int axis) { return along_axis(Op::softmax, x, axis); }
Tensor log_softmax(const Tensor& x, int axis) { return along_axis(Op::log_softmax, x, axis); }

}  // namespace tensor
