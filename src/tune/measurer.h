// Measurer: how long kernels take. The search asks through this alone, and never knows whether a
// GPU, a processor or a test answers.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "src/kernels/schedule.h"

namespace tensor {

/// A schedule that somebody wants to know about.
struct Candidate {
  int task = 0;  // which of the measurer's problems
  Schedule schedule;
};

/// What came of it: times, or why there are none.
struct Measured {
  std::vector<double> microseconds;  // of every repeat
  std::string error;                 // empty where the kernel ran and was right
};

class Measurer {
 public:
  virtual ~Measurer() = default;
  /// One answer a candidate, in order. A kernel that fails is an answer, not an exception.
  virtual std::vector<Measured> measure(std::span<const Candidate> candidates) = 0;

  /// What is known of a candidate so far, by its place in the batch: later calls have more times.
  using Hear = std::function<void(std::size_t, const Measured&)>;
  /// The same, and tells `hear` at once, where the measurer knows before the batch is done.
  virtual std::vector<Measured> measure_telling(std::span<const Candidate> candidates,
                                                [[maybe_unused]] const Hear& hear) {
    return measure(candidates);
  }
};

}  // namespace tensor
