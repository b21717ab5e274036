// Transposed convolutions are convolutions.
#pragma once

#include "src/trace/graph.h"

namespace tensor {

/// conv_transpose2d with the stride s gives s * s interleaved images, its phases. Each is a
/// convolution of the input with every s-th tap of the filters, in reverse order. So it becomes one
/// conv2d whose filters are those of all phases (with zeros where s does not divide their extent),
/// a transpose that interleaves its channels, and a slice: kernels, epilogues and layouts of
/// convolutions serve both. Source: Shi et al., Is the deconvolution layer the same as a
/// convolutional layer? 2016. Test: tests/trace/transposed_convs_test.cpp.
Graph transposed_convs(const Graph& graph);

}  // namespace tensor
