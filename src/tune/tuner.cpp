#include "src/tune/tuner.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <sstream>

#include "src/kernels/work.h"
#include "src/trace/parallel.h"
#include "src/tune/tuned_cost.h"
#include "tensor/version.h"

namespace tensor {
namespace {

// Groups that the plan would have if they took so much less than estimated are measured, too.
constexpr double kNearly = 0.15;
// Of the time, where whole models are timed in the rest.
constexpr double kSearchShare = 0.8;
// Of the time that the hardware needs at least: estimates of it are not that exact.
constexpr double kBound = 0.7;

std::string now() {
  const std::time_t time = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&time, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

double constant_bytes(const Graph& graph) {
  double bytes = 0;
  for (ValueId id = 0; id < graph.size(); ++id)
    if (graph.is_constant(id)) bytes += static_cast<double>(graph[id].constant.nbytes());
  return bytes;
}

}  // namespace

Tuner::Tuner(LaidOutGraph laid, detail::Target target, const TuneOptions& options, Limits limits,
             std::vector<Measurement> known, Log& log, const MakeMeasurer& make,
             MakeTimer make_timer)
    : laid_(std::move(laid)),
      target_(std::move(target)),
      options_(options),
      limits_(limits),
      known_(newest(std::move(known), target_.kernels)),
      log_(log),
      model_(CostModel::shipped(target_.tuned_as, options.seed)),
      measurer_(make(problems_, [this] { return !over().empty(); })),
      make_timer_(limits_.ablation.use_whole && limits_.record.problems == 0 ? std::move(make_timer)
                                                                             : nullptr),
      end_s_(options.seconds * (make_timer_ ? kSearchShare : 1)),
      model_bytes_(constant_bytes(laid_.graph)) {
  target_.cost = remembered(target_.cost);  // the model is planned many times
  if (limits_.record.problems > 0)
    limits_.ablation.use_evolution = limits_.ablation.use_partition = false;
}

// ---- Plans

std::shared_ptr<const Table> Tuner::table() const {
  return known_.empty() ? nullptr : std::make_shared<const Table>(known_, target_.kernels);
}

// By estimates where `table` is null. With `final` set, what was not measured is not trusted.
Tuner::Plans Tuner::plan(const std::shared_ptr<const Table>& table, bool is_final) const {
  if (!limits_.fuse) return merged(no_fusion(laid_.graph, tuned_cost(target_, table)));
  if (!limits_.ablation.use_partition)
    return merged(fusion_by({Partition::kEstimated}, laid_.graph, target_, table));
  if (is_final) return merged(tuned_fusion(laid_.graph, target_, table));
  Fusion fusion = fuse_with_alternatives(laid_.graph, tuned_cost(target_, table), kNearly);
  Plans plans = merged(std::move(fusion.plan));
  plans.alternatives = std::move(fusion.alternatives);
  return plans;
}

Tuner::Plans Tuner::merged(FusionPlan apart) const {
  Plans plans;
  plans.merged = merge_parallel(laid_, apart);
  plans.apart = std::move(apart);
  return plans;
}

// ---- Measuring

void Tuner::learn(const Slot& slot, std::span<const Measured> measured) {
  Entry& task = tasks_[static_cast<std::size_t>(slot.task)];
  const std::string chosen = task.problem->space().chosen.text();
  std::vector<Schedule> schedules;
  std::vector<Measured> answers;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    if (measured[i].microseconds.empty() && measured[i].error.empty()) continue;
    schedules.push_back(slot.schedules[i]);
    answers.push_back(measured[i]);
    if (measured[i].error.empty() && slot.schedules[i].text() == chosen)
      task.before_us = median(measured[i].microseconds);
  }
  std::vector<Measurement> lines = task.search->learn(schedules, answers);
  for (Measurement& m : lines) stamp(m);
  known_.insert(known_.end(), lines.begin(), lines.end());
  if (!lines.empty() || slot.schedules.empty())
    task.history.push_back(task.search->best() ? task.search->best()->microseconds : HUGE_VAL);
}

void Tuner::stamp(Measurement& m) const {
  std::tie(m.family, m.schedule) = Problem::parted(m.schedule);
  m.device = target_.tuned_as;
  m.driver = target_.driver;
  m.version = version(), m.kernels = target_.kernels;
  m.time = now();
}

// What the log does not have yet, so that whatever ends this process costs nothing.
void Tuner::write(const Candidate& candidate, const Measured& measured, Written& written) {
  const bool has_news =
      measured.error.empty() ? measured.microseconds.size() > written.times : !written.has_error;
  if (!has_news) return;
  if (written.times == 0 && !written.has_error) ++trials_;
  if (!measured.error.empty()) ++failures_;
  const Search& search = *tasks_[static_cast<std::size_t>(candidate.task)].search;
  Measurement m;
  m.problem = search.problem();
  m.schedule = candidate.schedule.text();
  m.features = search.features(candidate.schedule);
  m.error = measured.error;
  if (m.error.empty())
    m.microseconds.assign(
        measured.microseconds.begin() + static_cast<std::ptrdiff_t>(written.times),
        measured.microseconds.end());
  stamp(m);
  log_.append(m);
  written = {measured.microseconds.size(), !measured.error.empty()};
}

void Tuner::measure(const std::vector<Slot>& slots) {
  std::vector<Candidate> candidates;
  for (const Slot& slot : slots)
    for (const Schedule& schedule : slot.schedules) candidates.push_back({slot.task, schedule});
  std::vector<Measured> measured;
  std::vector<Written> written(candidates.size());
  if (!candidates.empty())
    measured = measurer_->measure_telling(candidates, [&](std::size_t i, const Measured& so_far) {
      write(candidates[i], so_far, written[i]);
      tell(candidates[i].task);
    });
  for (std::size_t i = 0; i < measured.size(); ++i) write(candidates[i], measured[i], written[i]);
  std::size_t next = 0;
  for (const Slot& slot : slots) {
    learn(slot, std::span(measured).subspan(next, slot.schedules.size()));
    next += slot.schedules.size();
  }
  if (limits_.ablation.use_model && limits_.ablation.use_evolution) {
    std::vector<Sample> samples;
    for (const Entry& task : tasks_)
      samples.insert(samples.end(), task.search->samples().begin(), task.search->samples().end());
    model_.train(samples);
  }
  if (!slots.empty()) tell(slots.back().task);
}

// So many schedules of a task, as long as the limit of them allows.
void Tuner::add_slot(std::vector<Slot>& slots, int task, std::size_t size) {
  std::size_t left = trials_left();
  for (const Slot& slot : slots) left -= slot.schedules.size();
  if (left == 0) return;
  Search& search = *tasks_[static_cast<std::size_t>(task)].search;
  slots.push_back({task, search.propose(std::min(size, left), model_)});
}

std::vector<Tuner::Slot> Tuner::slots(const std::vector<int>& tasks, std::size_t size) {
  std::vector<Slot> slots;
  for (const int task : tasks) add_slot(slots, task, size);
  return slots;
}

// Level 0's, hints and a few others; of what the log tells of level 0's alone.
std::vector<Tuner::Slot> Tuner::first_slots(const std::vector<int>& fresh) {
  std::vector<Slot> slots;
  for (const int task : fresh)
    add_slot(slots, task,
             tasks_[static_cast<std::size_t>(task)].history.empty() ? limits_.first : 1);
  return slots;
}

std::size_t Tuner::trials_left() const {
  if (options_.trials == 0) return SIZE_MAX;
  return static_cast<std::size_t>(std::max<std::int64_t>(options_.trials - trials_, 0));
}

// Of the plan's tasks, each as often as the plan has it; infinite while one has no time.
double Tuner::best_sum() const {
  double sum = 0;
  for (const Entry& task : tasks_)
    if (task.weight > 0)
      sum += task.weight * (task.history.empty() ? HUGE_VAL : task.history.back());
  return sum;
}

// The tasks of the plan that get the next slots, by what they gain or in turns.
std::vector<int> Tuner::next_tasks() {
  std::vector<int> in_plan;
  std::vector<tensor::Task> tasks;
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    const Entry& entry = tasks_[i];
    if (entry.weight == 0) continue;
    const Isolated& alone = entry.problem->alone();
    in_plan.push_back(static_cast<int>(i));
    tasks.push_back({entry.weight, work_of(alone.laid.graph, alone.group).flops, entry.operators, 0,
                     kBound * target_.roofline_us(alone.laid.graph, alone.group)});
  }
  std::vector<int> chosen;
  const auto entry_of = [&](int i) -> const Entry& {
    return tasks_[static_cast<std::size_t>(in_plan[static_cast<std::size_t>(i)])];
  };
  if (!limits_.ablation.use_scheduler) {
    for (std::size_t tried = 0; tried < in_plan.size() && chosen.size() < limits_.side_by_side;
         ++tried, ++turn_)
      if (const int i = static_cast<int>(turn_ % in_plan.size());
          !entry_of(i).search->is_exhausted())
        chosen.push_back(in_plan[static_cast<std::size_t>(i)]);
    return chosen;
  }
  TaskSchedulerOptions how;
  how.goal_us = options_.goal_us;
  TaskScheduler scheduler(std::move(tasks), how);
  for (int i = 0; i < static_cast<int>(in_plan.size()); ++i)
    for (const double best : entry_of(i).history)
      scheduler.report(i, best, entry_of(i).search->is_exhausted());
  while (chosen.size() < limits_.side_by_side) {
    const int i = scheduler.next();
    if (i == TaskScheduler::kNone) break;
    chosen.push_back(in_plan[static_cast<std::size_t>(i)]);
    // As if it gained nothing, so that others come beside it.
    scheduler.report(i, HUGE_VAL, entry_of(i).search->is_exhausted());
  }
  return chosen;
}

// ---- The whole of it

double Tuner::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

std::string Tuner::late() const {
  std::ostringstream text;
  if (options_.stop && options_.stop())
    text << "it was stopped";
  else if (end_s_ > 0 && seconds() >= end_s_)
    text << options_.seconds << " s are over";
  return text.str();
}

std::string Tuner::over() const {
  if (std::string why = late(); !why.empty()) return why;
  const bool is_over = options_.trials > 0 && trials_ >= options_.trials;
  return is_over ? std::to_string(options_.trials) + " schedules were measured" : "";
}

void Tuner::tell(int task) {
  if (!options_.progress) return;
  TuneProgress progress;
  progress.seconds = seconds(), progress.limit_seconds = options_.seconds;
  progress.trials = trials_, progress.limit_trials = options_.trials;
  progress.failures = failures_;
  progress.problems = problems_.size();
  if (const double sum = best_sum(); std::isfinite(sum)) told_us_ = sum;
  progress.before_us = before_us_, progress.best_us = told_us_;
  const Entry& entry = tasks_[static_cast<std::size_t>(task)];
  progress.what = limits_.record.problems > 0 ? recorded(entry) : entry.operators;
  options_.progress(progress);
}

// Why it ended.
std::string Tuner::search(const Plans& before) {
  std::vector<int> fresh = adopt(before);
  if (fresh.empty()) fresh = adopt(plan(table(), false));  // goes on where the log ends
  std::string end;
  for (bool gains = true; end.empty();) {
    if (options_.goal_us > 0 && best_sum() <= options_.goal_us) {
      std::ostringstream text;
      text << "the goal of " << options_.goal_us << " us is reached";
      return text.str();
    }
    if (fresh.empty() && !gains) end = "nothing more is to be gained";
    if (!fresh.empty()) {
      gains = true;
      measure(first_slots(fresh));
    } else if (end.empty()) {
      gains = false;
      for (std::size_t slot = 0; slot < tasks_.size() && over().empty(); ++slot) {
        const std::vector<Slot> next = slots(next_tasks(), limits_.slot);
        if (next.empty()) break;
        gains = true;
        measure(next);
      }
    }
    if (end.empty()) end = over();
    if (before_us_ == 0) before_us_ = measured_sum(before, false);
    fresh = adopt(plan(table(), false));
  }
  return end;
}

TuneSummary Tuner::run() {
  const Plans before = plan(nullptr, false);
  if (make_timer_) began_ = plan(table(), true).apart;
  const std::string end = limits_.record.problems > 0 ? record(before) : search(before);
  if (make_timer_) choose();
  const Plans after = plan(table(), true);
  adopt(after);
  TuneSummary result = summary(before, after);
  result.end = end;
  result.is_stopped = options_.stop && options_.stop();
  return result;
}

}  // namespace tensor
