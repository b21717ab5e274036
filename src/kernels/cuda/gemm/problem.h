// A product as the models of time see it: extents and what follows the sums, without the graph.
#pragma once

#include <vector>

#include "src/kernels/cuda/gemm/epilogue.h"
#include "src/kernels/features.h"

namespace tensor::cuda {

/// What the model knows of a product: [batches, m, k] by [batches, n, k], in layers of a model
/// tokens by features.
struct GemmProblem {
  std::int64_t batches = 1, m = 1, n = 1, k = 1;
  double read_bytes = 0, written_bytes = 0;  // by the epilogue, for each element
  double operations = 0;                     // of the epilogue, for each element
  int staged_bytes = 2;                      // of an element that leaves in boxes, 0 if none does
  bool is_constant = true;                   // the right factor
  bool normalizes = false;                   // see norm.h
  bool sums_rows = false;                    // row_sums of the results
  int addend_bytes = 0;  // of an element that can be read and written in boxes (addends())
  int item_bytes = 2;    // of a factor's element; 1 of i8

  /// Of a tile on Hopper: rows of 128 bytes, the width of the swizzle.
  std::int64_t tile_k() const { return 128 / item_bytes; }
  std::int64_t steps() const { return (k + tile_k() - 1) / tile_k(); }
  /// What numbers of columns wgmma has (PTX ISA, "Register Fragments and Shared Memory Matrix
  /// Layouts"): multiples of 8, of i8 beyond 24 of 16.
  std::int64_t in_columns(std::int64_t columns) const {
    const std::int64_t step = item_bytes == 1 && columns > 24 ? 16 : 8;
    return (columns + step - 1) / step * step;
  }
};

GemmProblem gemm_problem(const Graph& graph, const Group& group, const Product& product);

/// What follows the sums of a product or a convolution, for each of `elements` results.
struct EpilogueWork {
  double read_bytes = 0, written_bytes = 0, operations = 0;
};
EpilogueWork epilogue_work(const Graph& graph, const Group& group, const ElementCode& code,
                           const std::vector<ValueId>& elementwise, std::int64_t elements);

/// The facts of a problem, the same for all schedules and families of products. `item_bytes`: of a
/// factor's element.
Features features_of(const GemmProblem& problem, double item_bytes, const Machine& machine);

}  // namespace tensor::cuda
