// Folds scales and shifts by constants into the weights of the convolution or product before them,
// and sums of convolutions into one: an inference-time batch norm costs nothing, nor do branches.
#pragma once

#include <optional>

#include "src/trace/graph.h"

namespace tensor {

/// (view of (matmul(x, w) + b)) * number -> view of (matmul(x, w * number) + b * number), and
/// conv2d(x, w) * s + t -> conv2d(x, w * s, t), and matmul(x, w) * s -> matmul(x, w * s), where w,
/// s, t are constants, s and t vary along the output channels only, and nothing else reads the
/// intermediate value. Weights to be `stored` in f16 must keep their digits: a small s (layer
/// scale) stays outside. Test: tests/trace/fold_scale_test.cpp.
///
/// Sums of convolutions of one image become one (sum_filters.h). Filters that are to be rounded to
/// 16 or eight bits stay as they are: rounded together they would be others than those that a model
/// was tried with. Where products alone are rounded, to tf32, images stay.
enum class FilterSums { none, of_filters, of_images };
Graph fold_scale(const Graph& graph, DType stored = f32, FilterSums sums = FilterSums::of_images);

/// `constant` as a vector along `axis` of `shape` (counted from the front), if it varies along that
/// axis only.
std::optional<Tensor> along_axis(const Tensor& constant, const Shape& shape, int axis);

}  // namespace tensor
