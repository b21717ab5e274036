// Tuning tasks: the problems that a model's plans pose, and what was tried for each.
#pragma once

#include <cmath>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/runtime/target.h"
#include "src/trace/layout.h"
#include "src/tune/planner.h"
#include "src/tune/problem.h"
#include "src/tune/records.h"
#include "src/tune/search.h"

namespace tensor {

/// A problem and what was tried for it.
struct TuningTask {
  int index = 0;  // of the problem, for the measurer
  const Problem* problem = nullptr;
  std::unique_ptr<Search> search;
  std::string operators, where;
  double weight = 0;                 // how often the present plan has it
  std::vector<double> history = {};  // the best time after each slot
  double before_us = 0;              // as the analytic model chooses; 0 if not measured

  const Schedule& level0() const { return problem->space().chosen; }
  /// After the last slot; infinite if nothing was measured.
  double best_us() const { return history.empty() ? HUGE_VAL : history.back(); }
  /// Of the fastest schedule; 0 if none was measured.
  double measured_us() const { return search->best() ? search->best()->microseconds : 0; }
  std::size_t failures() const;
};

class TuningTasks {
 public:
  struct Options {
    SearchOptions search = {};
    bool use_sketches = true;  // else the analytic model's alone
    bool use_hints = true;     // what was fast elsewhere comes first
  };

  /// All of them must outlive it.
  TuningTasks(const LaidOutGraph& laid, const detail::Target& target, const Records& records,
              const Options& options);

  /// Weighs the tasks by a plan, and makes those that are new in it or its alternatives. Returns
  /// those of them of which nothing is known, or not what the analytic model takes: a log of the
  /// best schedules alone does not tell what they gain, nor could whole models be compared with the
  /// untuned one.
  std::vector<TuningTask*> adopt(const ModelPlan& plan);

  /// The task of a group that was adopted; nullptr if there is nothing to tune.
  const TuningTask* find(const LaidOutGraph& laid, const Group& group) const;
  std::deque<TuningTask>& all() { return tasks_; }
  const std::deque<TuningTask>& all() const { return tasks_; }
  /// By the tasks' indices; more with time.
  const std::deque<Problem>& problems() const { return problems_; }

  /// Of the plan's tasks, each as often as the plan has it; infinite while one has no time.
  double best_sum() const;
  /// Of a plan's groups as the analytic model chooses schedules, or as tuned: measured where a
  /// group was, estimated where not.
  double sum(const ModelPlan& plan, bool is_tuned) const;

 private:
  TuningTask* task_of(const LaidOutGraph& laid, const Group& group);
  TuningTask make_task(const Problem& problem) const;
  std::unique_ptr<Search> search_for(const Problem& problem) const;
  void add_hints(Search& search, const std::string& twin, const Table& others) const;

  const LaidOutGraph& laid_;
  const detail::Target& target_;
  const Records& records_;
  Options options_;
  double model_bytes_;  // of the constants
  std::deque<Problem> problems_;
  std::deque<TuningTask> tasks_;                // of problems_, in their order
  std::map<std::string, TuningTask*> by_text_;  // nullptr: nothing to be tuned
};

}  // namespace tensor
