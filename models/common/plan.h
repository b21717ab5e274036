// Plan files of the programs (--plan): a compiled model on disk, with what it was compiled from, so
// that it is never taken for that of another model.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "models/common/forward.h"

namespace models {

/// What must be the same when a plan is used again: "program", "dtype", "weights" and such.
using PlanKey = std::map<std::string, std::string>;

/// Sixteen hexadecimal digits of a text and of all parameters: names, types and every element.
std::string fingerprint(const std::string& text,
                        const std::vector<tensor::nn::Parameter>& parameters);

void save_plan(const std::string& path, const NamedExecutable& plan, const PlanKey& key);
/// Throws UserError on anything but a plan with this key.
NamedExecutable load_plan(const std::string& path, const PlanKey& key, int threads = 0,
                          const tensor::Device& device = {});

}  // namespace models
