// Common: what the programs of one model share.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "src/core/pool.h"
#include "src/kernels/known_schedules.h"
#include "src/runtime/arenas.h"
#include "src/runtime/contents.h"
#include "src/runtime/crew.h"
#include "src/runtime/recordings.h"
#include "src/trace/derived.h"
#include "src/trace/fuse/known_plans.h"
#include "tensor/executable.h"

namespace tensor::cuda {
class Kernel;
}

namespace tensor::detail {

struct Program;

class Common {
 public:
  explicit Common(std::shared_ptr<DerivedConstants> derived = nullptr)
      : derived_(derived ? std::move(derived) : std::make_shared<DerivedConstants>()) {}

  const std::shared_ptr<DerivedConstants>& derived() const { return derived_; }
  CallMemory& memory(const Device& device);
  Recordings& recordings() { return recordings_; }
  KnownPlans& plans() { return plans_; }
  KnownSchedules& schedules() { return schedules_; }
  Contents& contents() { return contents_; }
  Pool<Crew>& crews() { return crews_; }

  /// Keeps kernels loaded, so that another size finds them when those before are gone.
  void keep(const std::vector<std::shared_ptr<cuda::Kernel>>& kernels);

  /// A program, from when it is complete until before it goes.
  void add(const Program& program);
  void remove(const Program& program);
  /// What the program holds of its device's memory, and how much of that others hold, too.
  DeviceMemory memory_of(const Program& program);
  /// UserError where all programs on that device hold more than `limit`, with an arena for one
  /// call, and `make_room`, called as often as need be, has nothing to let go. Calls at the same
  /// time then wait for each other rather than take more. For ever, where `limit` is 0.
  void keep_within(std::int64_t limit, const Program& program,
                   const std::function<bool()>& make_room);

 private:
  const std::shared_ptr<DerivedConstants> derived_;
  Recordings recordings_;
  KnownPlans plans_;
  KnownSchedules schedules_;
  Contents contents_;
  Pool<Crew> crews_;
  std::mutex mutex_;
  std::list<CallMemory> memory_;  // one a device
  std::vector<const Program*> programs_;
  std::set<std::shared_ptr<cuda::Kernel>> kernels_;
};

}  // namespace tensor::detail
