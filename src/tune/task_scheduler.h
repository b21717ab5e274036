// TaskScheduler: which task of a model gets the next slot of measuring (GTCO, section IV-C). It
// goes down the steepest way of the objective of equation 3,
//   f = max(sum over tasks of weight x max(best time, early stop), the model's goal),
// by the gradient that Ansor estimates for it (Zheng et al., OSDI 2020, section 6.2 and appendix
// A).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace tensor {

struct Task {
  double weight = 1;      // how often the model has the group
  double operations = 0;  // of one run, to compare tasks of one kind by their throughput
  std::string kind = {};  // tasks of one kind reach about the same throughput
  double goal_us = 0;     // no slots once it is this fast; 0: none
  double bound_us = 0;    // no schedule is faster (roofline); 0: unknown
};

struct TaskSchedulerOptions {
  double backward = 0.2;  // Ansor's alpha: how much the gain so far counts beside the hoped for
  double similarity = 2;  // Ansor's beta: how far others' throughput is trusted, the more the less
  int window = 3;         // slots that the gain so far is taken over
  int patience = 5;       // slots without gain until a task stops early; 0: never
  double least_gain = 0.01;  // share of the best time that counts as gain
  double goal_us = 0;        // of all tasks together, weighted; 0: none
};

class TaskScheduler {
 public:
  static constexpr int kNone = -1;

  explicit TaskScheduler(std::vector<Task> tasks, TaskSchedulerOptions options = {});

  /// The task that gets the next slot: each one once at first, then the one where f falls fastest,
  /// the first of equal ones. kNone: all goals are reached, or nobody gains any more.
  int next() const;
  /// After a slot: the task's best time by now, infinity as long as nothing has run without error,
  /// and whether the search has nothing left. Also for slots of an earlier run, from its log.
  void report(int task, double best_us, bool is_exhausted = false);

  /// f: the weighted sum of the best times, at least the goal; infinity before all tasks have one.
  double objective_us() const;
  /// df/dt of the task, at most 0: microseconds that f should fall by in its next slot.
  double gradient(int task) const;
  /// Why the task gets no more slots, empty if it may.
  std::string stopped(int task) const;
  int slots(int task) const { return static_cast<int>(state(task).history.size()); }

 private:
  struct State {
    Task task;
    std::vector<double> history;  // the best time after each slot
    bool is_exhausted = false;
    double best() const {
      return history.empty() ? std::numeric_limits<double>::infinity() : history.back();
    }
  };
  const State& state(int task) const { return states_.at(static_cast<std::size_t>(task)); }
  double sum_us() const;
  bool gains(const State& s) const;

  std::vector<State> states_;
  TaskSchedulerOptions options_;
};

}  // namespace tensor
