// PlanData: what a Plan holds, and how its texts become programs and are made of them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/runtime/plan_constants.h"
#include "src/runtime/program.h"
#include "tensor/plan.h"

namespace tensor::detail {

struct PlannedSize {
  Plan::Size inputs;
  Plan::About about;
  std::string text;  // JSON: the laid-out graph node by node, and its groups
};

struct PlanData {
  std::string name = "plan";  // for messages
  Plan::About about;
  std::string device, computes;  // of the executables: "cpu", and as Program::computes
  std::vector<PlannedSize> sizes;
  PlanConstants constants;  // of all sizes
  Sharing sharing;

  const PlannedSize* find(const Plan::Size& inputs) const;
  /// UserError where it is not there.
  const PlannedSize& at(const Plan::Size& inputs) const;
};

/// The text of a program; `name` takes its constants, in memory order, and names them.
std::string text_of(const Program& program, const std::function<std::string(const Tensor&)>& name);

/// The program of a text, for any target; without `common` it shares with nobody. UserError where
/// it is damaged.
std::shared_ptr<const Program> read_program(const PlanData& plan, const PlannedSize& size,
                                            Target target,
                                            const std::shared_ptr<Common>& common = nullptr);

/// Plan::executable; `make_room` as in Common::keep_within.
std::shared_ptr<const Program> load_program(const PlanData& plan, const Plan::Size& inputs,
                                            const LoadOptions& options,
                                            const std::function<bool()>& make_room = nullptr);

/// What `file` holds, some of which is looked at when it is read. UserError where it is no plan.
PlanData plan_data(Safetensors file, const std::string& name);

/// "f32(1, 3, 8, 8), i64(1, 8, 8); f32(2, 3, 8, 8), i64(2, 8, 8)", of many sizes the first.
std::string list_of(const std::vector<Plan::Size>& sizes);

}  // namespace tensor::detail
