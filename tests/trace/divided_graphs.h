// Products divided among devices: the graphs of all of them together, their sums made by hand,
// compute what the whole graph does, in float64.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "src/trace/passes/divide_products.h"
#include "src/trace/passes/passes.h"

namespace tensor::divided {

using Tensors = std::vector<Tensor>;

inline Tensor wide(const Tensor& x) { return x.dtype() == f32 ? x.astype(f64) : x; }

// All graphs at a time, on the same inputs, in float64. They have the same operators in the same
// order; the results of each are those of the first.
inline Tensors run(const std::vector<Graph>& graphs, const Tensors& inputs) {
  std::vector<Tensors> values(graphs.size(), Tensors(at(graphs[0].size())));
  for (std::size_t i = 0; i < inputs.size(); ++i)
    for (Tensors& of : values) of[at(graphs[0].inputs()[i])] = wide(inputs[i]);
  for (ValueId id = 0; id < graphs[0].size(); ++id) {
    for (std::size_t g = 0; g < graphs.size(); ++g) {
      const Node& node = graphs[g][id];
      Tensor& value = values[g][at(id)];
      if (node.kind == NodeKind::constant) value = wide(node.constant);
      if (node.kind != NodeKind::operation) continue;
      Tensors in;
      for (const ValueId input : node.inputs) in.push_back(values[g][at(input)]);
      const bool widens = node.op == Op::astype && node.type.dtype == f32;
      value = widens ? in[0].astype(f64) : apply_op(node.op, in, node.attrs);
    }
    if (!graphs[0].is_op(id, Op::all_reduce)) continue;
    Tensor sum = values[0][at(id)];
    for (std::size_t g = 1; g < graphs.size(); ++g) sum = sum + values[g][at(id)];
    for (Tensors& of : values) of[at(id)] = sum;
  }
  Tensors results;
  for (const ValueId id : graphs[0].outputs()) results.push_back(values[0][at(id)]);
  return results;
}

struct Divided {
  std::vector<Graph> graphs;
  std::vector<ProductChain> chains;

  int whole() const {
    return static_cast<int>(
        std::ranges::count_if(chains, [](const ProductChain& c) { return !c.is_divided; }));
  }
};

// Divides the function's graph as compile() has it, and compares. Float64 has 2^-53 for each of
// sums of fewer than 2^10 terms, in fewer than 2^5 layers, most of which add to what is before
// them.
inline Divided expect_same_divided(const Graph& traced, const Tensors& inputs, int count) {
  Graph graph = traced;
  for (const Pass& pass : passes_for({})) graph = pass.run(graph);
  Divided result;
  for (int i = 0; i < count; ++i) {
    DividedProducts one = divide_products(graph, i, count);
    verify(one.graph, "test");
    result.graphs.push_back(std::move(one.graph));
    EXPECT_EQ(result.graphs[0].size(), result.graphs.back().size());
    result.chains = std::move(one.chains);
  }
  const Tensors got = run(result.graphs, inputs), want = run({graph}, inputs);
  for (std::size_t i = 0; i < want.size(); ++i) {
    const auto a = got[i].to_vector<double>(), b = want[i].to_vector<double>();
    double largest = 0;
    for (const double x : b) largest = std::max(largest, std::abs(x));
    for (std::size_t k = 0; k < b.size(); ++k)
      EXPECT_NEAR(a[k], b[k], 0x1p-38 * largest) << "output " << i << " at " << k;
  }
  return result;
}

}  // namespace tensor::divided
