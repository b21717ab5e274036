// Plans from measurements: the cost function that knows them, and where they come from.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/runtime/target.h"
#include "src/tune/table.h"

namespace tensor {

/// The target's cost times `caution`, but for groups that were measured on its device the time and
/// the schedule of the best one that this build has: families, and schedules of their spaces, that
/// it does not know or refuses are passed over. A group of which nothing was measured takes what
/// its twin (twin_text) has, where the target's bf16 is like f16. `table` may be null.
CostFn tuned_cost(const detail::Target& target, std::shared_ptr<const Table> table,
                  double caution = 1);

/// The cheapest partition by tuned_cost. Estimates of what was not measured count as much higher as
/// those of the measured groups turned out to be, so that no group is taken because it was never
/// put to the test.
FusionPlan tuned_fusion(const Graph& graph, const detail::Target& target,
                        const std::shared_ptr<const Table>& table);

/// What the given logs say; by default those that ship with the library and then the user's own, if
/// there is one. UserError where a given one cannot be read.
std::vector<Measurement> known_measurements(const std::optional<std::vector<std::string>>& logs);

/// The same for one device, as a table; nullptr if they tell nothing of it.
std::shared_ptr<const Table> table_for(const std::string& device,
                                       const std::optional<std::vector<std::string>>& logs);

/// The logs that are part of the library (src/tune/shipped), by their files' names.
const std::vector<std::pair<std::string, std::string>>& shipped_logs();

}  // namespace tensor
