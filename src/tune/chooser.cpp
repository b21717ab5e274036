#include "src/tune/chooser.h"

#include <algorithm>
#include <iomanip>
#include <map>
#include <set>
#include <utility>

#include "src/core/checksum.h"
#include "src/core/median.h"
#include "src/trace/isolate.h"
#include "src/tune/rivals.h"
#include "tensor/text.h"

namespace tensor {
namespace {

constexpr std::size_t kProblems = 8, kRivals = 3;
constexpr int kPasses = 3, kFusions = 4;

std::vector<std::size_t> groups_of(const Graph& graph, const FusionPlan& plan,
                                   const Problem& problem) {
  std::vector<std::size_t> groups;
  for (std::size_t i = 0; i < plan.groups.size(); ++i)
    if (problem_text(graph, plan.groups[i]) == problem.text()) groups.push_back(i);
  return groups;
}

void set_schedule(Group& group, const Problem& problem, const Schedule& schedule) {
  Choice choice = problem.choice(schedule);
  group.family = choice.family;
  group.schedule = std::move(choice.schedule);
}

}  // namespace

Chooser::Chooser(const TuningParts& parts, MakeTimer make_timer, bool overlaps)
    : parts_(parts),
      make_timer_(std::move(make_timer)),
      overlaps_(overlaps),
      began_(parts.planner.plan(parts.records.table()).apart) {}

void Chooser::choose() {
  compare_with_untuned();
  has_start_ = true;
  if (!overlaps_) return;
  for (int fusions = 0; fusions < kFusions && parts_.progress.late().empty(); ++fusions)
    if (!choose_fusion()) break;
  choose_schedules();
}

// One child at a time. The first comparison is finished however late it is, so that nothing ends
// slower than it began.
void Chooser::restart_timer() {
  time_ = nullptr;
  Partitions merged;
  for (const ModelPlan& plan : partitions_) merged.push_back(plan.merged);
  time_ = make_timer_(std::move(merged), [this] {
    return has_start_ ? !parts_.progress.late().empty() : parts_.progress.is_stopped();
  });
}

// ---- What was tuned beside what was not

// What is best alone need not be best together: the fastest whole of what was measured best and
// what the analytic model would do, in fusion and in schedules, is where choosing begins.
void Chooser::compare_with_untuned() {
  partitions_ = parts_.planner.partitions(began_, parts_.records.table());
  for (const ModelPlan& plan : partitions_) parts_.tasks.adopt(plan);
  restart_timer();
  std::vector<Variant> variants;
  for (std::size_t i = 0; i < partitions_.size(); ++i) {
    variants.push_back({i, partitions_[i].merged.second});
    variants.push_back({i, with_level0(partitions_[i])});
  }
  const Faster faster = find_faster(variants, time_);
  best_ = variants[faster.best];
  if (faster.best == 0) return;
  const Comparison times{faster.before, faster.after};
  const ModelPlan& taken = partitions_[best_.partition];
  if (best_.partition != 0) note_partition(partitions_[0].partition, taken.partition, times);
  const auto& [laid, tuned] = taken.merged;
  std::set<std::string> told;
  for (std::size_t i = 0; i < tuned.groups.size(); ++i) {
    const std::string before = scheduled(tuned.groups[i]), after = scheduled(best_.plan.groups[i]);
    if (before == after || !told.insert(problem_text(laid.graph, tuned.groups[i])).second) continue;
    const TuningTask* task = parts_.tasks.find(laid, tuned.groups[i]);
    note(task->problem->text(), task->operators, before, after, times);
  }
}

// The plan with what the analytic model takes for every problem, where a table would let it be
// chosen.
FusionPlan Chooser::with_level0(const ModelPlan& of) const {
  FusionPlan plan = of.merged.second;
  for (Group& group : plan.groups) {
    const TuningTask* task = parts_.tasks.find(of.merged.first, group);
    if (!task || task->before_us <= 0 || !task->search->best()) continue;
    if (task->before_us > Table::kChosen * task->measured_us()) continue;
    set_schedule(group, *task->problem, task->level0());
  }
  return plan;
}

// ---- Fusions

// Whether the whole model is faster without one of its fusions. The partitions that are compared
// from then on are new.
bool Chooser::choose_fusion() {
  std::vector<ModelPlan> all = without_heaviest(partitions_[best_.partition]);
  if (all.size() == 1) return false;
  std::vector<Variant> variants = {{0, best_.plan}};
  for (std::size_t i = 1; i < all.size(); ++i) variants.push_back({i, all[i].merged.second});
  partitions_ = std::move(all);
  restart_timer();
  const Faster faster = find_faster(variants, time_);
  best_ = variants[faster.best];
  if (faster.best == 0) return false;
  note_partition(partitions_[0].partition, partitions_[faster.best].partition,
                 {faster.before, faster.after});
  return true;
}

// The partition and, after it, those without one more of its heaviest groups that are of several
// operators: what is likely by what the kernels take alone. What is new in them is measured.
std::vector<ModelPlan> Chooser::without_heaviest(const ModelPlan& plan) {
  constexpr double kLikely = 1.1;  // times the sum of all kernels alone by the partition so far
  std::vector<ModelPlan> all = {plan};
  if (!parts_.planner.has_choice()) return all;
  std::map<std::string, double> times;
  for (const Group& group : plan.apart.groups)
    if (group.nodes.size() > 1)
      times[problem_text(parts_.planner.graph(), group)] += group.microseconds;
  std::vector<std::pair<double, std::string>> heaviest;
  for (const auto& [text, us] : times) heaviest.push_back({us, text});
  std::sort(heaviest.rbegin(), heaviest.rend());
  if (heaviest.size() > kProblems) heaviest.resize(kProblems);
  for (const auto& [us, text] : heaviest) {
    if (all.size() > kRivals) break;
    Partition partition = plan.partition;
    partition.without.insert(crc32_digits(text));
    ModelPlan other = parts_.planner.divided(partition, parts_.records.table());
    if (has_division(all, other.apart) ||
        other.apart.microseconds > kLikely * plan.apart.microseconds)
      continue;
    const std::vector<Slot> level0 = parts_.prober.slots(parts_.tasks.adopt(other), 1);
    parts_.prober.measure(level0);
    if (!level0.empty()) other = parts_.planner.divided(partition, parts_.records.table());
    all.push_back(std::move(other));
  }
  return all;
}

// ---- Schedules

void Chooser::choose_schedules() {
  parts_.tasks.adopt(partitions_[best_.partition]);
  const std::vector<const TuningTask*> heaviest = this->heaviest();
  // Again where choices changed what others overlap with.
  std::size_t before = SIZE_MAX;
  for (int pass = 0; pass < kPasses && chosen_.size() != before; ++pass) {
    before = chosen_.size();
    std::size_t count = 0;
    for (const TuningTask* task : heaviest)
      if (count < kProblems && parts_.progress.late().empty()) {
        count += choose_schedule(*task);
        parts_.progress.tell(*task);
      }
  }
}

std::vector<const TuningTask*> Chooser::heaviest() const {
  std::vector<const TuningTask*> tasks;
  for (const TuningTask& task : parts_.tasks.all())
    if (task.weight > 0 && task.search->best()) tasks.push_back(&task);
  std::stable_sort(tasks.begin(), tasks.end(), [](const TuningTask* a, const TuningTask* b) {
    return a->weight * a->measured_us() > b->weight * b->measured_us();
  });
  return tasks;
}

// Puts the best schedule of a problem into the plan; false where there is nothing to choose.
bool Chooser::choose_schedule(const TuningTask& task) {
  const Problem& problem = *task.problem;
  const Graph& graph = partitions_[best_.partition].merged.first.graph;
  const std::vector<std::size_t> groups = groups_of(graph, best_.plan, problem);
  if (groups.empty()) return false;
  const std::string incumbent = scheduled(best_.plan.groups[groups[0]]);
  const std::vector<Schedule> rivals = rivals_of(Schedule::parse(incumbent), *task.search, kRivals);
  if (rivals.empty()) return false;
  std::vector<Variant> variants(1 + rivals.size(), best_);
  for (std::size_t i = 0; i < rivals.size(); ++i)
    for (const std::size_t group : groups)
      set_schedule(variants[i + 1].plan.groups[group], problem, rivals[i]);
  const Faster faster = find_faster(variants, time_);
  if (faster.best == 0) return true;
  note(problem.text(), task.operators, incumbent, rivals[faster.best - 1].text(),
       {faster.before, faster.after});
  best_ = variants[faster.best];
  return true;
}

// ---- What was chosen

std::string Chooser::scheduled(const Group& group) const {
  return Problem::joined(std::string(parts_.target.offers->name(group.family)), group.schedule);
}

void Chooser::note_partition(const Partition& before, const Partition& after,
                             const Comparison& times) {
  note(partition_text(parts_.planner.graph(), parts_.planner.estimated()), "fusion", before.text(),
       after.text(), times);
}

// A line of the log, which counts more than what was measured alone.
void Chooser::note(const std::string& problem, const std::string& what, const std::string& before,
                   const std::string& after, const Comparison& times) {
  Measurement choice;
  choice.problem = problem;
  choice.schedule = after;
  choice.model_microseconds = times.after;
  parts_.records.choose(std::move(choice));
  TextWriter text;
  text << what << ", " << before << " -> " << after << ": " << std::fixed << std::setprecision(1)
       << median(times.before) << " -> " << median(times.after) << " us";
  chosen_.push_back(text.str());
}

}  // namespace tensor
