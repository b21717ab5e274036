// Parallel products: matmuls that multiply one value by several constant matrices (queries, keys
// and values), each with the elementwise operators after it. They can run as one wider matmul, and
// so can they together with the operators that make that value for them alone.
#pragma once

#include <utility>

#include "src/trace/isolate.h"

namespace tensor {

/// A matmul and the elementwise operators after it, each the only reader of the one before. All
/// other operands are constants: a matrix, and vectors along its columns or single numbers.
using Chain = std::vector<ValueId>;

/// Chains from one left operand that differ in their constants alone. Their results may lie side by
/// side: nobody outside the graph gets one, and every view of one is a view of such columns too.
using Parallel = std::vector<Chain>;

/// Parallel chains that run as one, and before them the operators that make their left operand
/// (a layer_norm between two casts, say) as far as they are part of it: each computed from one
/// value, sums of its rows and constants, and read by the next alone, the last by the products
/// alone, by all of them.
struct ParallelRun {
  Chain lead;  // may be empty
  Parallel chains;
  bool empty() const { return chains.empty(); }
};

inline constexpr int kMostParallel = 8;  // chains at a time: their orders multiply in the search
inline constexpr std::size_t kLongestLead = 3;

/// The largest sets of at most kMostParallel parallel chains, of neighbours in the program; of
/// chains that agree for longer than others do, both the short and the long version. Chains in
/// order, shorter versions first.
std::vector<Parallel> parallel_products(const Graph& graph, const Wiring& wiring);

/// The longest lead that these chains can have, of at most kLongestLead operators; those at its end
/// are leads as well. Empty when others read the left operand.
Chain lead_of(const Graph& graph, const Wiring& wiring, const Parallel& chains);

/// A group of operators as the parallel chains it is made of; empty when it is not.
ParallelRun run_of(const Graph& graph, const Group& group);

/// A graph that is to be fused, and what of it may run as one: every run of neighbours among
/// parallel chains, by itself and with each lead that it can have.
struct Fusible {
  LaidOutGraph laid;
  std::vector<Parallel> parallel = {};  // whose operators are planned together
  std::vector<ParallelRun> runs = {};
};
Fusible propose_parallel(LaidOutGraph laid);

/// The one matmul that parallel chains become, with their lead, in a graph of its own. Its weights
/// take no memory: it is there to be costed.
Isolated merged_alone(const LaidOutGraph& laid, const ParallelRun& run);

/// Lowers the plan's groups of parallel chains: constants side by side, one matmul with one
/// epilogue, and for every chain's result a view of some of its columns; leads stay as they are.
/// Returns the new graph and the same plan of it. Test: tests/trace/parallel_test.cpp.
std::pair<LaidOutGraph, FusionPlan> merge_parallel(const LaidOutGraph& laid,
                                                   const FusionPlan& plan);

}  // namespace tensor
