// What tests of graph passes share.
#pragma once

#include <vector>

#include "src/trace/graph.h"
#include "tensor/tensor.h"
#include "tests/near.h"

namespace tensor {

inline int count(const Graph& graph, Op op) {
  int found = 0;
  for (ValueId id = 0; id < graph.size(); ++id) found += graph.is_op(id, op);
  return found;
}

/// Both graphs on the same inputs: equal up to `ulps` float32 roundings of the largest magnitude.
inline void expect_same(const Graph& before, const Graph& after, const std::vector<Tensor>& inputs,
                        double ulps) {
  verify(after, "test");
  check::expect_near(interpret(after, inputs), interpret(before, inputs), ulps);
}

}  // namespace tensor
