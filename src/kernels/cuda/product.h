// Products of matrices with what is fused to them: what a group computes, and the text of the part
// that follows each sum. For every family of products, whatever instructions it multiplies with.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/kernels/cuda/expression.h"
#include "src/kernels/cuda/factor.h"
#include "src/kernels/cuda/norm.h"

namespace tensor::cuda {

/// A matmul and elementwise operators on its result: [batches, rows, features], each feature of
/// each row a sum over `depth`; then, perhaps, row_sums of one of those.
struct Product {
  ValueId matmul = -1;
  ValueId left = -1;                 // the left factor, as it comes to the group
  std::optional<Norm> norm;          // which the rows of `left` go through first
  std::vector<ValueId> elementwise;  // ascending
  ValueId row_sums = -1;             // of one of the writes, which is written, too
  ElementCode code;                  // of one element, from the variable `sum`
  DType dtype = f32;                 // of both factors
  std::int64_t batches = 1, rows = 1, features = 1, depth = 1;
  bool is_constant = false;  // the right factor
  bool is_shared = false;    // one right factor serves all batches
  bool is_tf32 = false;      // factors of f32 may be rounded to tf32
  Shape batch;               // the axes of the result but the last two
};

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
/// by side, filled up with zeros to whole chunks.
Source packed_right(const LaidOutGraph& laid, const Product& product, int operand,
                    Lowered& lowered);

/// The struct Epilogue of device/gemm_sm90.h, which reads and writes operands. With a `corrections`
/// pointer, of a normalised product, it has those of norm.h and the rows' sums, too.
struct Epilogue {
  std::string name;  // "add_gelu"
  std::string text;
  std::vector<std::string> parameters;  // of the kernel, its members in order: "const float* r0"
  std::vector<Argument> arguments;
  int loads = 0;                // values read for each element that differ from row to row
  bool reads_constants = true;  // and nothing else
};
/// What the kernel itself moves in boxes, -1 for nothing: one of the group's writes, which the
/// epilogue's staged() gives it, and one of the code's loads, which take() gets from it.
struct Boxed {
  int write = -1, load = -1;
};
Epilogue epilogue_of(const LaidOutGraph& laid, const Group& group, const Product& product,
                     Boxed boxed, const std::string& name = "Epilogue",
                     const std::optional<Pointer>& corrections = {});

/// A value of the result's elements as tokens (rows) of features (depth), which lie next to each
/// other. nullopt where no strides tell so.
std::optional<Factor> rows_of_features(const LaidOutGraph& laid, ValueId value,
                                       const Product& product);
/// Which of the group's writes can be stored as boxes: 16-bit, rows at multiples of 16 bytes. -1
/// when there is none.
int boxed_write(const LaidOutGraph& laid, const Group& group, const Product& product);
/// A value read and one written, both of one type and with every element of the result: a residual
/// and its sum, for instance. All such pairs, and the first that can be moved in boxes, if any.
std::vector<Boxed> addends(const Graph& graph, const Group& group, const Product& product);
Boxed boxed_addend(const LaidOutGraph& laid, const Group& group, const Product& product);

}  // namespace tensor::cuda
