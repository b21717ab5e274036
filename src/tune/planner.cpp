#include "src/tune/planner.h"

#include <algorithm>
#include <set>
#include <string>

#include "src/core/checksum.h"
#include "src/trace/isolate.h"

namespace tensor {

bool divide_alike(const FusionPlan& one, const FusionPlan& other) {
  return std::equal(one.groups.begin(), one.groups.end(), other.groups.begin(), other.groups.end(),
                    [](const Group& a, const Group& b) { return a.nodes == b.nodes; });
}

bool has_division(const std::vector<ModelPlan>& all, const FusionPlan& plan) {
  return std::any_of(all.begin(), all.end(),
                     [&](const ModelPlan& one) { return divide_alike(one.apart, plan); });
}

ModelPlan Planner::merged(FusionPlan apart) const {
  ModelPlan plan;
  plan.merged = merge_parallel(fusible_.laid, apart);
  plan.apart = std::move(apart);
  return plan;
}

ModelPlan Planner::plan(const Times& times) const {
  if (!options_.fuse) return merged(no_fusion(fusible_.laid, tuned_cost(target_, times)));
  if (!options_.by_times) return divided({Partition::kEstimated}, times);
  return merged(tuned_fusion(fusible_, target_, times));
}

ModelPlan Planner::hoped_for(const Times& times) const {
  // Groups that the plan would have if they took so much less than estimated.
  constexpr double kNearly = 0.15;
  if (!has_choice()) return plan(times);
  Fusion fusion = fuse_with_alternatives(fusible_, tuned_cost(target_, times), kNearly);
  ModelPlan plan = merged(std::move(fusion.plan));
  plan.alternatives = std::move(fusion.alternatives);
  return plan;
}

ModelPlan Planner::divided(const Partition& partition, const Times& times) const {
  ModelPlan plan = merged(fusion_by(partition, fusible_, target_, times));
  plan.partition = partition;
  return plan;
}

FusionPlan Planner::estimated() const {
  return fusion_by({Partition::kEstimated}, fusible_, target_, nullptr);
}

std::vector<ModelPlan> Planner::partitions(const FusionPlan& began, const Times& times) const {
  if (!has_choice()) return {plan(times)};
  Partition chosen;
  if (times) chosen = chosen_partition(graph(), estimated(), target_, *times);
  std::vector<ModelPlan> all;
  for (const Partition& partition : {chosen, Partition{}, Partition{Partition::kEstimated}})
    if (ModelPlan plan = divided(partition, times); !has_division(all, plan.apart))
      all.push_back(std::move(plan));
  if (!has_division(all, began))
    if (std::optional<ModelPlan> plan = divided_like(began, times)) all.push_back(*std::move(plan));
  return all;
}

std::optional<ModelPlan> Planner::divided_like(const FusionPlan& wanted, const Times& times) const {
  constexpr int kTries = 4;  // without what was fused each time before
  std::set<std::string> fused;
  for (const Group& group : wanted.groups) fused.insert(problem_text(graph(), group));
  Partition partition;
  for (int i = 0; i < kTries; ++i) {
    ModelPlan plan = divided(partition, times);
    if (divide_alike(plan.apart, wanted)) return plan;
    for (const Group& group : plan.apart.groups)
      if (const std::string text = problem_text(graph(), group);
          group.nodes.size() > 1 && !fused.contains(text))
        partition.without.insert(crc32_digits(text));
  }
  return std::nullopt;
}

}  // namespace tensor
