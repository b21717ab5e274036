// Attention: a matmul, elementwise operators on its scores, a softmax over their last axis, and a
// second matmul, as one group; and the part of it that ends with the softmax.
#pragma once

#include <optional>
#include <vector>

#include "src/trace/group.h"
#include "src/trace/passes/round_rows.h"

namespace tensor {

/// softmax(scale q k + ...) over the last axis.
struct AttentionWeights {
  ValueId q = -1, k = -1;      // what the group reads: [..., m, d], [..., d, n]
  double scale = 1;            // of the scores: all multiplications by numbers before the middle
  ValueId scores = -1;         // [..., m, n], scaled
  Group middle;                // from the scores to the softmax, a block program; may be empty
  ValueId weights = -1;        // the softmax
  std::vector<ValueId> after;  // elementwise operators on the weights, if no product follows
};

struct Attention : AttentionWeights {
  ValueId v = -1;  // what the group reads: [..., n, e]
  // Of all four factors, as the products read them; nullopt if they differ.
  std::optional<DType> product_dtype;
  ValueId result = -1;               // [..., m, e], the one value that is written, or
  std::optional<Rounding> rounding;  // what makes bytes of it, which are written in its place
};

/// nullopt when the group is anything else.
std::optional<Attention> match_attention(const Graph& graph, const Group& group);
/// The same of a group without a second product, which writes the softmax or what comes after it.
std::optional<AttentionWeights> match_attention_weights(const Graph& graph, const Group& group);

}  // namespace tensor
