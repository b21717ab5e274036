// The end of tuning on a device whose kernels overlap: of schedules that are about as fast alone
// those are chosen with which the whole model is fastest, problem by problem, the heaviest first.
#include <algorithm>
#include <iomanip>
#include <limits>
#include <set>
#include <sstream>

#include "src/tune/tuner.h"

namespace tensor {
namespace {

constexpr std::size_t kProblems = 8, kRivals = 3;
constexpr int kPasses = 3;
constexpr double kNear = 1.05;  // times the fastest one's time alone

// In how many numbers they differ; more than any where the structure does.
std::size_t difference(const Schedule& a, const Schedule& b) {
  if (a.sketch != b.sketch || a.values.size() != b.values.size()) return SIZE_MAX;
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i) count += a.values[i] != b.values[i];
  return count;
}

// What the analytic model takes, however fast it is alone; then those that are least like what is
// in the list already: what is alike overlaps alike. Of several the fastest.
std::vector<Schedule> rivals_of(const Schedule& incumbent, const Schedule& level0,
                                const Search& search) {
  const std::vector<Search::Best> near = search.within(kNear);
  std::vector<Schedule> list = {incumbent};
  for (const Search::Best& one : search.within(std::numeric_limits<double>::infinity()))
    if (one.schedule == level0 && !(level0 == incumbent)) list.push_back(level0);
  while (list.size() <= kRivals) {
    const Schedule* next = nullptr;
    std::size_t most = 0;
    for (const Search::Best& one : near) {
      std::size_t least = SIZE_MAX;
      for (const Schedule& taken : list) least = std::min(least, difference(one.schedule, taken));
      if (least > most) most = least, next = &one.schedule;
    }
    if (!next) break;
    list.push_back(*next);
  }
  list.erase(list.begin());
  return list;
}

std::vector<std::size_t> groups_of(const Graph& graph, const FusionPlan& plan,
                                   const Problem& problem) {
  std::vector<std::size_t> groups;
  for (std::size_t i = 0; i < plan.groups.size(); ++i)
    if (problem_text(graph, plan.groups[i]) == problem.text()) groups.push_back(i);
  return groups;
}

void set_schedule(FusionPlan& plan, const std::vector<std::size_t>& groups, const Problem& problem,
                  const Schedule& schedule) {
  const Choice choice = problem.choice(schedule);
  for (const std::size_t group : groups) {
    plan.groups[group].family = choice.family;
    plan.groups[group].schedule = choice.schedule;
  }
}

}  // namespace

void Tuner::choose() {
  end_s_ = options_.seconds;
  const Plans plans = plan(table(), true);
  adopt(plans);
  std::vector<const Entry*> heaviest;
  for (const Entry& entry : tasks_)
    if (entry.weight > 0 && entry.search->best()) heaviest.push_back(&entry);
  std::stable_sort(heaviest.begin(), heaviest.end(), [](const Entry* a, const Entry* b) {
    return a->weight * a->search->best()->microseconds >
           b->weight * b->search->best()->microseconds;
  });
  const TimePlans time = make_timer_(plans.merged.first, [this] { return !late().empty(); });
  FusionPlan plan = plans.merged.second;
  begin_with_level0(plans, plan, heaviest, time);
  // Again where choices changed what others overlap with.
  std::size_t before = SIZE_MAX;
  for (int pass = 0; pass < kPasses && chosen_.size() != before; ++pass) {
    before = chosen_.size();
    std::size_t count = 0;
    for (const Entry* entry : heaviest)
      if (count < kProblems && late().empty()) {
        count += choose(plans, plan, *entry, time);
        tell(static_cast<int>(entry - tasks_.data()));
      }
  }
}

// What is best alone need not be best together: where the analytic model's choices make the faster
// whole, that is where choosing begins.
void Tuner::begin_with_level0(const Plans& plans, FusionPlan& plan,
                              const std::vector<const Entry*>& entries, const TimePlans& time) {
  FusionPlan level0 = plan;
  for (const Entry* entry : entries) {
    const Problem& problem = *entry->problem;
    set_schedule(level0, groups_of(plans.merged.first.graph, plan, problem), problem,
                 problem.space().chosen);
  }
  const std::vector<std::vector<double>> times = time(std::vector{plan, level0});
  if (times.size() != 2 || times[0].empty() || !is_faster(times[1], times[0])) return;
  for (const Entry* entry : entries) {
    const auto groups = groups_of(plans.merged.first.graph, plan, *entry->problem);
    if (groups.empty()) continue;
    const std::string now = scheduled(plan.groups[groups[0]]);
    const Schedule& chosen = entry->problem->space().chosen;
    if (now != chosen.text()) note(*entry, now, chosen, times[0], times[1]);
  }
  plan = level0;
}

std::string Tuner::scheduled(const Group& group) const {
  return Problem::joined(std::string(target_.family_name(group.family)), group.schedule);
}

// A line of the log, which counts more than what was measured alone.
void Tuner::note(const Entry& entry, const std::string& before, const Schedule& after,
                 const std::vector<double>& times_before, const std::vector<double>& times_after) {
  Measurement m;
  m.problem = entry.problem->text();
  m.schedule = after.text();
  m.model_microseconds = times_after;
  stamp(m);
  log_.append(m);
  known_.push_back(m);
  std::ostringstream text;
  text << entry.operators << ", " << before << " -> " << after.text() << ": " << std::fixed
       << std::setprecision(1) << median(times_before) << " -> " << median(times_after) << " us";
  chosen_.push_back(text.str());
}

// Puts the best schedule of a problem into the plan; false where there is nothing to choose.
bool Tuner::choose(const Plans& plans, FusionPlan& plan, const Entry& entry,
                   const TimePlans& time) {
  const Problem& problem = *entry.problem;
  const auto groups = groups_of(plans.merged.first.graph, plan, problem);
  if (groups.empty()) return false;
  const std::string incumbent = scheduled(plan.groups[groups[0]]);
  const std::vector<Schedule> rivals =
      rivals_of(Schedule::parse(incumbent), problem.space().chosen, *entry.search);
  if (rivals.empty()) return false;
  std::vector<FusionPlan> variants(1 + rivals.size(), plan);
  for (std::size_t i = 0; i < rivals.size(); ++i)
    set_schedule(variants[i + 1], groups, problem, rivals[i]);
  const std::vector<std::vector<double>> times = time(variants);
  if (times.size() != variants.size() || times[0].empty()) return true;
  std::size_t best = 0;
  for (std::size_t i = 1; i < times.size(); ++i)
    if (is_faster(times[i], times[0]) && (best == 0 || median(times[i]) < median(times[best])))
      best = i;
  if (best == 0) return true;
  note(entry, incumbent, rivals[best - 1], times[0], times[best]);
  plan = variants[best];
  return true;
}

}  // namespace tensor
