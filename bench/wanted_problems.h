// The subgraphs that lines of logs are about, found again in the plans of models.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "src/trace/isolate.h"
#include "src/tune/tuned_cost.h"

namespace bench {

class WantedProblems {
 public:
  /// `wanted` are problem texts; plans are those for the target by the logs that the user has.
  WantedProblems(std::set<std::string> wanted, tensor::detail::Target target);

  /// The groups that the model's plans have, and those that other partitions would.
  void add_model(const tensor::LaidOutGraph& laid);
  const tensor::detail::Target& target() const { return target_; }
  /// By text, those that were met.
  const std::map<std::string, tensor::Isolated>& found() const { return found_; }

 private:
  void add_plan(const tensor::LaidOutGraph& laid, const tensor::FusionPlan& plan);
  void add(const tensor::LaidOutGraph& laid, const tensor::Group& group);

  std::set<std::string> wanted_;  // those that were not met yet
  tensor::detail::Target target_;
  std::shared_ptr<const tensor::Table> table_;
  std::map<std::string, tensor::Isolated> found_;
};

}  // namespace bench
