// The operator table: the families' rows, put into the order of the enumeration and checked once.
#include <array>
#include <vector>

#include "src/ops/op.h"

namespace tensor {
namespace {

std::vector<OpInfo> build_table() {
  constexpr auto kCount = static_cast<std::size_t>(Op::count_);
  std::array<const OpInfo*, kCount> rows{};
  for (auto family : {pointwise_ops, reduce_ops, scan_ops, matmul_ops, softmax_ops, layer_norm_ops,
                      conv2d_ops, pool_ops, resize_ops, view_ops, gather_ops}) {
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

}  // namespace

std::span<const OpInfo> op_table() {
  static const std::vector<OpInfo> table = build_table();
  return table;
}

const OpInfo& info(Op op) { return op_table()[static_cast<std::size_t>(op)]; }

}  // namespace tensor
