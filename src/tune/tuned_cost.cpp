#include "src/tune/tuned_cost.h"

#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <map>
#include <sstream>
#include <tuple>

#include "src/core/checksum.h"
#include "src/trace/isolate.h"
#include "src/trace/parallel.h"
#include "src/tune/problem.h"
#include "tensor/compile.h"

namespace tensor {
namespace {

constexpr const char* kModel = "model of ";  // begins partition_text
const std::string kWithout = "without ";

void keep_device(std::vector<Measurement>& measurements, const std::string& device) {
  std::erase_if(measurements, [&](const Measurement& m) { return m.device != device; });
}

// -1 if this build has no family of that name.
int family_of(const detail::Target& target, std::string_view name) {
  for (int family = 0; family < target.families; ++family)
    if (target.family_name(family) == name) return family;
  return -1;
}

// Logs outlive the spaces that they are about: whether this build can still run the group so.
bool can_run(const detail::Target& target, const Graph& graph, const Group& group,
             const Table::Entry& entry) {
  const int family = family_of(target, entry.family);
  if (family < 0 || !target.estimate(family, graph, group)) return false;
  if (entry.schedule.empty()) return true;  // as the family likes
  try {
    const Schedule schedule = Schedule::parse(entry.schedule);
    const auto space = target.space(family, graph, group);
    return space && space->has(schedule);
  } catch (const UserError&) {  // a text of another version
    return false;
  }
}

// What was measured of a group, or else of its twin, less what failed in this type.
std::optional<GroupCost> measured_cost(const detail::Target& target, const Table& table,
                                       const Graph& graph, const Group& group) {
  const std::string& device = target.tuned_as;
  const std::string problem = problem_text(graph, group);
  const auto is_usable = [&](const Table::Entry& entry) {
    return !table.has_failed(device, problem, entry) && can_run(target, graph, group, entry);
  };
  std::optional<Table::Entry> entry = table.find(device, problem, is_usable);
  if (!entry && target.bf16_is_like_f16) entry = table.find(device, twin_text(problem), is_usable);
  if (!entry) return std::nullopt;
  return GroupCost{family_of(target, entry->family), entry->microseconds, entry->schedule};
}

// The estimate of a group of which no usable time is known. If what the family would take has been
// tried and has failed, nothing else is worse.
GroupCost estimated_cost(const detail::Target& target, const Table& table, const Graph& graph,
                         const Group& group) {
  constexpr double kFailed = 1e6;
  GroupCost cost = target.cost(graph, group);
  const std::string problem = problem_text(graph, group);
  if (cost.family < 0 || !table.has_failures(target.tuned_as, problem)) return cost;
  const auto space = target.space(cost.family, graph, group);
  const Table::Entry chosen = {target.tuned_as, std::string(target.family_name(cost.family)),
                               space ? space->chosen.text() : cost.schedule};
  if (table.has_failed(target.tuned_as, problem, chosen)) cost.microseconds *= kFailed;
  return cost;
}

// What was measured of a group of a plan; of parallel products of the one that they become.
std::optional<GroupCost> measured_part(const detail::Target& target, const Table& table,
                                       const Graph& graph, const Group& group) {
  const ParallelRun run = run_of(graph, group);
  if (run.empty()) return measured_cost(target, table, graph, group);
  const Merged merged = merged_alone(graph, run);
  return measured_cost(target, table, merged.graph, merged.group);
}

// The same costs, but what a partition does without cannot be had, be it in this type or its twin.
CostFn without(CostFn cost, const Partition& partition, bool with_twins) {
  if (partition.without.empty()) return cost;
  return [=](const Graph& graph, const Group& group) -> GroupCost {
    if (group.nodes.size() > 1) {
      const std::string text = problem_text(graph, group);
      if (partition.without.contains(crc32_digits(text))) return {};
      if (with_twins && partition.without.contains(crc32_digits(twin_text(text)))) return {};
    }
    return cost(graph, group);
  };
}

FusionPlan measured_fusion(const Partition& partition, const Graph& graph,
                           const detail::Target& target,
                           const std::shared_ptr<const Table>& table) {
  const auto fuse_by = [&](CostFn cost) {
    return fuse(graph, without(std::move(cost), partition, target.bf16_is_like_f16));
  };
  if (!table) return fuse_by(target.cost);
  std::vector<double> ratios;  // of measured times to estimates
  FusionPlan plan = fuse_by([&](const Graph& of, const Group& group) {
    const GroupCost estimate = estimated_cost(target, *table, of, group);
    const auto measured = measured_cost(target, *table, of, group);
    if (measured) ratios.push_back(measured->microseconds / estimate.microseconds);
    return measured.value_or(estimate);
  });
  const bool is_measured = std::all_of(
      plan.groups.begin(), plan.groups.end(),
      [&](const Group& group) { return measured_part(target, *table, graph, group).has_value(); });
  if (ratios.empty() || is_measured) return plan;
  // What is a little better is not worth the change, which nobody has measured.
  constexpr double kMargin = 1.05;
  return fuse_by(tuned_cost(target, table, kMargin * std::max(1.0, median(ratios))));
}

FusionPlan estimated_fusion(const Partition& partition, const Graph& graph,
                            const detail::Target& target,
                            const std::shared_ptr<const Table>& table) {
  FusionPlan plan = fuse(graph, without(target.cost, partition, target.bf16_is_like_f16));
  if (!table) return plan;
  plan.microseconds = 0;
  for (Group& group : plan.groups) {
    if (const auto measured = measured_part(target, *table, graph, group))
      std::tie(group.family, group.microseconds, group.schedule) =
          std::tie(measured->family, measured->microseconds, measured->schedule);
    plan.microseconds += group.microseconds;
  }
  return plan;
}

// Of files that name the device.
std::vector<Measurement> shipped_measurements(const std::string& device) {
  std::vector<Measurement> all;
  for (const auto& [name, text] : shipped_logs()) {
    if (text.find(device) == std::string::npos) continue;
    std::vector<Measurement> more = parse_log(text, name).measurements;
    std::move(more.begin(), more.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace

CostFn tuned_cost(const detail::Target& target, std::shared_ptr<const Table> table,
                  double caution) {
  if (!table) return target.cost;
  return [=](const Graph& graph, const Group& group) -> GroupCost {
    if (const auto measured = measured_cost(target, *table, graph, group)) return *measured;
    GroupCost cost = estimated_cost(target, *table, graph, group);
    cost.microseconds *= caution;
    return cost;
  };
}

CostFn remembered(CostFn cost) {
  return [cost = std::move(cost), known = std::make_shared<std::map<std::string, GroupCost>>()](
             const Graph& graph, const Group& group) {
    const auto [at, is_new] = known->try_emplace(problem_text(graph, group));
    if (is_new) at->second = cost(graph, group);
    return at->second;
  };
}

std::string Partition::text() const {
  std::string schedule;
  for (const std::string& problem : without)
    schedule += (schedule.empty() ? kWithout : " ") + problem;
  return Problem::joined(costs, schedule);
}

FusionPlan fusion_by(const Partition& partition, const Graph& graph, const detail::Target& target,
                     const std::shared_ptr<const Table>& table) {
  return partition.costs == Partition::kEstimated
             ? estimated_fusion(partition, graph, target, table)
             : measured_fusion(partition, graph, target, table);
}

FusionPlan tuned_fusion(const Graph& graph, const detail::Target& target,
                        const std::shared_ptr<const Table>& table) {
  if (!table || !table->has_choice(kModel)) return fusion_by({}, graph, target, table);
  detail::Target remembering = target;
  remembering.cost = remembered(target.cost);
  const Partition plain{Partition::kEstimated};
  FusionPlan estimated = fusion_by(plain, graph, remembering, table);
  const Partition chosen = chosen_partition(graph, estimated, target, *table);
  return chosen == plain ? estimated : fusion_by(chosen, graph, remembering, table);
}

Partition chosen_partition(const Graph& graph, const FusionPlan& estimated,
                           const detail::Target& target, const Table& table) {
  auto choice = table.choice(target.tuned_as, partition_text(graph, estimated));
  if (!choice && target.bf16_is_like_f16)
    choice = table.choice(target.tuned_as, partition_text(graph, estimated, true));
  if (!choice) return {};
  Partition partition{choice->family};
  if (choice->schedule.starts_with(kWithout)) {
    std::istringstream problems(choice->schedule.substr(kWithout.size()));
    for (std::string problem; problems >> problem;) partition.without.insert(problem);
  }
  return partition;
}

std::string partition_text(const Graph& graph, const FusionPlan& estimated, bool as_twin) {
  std::string texts;
  for (const Group& group : estimated.groups) texts += problem_text(graph, group) + '\n';
  if (as_twin) texts = twin_text(texts);
  return kModel + std::to_string(estimated.groups.size()) + " groups " + crc32_digits(texts);
}

std::vector<Measurement> known_measurements(const std::optional<std::vector<std::string>>& logs,
                                            const std::string& device) {
  std::vector<std::string> files = logs.value_or(std::vector<std::string>());
  const bool has_shipped = std::erase(files, kShippedLogs) > 0 || !logs;
  std::vector<Measurement> all, more = read_logs(files).measurements;
  if (has_shipped) all = shipped_measurements(device);
  std::error_code error;
  if (const std::string own = standard_log(); !logs && std::filesystem::exists(own, error))
    more = read_log(own).measurements;
  std::move(more.begin(), more.end(), std::back_inserter(all));
  return all;
}

std::shared_ptr<const Table> table_for(const detail::Target& target,
                                       const std::optional<std::vector<std::string>>& logs) {
  std::vector<Measurement> measurements = known_measurements(logs, target.tuned_as);
  keep_device(measurements, target.tuned_as);
  if (measurements.empty()) return nullptr;
  return std::make_shared<const Table>(measurements, target.kernels);
}

}  // namespace tensor
