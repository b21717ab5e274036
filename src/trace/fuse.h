// Operator fusion by dynamic programming (DPOF: GTCO, section IV-B, algorithm 1).
//
// A partition of the graph's operators into groups is built from the end: dp[S] = min over the
// endings E of S of dp[S - E] + cost(E), memoised on S. An ending is a group that nothing else in S
// reads. Which groups a kernel can run, and how long it takes, comes from the cost function alone.
// A group either narrows down to one operator that everything in it leads to, or it is a run of
// parallel products (parallel.h), which costs what the one product costs that they become. In the
// cheapest partition, elementwise groups then join groups that write what they read.
#pragma once

#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "src/trace/graph.h"

namespace tensor {

/// How the operators of a graph are connected when views are taken for the values they rename.
struct Wiring {
  std::vector<ValueId> root;  // of every value: the value whose memory it is
  std::vector<std::vector<ValueId>>
      readers;                 // of every root: the compute operators that read it, ascending
  std::vector<bool> returned;  // of every root: the caller gets it or a view of it
};
Wiring wiring(const Graph& graph);

/// Operators that run as one kernel.
struct Group {
  int family = -1;
  std::vector<ValueId>
      nodes;  // ascending; views are not members, they belong to the values they rename
  std::vector<ValueId> reads;   // values from outside that the nodes read, views included
  std::vector<ValueId> writes;  // members that somebody outside reads
  double microseconds = 0;
  /// How the family runs it (Schedule::text, kernels/schedule.h); empty: as the family likes.
  std::string schedule = {};
};

/// The group of these nodes, not yet costed.
Group make_group(const Graph& graph, const Wiring& wiring, std::vector<ValueId> nodes);

/// Texts that two groups of a graph share only if they compute the same function of their reads:
/// operators, attributes, types, wiring, and which members are written. Groups of repeated blocks
/// are costed and reported once by it.
class Structures {
 public:
  explicit Structures(const Graph& graph);
  std::string of(const Group& group) const;

 private:
  const Graph& graph_;
  // Of every node a number, equal for equal operators, attributes and types; and one that is equal
  // for equal types, by which a group knows what it reads.
  std::vector<int> inside_, outside_;
};

struct GroupCost {
  int family = -1;  // -1: no kernel runs this group
  double microseconds = std::numeric_limits<double>::infinity();
  std::string schedule = {};  // of the kernel that takes so long; empty: as the family likes
};

/// The cost of running a group as one kernel.
using CostFn = std::function<GroupCost(const Graph&, const Group&)>;

struct FusionPlan {
  std::vector<Group> groups;  // in an order in which they can run
  double microseconds = 0;    // the sum of the groups' costs
};

struct FuseLimits {
  int nodes = 12;         // in a group
  int heavy = 2;          // matmuls and convolutions in a group, unless they are parallel
  int groups = 4096;      // looked at for each last operator, small ones first
  int parallel = 8;       // products in a group
  double merging = 0.02;  // the share of its time that a group of parallel products must save,
                          // because it keeps its weights in memory a second time
  int states = 20000;     // sets S, after which groups are taken in the order of the program only
  bool joins = true;      // in the end, groups may come to lead to several operators
};

/// The cheapest partition. Throws InternalError when some operator has no kernel even by itself.
/// Test: tests/trace/fuse_test.cpp compares it with exhaustive search.
FusionPlan fuse(const Graph& graph, const CostFn& cost, const FuseLimits& limits = {});

/// The same, and groups that it nearly has: one of each structure for which a partition with that
/// group would be cheaper if the group took less time than estimated, by this share of it. Groups
/// of parallel products are left out, which are only there to be costed.
struct Fusion {
  FusionPlan plan;
  std::vector<Group> alternatives;
};
Fusion fuse_with_alternatives(const Graph& graph, const CostFn& cost, double share,
                              const FuseLimits& limits = {});

/// Every operator by itself.
FusionPlan no_fusion(const Graph& graph, const CostFn& cost);

/// Whether a node is an operator that takes time (not an input, a constant or a view).
bool is_compute(const Graph& graph, ValueId id);
bool is_view(const Graph& graph, ValueId id);
/// The value whose memory it is: the one behind views. Wiring::root knows it of all values.
ValueId root_of(const Graph& graph, ValueId id);

}  // namespace tensor
