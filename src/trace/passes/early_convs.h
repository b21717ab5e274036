// Convolutions of one tap before images are enlarged, where there are fewer pixels.
#pragma once

#include "src/trace/graph.h"

namespace tensor {

/// conv2d of one tap, whose weights are constant, mixes the channels of every pixel, interpolate
/// the pixels of every channel: interpolate(x) convolved is conv2d(x) enlarged, since the weights
/// of a pixel add up to 1. Of images side by side, of which some are enlarged, each is convolved by
/// its part of the weights, and the results are added. Decoders of pyramids have such. Where others
/// read what is enlarged, or the result has many more channels, it stays as it is, and so do 16-bit
/// types, which would round more often. Test: tests/trace/early_convs_test.cpp.
Graph early_convs(const Graph& graph);

}  // namespace tensor
