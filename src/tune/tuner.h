// Tuner: measures the groups of a model and plans again with what it learned, until the plan stays
// as it is or the time is over. It knows no device: what measures and times is given to it.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/tune/ablation.h"
#include "src/tune/chooser.h"
#include "src/tune/plan_scheduler.h"
#include "src/tune/tuning_parts.h"
#include "tensor/tune.h"

namespace tensor {

class Tuner {
 public:
  /// What measures candidates of these problems, which become more with time, until `stop` says so.
  using MakeMeasurer = std::function<std::unique_ptr<Measurer>(const std::deque<Problem>& problems,
                                                               std::function<bool()> stop)>;
  using MakeTimer = Chooser::MakeTimer;
  /// Without a timer the fastest schedules alone are taken for the best.
  struct Instruments {
    MakeMeasurer make_measurer;
    MakeTimer make_timer = nullptr;
  };
  struct Limits {
    std::size_t first = 4;         // schedules of a new problem
    std::size_t slot = 4;          // schedules of a slot
    std::size_t side_by_side = 1;  // slots that are measured at a time
    bool fuse = true;              // else one kernel an operator
    bool overlap = false;          // kernels with their neighbors: what is fastest in the whole
                                   // model is chosen one by one
    Ablation ablation = {};
    RecordOptions record = {};
  };

  /// `known`: measurements of this and other devices, from logs. `log` takes the new ones.
  Tuner(Fusible fusible, detail::Target target, const TuneOptions& options, const Limits& limits,
        std::vector<Measurement> known, Log& log, const Instruments& instruments);
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  TuneSummary run();

 private:
  bool is_recording() const { return limits_.record.problems > 0; }
  std::string record(const ModelPlan& untuned);
  std::string search(const ModelPlan& untuned);
  bool measure_fresh(const std::vector<TuningTask*>& fresh);
  bool measure_slots();

  Fusible fusible_;
  detail::Target target_;
  TuneOptions options_;
  Limits limits_;
  MakeTimer make_timer_;
  Planner planner_;
  Records records_;
  TuningTasks tasks_;
  Progress progress_;
  Prober prober_;
  PlanScheduler scheduler_;
  TuningParts parts_{target_, planner_, records_, tasks_, progress_, prober_};
};

}  // namespace tensor
