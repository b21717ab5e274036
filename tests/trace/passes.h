// What tests of graph passes share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "src/trace/graph.h"
#include "tensor/tensor.h"

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
  const std::vector<Tensor> a = interpret(before, inputs), b = interpret(after, inputs);
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].type(), b[i].type());
    const auto x = a[i].to_vector<double>(), y = b[i].to_vector<double>();
    double largest = 0;
    for (const double value : x) largest = std::max(largest, std::abs(value));
    for (std::size_t k = 0; k < x.size(); ++k) ASSERT_NEAR(x[k], y[k], ulps * 1.2e-7 * largest);
  }
}

}  // namespace tensor
