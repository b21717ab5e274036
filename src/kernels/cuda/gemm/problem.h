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
  bool staged = true;
  bool is_constant = true;  // the right factor
  bool normalizes = false;  // see norm.h
  bool sums_rows = false;   // row_sums of the results
  int addend_bytes = 0;     // of an element that can be read and written in boxes (addends())
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
