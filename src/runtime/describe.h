// A group in words, for reports.
#pragma once

#include <string>

#include "src/runtime/target.h"

namespace tensor::detail {

/// "matmul, add, gelu"
std::string operators_of(const Graph& graph, const Group& group);
/// The module that most of the group's operators belong to: that of the first one with a note.
std::string place_of(const Graph& graph, const Group& group);

/// "encoder.layer.*.attention.{key, query}" of "encoder.layer.3.attention.key" and
/// "encoder.layer.4.attention.query": numbers become a star, and so do more than four names. As
/// deep as the shorter of the two.
std::string merged_place(const std::string& a, const std::string& b);

/// A plan for people: every kind of group with how often it occurs, what runs it, its estimate,
/// what it writes, where in the model it stands, and what its operators are estimated to take
/// apart.
std::string plan_text(const LaidOutGraph& laid, const FusionPlan& plan, const Target& target);

/// How every kind of group runs, for people: family, schedule and kernel.
std::string schedule_text(const LaidOutGraph& laid, const FusionPlan& plan, const Target& target,
                          const Kernels& kernels);

}  // namespace tensor::detail
