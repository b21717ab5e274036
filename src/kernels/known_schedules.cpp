#include "src/kernels/known_schedules.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "tensor/text.h"

namespace tensor {
namespace {

// Of groups whose kernels may be the same in two sizes.
std::string kind_of(const LaidOutGraph& laid, const Group& group, const std::string& device) {
  TextWriter kind;
  kind << device << ' ' << group.family;
  for (const ValueId id : group.reads) kind << ' ' << laid.graph.type(id).dtype;
  for (const ValueId id : group.nodes) kind << ' ' << info(laid.graph[id].op).name;
  return kind.str();
}

}  // namespace

Schedule KnownSchedules::of(const LaidOutGraph& laid, const Group& group, const Space& space,
                            const std::string& device) {
  Schedule best = space.of(group.schedule);
  const bool is_asked_for = !group.schedule.empty() && best.text() == group.schedule;
  const std::lock_guard lock(mutex_);
  std::vector<Schedule>& known = known_[kind_of(laid, group, device)];
  const auto is_known = [&] { return std::find(known.begin(), known.end(), best) != known.end(); };
  if (!is_asked_for && !is_known()) {
    double least = kNear * space.model_us(best);
    for (const Schedule& schedule : known) {
      if (!space.has(schedule)) continue;
      const double us = space.model_us(schedule);
      if (us < least) best = schedule, least = us;
    }
  }
  if (is_known()) return best;
  if (known.size() == kMost) known.erase(known.begin());
  known.push_back(best);
  return best;
}

FusionPlan scheduled(const LaidOutGraph& laid, FusionPlan plan, Offers& offers,
                     KnownSchedules& known, const std::string& device) {
  const Structures structures(laid);
  std::map<std::tuple<std::string, int, std::string>, std::pair<int, std::string>> kinds;
  for (Group& group : plan.groups) {
    const auto [kind, is_new] = kinds.try_emplace(
        {structures.of(group), group.family, group.schedule}, kinds.size(), group.schedule);
    if (is_new)
      for (const Offer& offer : offers.of(isolate(laid, group)))
        if (const Space* space = offer.family == group.family ? offer.space() : nullptr)
          kind->second.second = known.of(laid, group, *space, device).text();
    std::tie(group.kind, group.schedule) = kind->second;
  }
  return plan;
}

}  // namespace tensor
