#include "src/tune/plan_scheduler.h"

#include <cmath>
#include <utility>

#include "src/kernels/work.h"
#include "src/tune/task_scheduler.h"

namespace tensor {

std::vector<TuningTask*> PlanScheduler::next(TuningTasks& tasks, const detail::Target& target) {
  std::vector<TuningTask*> in_plan;
  for (TuningTask& task : tasks.all())
    if (task.weight > 0) in_plan.push_back(&task);
  return options_.by_gain ? by_gain(in_plan, target) : in_turns(in_plan);
}

std::vector<TuningTask*> PlanScheduler::in_turns(const std::vector<TuningTask*>& in_plan) {
  std::vector<TuningTask*> chosen;
  for (std::size_t tried = 0; tried < in_plan.size() && chosen.size() < options_.side_by_side;
       ++tried, ++turn_)
    if (TuningTask* task = in_plan[turn_ % in_plan.size()]; !task->search->is_exhausted())
      chosen.push_back(task);
  return chosen;
}

std::vector<TuningTask*> PlanScheduler::by_gain(const std::vector<TuningTask*>& in_plan,
                                                const detail::Target& target) const {
  // Of the time that the hardware needs at least: estimates of it are not that exact.
  constexpr double kBound = 0.7;
  std::vector<Task> tasks;
  for (const TuningTask* task : in_plan) {
    const auto& [laid, group] = task->problem->alone();
    tasks.push_back({task->weight, work_of(laid.graph, group).flops, task->operators, 0,
                     kBound * target.roofline_us(laid.graph, group)});
  }
  TaskSchedulerOptions how;
  how.goal_us = options_.goal_us;
  TaskScheduler scheduler(std::move(tasks), how);
  const auto is_exhausted = [&](int i) {
    return in_plan[static_cast<std::size_t>(i)]->search->is_exhausted();
  };
  for (int i = 0; i < static_cast<int>(in_plan.size()); ++i)
    for (const double best : in_plan[static_cast<std::size_t>(i)]->history)
      scheduler.report(i, best, is_exhausted(i));
  std::vector<TuningTask*> chosen;
  while (chosen.size() < options_.side_by_side) {
    const int i = scheduler.next();
    if (i == TaskScheduler::kNone) break;
    chosen.push_back(in_plan[static_cast<std::size_t>(i)]);
    // As if it gained nothing, so that others come beside it.
    scheduler.report(i, HUGE_VAL, is_exhausted(i));
  }
  return chosen;
}

}  // namespace tensor
