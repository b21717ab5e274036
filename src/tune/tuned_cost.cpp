#include "src/tune/tuned_cost.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "src/kernels/cuda/kernel_cache.h"
#include "src/trace/isolate.h"
#include "src/trace/parallel.h"
#include "tensor/tune.h"

namespace tensor {
namespace {

void keep_device(std::vector<Measurement>& measurements, const std::string& device) {
  std::erase_if(measurements, [&](const Measurement& m) { return m.device != device; });
}

// Whether all groups of a plan were; those of parallel products as the product they become.
bool are_measured(const Graph& graph, const FusionPlan& plan, const detail::Target& target,
                  const Table& table) {
  return std::all_of(plan.groups.begin(), plan.groups.end(), [&](const Group& group) {
    const ParallelRun run = run_of(graph, group);
    if (run.empty()) return table.find(target.tuned_as, problem_text(graph, group)) != nullptr;
    const Merged merged = merged_alone(graph, run);
    return table.find(target.tuned_as, problem_text(merged.graph, merged.group)) != nullptr;
  });
}

std::vector<Measurement> shipped_measurements() {
  std::vector<Measurement> all;
  for (const auto& [name, text] : shipped_logs()) {
    std::vector<Measurement> more = parse_log(text, name).measurements;
    std::move(more.begin(), more.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace

CostFn tuned_cost(const detail::Target& target, std::shared_ptr<const Table> table,
                  double caution) {
  if (!table) return target.cost;
  std::map<std::string, int, std::less<>> numbers;
  for (int i = 0; i < target.families; ++i) numbers.emplace(target.family_name(i), i);
  return [=](const Graph& graph, const Group& group) -> GroupCost {
    if (const Table::Entry* entry = table->find(target.tuned_as, problem_text(graph, group)))
      if (const auto family = numbers.find(entry->family);
          family != numbers.end() && target.estimate(family->second, graph, group))
        return {family->second, entry->microseconds, entry->schedule};
    GroupCost cost = target.cost(graph, group);
    cost.microseconds *= caution;
    return cost;
  };
}

FusionPlan tuned_fusion(const Graph& graph, const detail::Target& target,
                        const std::shared_ptr<const Table>& table) {
  if (!table) return fuse(graph, target.cost);
  std::vector<double> ratios;  // of measured times to estimates
  const CostFn cost = tuned_cost(target, table);
  FusionPlan plan = fuse(graph, [&](const Graph& of, const Group& group) {
    const GroupCost found = cost(of, group);
    if (table->find(target.tuned_as, problem_text(of, group)) && found.family >= 0)
      ratios.push_back(found.microseconds / target.cost(of, group).microseconds);
    return found;
  });
  if (ratios.empty() || are_measured(graph, plan, target, *table)) return plan;
  // What is a little better is not worth the change, which nobody has measured.
  constexpr double kMargin = 1.05;
  return fuse(graph, tuned_cost(target, table, kMargin * std::max(1.0, median(ratios))));
}

std::vector<Measurement> known_measurements(const std::optional<std::vector<std::string>>& logs) {
  if (logs) return read_logs(*logs).measurements;
  std::vector<Measurement> all = shipped_measurements();
  const std::string own = user_log();
  std::error_code error;
  if (!std::filesystem::exists(own, error)) return all;
  std::vector<Measurement> more = read_log(own).measurements;
  std::move(more.begin(), more.end(), std::back_inserter(all));
  return all;
}

std::shared_ptr<const Table> table_for(const std::string& device,
                                       const std::optional<std::vector<std::string>>& logs) {
  std::vector<Measurement> measurements = known_measurements(logs);
  keep_device(measurements, device);
  return measurements.empty() ? nullptr : std::make_shared<const Table>(measurements);
}

std::string user_log() { return cuda::KernelCache::standard_folder() + "/tuned.jsonl"; }

}  // namespace tensor
