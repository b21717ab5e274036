// Groups of operators, of which each runs as one kernel, and how a graph is wired without its
// views.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/trace/layout.h"

namespace tensor {

class Key;

/// Whether a node is an operator that takes time (not an input, a constant or a view).
bool is_compute(const Graph& graph, ValueId id);
bool is_view(const Graph& graph, ValueId id);
/// Whether it is a product of bytes.
bool is_quantized(const Graph& graph, ValueId id);
/// Whether it is the result of cond(): the second operand where the first is true, else the third.
bool is_choice(const Node& node);
/// How a node of operators may be fused.
Pattern pattern_of(const Node& node);
/// The value whose memory it is: the one behind views. Wiring::root knows it of all values.
ValueId root_of(const Graph& graph, ValueId id);

/// How the operators of a graph are connected when views are taken for the values they rename.
struct Wiring {
  std::vector<ValueId> root;  // of every value: the value whose memory it is
  std::vector<std::vector<ValueId>>
      readers;                 // of every root: the compute operators that read it, ascending
  std::vector<bool> returned;  // of every root: the caller gets it or a view of it
};
Wiring wiring(const Graph& graph);

/// Visits values, each after those that it is made from, in the order of these: `id`, and what
/// leads to it through values of which `is_entered` says so. Those that `is_known` are passed over;
/// `visit` makes a value known. There is no recursion: views may follow each other by thousands.
template <class Known, class Entered, class Visit>
void visit_inputs_first(const Graph& graph, ValueId id, Known&& is_known, Entered&& is_entered,
                        Visit&& visit) {
  std::vector<std::pair<ValueId, std::size_t>> open = {{id, 0}};  // with the next of its inputs
  while (!open.empty()) {
    const ValueId last = open.back().first;
    const auto& inputs = graph[last].inputs;
    if (is_known(last)) {
      open.pop_back();
    } else if (is_entered(last) && open.back().second < inputs.size()) {
      const ValueId input = inputs[open.back().second++];
      open.emplace_back(input, 0);
    } else {
      visit(last);
      open.pop_back();
    }
  }
}

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
  /// Whether its time and its schedule were measured for this very problem.
  bool is_measured = false;
  /// Equal for groups of a plan that pose the same problem; -1 where that is not known.
  int kind = -1;
};

/// The group of these nodes, not yet costed.
Group make_group(const Graph& graph, const Wiring& wiring, std::vector<ValueId> nodes);

/// What of a constant's elements becomes part of kernels: a single number, and the range of
/// indices.
void add_seen_values(Key& key, const Tensor& constant);

/// Keys that two groups of a graph share only if they compute the same function of their reads:
/// operators, attributes, types, wiring, and which members are written; of a laid-out graph also
/// how all of that lies, and what kernels see of constants. Groups of repeated blocks are costed
/// and reported once by it.
class Structures {
 public:
  explicit Structures(const Graph& graph) : Structures(graph, nullptr) {}
  explicit Structures(const LaidOutGraph& laid) : Structures(laid.graph, &laid.layouts) {}
  std::string of(const Group& group) const;

 private:
  Structures(const Graph& graph, const std::vector<Layout>* layouts);

  const Graph& graph_;
  // Every node has a number, equal for equal operators, attributes and types (and layouts), and
  // another, equal for equal types (and layouts), by which a group knows what it reads.
  std::vector<int> inside_, outside_;
};

struct FusionPlan {
  std::vector<Group> groups;  // in an order in which they can run
  double microseconds = 0;    // the sum of the groups' costs
};

}  // namespace tensor
