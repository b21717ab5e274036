// Table: what logs say is best. Made anew from measurements, in whatever order they come.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/tune/log.h"

namespace tensor {

/// The middle of the times, or the mean of the two in the middle. There is one at least.
double median(std::vector<double> times);

class Table {
 public:
  struct Entry {
    std::string device, family, schedule;
    double microseconds = 0;  // of the fastest one alone: the median of all repeats

    bool operator==(const Entry&) const = default;
  };

  static constexpr double kChosen = 1.1;

  Table() = default;
  /// Of each schedule the records of the newest version of this library count, its kernels being
  /// what will run. A schedule with an error among them is out. Of equal times the first family and
  /// schedule in alphabetical order is taken, so that the same records make the same table.
  ///
  /// A choice by the whole model's time comes before the fastest one alone, as long as it takes at
  /// most kChosen times as long; of several the newest. The entry keeps the time of the fastest:
  /// nothing else would be fused because of a choice.
  explicit Table(std::span<const Measurement> measurements);

  /// The best schedule of a problem measured on this device, nullptr if there is none.
  const Entry* find(const std::string& device, const std::string& problem) const;
  /// The best schedules on other devices, by the devices' names: worth trying, not to be trusted.
  std::vector<Entry> hints(const std::string& device, const std::string& problem) const;
  /// By problem and device.
  const std::map<std::pair<std::string, std::string>, Entry>& entries() const { return best_; }

 private:
  std::map<std::pair<std::string, std::string>, Entry> best_;
};

}  // namespace tensor
