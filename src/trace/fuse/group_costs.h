// What groups cost: asked once about each structure.
#pragma once

#include <string>
#include <unordered_map>

#include "src/trace/fuse.h"

namespace tensor::fusion {

class GroupCosts {
 public:
  GroupCosts(const LaidOutGraph& laid, const CostFn& cost)
      : laid_(laid), cost_(cost), structures_(laid) {}

  const GroupCost& of(const Group& group) {
    return known(group, [&] { return cost_(laid_, group); });
  }
  /// Parallel products cost what the one product costs that they become.
  const GroupCost& of(const Group& group, const ParallelRun& run) {
    return known(group, [&] {
      const Isolated merged = merged_alone(laid_, run);
      return cost_(merged.laid, merged.group);
    });
  }
  /// How many costs were asked for.
  std::size_t asked() const { return costs_.size(); }
  std::string structure(const Group& group) const { return structures_.of(group); }

 private:
  template <class F>
  const GroupCost& known(const Group& group, F&& cost) {
    const auto [place, is_new] = costs_.try_emplace(structures_.of(group));
    if (is_new) place->second = cost();
    return place->second;
  }

  const LaidOutGraph& laid_;
  const CostFn& cost_;
  const Structures structures_;
  std::unordered_map<std::string, GroupCost> costs_;
};

inline Group costed(Group group, const GroupCost& cost) {
  group.family = cost.family;
  group.microseconds = cost.microseconds;
  group.schedule = cost.schedule;
  group.is_measured = cost.is_measured;
  return group;
}

}  // namespace tensor::fusion
