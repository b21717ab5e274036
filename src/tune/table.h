// Table: what logs say is best. Made anew from measurements, in whatever order they come.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/core/median.h"
#include "src/tune/log.h"

namespace tensor {

/// Whether it was taken with this version of the library and these kernels (Target::kernels).
bool is_current(const Measurement& measurement, const std::string& kernels);

/// Less what was measured of a problem on a device with other kernels than these, if these were
/// timed there; of others those of the newest version stay. Times of different kernels cannot be
/// compared. Empty `kernels`: whichever. Choices by the whole model's time stay.
std::vector<Measurement> newest(std::vector<Measurement> measurements, const std::string& kernels);

class Table {
 public:
  struct Entry {
    std::string device, family, schedule;
    double microseconds = 0;  // of the fastest one alone: the median of all repeats

    bool operator==(const Entry&) const = default;
  };

  using Filter = std::function<bool(const Entry&)>;

  static constexpr double kChosen = 1.15;  // times as long as the fastest one alone, at most

  Table() = default;
  /// Of the records of a problem those count that `newest` keeps, `kernels` being what will run. A
  /// schedule with an error among them is out. Of equal times the first family and schedule in
  /// alphabetical order is taken, so that the same records make the same table.
  ///
  /// A choice by the whole model's time comes before the fastest one alone, as long as it takes at
  /// most kChosen times as long; of several that with `kernels`, then the newest. The entry keeps
  /// the time of the fastest: nothing else would be fused because of a choice.
  explicit Table(std::span<const Measurement> measurements, const std::string& kernels = {});

  /// The best schedule of a problem measured on this device, among those that `is_usable`; nullopt
  /// if there is none.
  std::optional<Entry> find(
      const std::string& device, const std::string& problem,
      const Filter& is_usable = [](const Entry&) { return true; }) const;
  /// What was best of the same problem in other sizes on this device: what the next smaller and the
  /// next larger one that were measured agree on, or else what one took that is nearly as large.
  /// nullopt where nothing is known so.
  std::optional<Entry> neighbour(const std::string& device, const std::string& problem) const;
  /// What was chosen by the whole model's time, measured alone or not: of several the newest.
  std::optional<Entry> choice(const std::string& device, const std::string& problem) const;
  /// Whether anything was chosen of a problem whose text begins so, on whatever device.
  bool has_choice(const std::string& begin) const;
  /// Whether this family and schedule are out for a problem on this device.
  bool has_failed(const std::string& device, const std::string& problem, const Entry& entry) const;
  /// Whether any is.
  bool has_failures(const std::string& device, const std::string& problem) const;
  /// The best schedules on other devices, by the devices' names: worth trying, not to be trusted.
  std::vector<Entry> hints(const std::string& device, const std::string& problem) const;
  /// The best of all problems, by problem and device.
  std::map<std::pair<std::string, std::string>, Entry> entries() const;

 private:
  // Of a problem on a device.
  struct Known {
    std::vector<Entry> ranked;  // the fastest alone first
    std::size_t chosen = 0;     // of them
    std::vector<Entry> failed;
  };

  // By problem and device.
  std::map<std::pair<std::string, std::string>, Known> known_;
  std::map<std::pair<std::string, std::string>, Entry> choices_;
  // The best of each size, by the problem without its size, and device.
  std::map<std::pair<std::string, std::string>, std::multimap<double, Entry>> sizes_;
};

/// A problem's text with a mark for each extent of what is no constant but those of 1, so that it
/// is the same in all sizes, and how many elements these operands have together.
struct Sizeless {
  std::string text;
  double elements = 0;
};
Sizeless sizeless(std::string_view problem);

}  // namespace tensor
