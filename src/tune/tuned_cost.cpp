#include "src/tune/tuned_cost.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <map>
#include <mutex>
#include <tuple>

#include "src/core/checksum.h"
#include "src/trace/fuse/group_costs.h"
#include "src/trace/isolate.h"
#include "src/trace/parallel.h"
#include "src/tune/problem.h"
#include "tensor/compile.h"
#include "tensor/text.h"

namespace tensor {
namespace {

constexpr const char* kModel = "model of ";  // begins partition_text
const std::string kWithout = "without ";

void keep_device(std::vector<Measurement>& measurements, const std::string& device) {
  std::erase_if(measurements, [&](const Measurement& m) { return m.device != device; });
}

// The offer that was measured, nullptr where this build has none: logs outlive the spaces that they
// are about.
const Offer* offer_of(const std::vector<Offer>& offers, const Table::Entry& entry) {
  for (const Offer& offer : offers) {
    if (offer.name != entry.family) continue;
    if (entry.schedule.empty()) return &offer;  // as the family likes
    try {
      const Schedule schedule = Schedule::parse(entry.schedule);
      return offer.space() && offer.space()->has(schedule) ? &offer : nullptr;
    } catch (const UserError&) {  // a text of another version
      return nullptr;
    }
  }
  return nullptr;
}

// A group as the table and the families are asked about it: by one text, and the families only
// where it matters what they offer.
class Question {
 public:
  Question(const detail::Target& target, const Table& table, const LaidOutGraph& laid,
           const Group& group)
      : target_(target),
        table_(table),
        laid_(laid),
        group_(group),
        problem_(problem_text(laid.graph, group)) {}

  // What was measured of it, or else of its twin, less what failed in this type.
  std::optional<GroupCost> measured() {
    const std::string& device = target_.tuned_as;
    const auto is_usable = [&](const Table::Entry& entry) {
      return !table_.has_failed(device, problem_, entry) && offer_of(offers(), entry) != nullptr;
    };
    std::optional<Table::Entry> entry = table_.find(device, problem_, is_usable);
    if (!entry && target_.bf16_is_like_f16)
      entry = table_.find(device, twin_text(problem_), is_usable);
    if (!entry) return std::nullopt;
    return GroupCost{offer_of(offers(), *entry)->family, entry->microseconds, entry->schedule,
                     true};
  }

  // The estimate where no usable time is known. If what the family would take has been tried and
  // has failed, nothing else is worse.
  GroupCost estimated() {
    constexpr double kFailed = 1e6;
    const Offer* best = cheapest(offers());
    if (!best) return {};
    GroupCost cost{best->family, best->microseconds, schedule_of_neighbours(*best)};
    if (!cost.schedule.empty()) return cost;
    if (!table_.has_failures(target_.tuned_as, problem_)) return cost;
    const Table::Entry chosen = {target_.tuned_as, std::string(best->name),
                                 best->space() ? best->space()->chosen.text() : ""};
    if (table_.has_failed(target_.tuned_as, problem_, chosen)) cost.microseconds *= kFailed;
    return cost;
  }

 private:
  // What was best in other sizes, where the model says that little is lost by it.
  std::string schedule_of_neighbours(const Offer& best) {
    constexpr double kLittle = 1.05;  // times the least time
    const std::string& device = target_.tuned_as;
    auto entry = table_.neighbour(device, problem_);
    if (!entry && target_.bf16_is_like_f16) entry = table_.neighbour(device, twin_text(problem_));
    if (!entry || entry->schedule.empty() || entry->family != best.name ||
        table_.has_failed(device, problem_, *entry) || !offer_of(offers(), *entry))
      return {};
    const Space& space = *best.space();
    const double us = space.model_us(Schedule::parse(entry->schedule));
    return us <= kLittle * space.model_us(space.chosen) ? entry->schedule : "";
  }

  const std::vector<Offer>& offers() {
    if (!offers_) offers_ = target_.offers->of(isolate(laid_, group_));
    return *offers_;
  }

  const detail::Target& target_;
  const Table& table_;
  const LaidOutGraph& laid_;
  const Group& group_;
  const std::string problem_;
  std::optional<std::vector<Offer>> offers_;
};

// What was measured of a group of a plan; of parallel products of the one that they become.
std::optional<GroupCost> measured_part(const detail::Target& target, const Table& table,
                                       const LaidOutGraph& laid, const Group& group) {
  const ParallelRun run = run_of(laid.graph, group);
  if (run.empty()) return Question(target, table, laid, group).measured();
  const Isolated merged = merged_alone(laid, run);
  return Question(target, table, merged.laid, merged.group).measured();
}

// The same costs, but what a partition does without cannot be had, be it in this type or its twin.
CostFn without(CostFn cost, const Partition& partition, bool with_twins) {
  if (partition.without.empty()) return cost;
  return [=](const LaidOutGraph& laid, const Group& group) -> GroupCost {
    if (group.nodes.size() > 1) {
      const std::string text = problem_text(laid.graph, group);
      if (partition.without.contains(crc32_digits(text))) return {};
      if (with_twins && partition.without.contains(crc32_digits(twin_text(text)))) return {};
    }
    return cost(laid, group);
  };
}

FusionPlan measured_fusion(const Partition& partition, const Fusible& fusible,
                           const detail::Target& target,
                           const std::shared_ptr<const Table>& table) {
  const auto fuse_by = [&](CostFn cost) {
    return fuse(fusible, without(std::move(cost), partition, target.bf16_is_like_f16));
  };
  if (!table) return fuse_by(target.cost());
  std::vector<double> ratios;  // of measured times to estimates
  FusionPlan plan = fuse_by([&](const LaidOutGraph& of, const Group& group) {
    Question question(target, *table, of, group);
    const GroupCost estimate = question.estimated();
    const auto measured = question.measured();
    if (measured) ratios.push_back(measured->microseconds / estimate.microseconds);
    return measured.value_or(estimate);
  });
  const bool is_measured =
      std::all_of(plan.groups.begin(), plan.groups.end(), [&](const Group& group) {
        return measured_part(target, *table, fusible.laid, group).has_value();
      });
  if (ratios.empty() || is_measured) return plan;
  // What is a little better is not worth the change, which nobody has measured.
  constexpr double kMargin = 1.05;
  return fuse_by(tuned_cost(target, table, kMargin * std::max(1.0, median(ratios))));
}

FusionPlan estimated_fusion(const Partition& partition, const Fusible& fusible,
                            const detail::Target& target,
                            const std::shared_ptr<const Table>& table) {
  FusionPlan plan = fuse(fusible, without(target.cost(), partition, target.bf16_is_like_f16));
  if (!table) return plan;
  plan.microseconds = 0;
  for (Group& group : plan.groups) {
    if (const auto measured = measured_part(target, *table, fusible.laid, group))
      group = fusion::costed(std::move(group), *measured);
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
  if (!table) return target.cost();
  return [=](const LaidOutGraph& laid, const Group& group) -> GroupCost {
    Question question(target, *table, laid, group);
    if (const auto measured = question.measured()) return *measured;
    GroupCost cost = question.estimated();
    cost.microseconds *= caution;
    return cost;
  };
}

std::string Partition::text() const {
  std::string schedule;
  for (const std::string& problem : without)
    schedule += (schedule.empty() ? kWithout : " ") + problem;
  return Problem::joined(costs, schedule);
}

FusionPlan fusion_by(const Partition& partition, const Fusible& fusible,
                     const detail::Target& target, const std::shared_ptr<const Table>& table) {
  return partition.costs == Partition::kEstimated
             ? estimated_fusion(partition, fusible, target, table)
             : measured_fusion(partition, fusible, target, table);
}

FusionPlan tuned_fusion(const Fusible& fusible, const detail::Target& target,
                        const std::shared_ptr<const Table>& table) {
  if (!table || !table->has_choice(kModel)) return fusion_by({}, fusible, target, table);
  const Partition plain{Partition::kEstimated};
  FusionPlan estimated = fusion_by(plain, fusible, target, table);
  const Partition chosen = chosen_partition(fusible.laid.graph, estimated, target, *table);
  return chosen == plain ? estimated : fusion_by(chosen, fusible, target, table);
}

FusionPlan tuned_fusion(const Fusible& fusible, const detail::Target& target,
                        const std::shared_ptr<const Table>& table, KnownPlans& known) {
  const auto like = known.fused(fusible, target.tuned_as, tuned_cost(target, table));
  if (like && like->measured < 0.5 * like->plan.microseconds) return like->plan;
  FusionPlan plan = tuned_fusion(fusible, target, table);
  known.remember(fusible, target.tuned_as, plan);
  return plan;
}

Partition chosen_partition(const Graph& graph, const FusionPlan& estimated,
                           const detail::Target& target, const Table& table) {
  auto choice = table.choice(target.tuned_as, partition_text(graph, estimated));
  if (!choice && target.bf16_is_like_f16)
    choice = table.choice(target.tuned_as, partition_text(graph, estimated, true));
  if (!choice) return {};
  Partition partition{choice->family};
  if (choice->schedule.starts_with(kWithout)) {
    TextReader problems(choice->schedule.substr(kWithout.size()));
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

namespace {

// Another text is other logs, or other elements of the same files.
std::string state_of(const detail::Target& target,
                     const std::optional<std::vector<std::string>>& logs) {
  TextWriter state;
  state << target.tuned_as << '\n' << target.kernels << '\n' << logs.has_value();
  for (const std::string& file : logs.value_or(std::vector{standard_log()})) {
    struct stat s {};
    const bool is_there = stat(file.c_str(), &s) == 0;
    state << '\n' << file << ' ' << is_there;
    if (is_there)
      state << ' ' << s.st_ino << ' ' << s.st_size << ' ' << s.st_mtim.tv_sec << '.'
            << s.st_mtim.tv_nsec;
  }
  return state.str();
}

std::shared_ptr<const Table> new_table(const detail::Target& target,
                                       const std::optional<std::vector<std::string>>& logs) {
  std::vector<Measurement> measurements = known_measurements(logs, target.tuned_as);
  keep_device(measurements, target.tuned_as);
  if (measurements.empty()) return nullptr;
  return std::make_shared<const Table>(measurements, target.kernels);
}

}  // namespace

// Every size of a model asks, and a thousand lines take 20 ms to read.
std::shared_ptr<const Table> table_for(const detail::Target& target,
                                       const std::optional<std::vector<std::string>>& logs) {
  constexpr std::size_t kMost = 8;
  static std::mutex mutex;
  static auto& known = *new std::map<std::string, std::shared_ptr<const Table>>;
  const std::string state = state_of(target, logs);
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(state); found != known.end()) return found->second;
  if (known.size() == kMost) known.clear();
  return known[state] = new_table(target, logs);
}

}  // namespace tensor
