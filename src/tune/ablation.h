// What tuning can do without, and what it does in place of tuning: the benchmark programs compare
// searches so.
#pragma once

#include <string>

namespace tensor {

/// What tuning is made of. Parts are left out for comparison only: bench/README.md has what came of
/// it.
struct Ablation {
  bool use_model = true;      // the learned cost model; else chance chooses among children
  bool use_evolution = true;  // else schedules are drawn at random
  bool use_scheduler = true;  // time goes to groups by what it gains; else in turns
  bool use_sketches = true;   // all structures; else the one that the analytic model takes
  bool use_partition = true;  // fusion by measured times; else by the estimates
  bool use_whole = true;      // the last choice by the whole model's time
};

/// A log on which searches can be compared, since none of them made it. If `problems` is above 0,
/// nothing is tuned. Takes so many of the untuned plan's problems, the heaviest that have at least
/// 100 schedules, or of those whose text in the log includes `only`; for each it measures the
/// analytic model's choice and then random schedules, TuneOptions::trials of each problem.
struct RecordOptions {
  int problems = 0;
  std::string only = {};
};

}  // namespace tensor
