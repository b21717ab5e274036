// Products divided among several devices, one graph for each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/trace/graph.h"

namespace tensor {

/// Products by constants of which the last ones multiply what becomes of the first ones' columns:
/// those of a perceptron, or of attention, whose columns are heads.
struct ProductChain {
  std::string where;        // of its last product
  std::int64_t extent = 0;  // how many columns or heads, which devices have equal shares of
  bool is_divided = false;
};

struct DividedProducts {
  Graph graph;
  std::vector<ProductChain>
      chains;  // the longest first; those whose extent cannot be shared stay whole
};

/// The graph that the device of this index computes, of `count`: the first products of every chain
/// have its columns of their constants, the last ones its rows, with an all_reduce behind each, and
/// what lies between has its share of them. All graphs have their sums in one order. A function of
/// several chains that have a value in common is divided by the longest of these. Test:
/// tests/trace/divide_products_test.cpp.
DividedProducts divide_products(const Graph& graph, int index, int count);

}  // namespace tensor
