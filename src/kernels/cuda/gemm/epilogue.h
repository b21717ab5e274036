// The text of what follows each sum of a product: for every kernel of products, whatever
// instructions it multiplies with, and for what attention does to scores and results.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/kernels/cuda/gemm/match.h"

namespace tensor::cuda {

/// The struct Epilogue of templates/gemm_sm90.h, which reads and writes operands, with the numbers
/// of the kernel's problem, and the scales of sums in eight bits (kScales). With a `corrections`
/// pointer, of a normalised product, it has those of norm.h and the rows' sums, too.
struct Epilogue {
  std::string name;  // "add_gelu"
  std::string text;
  std::vector<std::string> parameters;  // of the kernel, its pointers in order: "const float* r0"
  std::vector<Argument> arguments;
  int loads = 0;                // values read for each element that differ from row to row
  bool reads_constants = true;  // and nothing else

  /// ",\n    const float* r0": the parameters behind others.
  std::string more_parameters() const;
  /// Declares the object `epilogue` in the kernel's body.
  std::string object_text(const Extents& numbers) const;
};
/// What the kernel itself moves in boxes, -1 for nothing: one of the group's writes, which the
/// epilogue's staged() gives it, and one of the code's loads, which take() gets from it.
struct Boxed {
  int write = -1, load = -1;
};
Epilogue epilogue_of(const LaidOutGraph& laid, const Group& group, const Product& product,
                     Boxed boxed, Extents& numbers, const std::string& name = "Epilogue",
                     const std::optional<Pointer>& corrections = {});

/// A value of the result's elements as tokens (rows) of features, which lie next to each
/// other. nullopt where no strides tell so.
std::optional<Factor> rows_of_features(const LaidOutGraph& laid, ValueId value,
                                       const Product& product);
/// The bytes of an element that can be stored in boxes: 2 of a 16-bit float, 1 of i8, else 0.
int boxed_bytes(DType dtype);
/// Which of the group's writes can be stored as boxes, rows at multiples of 16 bytes: a 16-bit one,
/// else, where the kernel `takes_bytes`, one of i8. -1 when there is none.
int boxed_write(const LaidOutGraph& laid, const Group& group, const Product& product,
                bool takes_bytes = false);
/// A value read and one written, both of one type and with every element of the result: a residual
/// and its sum, for instance. All such pairs, and the first that can be moved in boxes, if any.
std::vector<Boxed> addends(const Graph& graph, const Group& group, const Product& product);
Boxed boxed_addend(const LaidOutGraph& laid, const Group& group, const Product& product);

}  // namespace tensor::cuda
