// Plans from measurements: the cost function that knows them, and where they come from.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/runtime/target.h"
#include "src/trace/fuse/known_plans.h"
#include "src/tune/table.h"

namespace tensor {

/// The target's cost times `caution`, but for groups that were measured on its device the time and
/// the schedule of the best one that this build has: families, and schedules of their spaces, that
/// it does not know or refuses are passed over. A group of which nothing was measured takes what
/// its twin (twin_text) has, where the target's bf16 is like f16; or else the schedule that was
/// best in sizes next to its own (Table::neighbour), where the model says that little is lost by
/// it. `table` may be null.
CostFn tuned_cost(const detail::Target& target, std::shared_ptr<const Table> table,
                  double caution = 1);

/// The partitions of a model that can be compared by its whole time.
struct Partition {
  /// The cheapest by tuned_cost. Estimates of what was not measured count as much higher as those
  /// of the measured groups turned out to be, so that no group is taken because it was never put to
  /// the test.
  static constexpr const char* kMeasured = "measured";
  /// The cheapest by estimates, whose groups run as measurements say.
  static constexpr const char* kEstimated = "estimated";

  std::string costs = kMeasured;
  /// Problems, by the checksums of their texts, that no group of several operators may pose: what
  /// is fast alone may be slow among others, which heat the same chip and share its memory.
  std::set<std::string> without = {};

  /// "estimated", "measured.without 0f1e2d3c 4b5a6978": the family and the schedule of the line
  /// that chooses it.
  std::string text() const;
  bool operator==(const Partition&) const = default;
};

/// The partition of that description; `table` may be null.
FusionPlan fusion_by(const Partition& partition, const Fusible& fusible,
                     const detail::Target& target, const std::shared_ptr<const Table>& table);
/// By the partition that the table holds for this model, or else the measured one.
FusionPlan tuned_fusion(const Fusible& fusible, const detail::Target& target,
                        const std::shared_ptr<const Table>& table);
/// The same for one of many sizes: like a known one, unless most of it was measured in this size.
FusionPlan tuned_fusion(const Fusible& fusible, const detail::Target& target,
                        const std::shared_ptr<const Table>& table, KnownPlans& known);

/// The one that the table holds for a model.
Partition chosen_partition(const Graph& graph, const FusionPlan& estimated,
                           const detail::Target& target, const Table& table);
/// The problem under which logs keep which partition is best: by the groups of the estimated one,
/// or those of its twin (twin_text).
std::string partition_text(const Graph& graph, const FusionPlan& estimated, bool as_twin = false);

/// What the given logs say, of which one may be kShippedLogs; by default those that ship with the
/// library and then the user's own, if there is one. UserError where a given one cannot be read.
/// Of those that ship, files that do not name `device` are left out.
std::vector<Measurement> known_measurements(const std::optional<std::vector<std::string>>& logs,
                                            const std::string& device = {});

/// The same for one target's device, as a table; nullptr if they tell nothing of it.
std::shared_ptr<const Table> table_for(const detail::Target& target,
                                       const std::optional<std::vector<std::string>>& logs);

/// The logs that are part of the library (src/tune/shipped), by their files' names.
const std::vector<std::pair<std::string, std::string>>& shipped_logs();

}  // namespace tensor
