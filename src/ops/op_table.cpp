// The operator table: the families' rows, put into the order of the enumeration and checked once.
#include <algorithm>
#include <array>
#include <vector>

#include "src/ops/op.h"

namespace tensor {
namespace {

std::vector<OpInfo> build_table() {
  constexpr auto kCount = static_cast<std::size_t>(Op::count_);
  std::array<const OpInfo*, kCount> rows{};
  for (auto family :
       {pointwise_ops, reduce_ops, scan_ops, matmul_ops, quantized_ops, softmax_ops, layer_norm_ops,
        conv2d_ops, pool_ops, resize_ops, roi_ops, view_ops, gather_ops}) {
    for (const OpInfo& row : family()) {
      auto& place = rows[static_cast<std::size_t>(row.op)];
      if (place) internal_error("op_table", "two rows for the operator ", row.name);
      place = &row;
    }
  }
  std::vector<OpInfo> table;
  for (std::size_t i = 0; i < kCount; ++i) {
    if (!rows[i]) internal_error("op_table", "no row for operator number ", i);
    table.push_back(*rows[i]);
  }
  return table;
}

// Whether the public function of an elementwise operator leaves its inputs in such a type.
bool is_promoted(DType dtype, Promotion promotion) {
  switch (promotion) {
    case Promotion::none:
    case Promotion::same:
    case Promotion::common:
    case Promotion::comparison:
      return true;
    case Promotion::numbers:
    case Promotion::small:
    case Promotion::arithmetic:
    case Promotion::counting:
      return dtype != boolean;
    case Promotion::whole:
    case Promotion::floating:
    case Promotion::quotient:
      return is_floating(dtype);
    case Promotion::logical:
      return dtype == boolean;
    case Promotion::bits:
      return !is_floating(dtype);
    case Promotion::shifts:
      return kind_of(dtype) == Kind::integer;
  }
  return false;
}

void check_inputs(const OpInfo& row, std::span<const TensorType> inputs) {
  const int count = static_cast<int>(inputs.size());
  if (count < row.min_inputs || count > row.max_inputs)
    fail(row.name, "got ", count, " tensors, need ", row.min_inputs,
         row.max_inputs > row.min_inputs ? " or more" : "");
  if (row.promotion == Promotion::none) return;
  for (const TensorType& input : inputs) {
    if (input.dtype != inputs[0].dtype)
      fail(row.name, "got ", inputs[0], " and ", input, ", need equal types");
    if (!is_promoted(input.dtype, row.promotion))
      fail(row.name, "got ", input, ", which it is not defined on: convert it with astype");
  }
}

// As if no axis were empty, since strides are such products, too.
void check_size(const TensorType& type, std::string_view where) {
  Shape shape = type.shape;
  num_elements(shape);
  for (std::int64_t& extent : shape) extent = std::max<std::int64_t>(extent, 1);
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(num_elements(shape), item_size(type.dtype), &bytes))
    fail(where, "the result would be ", type, ", which takes more than 2^63 bytes");
}

}  // namespace

void check_floating(DType dtype, std::string_view where) {
  if (!is_floating(dtype))
    fail(where, "got a tensor of ", dtype, ", need a floating type: convert it with astype(f32)");
}

TensorType infer(Op op, std::span<const TensorType> inputs, const Attrs& attrs) {
  const OpInfo& row = info(op);
  check_inputs(row, inputs);
  const TensorType type = row.infer(inputs, attrs);
  check_size(type, row.name);
  return type;
}

std::span<const OpInfo> op_table() {
  static const std::vector<OpInfo> table = build_table();
  return table;
}

const OpInfo& info(Op op) { return op_table()[static_cast<std::size_t>(op)]; }

}  // namespace tensor
