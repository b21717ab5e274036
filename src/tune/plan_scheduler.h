// Plan scheduler: which tasks of the present plan get the next slots of measuring, by what the
// model gains (TaskScheduler) or in turns.
#pragma once

#include <cstddef>
#include <vector>

#include "src/runtime/target.h"
#include "src/tune/tuning_tasks.h"

namespace tensor {

class PlanScheduler {
 public:
  struct Options {
    std::size_t side_by_side = 1;  // tasks at a time
    double goal_us = 0;            // of the whole plan; 0: none
    bool by_gain = true;           // else in turns
  };

  explicit PlanScheduler(const Options& options) : options_(options) {}

  /// Different tasks; none where nothing is left to be gained.
  std::vector<TuningTask*> next(TuningTasks& tasks, const detail::Target& target);

 private:
  std::vector<TuningTask*> in_turns(const std::vector<TuningTask*>& in_plan);
  std::vector<TuningTask*> by_gain(const std::vector<TuningTask*>& in_plan,
                                   const detail::Target& target) const;

  Options options_;
  std::size_t turn_ = 0;
};

}  // namespace tensor
