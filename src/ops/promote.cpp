#include "src/ops/promote.h"

#include <limits>

#include "src/core/dispatch.h"
#include "src/core/storage.h"
#include "src/ops/op.h"

namespace tensor {
namespace {

// An integer that does not fit would wrap silently; NumPy 2 raises OverflowError.
void check_fits(const Tensor& number, DType dtype, std::string_view where) {
  if (kind_of(number.dtype()) != Kind::integer || kind_of(dtype) != Kind::integer) return;
  const auto value = number.item<std::int64_t>();
  dispatch(dtype, [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    if constexpr (std::is_integral_v<T>) {
      if (value < std::int64_t(std::numeric_limits<T>::min()) ||
          value > std::int64_t(std::numeric_limits<T>::max()))
        fail(where, "the number ", value, " does not fit into ", dtype,
             ": convert the tensor with astype first");
    }
  });
}

}  // namespace

DType result_type(std::span<const Tensor> inputs, std::string_view where) {
  std::optional<DType> strong, weak;
  for (const Tensor& x : inputs) {
    std::optional<DType>& type = x.is_weak() ? weak : strong;
    type = type ? promote(*type, x.dtype()) : x.dtype();
  }
  if (!strong) return *weak;
  if (!weak) return *strong;
  // A number of a higher kind brings that kind's default type; otherwise the tensors decide.
  const DType result =
      kind_of(*weak) > kind_of(*strong) ? (kind_of(*weak) == Kind::floating ? f64 : i64) : *strong;
  for (const Tensor& x : inputs)
    if (x.is_weak()) check_fits(x, result, where);
  return result;
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

}  // namespace tensor
