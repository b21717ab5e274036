// Layout: in which order the elements of every value lie in memory, so that views cost nothing.
#pragma once

#include <vector>

#include "src/trace/graph.h"

namespace tensor {

struct LaidOutGraph {
  Graph graph;                  // with a copy node before every view that no strides can express
  std::vector<Layout> layouts;  // of every value, counted from the first element of its root
};

/// Chooses the strides of every computed value: channels last for images; the order that makes a
/// later transpose and reshape free where there is one (attention's heads are merged by the way
/// they are stored); otherwise the order of the operand an elementwise operator shares its shape
/// with, or row-major. Test: tests/trace.
/// Inputs are row-major, or lie as `inputs` says, one for each.
LaidOutGraph lay_out(const Graph& graph, const std::vector<Layout>& inputs = {});

/// Strides of a dense tensor whose axes lie in the given order, outermost first.
Strides strides_in_order(const Shape& shape, const Dims& order);

}  // namespace tensor
