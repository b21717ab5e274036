// Operator fusion by dynamic programming (DPOF: GTCO, section IV-B, algorithm 1).
//
// A partition of the graph's operators into groups is built from the end: dp[S] = min over the
// endings E of S of dp[S - E] + cost(E), memoised on S. An ending is a group that nothing else in S
// reads. Which groups a kernel can run, and how long it takes, comes from the cost function alone.
// A group either narrows down to one operator that everything in it leads to, or it is a run of
// parallel products (parallel.h), which costs what the one product costs that they become. In the
// cheapest partition, elementwise groups then join groups that write what they read.
//
// There may be as many sets S, and as many groups, as a graph has subsets: a sum of eight branches
// that read one value has 10^7. FuseLimits bound how many are looked at. Where that does not do,
// large groups are not seen, or partitions whose beginnings promised less (fuse/search.h); every
// graph gets a partition, at worst that of operators by themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "src/trace/group.h"
#include "src/trace/parallel.h"

namespace tensor {

struct GroupCost {
  int family = -1;  // -1: no kernel runs this group
  double microseconds = std::numeric_limits<double>::infinity();
  std::string schedule = {};  // of the kernel that takes so long; empty: as the family likes
  bool is_measured = false;   // not estimated
};

/// The cost of running a group as one kernel, its values laid out so.
using CostFn = std::function<GroupCost(const LaidOutGraph&, const Group&)>;

struct FuseLimits {
  int nodes = 12;         // in a group
  int heavy = 2;          // matmuls and convolutions in a group, unless they are parallel
  double merging = 0.02;  // the share of its time that a group of parallel products must save,
                          // because it keeps its weights in memory a second time
  bool joins = true;      // in the end, groups may come to lead to several operators
  // What bounds the time, which is linear in the size of a graph of any shape.
  int groups = 4096;             // of several operators, beside two for each operator
  std::int64_t steps = 1 << 18;  // from one set S to another
  int piece = 4096;              // operators that are planned at once
};

/// The cheapest partition. Throws InternalError when some operator has no kernel even by itself.
/// Test: tests/trace/fuse_test.cpp compares it with exhaustive search.
FusionPlan fuse(const Fusible& fusible, const CostFn& cost, const FuseLimits& limits = {});

/// The same, and groups that it nearly has: one of each structure for which a partition with that
/// group would be cheaper if the group took less time than estimated, by this share of it. Groups
/// of parallel products are left out, which are only there to be costed.
struct Fusion {
  FusionPlan plan;
  std::vector<Group> alternatives;
};
Fusion fuse_with_alternatives(const Fusible& fusible, const CostFn& cost, double share,
                              const FuseLimits& limits = {});

/// Every operator by itself: what `fuse` is compared with.
FusionPlan no_fusion(const LaidOutGraph& laid, const CostFn& cost);

}  // namespace tensor
