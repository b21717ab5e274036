#include "src/tune/tuning_tasks.h"

#include <algorithm>
#include <utility>

#include "src/core/median.h"
#include "src/runtime/describe.h"
#include "src/trace/isolate.h"
#include "src/tune/tuned_cost.h"

namespace tensor {
namespace {

double constant_bytes(const Graph& graph) {
  double bytes = 0;
  for (ValueId id = 0; id < graph.size(); ++id)
    if (graph.is_constant(id)) bytes += static_cast<double>(graph[id].constant.nbytes());
  return bytes;
}

// As the joined space of a problem calls it.
Measurement in_joined_space(Measurement m) {
  m.schedule = Problem::joined(m.family, m.schedule);
  m.family.clear();
  return m;
}

// What a plan takes by times of older kernels and the next fastest: if time runs out in the middle,
// nothing worse has taken its place.
void hint_again(Search& search, const Table& table, const std::string& device) {
  constexpr std::size_t kAgain = 2;  // of a problem, before anything else is measured
  std::vector<Table::Entry> again;
  while (again.size() < kAgain) {
    const auto next = table.find(device, search.problem(), [&](const Table::Entry& entry) {
      return std::none_of(again.begin(), again.end(), [&](const Table::Entry& one) {
        return one.family == entry.family && one.schedule == entry.schedule;
      });
    });
    if (!next) break;
    again.push_back(*next);
  }
  for (auto entry = again.rbegin(); entry != again.rend(); ++entry)
    search.hint(Problem::joined(entry->family, entry->schedule), true);
}

}  // namespace

std::size_t TuningTask::failures() const {
  const std::vector<Sample>& samples = search->samples();
  return static_cast<std::size_t>(std::count_if(
      samples.begin(), samples.end(), [](const Sample& s) { return std::isinf(s.microseconds); }));
}

TuningTasks::TuningTasks(const LaidOutGraph& laid, const detail::Target& target,
                         const Records& records, const Options& options)
    : laid_(laid),
      target_(target),
      records_(records),
      options_(options),
      model_bytes_(constant_bytes(laid.graph)) {}

// ---- Which problems a plan poses

std::vector<TuningTask*> TuningTasks::adopt(const ModelPlan& plan) {
  for (TuningTask& task : tasks_) task.weight = 0;
  std::vector<TuningTask*> fresh;
  const auto add = [&](const LaidOutGraph& laid, const Group& group, double weight) {
    TuningTask* const task = task_of(laid, group);
    if (!task) return;
    task->weight += weight;
    const bool is_known = !task->history.empty() && task->search->has_tried(task->level0());
    if (!is_known && std::count(fresh.begin(), fresh.end(), task) == 0) fresh.push_back(task);
  };
  const auto& [laid, merged] = plan.merged;
  for (const Group& group : merged.groups) add(laid, group, 1);
  for (const Group& group : plan.alternatives) add(laid_, group, 0);
  return fresh;
}

// The task of a group, known or new; nullptr if no family has a choice that could be measured.
TuningTask* TuningTasks::task_of(const LaidOutGraph& laid, const Group& group) {
  const auto [known, is_new] = by_text_.try_emplace(problem_text(laid.graph, group), nullptr);
  if (!is_new) return known->second;
  Isolated alone = isolate(laid, group);
  std::vector<Offer> offers = offers_of(target_, alone);
  if (offers.empty()) return nullptr;
  const Problem& problem =
      problems_.emplace_back(known->first, std::move(alone), std::move(offers), model_bytes_);
  TuningTask& task = tasks_.emplace_back(make_task(problem));
  task.index = static_cast<int>(tasks_.size()) - 1;
  task.operators = detail::operators_of(laid.graph, group);
  task.where = detail::place_of(laid.graph, group);
  return known->second = &task;
}

const TuningTask* TuningTasks::find(const LaidOutGraph& laid, const Group& group) const {
  const auto known = by_text_.find(problem_text(laid.graph, group));
  return known == by_text_.end() ? nullptr : known->second;
}

// ---- What is known of a problem before anything is measured

TuningTask TuningTasks::make_task(const Problem& problem) const {
  TuningTask task;
  task.problem = &problem;
  task.search = search_for(problem);
  const std::string level0 = task.level0().text();
  std::vector<double> times;
  for (const Measurement& m : records_.known())
    if (m.problem == problem.text() && records_.is_own(m) &&
        Problem::joined(m.family, m.schedule) == level0)
      times.insert(times.end(), m.microseconds.begin(), m.microseconds.end());
  if (!times.empty()) task.before_us = median(times);
  if (task.search->best()) task.history.push_back(task.search->best()->microseconds);
  return task;
}

std::unique_ptr<Search> TuningTasks::search_for(const Problem& problem) const {
  Space space = problem.space();
  if (!options_.use_sketches)
    std::erase_if(space.sketches,
                  [&](const Sketch& sketch) { return sketch.name != space.chosen.sketch; });
  auto search = std::make_unique<Search>(problem.text(), "", std::move(space), options_.search);
  const std::string& text = problem.text();
  const std::string twin = target_.bf16_is_like_f16 ? twin_text(text) : text;
  std::vector<Measurement> own, others;
  for (const Measurement& m : records_.known())
    if (m.problem == text || m.problem == twin)
      (m.problem == text && records_.is_own(m) ? own : others).push_back(m);
  std::transform(own.begin(), own.end(), own.begin(), in_joined_space);
  search->resume(own);
  if (options_.use_hints) add_hints(*search, twin, Table(others, target_.kernels));
  return search;
}

void TuningTasks::add_hints(Search& search, const std::string& twin, const Table& others) const {
  const std::string& device = target_.tuned_as;
  std::vector<Table::Entry> hints = others.hints(device, search.problem());
  if (const auto best = others.find(device, twin)) hints.insert(hints.begin(), *best);
  for (const Table::Entry& entry : hints)
    search.hint(Problem::joined(entry.family, entry.schedule));
  hint_again(search, others, device);
}

// ---- Sums

double TuningTasks::best_sum() const {
  double sum = 0;
  for (const TuningTask& task : tasks_)
    if (task.weight > 0) sum += task.weight * task.best_us();
  return sum;
}

double TuningTasks::sum(const ModelPlan& plan, bool is_tuned) const {
  double sum = 0;
  for (const Group& group : plan.merged.second.groups) {
    const TuningTask* task = find(plan.merged.first, group);
    const double measured = !task ? 0 : is_tuned ? task->measured_us() : task->before_us;
    sum += measured > 0 ? measured : group.microseconds;
  }
  return sum;
}

}  // namespace tensor
