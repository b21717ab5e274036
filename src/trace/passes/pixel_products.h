// Convolutions of single pixels are products.
#pragma once

#include "src/trace/graph.h"

namespace tensor {

/// conv2d(x, w, b) of images of one pixel [N, C, 1, 1] and windows of one tap, without groups:
/// matmul(x as [N, C], w as [O, C] transposed) + b, as [N, O, 1, 1]. Kernels for products use the
/// device better there: squeeze-and-excite has such. Test: tests/trace/passes_test.cpp.
Graph pixel_products(const Graph& graph);

}  // namespace tensor
