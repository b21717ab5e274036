// Chooser: the end of tuning, where the time of the whole model decides between what was measured
// alone and what the analytic model takes, in fusion and in schedules. Where kernels overlap it
// tries single fusions and schedules that are about as fast alone, too, the heaviest first.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/tune/plan_timer.h"
#include "src/tune/tuning_parts.h"

namespace tensor {

class Chooser {
 public:
  /// What times whole models, until `stop` says so.
  using MakeTimer =
      std::function<TimePlans(const Partitions& partitions, std::function<bool()> stop)>;

  /// Made before anything is measured: it remembers how the log divides the model. `overlaps`:
  /// kernels with their neighbors.
  Chooser(const TuningParts& parts, MakeTimer make_timer, bool overlaps);

  /// What is faster in two comparisons becomes a line of the log.
  void choose();
  /// The same for people, one line each.
  const std::vector<std::string>& chosen() const { return chosen_; }

 private:
  // Times of the whole model before and after a choice.
  struct Comparison {
    const std::vector<double>& before;
    const std::vector<double>& after;
  };

  void compare_with_untuned();
  FusionPlan with_level0(const ModelPlan& plan) const;

  bool choose_fusion();
  std::vector<ModelPlan> without_heaviest(const ModelPlan& plan);

  void choose_schedules();
  std::vector<const TuningTask*> heaviest() const;
  bool choose_schedule(const TuningTask& task);

  void restart_timer();
  void note_partition(const Partition& before, const Partition& after, const Comparison& times);
  void note(const std::string& problem, const std::string& what, const std::string& before,
            const std::string& after, const Comparison& times);
  std::string scheduled(const Group& group) const;

  TuningParts parts_;
  MakeTimer make_timer_;
  bool overlaps_;
  FusionPlan began_;                   // as the log divided the model when tuning began
  bool has_start_ = false;             // a plan that was compared with the untuned one
  std::vector<ModelPlan> partitions_;  // that are compared now
  Variant best_;                       // of them
  TimePlans time_;                     // them
  std::vector<std::string> chosen_;
};

}  // namespace tensor
