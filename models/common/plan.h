// Plan files of the programs (--plan): a compiled model on disk for the sizes that were met, with
// what it was compiled from, so that it is never taken for that of another model.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/common/forward.h"
#include "models/common/run_options.h"
#include "tensor/plan.h"

namespace models {

/// What must be the same when a plan is used again: "program", "dtype", "weights" and such.
using PlanKey = std::map<std::string, std::string>;

/// Sixteen hexadecimal digits of a text and of all parameters: names, types and every element.
std::string fingerprint(const std::string& text,
                        const std::vector<tensor::nn::Parameter>& parameters);

/// The same of what files hold.
std::string fingerprint(const std::vector<std::string>& files);

/// Of a program's run: what `model`, a fingerprint, is compiled for by these options. `examples`
/// are the files that --calibrate means.
PlanKey plan_key(const std::string& program, const RunOptions& options,
                 const std::vector<std::string>& examples, const std::string& model);

/// The plan in a file. UserError on anything but a plan with this key.
tensor::Plan load_plan(const std::string& path, const PlanKey& key);
/// Its executable for inputs like these, if it has one; `path` is for messages.
std::optional<NamedExecutable> planned(const tensor::Plan& plan, const std::string& path,
                                       const tensor::nn::StateDict& inputs,
                                       const tensor::LoadOptions& options);
/// Adds a size to the file, or begins it: Plan::grow.
bool grow_plan(const std::string& path, const PlanKey& key, const NamedExecutable& size);
/// The file's executable for inputs like these, or else what `make` makes, which is added to the
/// file. UserError where `is_to_tune` and there is nothing to make.
NamedExecutable planned_or_made(const std::string& path, const PlanKey& key,
                                const tensor::nn::StateDict& inputs,
                                const tensor::LoadOptions& options, bool is_to_tune,
                                const std::function<NamedExecutable()>& make);

}  // namespace models
