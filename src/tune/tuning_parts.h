// What the stages of tuning work with: the tuner makes it, and lends it to them.
#pragma once

#include "src/runtime/target.h"
#include "src/tune/planner.h"
#include "src/tune/prober.h"
#include "src/tune/progress.h"
#include "src/tune/records.h"
#include "src/tune/tuning_tasks.h"

namespace tensor {

struct TuningParts {
  const detail::Target& target;
  const Planner& planner;
  Records& records;
  TuningTasks& tasks;
  Progress& progress;
  Prober& prober;
};

}  // namespace tensor
