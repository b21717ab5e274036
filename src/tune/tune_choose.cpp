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

// Puts the best schedule of a problem into the plan; false where there is nothing to choose.
bool Tuner::choose(const Plans& plans, FusionPlan& plan, const Entry& entry,
                   const TimePlans& time) {
  const Problem& problem = *entry.problem;
  std::vector<std::size_t> groups;
  for (std::size_t i = 0; i < plan.groups.size(); ++i)
    if (problem_text(plans.merged.first.graph, plan.groups[i]) == problem.text())
      groups.push_back(i);
  if (groups.empty()) return false;
  const Group& now = plan.groups[groups[0]];
  const std::string incumbent =
      Problem::joined(std::string(target_.family_name(now.family)), now.schedule);
  const std::vector<Schedule> rivals =
      rivals_of(Schedule::parse(incumbent), problem.space().chosen, *entry.search);
  if (rivals.empty()) return false;
  std::vector<FusionPlan> variants(1 + rivals.size(), plan);
  for (std::size_t i = 0; i < rivals.size(); ++i)
    for (const std::size_t group : groups) {
      const Choice choice = problem.choice(rivals[i]);
      std::tie(variants[i + 1].groups[group].family, variants[i + 1].groups[group].schedule) =
          std::tie(choice.family, choice.schedule);
    }
  const std::vector<std::vector<double>> times = time(variants);
  if (times.size() != variants.size() || times[0].empty()) return true;
  std::size_t best = 0;
  for (std::size_t i = 1; i < times.size(); ++i)
    if (is_faster(times[i], times[0]) && (best == 0 || median(times[i]) < median(times[best])))
      best = i;
  if (best == 0) return true;
  Measurement m;
  m.problem = problem.text();
  m.schedule = rivals[best - 1].text();
  m.model_microseconds = times[best];
  stamp(m);
  log_.append(m);
  known_.push_back(m);
  plan = variants[best];
  std::ostringstream text;
  text << entry.operators << ", " << incumbent << " -> " << rivals[best - 1].text() << ": "
       << std::fixed << std::setprecision(1) << median(times[0]) << " -> " << median(times[best])
       << " us";
  chosen_.push_back(text.str());
  return true;
}

}  // namespace tensor
