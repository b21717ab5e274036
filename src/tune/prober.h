// Prober: measures schedules of tasks, slot by slot. What comes is in the log at once, and teaches
// the searches and the cost model.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "src/tune/cost_model.h"
#include "src/tune/measurer.h"
#include "src/tune/progress.h"
#include "src/tune/records.h"
#include "src/tune/tuning_tasks.h"

namespace tensor {

/// Schedules of a task that are measured together.
struct Slot {
  TuningTask* task;
  std::vector<Schedule> schedules;
};

class Prober {
 public:
  /// `measurer` measures the problems of `tasks`. All else must outlive it.
  Prober(std::unique_ptr<Measurer> measurer, TuningTasks& tasks, Records& records,
         Progress& progress, CostModel model);

  /// One more slot: up to `size` schedules that the task's search proposes, as long as the limit of
  /// trials allows.
  void add_slot(std::vector<Slot>& slots, TuningTask& task, std::size_t size);
  std::vector<Slot> slots(const std::vector<TuningTask*>& tasks, std::size_t size);
  void measure(const std::vector<Slot>& slots);

 private:
  // What the log has of a candidate of the batch under way.
  struct Written {
    std::size_t times = 0;
    bool has_error = false;
  };

  void write(const Candidate& candidate, const Measured& measured, Written& written);
  void learn(const Slot& slot, std::span<const Measured> measured);
  void train();

  std::unique_ptr<Measurer> measurer_;
  TuningTasks& tasks_;
  Records& records_;
  Progress& progress_;
  CostModel model_;
};

}  // namespace tensor
