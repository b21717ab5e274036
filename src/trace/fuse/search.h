// The cheapest way to divide a piece into groups, among those that some kernel runs.
//
// dp[S] = min over the endings E of S of dp[S - E] + price(E), where S is what is left of the piece
// and an ending is a group that nothing else in S reads. The sets S are found from the whole piece
// on, the larger ones first, and their prices from the empty set on. There may be as many of them
// as subsets of the branches of a graph, and only so many steps are taken from one to another: of
// each size, those sets are pursued that would cost least if the operators that they still hold ran
// by themselves. Where the steps suffice for all, the partition is the cheapest.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <unordered_map>
#include <vector>

#include "src/trace/fuse.h"
#include "src/trace/fuse/compute_graph.h"
#include "src/trace/node_set.h"

namespace tensor::fusion {

/// A group that some kernel runs. Operators are counted from the first of the piece.
struct Choice {
  NodeSet nodes;
  std::vector<int> readers;  // operators of the piece, outside the group, that read a member
  GroupCost cost;
  double price;  // what it counts in the search
  bool is_run;   // of parallel products
};

class Search {
 public:
  /// choices[i]: the groups whose last operator is i, the one of i alone first.
  Search(const ComputeGraph& graph, Piece piece, std::vector<std::vector<Choice>> choices,
         std::int64_t steps);

  Piece piece() const { return piece_; }
  /// The groups of the cheapest partition, from the end.
  std::vector<const Choice*> partition() const;

  /// use(choice, dearer): the other groups that could stand at some point of that partition, and
  /// by how much the cheapest partition with them is dearer.
  void for_each_rival(const std::function<void(const Choice&, double)>& use) const;

 private:
  // A way from one set to a smaller one.
  struct Step {
    const Choice* choice = nullptr;
    int to = -1;
  };
  // A set, as far as it is needed: `rest` and `sinks` until the ways from it are known.
  struct State {
    NodeSet rest, sinks;  // what is left; the members of it that no other reads
    double alone;         // the price of what is left, every operator by itself
    double spent;         // of the cheapest way to it from the whole piece
    std::vector<Step> steps = {};
    Step best = {};  // of the cheapest partition of the rest
    double to_go = std::numeric_limits<double>::infinity();

    double outlook() const { return spent + alone; }
    void forget() { rest = sinks = NodeSet(); }
  };
  struct Layer {
    std::vector<int> states;
    std::unordered_map<NodeSet, int, NodeSet::Hash> known;
  };

  State whole() const;
  void visit(std::int64_t steps);
  std::int64_t add_steps(int from);  // how many
  void settle(State& state) const;
  int reached(const State& from, const Choice& choice);
  NodeSet sinks_of(const NodeSet& rest, const State& before, const Choice& choice) const;
  bool is_read(const NodeSet& rest, int i) const;

  const ComputeGraph& graph_;
  const Piece piece_;
  std::vector<std::vector<Choice>> choices_;
  std::vector<NodeSet> descendants_;  // of every operator, and itself
  std::vector<State> states_;
  std::vector<Layer> layers_;  // of the sets of a size
};

}  // namespace tensor::fusion
