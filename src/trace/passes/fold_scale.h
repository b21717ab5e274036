// Folds scales and shifts by constants into the weights of the convolution or product before them:
// an inference-time batch norm costs nothing.
#pragma once

#include "src/trace/graph.h"

namespace tensor {

/// (view of (matmul(x, w) + b)) * number -> view of (matmul(x, w * number) + b * number), and
/// conv2d(x, w) * s + t -> conv2d(x, w * s, t), and matmul(x, w) * s -> matmul(x, w * s), where w,
/// s, t are constants, s and t vary along the output channels only, and nothing else reads the
/// intermediate value. Weights to be `stored` in f16 must keep their digits: a small s (layer
/// scale) stays outside. Test: tests/trace/fold_scale_test.cpp.
Graph fold_scale(const Graph& graph, DType stored = f32);

}  // namespace tensor
