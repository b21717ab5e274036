// Planner: the ways in which a model could be divided into kernels, by estimates and by what was
// measured.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "src/runtime/target.h"
#include "src/trace/fuse.h"
#include "src/tune/table.h"
#include "src/tune/tuned_cost.h"

namespace tensor {

/// A model as it is divided.
struct ModelPlan {
  Partition partition = {};
  FusionPlan apart = {};  // parallel products not merged yet
  std::pair<LaidOutGraph, FusionPlan> merged = {};
  std::vector<Group> alternatives = {};  // to groups of `apart`, which it nearly had
};

/// Whether two plans have the same groups.
bool divide_alike(const FusionPlan& one, const FusionPlan& other);
/// Whether one of the plans has these groups, parallel products not merged.
bool has_division(const std::vector<ModelPlan>& all, const FusionPlan& plan);

class Planner {
 public:
  /// Null: by estimates.
  using Times = std::shared_ptr<const Table>;
  struct Options {
    bool fuse = true;      // else one kernel an operator
    bool by_times = true;  // else by estimates, whatever was measured
  };

  /// `fusible` and `target` must outlive it.
  Planner(const Fusible& fusible, const detail::Target& target, const Options& options)
      : fusible_(fusible), target_(target), options_(options) {}

  const Graph& graph() const { return fusible_.laid.graph; }
  /// Whether there are several partitions to choose from.
  bool has_choice() const { return options_.fuse && options_.by_times; }

  /// As compile() has it: what was not measured is not trusted.
  ModelPlan plan(const Times& times) const;
  /// The cheapest one if all estimates were right, and groups that it nearly had: what is worth
  /// measuring.
  ModelPlan hoped_for(const Times& times) const;

  ModelPlan divided(const Partition& partition, const Times& times) const;
  FusionPlan estimated() const;
  /// First what the log says as it is, then of measured and estimated what is another, and what the
  /// log said when tuning began: what was measured since must not make the model slower.
  std::vector<ModelPlan> partitions(const FusionPlan& began, const Times& times) const;
  /// The partition by these times that is this one: without all else that they would fuse.
  std::optional<ModelPlan> divided_like(const FusionPlan& wanted, const Times& times) const;

 private:
  ModelPlan merged(FusionPlan apart) const;

  const Fusible& fusible_;
  const detail::Target& target_;
  Options options_;
};

}  // namespace tensor
