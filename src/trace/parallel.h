// Parallel products: matmuls that multiply one value by several constant matrices (queries, keys
// and values), each with the elementwise operators after it. They can run as one wider matmul.
#pragma once

#include <utility>

#include "src/trace/fuse.h"
#include "src/trace/layout.h"

namespace tensor {

/// A matmul and the elementwise operators after it, each the only reader of the one before. All
/// other operands are constants: a matrix, and vectors along its columns or single numbers.
using Chain = std::vector<ValueId>;

/// Chains from one left operand that differ in their constants alone. Their results may lie side by
/// side: nobody outside the graph gets one, and every view of one is a view of such columns too.
using Parallel = std::vector<Chain>;

inline constexpr int kMostParallel = 8;  // chains at a time: their orders multiply in the search

/// The largest sets of at most kMostParallel parallel chains, of neighbours in the program; of
/// chains that agree for longer than others do, both the short and the long version. Chains in
/// order, shorter versions first.
std::vector<Parallel> parallel_products(const Graph& graph, const Wiring& wiring);

/// A group of operators as the parallel chains it is made of; empty when it is not.
Parallel chains_of(const Graph& graph, const Group& group);

/// The one matmul that parallel chains become, in a graph of its own. Its constants take no memory:
/// it is there to be costed.
struct Merged {
  Graph graph;
  Group group;
};
Merged merged_alone(const Graph& graph, const Parallel& chains);

/// Lowers the plan's groups of parallel chains: constants side by side, one matmul with one
/// epilogue, and for every chain's result a view of some of its columns. Returns the new graph and
/// the same plan of it. Test: tests/trace/parallel_test.cpp.
std::pair<LaidOutGraph, FusionPlan> merge_parallel(const LaidOutGraph& laid,
                                                   const FusionPlan& plan);

}  // namespace tensor
