// The operators that a partition divides, in the order in which they are planned, with the edges
// among them; views are contracted.
#pragma once

#include <vector>

#include "src/trace/group.h"
#include "src/trace/parallel.h"

namespace tensor::fusion {

struct ComputeGraph {
  explicit ComputeGraph(const Fusible& fusible);

  int size() const { return static_cast<int>(ids.size()); }
  Pattern pattern(int i) const;
  bool is_heavy(int i) const { return pattern(i) == Pattern::complex_out_fusable; }

  const Fusible& fusible;
  const Graph& graph;
  const Wiring wires;
  std::vector<ValueId> ids;  // of operator i
  std::vector<int> index;    // of a value; -1 when no operator computes it
  std::vector<std::vector<int>> producers, consumers;

 private:
  void order();
};

/// Operators that are planned by themselves: [begin, end). No group crosses the border of a piece.
struct Piece {
  int begin, end;
};

/// All operators in pieces of at most `most`, divided where few values cross.
std::vector<Piece> pieces_of(const ComputeGraph& graph, int most);

}  // namespace tensor::fusion
