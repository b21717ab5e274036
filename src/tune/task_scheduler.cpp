#include "src/tune/task_scheduler.h"

#include <algorithm>
#include <cmath>

#include "tensor/error.h"

namespace tensor {

TaskScheduler::TaskScheduler(std::vector<Task> tasks, TaskSchedulerOptions options)
    : options_(options) {
  for (Task& task : tasks) {
    if (!(task.weight > 0)) fail("tune", "got a task of weight ", task.weight, ", need above 0");
    states_.push_back({std::move(task), {}, false});
  }
}

void TaskScheduler::report(int task, double best_us, bool is_exhausted) {
  State& s = states_.at(static_cast<std::size_t>(task));
  s.history.push_back(std::min(best_us, s.best()));
  s.is_exhausted = is_exhausted;
}

double TaskScheduler::sum_us() const {
  double sum = 0;
  for (const State& s : states_) sum += s.task.weight * s.best();
  return sum;
}

double TaskScheduler::objective_us() const { return std::max(sum_us(), options_.goal_us); }

// Whether the last slots were worth it: ES of equation 3, by the task's own history.
bool TaskScheduler::gains(const State& s) const {
  const auto patience = static_cast<std::size_t>(options_.patience);
  if (options_.patience == 0 || s.history.size() <= patience) return true;
  const double before = s.history[s.history.size() - 1 - patience];
  return std::isinf(before) ? !std::isinf(s.best())
                            : before - s.best() >= options_.least_gain * before;
}

std::string TaskScheduler::stopped(int task) const {
  const State& s = state(task);
  if (s.is_exhausted) return "everything was measured";
  if (s.best() <= s.task.goal_us) return "its goal is reached";
  if (!s.history.empty() && s.best() <= s.task.bound_us) return "nothing can be faster";
  if (sum_us() <= options_.goal_us) return "the model's goal is reached";
  if (!gains(s)) return "the last slots gained nothing";
  return {};
}

double TaskScheduler::gradient(int task) const {
  const State& s = state(task);
  if (!stopped(task).empty()) return 0;
  const double best = s.best();
  if (std::isinf(best)) return -std::numeric_limits<double>::infinity();
  const auto slots = s.history.size();
  const auto window = std::min(static_cast<std::size_t>(options_.window), slots - 1);
  double past = 0;  // the gain of a slot, over the last ones
  if (window > 0) {
    const double before = s.history[slots - 1 - window];
    past = std::isinf(before) ? -best : (best - before) / static_cast<double>(window);
  }
  // At best a slot gains as much as if the time fell to nothing at the rate of all slots so far,
  // or as it takes to come up with the fastest task of the kind; but not below the bound.
  double fastest = 0;  // operations a microsecond
  for (const State& other : states_)
    if (other.task.kind == s.task.kind && !std::isinf(other.best()))
      fastest = std::max(fastest, other.task.operations / other.best());
  double next = best - best / static_cast<double>(slots);
  if (fastest > 0) next = std::min(next, options_.similarity * s.task.operations / fastest);
  const double hoped = std::max(next, s.task.bound_us) - best;
  return s.task.weight * (options_.backward * past + (1 - options_.backward) * std::min(hoped, 0.));
}

int TaskScheduler::next() const {
  int chosen = kNone;
  double steepest = 0;
  for (int i = 0; i < static_cast<int>(states_.size()); ++i) {
    if (states_[static_cast<std::size_t>(i)].history.empty() && stopped(i).empty()) return i;
    const double slope = gradient(i);
    if (slope < steepest) {
      chosen = i;
      steepest = slope;
    }
  }
  return chosen;
}

}  // namespace tensor
