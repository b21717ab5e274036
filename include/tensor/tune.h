// tune: measures which schedules, and which fusions, are fast on this very device, and writes what
// it learns to a log. compile() takes from logs and never measures (CompileOptions::tune_logs), so
// that the same log makes the same plan.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tensor/compile.h"

namespace tensor {

/// How far tuning is.
struct TuneProgress {
  double seconds = 0, limit_seconds = 0;      // since its start; 0: no limit
  std::int64_t trials = 0, limit_trials = 0;  // measured schedules; 0: no limit
  std::int64_t failures = 0;                  // of them: did not compile, run, or give the result
  std::size_t problems = 0;                   // different groups that were looked at so far
  // The sum of all groups, untuned and by now; 0 while not all of them have times.
  double before_us = 0, best_us = 0;
  std::string what;  // "matmul, add, gelu"
};

struct TuneOptions {
  /// At most, or 0 for no limit; but the tuned model is compared with the untuned one at the end,
  /// however late that is.
  double seconds = 60;
  std::int64_t trials = 0;  ///< at most so many schedules are measured; 0: no limit
  /// Where measurements are appended. Empty: the user's own log (user_log()), which compile() reads
  /// by default. What CompileOptions::tune_logs tell is not measured again: compile() needs them,
  /// too.
  std::string log = {};
  std::uint64_t seed = 0;  ///< of the search; the same seed and times make the same choices
  /// Nothing more is measured once the best times of all groups of the plan, added up, are at most
  /// this: for a latency that has to be met, not beaten. Where the log says so already, that is at
  /// once. 0: no goal.
  double goal_us = 0;
  /// Called as measurements come.
  std::function<void(const TuneProgress&)> progress = nullptr;
  /// Asked several times a second: ends tuning. What was measured is kept, and used.
  std::function<bool()> stop = nullptr;
};

/// Groups of one problem in the tuned plan.
struct TunedGroup {
  std::string operators;                  // "matmul, add, gelu"
  std::string problem;                    // as the log calls it
  std::string where;                      // in the model's words
  int count = 0;                          // how often the plan has it
  double before_us = 0, after_us = 0;     // of one: as the analytic model chooses, and the best; 0:
                                          // could not be measured
  std::string before, after;              // families and schedules
  std::int64_t space = 0;                 // valid schedules
  std::int64_t trials = 0, failures = 0;  // with those of earlier runs that the log tells of
};

struct TuneSummary {
  std::string device, log;
  std::vector<TunedGroup> groups;
  double before_us = 0, after_us = 0;     // the sum of all groups of the plan, untuned and tuned
  std::int64_t trials = 0, failures = 0;  // of this run
  double seconds = 0;
  bool is_stopped = false;  // by `stop`
  std::string end;          // why it ended: "60 s are over"
  /// Fusions of the untuned plan that measured times decided otherwise, one line each.
  std::vector<std::string> overturned;
  /// Schedules that make the whole model faster than those that are fastest alone, one line each.
  std::vector<std::string> chosen;
};

/// Tunes what compile() would make of the same function, inputs and options: measures, in a process
/// of its own, the groups of the plan and those that the plan nearly had, plans again with these
/// times, and so on until the plan stays as it is and the time is over. Continues where the log
/// ends. UserError where there is no such device, where the log cannot be written, and on a GPU
/// that this process has used already, if its children cannot open the driver a second time.
TENSOR_API TuneSummary tune(const TensorFunction& function, const std::vector<TensorType>& inputs,
                            const CompileOptions& options = {}, const TuneOptions& tuning = {});

/// The log that is read by default beside those that ship with the library: "tuned.jsonl" in the
/// folder of the kernel cache.
TENSOR_API std::string user_log();

/// A table of before and after, group by group, and what the measurements overturned.
TENSOR_API std::ostream& operator<<(std::ostream& out, const TuneSummary& summary);

}  // namespace tensor
