// Recordings: a log taken for the machine itself. Its schedules are a space, and its times answer
// a search, so that searches can be compared, with any number of seeds, where there is no GPU.
#pragma once

#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/tune/log.h"
#include "src/tune/measurer.h"

namespace tensor {

/// One problem on one device, as a log knows it.
class Recording {
 public:
  /// Of measurements of one problem, family and device; those without features are left out.
  /// UserError when nothing is left.
  explicit Recording(std::span<const Measurement> measurements);

  /// What was measured, nothing else. Features are those of the log, less the last number, which
  /// gives the analytic model's time relative to level 0's choice. Which that was the log does not
  /// say: the first is taken that the model likes as much.
  Space space() const;
  /// What the log has of the schedule: one repeat, the median of all.
  Measured measured(const Schedule& schedule) const;
  const std::string& problem() const { return problem_; }
  const std::string& family() const { return family_; }
  const std::string& device() const { return device_; }
  std::size_t size() const { return entries_.size(); }
  double best_us() const;

 private:
  struct Entry {
    Schedule schedule;
    std::vector<float> features;
    Measured measured;
  };
  std::string problem_, family_, device_;
  std::map<std::string, Entry> entries_;  // by schedule
  std::string chosen_;                    // of them, by level 0
};

/// The recordings of a log, by problem, family and device, of `least` schedules or more. Families
/// that know one way only, which the empty schedule stands for, leave nothing to search.
std::vector<Recording> recordings(std::span<const Measurement> measurements, std::size_t least = 1);

/// Answers from recordings; a candidate's task is the position of one.
class RecordedMeasurer : public Measurer {
 public:
  explicit RecordedMeasurer(std::span<const Recording> recordings) : recordings_(recordings) {}
  std::vector<Measured> measure(std::span<const Candidate> candidates) override;

 private:
  std::span<const Recording> recordings_;
};

}  // namespace tensor
