#include "src/ops/promote.h"

#include <algorithm>
#include <optional>

#include "src/core/dispatch.h"
#include "src/core/storage.h"
#include "src/ops/op.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

// The result's type before it is seen whether the numbers fit.
DType common_type(std::span<const Tensor> inputs) {
  std::optional<DType> strong, weak;
  for (const Tensor& x : inputs) {
    std::optional<DType>& type = x.is_weak() ? weak : strong;
    type = type ? promote(*type, x.dtype()) : x.dtype();
  }
  if (!strong) return *weak;
  if (!weak) return *strong;
  // A number of a higher kind brings that kind's default type; otherwise the tensors decide.
  return kind_of(*weak) > kind_of(*strong) ? (kind_of(*weak) == Kind::floating ? f64 : i64)
                                           : *strong;
}

}  // namespace

int out_of_range(const Tensor& x, DType dtype) {
  if (!x.is_weak() || kind_of(x.dtype()) != Kind::integer || kind_of(dtype) != Kind::integer)
    return 0;
  return beyond_range(x.item<std::int64_t>(), dtype);
}

void check_fits(const Tensor& x, DType dtype, std::string_view where, std::string_view mend) {
  if (out_of_range(x, dtype) != 0)
    fail(where, "the number ", x.item<std::int64_t>(), " does not fit into ", dtype, ": ", mend);
}

DType result_type(std::span<const Tensor> inputs, std::string_view where) {
  const DType result = common_type(inputs);
  for (const Tensor& x : inputs)
    check_fits(x, result, where, "convert the tensor with astype first");
  return result;
}

DType comparison_type(std::span<const Tensor> inputs) {
  const DType common = common_type(inputs);
  const bool fit = std::all_of(inputs.begin(), inputs.end(),
                               [&](const Tensor& x) { return out_of_range(x, common) == 0; });
  return fit ? common : i64;
}

DType floating_result_type(std::span<const Tensor> inputs, std::string_view where) {
  const DType dtype = result_type(inputs, where);
  if (!is_floating(dtype))
    fail(where, "got a tensor of ", dtype, ", need a floating type: convert it with astype(f32)");
  return dtype;
}

DType floating_type(DType dtype) {
  switch (dtype) {
    case DType::boolean:
    case DType::u8:
    case DType::i8:
      return f16;
    case DType::i16:
      return f32;
    case DType::i32:
    case DType::i64:
      return f64;
    default:
      return dtype;
  }
}

Tensor cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype && !x.is_weak()) return x;
  return apply_op(Op::astype, {x}, {{"dtype", dtype}});
}

Tensor apart(const Tensor& result, const Tensor& x) {
  return detail::impl(result).recorder || !result.shares_storage(x) ? result : copy(result);
}

double epsilon_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return 0x1p-7;
    case DType::f16:
      return 0x1p-10;
    case DType::f32:
      return 0x1p-23;
    default:
      return 0x1p-52;
  }
}

}  // namespace tensor
