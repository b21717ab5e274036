#include "src/tune/progress.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tensor/text.h"

namespace tensor {

Progress::Progress(const TuneOptions& options, const TuningTasks& tasks, Describe describe)
    : limit_seconds_(options.seconds),
      limit_trials_(options.trials),
      stop_(options.stop),
      hear_(options.progress),
      tasks_(tasks),
      describe_(std::move(describe)) {}

double Progress::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

std::size_t Progress::trials_left() const {
  if (limit_trials_ == 0) return SIZE_MAX;
  return static_cast<std::size_t>(std::max<std::int64_t>(limit_trials_ - trials_, 0));
}

std::string Progress::late() const {
  if (is_stopped()) return "it was stopped";
  if (limit_seconds_ == 0 || seconds() < share_ * limit_seconds_) return "";
  TextWriter text;
  text << limit_seconds_ << " s are over";
  return text.str();
}

std::string Progress::over() const {
  if (std::string why = late(); !why.empty()) return why;
  return trials_left() > 0 ? "" : std::to_string(limit_trials_) + " schedules were measured";
}

void Progress::tell(const TuningTask& task) {
  if (!hear_) return;
  if (const double sum = tasks_.best_sum(); std::isfinite(sum)) told_us_ = sum;
  TuneProgress progress;
  progress.seconds = seconds(), progress.limit_seconds = limit_seconds_;
  progress.trials = trials_, progress.limit_trials = limit_trials_;
  progress.failures = failures_;
  progress.problems = tasks_.problems().size();
  progress.before_us = before_us_, progress.best_us = told_us_;
  progress.what = describe_(task);
  hear_(progress);
}

}  // namespace tensor
