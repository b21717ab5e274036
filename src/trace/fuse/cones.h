// What may be a group: sets of operators that lead to one of them, and runs of parallel products.
#pragma once

#include <vector>

#include "src/trace/fuse/group_costs.h"
#include "src/trace/fuse/search.h"

namespace tensor::fusion {

class Cones {
 public:
  using Members = std::vector<int>;  // descending

  Cones(const ComputeGraph& graph, Piece piece, const FuseLimits& limits, GroupCosts& costs);

  /// The groups that end in each operator of the piece, the one of it alone first; of several
  /// operators at most about `most` that are unlike each other, those of few before those of more.
  /// Throws InternalError when an operator has no kernel by itself.
  std::vector<std::vector<Choice>> find(std::int64_t most) &&;

 private:
  std::vector<Members> grown(const Members& members) const;
  bool is_convex_with(const Members& members, int p) const;
  void add_run(const ParallelRun& run);
  // Returns the effort that it took.
  std::int64_t add(const Members& members, const std::vector<int>& sinks,
                   const ParallelRun* run = nullptr);

  const ComputeGraph& graph_;
  const Piece piece_;
  const FuseLimits& limits_;
  GroupCosts& costs_;
  std::vector<NodeSet> ancestors_;
  std::vector<std::vector<Choice>> choices_;
};

}  // namespace tensor::fusion
