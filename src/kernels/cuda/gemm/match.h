// Products of matrices with what is fused to them: what a group computes, and the text of the part
// that follows each sum. For every family of products, whatever instructions it multiplies with.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/kernels/cuda/gemm/factor.h"
#include "src/kernels/cuda/gemm/norm.h"
#include "src/kernels/cuda/generated/expression.h"

namespace tensor::cuda {

/// A matmul and elementwise operators on its result: [batches, m, n], each element a sum of k
/// products; then, perhaps, row_sums of one of those. Or a quantized_matmul of rows of i8, of which
/// the kernel multiplies each sum by (the row's scale * the column's).
struct Product {
  ValueId matmul = -1;
  ValueId left = -1;                 // the left factor, as it comes to the group
  std::optional<Norm> norm;          // which the rows of `left` go through first
  std::vector<ValueId> elementwise;  // ascending
  ValueId row_sums = -1;             // of one of the writes, which is written, too
  ElementCode code;                  // of one element, from the variable `sum`
  ValueId row_scales = -1;           // of i8; -1 without
  ValueId column_scales = -1;        // of i8
  DType dtype = f32;                 // of both factors; i8: sums are exact
  std::int64_t batches = 1, m = 1, n = 1, k = 1;
  bool is_constant = false;  // the right factor
  bool is_shared = false;    // one right factor serves all batches
  bool is_tf32 = false;      // factors of f32 may be rounded to tf32
  Shape batch;               // the axes of the result but the last two
};

/// "_f32_", as kernels' names tell what sums are in.
inline std::string sums_name(DType factors) { return factors == i8 ? "_s32_" : "_f32_"; }

/// nullopt when the group is anything else, or has an operator that no text is known for.
std::optional<Product> match_product(const Graph& graph, const Group& group);
/// The same of a product by a constant whose left factor is normalised by the group itself.
std::optional<Product> match_normalized_product(const Graph& graph, const Group& group);
/// One right factor serves all batches: seen as one batch of more rows.
Product with_merged_rows(Product product);

/// The factors as rows of the result's tokens and features. nullopt where the rows of merged
/// batches do not lie at one distance.
std::optional<Factor> left_factor(const LaidOutGraph& laid, const Product& product);
Factor right_factor(const LaidOutGraph& laid, const Product& product);
/// The same, were it laid out so.
Factor right_factor(const Layout& layout, ValueId right, const Product& product);

/// A constant right factor as the group's operand `operand`, packed: each feature's elements side
/// by side, filled up with zeros to whole chunks. Of i8 it lies in strips (src/ops/eight_bits.h).
Source packed_right(const LaidOutGraph& laid, const Product& product, int operand,
                    Lowered& lowered);
/// The same with the features side by side, of any type but i8.
Source turned_right(const LaidOutGraph& laid, const Product& product, int operand,
                    Lowered& lowered);

}  // namespace tensor::cuda
