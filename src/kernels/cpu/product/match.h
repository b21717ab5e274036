// Products: one matmul, in eight bits or not, or convolution and any elementwise operators on its
// result, as one group.
#pragma once

#include <optional>

#include "src/kernels/host/simd/table.h"
#include "src/trace/group.h"

namespace tensor::cpu {

struct AnchoredProduct {
  ValueId anchor = -1;  // the matmul or conv2d
  ValueId left = -1;    // its left factor, or what a cast in the group rounds to that
  ValueId bias = -1;    // a constant, one number a column, with which the sums begin; -1: none
  ValueId added = -1;   // a value of the result's shape with which they begin, too; -1: none
  simd::Bounds bounds;  // of the sums
  ValueId scale = -1, shift = -1;  // constants, one number or one a column, behind the bounds
  bool adds_last = false;          // `added` comes behind these
  ValueId sums = -1;               // the value that the sums stand for, of the anchor's shape
  Group epilogue;                  // from the sums to the result, a block program; may be empty
  ValueId result = -1;  // what the epilogue makes, or that rounded by a cast; written alone, or
  ValueId bytes = -1;   // its bytes by one scale beside or in place of it; -1: none
  float inverse = 1;    // of that scale
};

/// nullopt when the group is anything else, or its factors are neither in eight bits nor of one
/// floating type. A product in eight bits may end with a rounding by one scale (rounding_of in
/// trace/passes/round_rows.h). With `rounds`, the group may begin with a cast of the left factor
/// from float32, which is read once, by a matmul or a filter of one pixel.
std::optional<AnchoredProduct> match_product(const Graph& graph, const Group& group,
                                             bool rounds = false);

/// The same with what the vector kernel does while sums are in registers taken out of the epilogue:
/// a residual that lies as the sums are made, bounds (relu, clip) after it or before, and between
/// them a scale and a shift by constants, as of a batch norm behind a relu.
AnchoredProduct with_sums_finished(const LaidOutGraph& laid, AnchoredProduct product);

/// The same if nothing is left of the epilogue then, for kernels whose last store does it
/// (ProductResult); else as it was.
AnchoredProduct with_sums_stored(const LaidOutGraph& laid, AnchoredProduct product);

/// The numbers of a constant of these, one a column; `otherwise` where there is none.
std::vector<float> column_numbers(const Graph& graph, ValueId id, std::int64_t columns,
                                  float otherwise);

/// The axis of the result that the right factor's columns run along: 1 of an image, else the last.
int column_axis(const Graph& graph, const AnchoredProduct& product);

}  // namespace tensor::cpu
