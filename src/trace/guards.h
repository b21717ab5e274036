// Guards: what must hold for a group to be needed, found from the choices (cond) of a graph.
#pragma once

#include <compare>
#include <vector>

#include "src/trace/group.h"

namespace tensor {

/// That the one element of `condition` is `value`.
struct Guard {
  ValueId condition = 0;
  bool value = true;
  friend auto operator<=>(const Guard&, const Guard&) = default;
};

/// All of which must hold. Where one does not, the conditions of others may not have been computed.
using Guards = std::vector<Guard>;

/// Those of every group of the plan: whoever runs it reads the results of groups whose guards do
/// not all hold nowhere. Groups have no side effects, so they may run nevertheless. A guard is
/// left out where its condition is computed later than the group.
std::vector<Guards> guards_of(const Graph& graph, const FusionPlan& plan);

}  // namespace tensor
