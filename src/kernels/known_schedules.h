// Known schedules: another size runs by the schedules of sizes before it where it loses little by
// that, because kernels that take any extent are compiled for those already.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "src/kernels/family.h"

namespace tensor {

/// Any number of threads may use them.
class KnownSchedules {
 public:
  /// What a group runs by: what it asks for, where its space has that; or the fastest by the model
  /// of those that groups of the same operators ran by, where less than a twentieth is lost; or
  /// what its family takes of itself. `device` tells apart what has other kernels.
  Schedule of(const LaidOutGraph& laid, const Group& group, const Space& space,
              const std::string& device);

 private:
  static constexpr double kNear = 1.05;     // times the least time
  static constexpr std::size_t kMost = 32;  // of the same operators; the oldest go

  std::mutex mutex_;
  std::map<std::string, std::vector<Schedule>> known_;  // the latest last
};

/// The plan with the schedule of every group that its kernel will have.
FusionPlan scheduled(const LaidOutGraph& laid, FusionPlan plan, Offers& offers,
                     KnownSchedules& known, const std::string& device);

}  // namespace tensor
