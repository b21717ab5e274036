// Records: what is known of measurements, from logs and from this run, and the log that takes the
// new ones.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/runtime/target.h"
#include "src/tune/log.h"
#include "src/tune/table.h"

namespace tensor {

class Records {
 public:
  /// `known`: measurements of this and other devices. The target's device and kernels are those of
  /// the new ones, which `log` takes.
  Records(std::vector<Measurement> known, const detail::Target& target, Log& log);

  const std::vector<Measurement>& known() const { return known_; }
  /// Whether it was taken on the target, with its kernels.
  bool is_own(const Measurement& measurement) const;
  /// Of all that is known; nullptr if that is nothing.
  std::shared_ptr<const Table> table() const;
  const std::string& log_path() const { return log_.path(); }

  // The schedules of these are those of a problem's joined space (Problem::joined).

  /// Appends a measurement to the log; `learn` has what counts of it in the end.
  void write(Measurement measurement);
  /// What is known from now on.
  void learn(std::vector<Measurement> measurements);
  /// Both: a choice by the whole model's time.
  void choose(Measurement choice);

 private:
  Measurement stamped(Measurement measurement) const;

  std::vector<Measurement> known_;
  const detail::Target& target_;
  Log& log_;
};

}  // namespace tensor
