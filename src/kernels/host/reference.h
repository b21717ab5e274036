// Any single operator through its reference kernel, on the host: slow, but it always works.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "src/trace/group.h"
#include "src/trace/layout.h"

namespace tensor::cpu {

class ReferenceOperator {
 public:
  /// Of a group of one node.
  ReferenceOperator(const LaidOutGraph& laid, const Group& group);
  /// `operands` are the first elements of the group's reads, then of its write.
  void run(std::span<std::byte* const> operands) const;

 private:
  Node node_;
  std::vector<std::size_t> operands_;  // of every input of the node; a value may be read twice
  std::vector<ConstView> views_;
  View out_;
  std::size_t out_operand_ = 0;
};

/// Microseconds that one takes, nullopt for a group of several operators.
std::optional<double> reference_us(const Graph& graph, const Group& group);

}  // namespace tensor::cpu
