// Plans for another size: graphs that differ in extents alone are divided alike, so that what took
// a search for one takes a look for the others.
#pragma once

#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/trace/fuse.h"

namespace tensor {

/// Equal for graphs that differ in extents alone: the same operators with the same operands and
/// types, whose values' axes lie in the same order.
std::string outline_of(const LaidOutGraph& laid);

/// A partition that another size has, and how many microseconds of it were measured in this one.
struct LikeFusion {
  FusionPlan plan;
  double measured = 0;
};

/// The cheapest partition of plans whose graphs had this one's outline, every group costed anew;
/// nullopt where each has a group without a kernel in this size.
std::optional<LikeFusion> fuse_like(const std::vector<FusionPlan>& known, const Fusible& fusible,
                                    const CostFn& cost);

/// The plans that were searched for. Any number of threads may use them.
class KnownPlans {
 public:
  /// By what the next smaller and the next larger known size agree on; or else by one that is
  /// nearly as large; or else by the cheapest of all, if several are known. nullopt where none of
  /// this is. Test: tests/plans/known_plans_test.cpp tells what is lost against a search.
  /// `device` tells apart what has other costs.
  std::optional<LikeFusion> fused(const Fusible& fusible, const std::string& device,
                                  const CostFn& cost) const;
  void remember(const Fusible& fusible, const std::string& device, const FusionPlan& plan);

 private:
  static constexpr double kNear = 1.2;        // times as many elements in all
  static constexpr std::size_t kSeveral = 4;  // plans, of which one does: of two the better one was
                                              // 6 % slower than what a search found for a ViT
  static constexpr std::size_t kMost = 16;    // plans; the oldest go
  struct Known {
    std::string device, outline;
    double elements = 0;
    FusionPlan plan;
  };
  std::vector<FusionPlan> near(const LaidOutGraph& laid, const std::string& device) const;

  mutable std::mutex mutex_;
  std::list<Known> known_;  // the latest first
};

}  // namespace tensor
