// What plans have: found by planning anew.
#include "bench/wanted_problems.h"

#include "src/trace/parallel.h"

namespace bench {

namespace detail = tensor::detail;
using tensor::CostFn, tensor::Fusion, tensor::FusionPlan, tensor::Group, tensor::LaidOutGraph;
using tensor::Measurement, tensor::Table;

namespace {

// How much less groups would have to take for the plans that are looked at to have them.
constexpr double kShare = 0.5;

}  // namespace

WantedProblems::WantedProblems(std::set<std::string> wanted, detail::Target target)
    : wanted_(std::move(wanted)), target_(std::move(target)) {
  const std::vector<Measurement> known = tensor::known_measurements(std::nullopt, target_.tuned_as);
  table_ = std::make_shared<const Table>(known, target_.kernels);
}

void WantedProblems::add_model(const LaidOutGraph& laid) {
  for (const CostFn& cost : {target_.cost(), tuned_cost(target_, table_)}) {
    const Fusion fusion = fuse_with_alternatives(propose_parallel(laid), cost, kShare);
    for (const Group& group : fusion.alternatives) add(laid, group);
    add_plan(laid, fusion.plan);
  }
  add_plan(laid, tuned_fusion(propose_parallel(laid), target_, table_));
}

void WantedProblems::add_plan(const LaidOutGraph& laid, const FusionPlan& plan) {
  for (const Group& group : plan.groups) add(laid, group);
  const auto [merged, groups] = merge_parallel(laid, plan);
  for (const Group& group : groups.groups) add(merged, group);
}

void WantedProblems::add(const LaidOutGraph& laid, const Group& group) {
  const std::string text = problem_text(laid.graph, group);
  if (wanted_.erase(text) > 0) found_.emplace(text, isolate(laid, group));
}

}  // namespace bench
