// Progress: how far tuning is, what it may still take, and telling so.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "src/tune/tuning_tasks.h"
#include "tensor/tune.h"

namespace tensor {

class Progress {
 public:
  /// How TuneProgress::what tells of a task.
  using Describe = std::function<std::string(const TuningTask&)>;

  /// The time begins. `tasks` must outlive it.
  Progress(const TuneOptions& options, const TuningTasks& tasks, Describe describe);

  double seconds() const;
  std::int64_t trials() const { return trials_; }
  std::int64_t failures() const { return failures_; }
  void count_trial() { ++trials_; }
  void count_failure() { ++failures_; }
  std::size_t trials_left() const;

  /// The time is over after this share of it.
  void set_share(double share) { share_ = share; }
  bool is_stopped() const { return stop_ && stop_(); }
  /// Why tuning has to end because of time, or since it was stopped; empty if it may go on.
  std::string late() const;
  /// The same, or because of trials.
  std::string over() const;

  /// The sum of all groups untuned; told from then on.
  void set_before(double microseconds) { before_us_ = microseconds; }
  double before_us() const { return before_us_; }
  /// Tells of a task that was worked on. Sums are told of whole plans only: one that lacks a group
  /// would look like a gain.
  void tell(const TuningTask& task);

 private:
  using Clock = std::chrono::steady_clock;

  double limit_seconds_;
  std::int64_t limit_trials_;
  std::function<bool()> stop_;
  std::function<void(const TuneProgress&)> hear_;
  const TuningTasks& tasks_;
  Describe describe_;
  Clock::time_point start_ = Clock::now();
  double share_ = 1;
  std::int64_t trials_ = 0, failures_ = 0;
  double before_us_ = 0;
  double told_us_ = 0;  // of the last plan all of which had times
};

}  // namespace tensor
