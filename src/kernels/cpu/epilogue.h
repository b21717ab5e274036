// Epilogue: the chain of elementwise operators after a matmul or convolution, as far as a library
// primitive can apply it to the result while that is still in registers.
#pragma once

#include <optional>
#include <vector>

#include "src/trace/group.h"

namespace tensor::cpu {

struct EpilogueStep {
  Op op = Op::add;
  ValueId operand = -1;  // the other tensor of a binary operator; -1 for a unary one or a number
  double number = 0;     // the other operand where that is one number for all elements
};

struct Anchored {
  ValueId anchor = -1;  // the matmul or convolution
  ValueId result = -1;  // what the group writes
  std::vector<EpilogueStep> steps;
};

/// A group of exactly one operator `anchor` and a chain of operators from it to the only value
/// written, all of one shape in f32, f16 or bf16: casts between those may wait for the result,
/// others (to integers, bool) compute. nullopt when the group is anything else. Which operators the
/// library has is has_post_ops' to say (onednn.h).
std::optional<Anchored> match_anchored(const Graph& graph, const Group& group, Op anchor);

}  // namespace tensor::cpu
