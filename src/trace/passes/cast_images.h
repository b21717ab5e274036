// Stores the images between convolutions in the narrow type.
#pragma once

#include "src/trace/graph.h"

namespace tensor {

/// After cast_products(graph, dtype): every f32 image that a convolution leads to and that leads to
/// a convolution, through elementwise operators, pools, resizes, padding, concatenations and views
/// only, is read in `dtype` by all of these and by sums over it, if a sum, a cast to `dtype`, a
/// pool, a resize or a concatenation reads it, which take it from memory; pools, resizes and
/// concatenations among them run in `dtype`. Elementwise operators stay float32, and so does what
/// they compute from while it is in registers: what changes is the type of what lies in memory, at
/// half the traffic. What rounds an image to bytes (round_rows.h) reads it as it was made, and all
/// others then in `dtype`. Inputs, outputs and values outside images are left alone. Test:
/// tests/trace/cast_images_test.cpp.
Graph cast_images(const Graph& graph, DType dtype);

}  // namespace tensor
