// The end of tuning: the whole model decides between what was measured alone and what the analytic
// model takes. Where kernels overlap it chooses among schedules that are about as fast alone, too,
// problem by problem, the heaviest first.
#include <algorithm>
#include <iomanip>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "src/core/checksum.h"
#include "src/tune/tuner.h"

namespace tensor {
namespace {

constexpr std::size_t kProblems = 8, kRivals = 3;
constexpr int kPasses = 3, kFusions = 4;
constexpr double kNear = 1.05;   // times the fastest one's time alone
constexpr double kLikely = 1.1;  // times the sum of all kernels alone by the partition so far

// In how many numbers they differ; more than any where the structure does.
std::size_t difference(const Schedule& a, const Schedule& b) {
  if (a.sketch != b.sketch || a.values.size() != b.values.size()) return SIZE_MAX;
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i) count += a.values[i] != b.values[i];
  return count;
}

// What the analytic model takes, where a table would let it be chosen; then those that are least
// like what is in the list already: what is alike overlaps alike. Of several the fastest.
std::vector<Schedule> rivals_of(const Schedule& incumbent, const Schedule& level0,
                                const Search& search) {
  const std::vector<Search::Best> near = search.within(kNear);
  std::vector<Schedule> list = {incumbent};
  for (const Search::Best& one : search.within(Table::kChosen))
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

// What is faster than the first of several variants, and by what times.
struct Faster {
  std::size_t best = 0;  // or the first itself
  std::vector<double> before, after;
};

// The fastest of them is timed once more, beside the first alone: of several that are about as
// fast, one is likely to look faster in the first rounds by chance.
Faster find_faster(const std::vector<Variant>& variants, const TimePlans& time) {
  const std::vector<std::vector<double>> times = time(variants);
  std::size_t best = 0;
  for (std::size_t i = 1; i < times.size() && !times[0].empty(); ++i)
    if (is_faster(times[i], times[0]) && (best == 0 || median(times[i]) < median(times[best])))
      best = i;
  if (best == 0) return {};
  const std::vector<Variant> both = {variants[0], variants[best]};
  const std::vector<std::vector<double>> again = time(both);
  if (!is_faster(again[1], again[0])) return {};
  return {best, again[0], again[1]};
}

bool divide_alike(const FusionPlan& one, const FusionPlan& other) {
  return std::equal(one.groups.begin(), one.groups.end(), other.groups.begin(), other.groups.end(),
                    [](const Group& a, const Group& b) { return a.nodes == b.nodes; });
}

}  // namespace

void Tuner::choose() {
  end_s_ = options_.seconds;
  std::vector<Plans> partitions = this->partitions();
  for (const Plans& plans : partitions) adopt(plans);
  TimePlans time = timer(partitions);
  Variant variant = choose_start(partitions, time);
  has_start_ = true;
  if (!limits_.overlap) return;
  for (int fusions = 0; fusions < kFusions && late().empty(); ++fusions)
    if (!choose_fusion(partitions, variant, time)) break;
  const Plans& plans = partitions[variant.partition];
  adopt(plans);
  std::vector<const Entry*> heaviest;
  for (const Entry& entry : tasks_)
    if (entry.weight > 0 && entry.search->best()) heaviest.push_back(&entry);
  std::stable_sort(heaviest.begin(), heaviest.end(), [](const Entry* a, const Entry* b) {
    return a->weight * a->search->best()->microseconds >
           b->weight * b->search->best()->microseconds;
  });
  // Again where choices changed what others overlap with.
  std::size_t before = SIZE_MAX;
  for (int pass = 0; pass < kPasses && chosen_.size() != before; ++pass) {
    before = chosen_.size();
    std::size_t count = 0;
    for (const Entry* entry : heaviest)
      if (count < kProblems && late().empty()) {
        count += choose(plans.merged.first, variant, *entry, time);
        tell(static_cast<int>(entry - tasks_.data()));
      }
  }
}

// The first comparison is finished however late it is, so that nothing ends slower than it began.
TimePlans Tuner::timer(const std::vector<Plans>& partitions) const {
  Partitions merged;
  for (const Plans& plans : partitions) merged.push_back(plans.merged);
  return make_timer_(std::move(merged), [this] {
    return has_start_ ? !late().empty() : options_.stop && options_.stop();
  });
}

Tuner::Plans Tuner::divided(const Partition& partition) const {
  Plans plans = merged(fusion_by(partition, laid_.graph, target_, table()));
  plans.partition = partition;
  return plans;
}

FusionPlan Tuner::estimated() const {
  return fusion_by({Partition::kEstimated}, laid_.graph, target_, nullptr);
}

bool Tuner::has(const std::vector<Plans>& all, const FusionPlan& plan) {
  return std::any_of(all.begin(), all.end(),
                     [&](const Plans& one) { return divide_alike(one.apart, plan); });
}

// The partition by today's measurements that is this one: without all else that they would fuse.
std::optional<Tuner::Plans> Tuner::divided_like(const FusionPlan& wanted) const {
  std::set<std::string> fused;
  for (const Group& group : wanted.groups) fused.insert(problem_text(laid_.graph, group));
  Partition partition;
  for (int i = 0; i < kFusions; ++i) {
    Plans plans = divided(partition);
    if (divide_alike(plans.apart, wanted)) return plans;
    for (const Group& group : plans.apart.groups)
      if (const std::string text = problem_text(laid_.graph, group);
          group.nodes.size() > 1 && !fused.contains(text))
        partition.without.insert(crc32_digits(text));
  }
  return std::nullopt;
}

// First what the log says as it is, then of measured and estimated what is another, and what the
// log said when tuning began: what was measured since must not make the model slower.
std::vector<Tuner::Plans> Tuner::partitions() const {
  if (!limits_.fuse || !limits_.ablation.use_partition) return {plan(table(), true)};
  Partition chosen;
  if (const auto table = this->table())
    chosen = chosen_partition(laid_.graph, estimated(), target_, *table);
  std::vector<Plans> all;
  for (const Partition& partition : {chosen, Partition{}, Partition{Partition::kEstimated}})
    if (Plans plans = divided(partition); !has(all, plans.apart)) all.push_back(std::move(plans));
  if (!has(all, began_))
    if (std::optional<Plans> plans = divided_like(began_)) all.push_back(*std::move(plans));
  return all;
}

// The partition and, after it, those without one more of its heaviest groups that are of several
// operators: what is likely by what the kernels take alone. What is new in them is measured.
std::vector<Tuner::Plans> Tuner::without_heaviest(const Plans& plans) {
  std::vector<Plans> all = {plans};
  if (!limits_.fuse || !limits_.ablation.use_partition) return all;
  std::map<std::string, double> times;
  for (const Group& group : plans.apart.groups)
    if (group.nodes.size() > 1) times[problem_text(laid_.graph, group)] += group.microseconds;
  std::vector<std::pair<double, std::string>> heaviest;
  for (const auto& [text, us] : times) heaviest.push_back({us, text});
  std::sort(heaviest.rbegin(), heaviest.rend());
  if (heaviest.size() > kProblems) heaviest.resize(kProblems);
  for (const auto& [us, text] : heaviest) {
    if (all.size() > kRivals) break;
    Partition partition = plans.partition;
    partition.without.insert(crc32_digits(text));
    Plans other = divided(partition);
    if (has(all, other.apart) || other.apart.microseconds > kLikely * plans.apart.microseconds)
      continue;
    std::vector<Slot> level0;
    for (const int task : adopt(other)) add_slot(level0, task, 1);
    measure(level0);
    all.push_back(level0.empty() ? std::move(other) : divided(partition));
  }
  return all;
}

// Whether the whole model is faster without one of its fusions. The partitions are new, and so are
// the timer and the variant, which is the fastest of them.
bool Tuner::choose_fusion(std::vector<Plans>& partitions, Variant& variant, TimePlans& time) {
  std::vector<Plans> all = without_heaviest(partitions[variant.partition]);
  if (all.size() == 1) return false;
  std::vector<Variant> variants = {{0, variant.plan}};
  for (std::size_t i = 1; i < all.size(); ++i) variants.push_back({i, all[i].merged.second});
  time = nullptr;  // one child at a time
  time = timer(all);
  const auto [best, before, after] = find_faster(variants, time);
  if (best > 0) note_partition(all[0].partition, all[best].partition, before, after);
  variant = variants[best];
  partitions = std::move(all);
  return best > 0;
}

// The plan with what the analytic model takes for every problem, where a table would let it be
// chosen.
FusionPlan Tuner::with_level0(const Plans& plans) const {
  FusionPlan plan = plans.merged.second;
  for (Group& group : plan.groups) {
    const Entry* entry = entry_of(plans.merged.first, group);
    if (!entry || entry->before_us <= 0 || !entry->search->best()) continue;
    if (entry->before_us > Table::kChosen * entry->search->best()->microseconds) continue;
    const Choice choice = entry->problem->choice(entry->problem->space().chosen);
    group.family = choice.family;
    group.schedule = choice.schedule;
  }
  return plan;
}

// What is best alone need not be best together: the fastest whole of what was measured best and
// what the analytic model would do, in fusion and in schedules, is where choosing begins.
Variant Tuner::choose_start(const std::vector<Plans>& partitions, const TimePlans& time) {
  std::vector<Variant> variants;
  for (std::size_t i = 0; i < partitions.size(); ++i) {
    variants.push_back({i, partitions[i].merged.second});
    variants.push_back({i, with_level0(partitions[i])});
  }
  const auto [best, times_before, times_after] = find_faster(variants, time);
  if (best == 0) return variants[0];
  const Variant& taken = variants[best];
  const auto& [laid, tuned] = partitions[taken.partition].merged;
  if (taken.partition != 0)
    note_partition(partitions[0].partition, partitions[taken.partition].partition, times_before,
                   times_after);
  std::set<std::string> told;
  for (std::size_t i = 0; i < tuned.groups.size(); ++i) {
    const std::string before = scheduled(tuned.groups[i]), after = scheduled(taken.plan.groups[i]);
    if (before == after || !told.insert(problem_text(laid.graph, tuned.groups[i])).second) continue;
    const Entry* entry = entry_of(laid, tuned.groups[i]);
    note(entry->problem->text(), entry->operators, before, after, times_before, times_after);
  }
  return taken;
}

std::string Tuner::scheduled(const Group& group) const {
  return Problem::joined(std::string(target_.family_name(group.family)), group.schedule);
}

void Tuner::note_partition(const Partition& before, const Partition& after,
                           const std::vector<double>& times_before,
                           const std::vector<double>& times_after) {
  note(partition_text(laid_.graph, estimated()), "fusion", before.text(), after.text(),
       times_before, times_after);
}

// A line of the log, which counts more than what was measured alone.
void Tuner::note(const std::string& problem, const std::string& what, const std::string& before,
                 const std::string& after, const std::vector<double>& times_before,
                 const std::vector<double>& times_after) {
  Measurement m;
  m.problem = problem;
  m.schedule = after;
  m.model_microseconds = times_after;
  stamp(m);
  log_.append(m);
  known_.push_back(m);
  std::ostringstream text;
  text << what << ", " << before << " -> " << after << ": " << std::fixed << std::setprecision(1)
       << median(times_before) << " -> " << median(times_after) << " us";
  chosen_.push_back(text.str());
}

// Puts the best schedule of a problem into the plan; false where there is nothing to choose.
bool Tuner::choose(const LaidOutGraph& laid, Variant& variant, const Entry& entry,
                   const TimePlans& time) {
  const Problem& problem = *entry.problem;
  const auto groups = groups_of(laid.graph, variant.plan, problem);
  if (groups.empty()) return false;
  const std::string incumbent = scheduled(variant.plan.groups[groups[0]]);
  const std::vector<Schedule> rivals =
      rivals_of(Schedule::parse(incumbent), problem.space().chosen, *entry.search);
  if (rivals.empty()) return false;
  std::vector<Variant> variants(1 + rivals.size(), variant);
  for (std::size_t i = 0; i < rivals.size(); ++i)
    set_schedule(variants[i + 1].plan, groups, problem, rivals[i]);
  const auto [best, before, after] = find_faster(variants, time);
  if (best == 0) return true;
  note(problem.text(), entry.operators, incumbent, rivals[best - 1].text(), before, after);
  variant = variants[best];
  return true;
}

}  // namespace tensor
