// Known schedules: another size runs by kernels of sizes before it where it loses little by that,
// because kernels that take any extent are compiled for those already.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "src/kernels/family.h"

namespace tensor {

/// Schedules whose kernels there are. Any number of threads may use them.
class KnownSchedules {
 public:
  /// A schedule of groups of one kind, and the kernels that it takes.
  struct Made {
    std::string kind;
    Schedule schedule;
    std::vector<std::string> kernels;  // by name
  };

  /// Those of a kind, the latest last.
  std::vector<Schedule> of_kind(const std::string& kind) const;
  bool has(const std::string& kernel) const;
  /// Whether so many sizes are there that another one has a choice of kernels.
  bool are_many(const std::string& device) const;
  /// What was made for a size, once its kernels are there. `device` tells apart what has others.
  void add(const std::string& device, std::vector<Made> made);

 private:
  static constexpr int kMany = 8;           // sizes
  static constexpr std::size_t kMost = 64;  // schedules of a kind; the oldest go

  mutable std::mutex mutex_;
  std::map<std::string, std::vector<Schedule>> known_;
  std::set<std::string> kernels_;
  std::map<std::string, int> sizes_;  // of devices
};

/// A plan with the schedules that its kernels will have.
struct Scheduled {
  FusionPlan plan;
  std::vector<KnownSchedules::Made> made = {};
  /// Whether it takes kernels that are there where others are worth being waited for.
  bool is_hasty = false;
};

/// Every group runs by what was measured for it; or else by what it asks for or its family takes
/// of itself, unless kernels that are known do nearly as well by the model, be they for any size:
/// of the first sizes those that lose less than a twentieth of a group's time; of later ones those
/// that lose less than half of it, as long as the whole plan loses no more than a twentieth. `in
/// haste` kernels that are known are taken wherever they lose less than half. The same sizes in the
/// same order get the same schedules.
Scheduled scheduled(const LaidOutGraph& laid, FusionPlan plan, Offers& offers,
                    const KnownSchedules& known, const std::string& device, bool in_haste = false);

}  // namespace tensor
