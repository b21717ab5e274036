#include "src/tune/tuner.h"

#include <optional>
#include <utility>

#include "src/tune/recorder.h"
#include "src/tune/summary.h"
#include "tensor/text.h"

namespace tensor {
namespace {

// Of a recording the trials are those of each problem.
TuneOptions without_trials(TuneOptions options) {
  options.trials = 0;
  return options;
}

// What is recorded is drawn at random, of the untuned plan, and nothing is chosen.
Tuner::Limits adjusted(Tuner::Limits limits) {
  Ablation& ablation = limits.ablation;
  if (limits.record.problems > 0)
    ablation.use_evolution = ablation.use_partition = ablation.use_whole = false;
  return limits;
}

TuningTasks::Options task_options(const Tuner::Limits& limits, std::uint64_t seed) {
  TuningTasks::Options how;
  how.search.seed = seed;
  how.search.use_model = limits.ablation.use_model;
  how.search.use_evolution = limits.ablation.use_evolution;
  how.use_sketches = limits.ablation.use_sketches;
  how.use_hints = limits.record.problems == 0;  // what others found is not drawn at random
  return how;
}

std::string operators_of(const TuningTask& task) { return task.operators; }

}  // namespace

Tuner::Tuner(Fusible fusible, detail::Target target, const TuneOptions& options,
             const Limits& limits, std::vector<Measurement> known, Log& log,
             const Instruments& instruments)
    : fusible_(std::move(fusible)),
      target_(std::move(target)),
      options_(options),
      limits_(adjusted(limits)),
      make_timer_(limits_.ablation.use_whole ? instruments.make_timer : nullptr),
      planner_(fusible_, target_,
               {.fuse = limits_.fuse, .by_times = limits_.ablation.use_partition}),
      records_(std::move(known), target_, log),
      tasks_(fusible_.laid, target_, records_, task_options(limits_, options.seed)),
      progress_(is_recording() ? without_trials(options) : options, tasks_,
                is_recording() ? Recorder::describe : operators_of),
      prober_(instruments.make_measurer(tasks_.problems(),
                                        [this] { return !progress_.over().empty(); }),
              tasks_, records_, progress_, CostModel::shipped(target_.tuned_as, options.seed)),
      scheduler_({.side_by_side = limits_.side_by_side,
                  .goal_us = options.goal_us,
                  .by_gain = limits_.ablation.use_scheduler}) {}

TuneSummary Tuner::run() {
  constexpr double kSearchShare = 0.8;  // of the time; whole models are timed in the rest
  const ModelPlan untuned = planner_.hoped_for(nullptr);
  std::optional<Chooser> chooser;
  if (make_timer_) {
    chooser.emplace(parts_, make_timer_, limits_.overlap);
    progress_.set_share(kSearchShare);
  }
  const std::string end = is_recording() ? record(untuned) : search(untuned);
  progress_.set_share(1);
  if (chooser) chooser->choose();
  const ModelPlan tuned = planner_.plan(records_.table());
  tasks_.adopt(tuned);
  TuneSummary result = summarize(parts_, untuned, tuned);
  if (chooser) result.chosen = chooser->chosen();
  result.end = end;
  result.is_stopped = progress_.is_stopped();
  return result;
}

std::string Tuner::record(const ModelPlan& untuned) {
  return Recorder(parts_, limits_.record, static_cast<std::size_t>(options_.trials))
      .record(untuned);
}

// Goes on where the log ends. Returns why it ended.
std::string Tuner::search(const ModelPlan& untuned) {
  std::vector<TuningTask*> fresh = tasks_.adopt(untuned);
  if (fresh.empty()) fresh = tasks_.adopt(planner_.hoped_for(records_.table()));
  for (bool gains = true;;) {
    if (options_.goal_us > 0 && tasks_.best_sum() <= options_.goal_us) {
      TextWriter text;
      text << "the goal of " << options_.goal_us << " us is reached";
      return text.str();
    }
    if (fresh.empty() && !gains) return "nothing more is to be gained";
    gains = fresh.empty() ? measure_slots() : measure_fresh(fresh);
    if (progress_.before_us() == 0) progress_.set_before(tasks_.sum(untuned, false));
    const std::string end = progress_.over();
    fresh = tasks_.adopt(planner_.hoped_for(records_.table()));
    if (!end.empty()) return end;
  }
}

// Level 0's, hints and a few others; of what the log tells of level 0's alone.
bool Tuner::measure_fresh(const std::vector<TuningTask*>& fresh) {
  std::vector<Slot> slots;
  for (TuningTask* task : fresh)
    prober_.add_slot(slots, *task, task->history.empty() ? limits_.first : 1);
  prober_.measure(slots);
  return true;
}

// A slot for each task, before the model is planned again; false if nobody gains any more.
bool Tuner::measure_slots() {
  bool gains = false;
  for (std::size_t slot = 0; slot < tasks_.all().size() && progress_.over().empty(); ++slot) {
    const std::vector<Slot> next = prober_.slots(scheduler_.next(tasks_, target_), limits_.slot);
    if (next.empty()) break;
    gains = true;
    prober_.measure(next);
  }
  return gains;
}

}  // namespace tensor
