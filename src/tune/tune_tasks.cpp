// Which problems a plan poses, and what is known of each before anything is measured.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "src/runtime/describe.h"
#include "src/tune/tuner.h"

namespace tensor {
namespace {

// The fastest with older kernels are measured again before anything else, so many of a problem.
constexpr std::size_t kAgain = 2;

// As the joined space of a problem calls it.
Measurement in_joined_space(Measurement m) {
  m.schedule = Problem::joined(m.family, m.schedule);
  m.family.clear();
  return m;
}

// What a plan takes by times of older kernels and the next fastest: if time runs out in the middle,
// nothing worse has taken its place.
void hint_again(Search& search, const Table& table, const std::string& device) {
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

std::unique_ptr<Search> Tuner::search_for(const Problem& problem) const {
  Space space = problem.space();
  if (!limits_.ablation.use_sketches)
    std::erase_if(space.sketches,
                  [&](const Sketch& sketch) { return sketch.name != space.chosen.sketch; });
  SearchOptions how;
  how.seed = options_.seed;
  how.use_model = limits_.ablation.use_model;
  how.use_evolution = limits_.ablation.use_evolution;
  auto search = std::make_unique<Search>(problem.text(), "", std::move(space), how);
  const std::string &device = target_.tuned_as, &text = problem.text();
  const std::string twin = target_.bf16_is_like_f16 ? twin_text(text) : text;
  std::vector<Measurement> own, others;
  for (const Measurement& m : known_)
    if (m.problem == text || m.problem == twin)
      (m.problem == text && m.device == device && is_current(m, target_.kernels) ? own : others)
          .push_back(m);
  std::transform(own.begin(), own.end(), own.begin(), in_joined_space);
  search->resume(own);
  if (limits_.record.problems > 0) return search;  // what others found is not drawn at random
  const Table table(others, target_.kernels);
  std::vector<Table::Entry> hints = table.hints(device, text);
  if (const auto best = table.find(device, twin)) hints.insert(hints.begin(), *best);
  for (const Table::Entry& entry : hints)
    search->hint(Problem::joined(entry.family, entry.schedule));
  hint_again(*search, table, device);
  return search;
}

// The task of a group, known or new; -1 if no family has a choice that could be measured.
int Tuner::task_of(const LaidOutGraph& laid, const Group& group) {
  const auto [known, is_new] = task_by_text_.try_emplace(problem_text(laid.graph, group), -1);
  if (!is_new) return known->second;
  Isolated alone = isolate(laid, group);
  std::vector<Offer> offers = offers_of(target_, alone);
  if (offers.empty()) return -1;
  const Problem& problem =
      problems_.emplace_back(known->first, std::move(alone), std::move(offers), model_bytes_);
  Entry entry;
  entry.problem = &problem;
  entry.search = search_for(problem);
  entry.operators = detail::operators_of(laid.graph, group);
  entry.where = detail::place_of(laid.graph, group);
  const std::string chosen = problem.space().chosen.text();
  std::vector<double> times;
  for (const Measurement& m : known_)
    if (m.problem == problem.text() && m.device == target_.tuned_as &&
        is_current(m, target_.kernels) && Problem::joined(m.family, m.schedule) == chosen)
      times.insert(times.end(), m.microseconds.begin(), m.microseconds.end());
  if (!times.empty()) entry.before_us = median(times);
  if (entry.search->best()) entry.history.push_back(entry.search->best()->microseconds);
  tasks_.push_back(std::move(entry));
  return known->second = static_cast<int>(tasks_.size()) - 1;
}

// Tasks of the plan and its alternatives; those of them of which nothing is known, or not what the
// analytic model takes: a log of the best schedules alone does not tell what they gain, nor could
// whole models be compared with the untuned one.
std::vector<int> Tuner::adopt(const Plans& plans) {
  for (Entry& task : tasks_) task.weight = 0;
  std::vector<int> fresh;
  const auto add = [&](const LaidOutGraph& laid, const Group& group, double weight) {
    const int task = task_of(laid, group);
    if (task < 0) return;
    Entry& entry = tasks_[static_cast<std::size_t>(task)];
    entry.weight += weight;
    const bool is_known =
        !entry.history.empty() && entry.search->has_tried(entry.problem->space().chosen);
    if (!is_known && std::count(fresh.begin(), fresh.end(), task) == 0) fresh.push_back(task);
  };
  const auto& [laid, plan] = plans.merged;
  for (const Group& group : plan.groups) add(laid, group, 1);
  for (const Group& group : plans.alternatives) add(laid_, group, 0);
  return fresh;
}

}  // namespace tensor
