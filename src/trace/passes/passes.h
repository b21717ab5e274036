// The passes that compile() makes over a traced graph, in their order.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/trace/graph.h"
#include "src/trace/passes/quantize.h"
#include "tensor/ops.h"

namespace tensor {

struct Pass {
  std::string_view name;
  std::function<Graph(const Graph&)> run;
};

/// What is stored and multiplied in which type.
struct Precision {
  DType dtype = f32;              // of products' operands: f32, bf16 or f16
  bool tf32 = false;              // f32 products may be rounded
  bool narrow_images = false;     // images between convolutions in dtype, too
  bool narrow_residuals = false;  // the residual stream, too
  bool folds_norms = false;       // kernels fold layer_norm into products of narrow types
  bool checks_apart = false;      // kernels cannot report wrong indices
  bool eight_bits = false;        // products by constants, but for those named so:
  std::vector<std::string> wide = {};
  std::map<std::string, float> scales = {};  // of the activations of some of them
  // Rows are rounded by round_rows, those of norms alone; else in products, and stored in dtype.
  bool rounds_rows = false;
  std::int64_t byte_channels = 0;  // then, of images that convolutions may read as bytes
};

/// What lies between tracing and layout. `converted` does what astype does, and `quantized` what
/// quantize() does, faster where the caller knows how. `divided`, if any, comes when products have
/// their final weights, before these are stored in another type (divide_products).
std::vector<Pass> passes_for(const Precision& precision,
                             const std::function<Tensor(const Tensor&, DType)>& converted = &astype,
                             const Quantize& quantized = &quantize,
                             const std::function<Graph(const Graph&)>& divided = nullptr);

}  // namespace tensor
