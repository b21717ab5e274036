// What tuning came to: before and after, group by group, and the fusions that measurements decided.
#pragma once

#include <string>
#include <vector>

#include "src/trace/fuse.h"
#include "src/tune/tuning_parts.h"
#include "tensor/tune.h"

namespace tensor {

/// Of the untuned plan and the tuned one.
TuneSummary summarize(const TuningParts& parts, const ModelPlan& before, const ModelPlan& after);

/// Groups of a plan that another one of the same graph has not, and what it has in their place: a
/// line each.
std::vector<std::string> overturned(const Graph& graph, const FusionPlan& before,
                                    const FusionPlan& after);

}  // namespace tensor
