// Groups in an order in which they can run, and elementwise groups that join others.
#pragma once

#include <vector>

#include "src/trace/fuse/group_costs.h"

namespace tensor::fusion {

/// Groups in the order of the program as far as what they read allows.
std::vector<Group> in_program_order(const Wiring& wires, std::vector<Group> groups);

/// Elementwise groups join groups that write what they read where that is cheaper: as their
/// operators lead elsewhere than theirs, no ending has both. The groups are those of a piece.
std::vector<Group> join_elementwise(const LaidOutGraph& laid, const Wiring& wires,
                                    std::vector<Group> groups, GroupCosts& costs, int most_nodes);

}  // namespace tensor::fusion
