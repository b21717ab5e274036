#include "src/tune/summary.h"

#include <algorithm>
#include <iomanip>
#include <map>
#include <ostream>

#include "src/runtime/describe.h"
#include "src/trace/isolate.h"
#include "tensor/text.h"

namespace tensor {

namespace {

TunedGroup tuned_group(const TuningParts& parts, const LaidOutGraph& laid, const Group& group,
                       const std::string& problem) {
  TunedGroup row;
  row.operators = detail::operators_of(laid.graph, group);
  row.problem = problem;
  row.where = detail::place_of(laid.graph, group);
  row.after = Problem::joined(std::string(parts.target.offers->name(group.family)), group.schedule);
  if (const TuningTask* task = parts.tasks.find(laid, group)) {
    row.before_us = task->before_us;
    row.before = task->level0().text();
    row.after_us = task->measured_us();
    row.space = task->problem->space().size();
    row.trials = std::ssize(task->search->samples());
    row.failures = static_cast<std::int64_t>(task->failures());
  }
  return row;
}

// A row a problem, in the order of the plan.
std::vector<TunedGroup> tuned_groups(const TuningParts& parts, const ModelPlan& after) {
  std::vector<TunedGroup> rows;
  std::map<std::string, std::size_t> known;
  const auto& [laid, plan] = after.merged;
  for (const Group& group : plan.groups) {
    const auto [at, is_new] = known.try_emplace(problem_text(laid.graph, group), rows.size());
    if (is_new) rows.push_back(tuned_group(parts, laid, group, at->first));
    TunedGroup& row = rows[at->second];
    ++row.count;
    row.where = detail::merged_place(row.where, detail::place_of(laid.graph, group));
  }
  return rows;
}

}  // namespace

TuneSummary summarize(const TuningParts& parts, const ModelPlan& before, const ModelPlan& after) {
  TuneSummary result;
  result.device = parts.target.tuned_as;
  result.log = parts.records.log_path();
  result.seconds = parts.progress.seconds();
  result.trials = parts.progress.trials();
  result.failures = parts.progress.failures();
  result.before_us = parts.tasks.sum(before, false);
  result.after_us = parts.tasks.sum(after, true);
  result.groups = tuned_groups(parts, after);
  result.overturned = overturned(parts.planner.graph(), before.apart, after.apart);
  return result;
}

std::vector<std::string> overturned(const Graph& graph, const FusionPlan& before,
                                    const FusionPlan& after) {
  struct Change {
    int count = 0;
    std::string from, to, where;
  };
  std::map<ValueId, const Group*> now;  // by operator
  for (const Group& group : after.groups)
    for (const ValueId id : group.nodes) now[id] = &group;
  std::vector<Change> changes;
  for (const Group& group : before.groups) {
    std::vector<const Group*> parts;
    for (const ValueId id : group.nodes)
      if (const Group* part = now.at(id); std::count(parts.begin(), parts.end(), part) == 0)
        parts.push_back(part);
    if (parts.size() == 1 && parts[0]->nodes == group.nodes) continue;
    Change change{1, detail::operators_of(graph, group), "", detail::place_of(graph, group)};
    for (const Group* part : parts) change.to += "[" + detail::operators_of(graph, *part) + "] ";
    const auto same = std::find_if(changes.begin(), changes.end(), [&](const Change& other) {
      return other.from == change.from && other.to == change.to;
    });
    if (same == changes.end()) {
      changes.push_back(std::move(change));
      continue;
    }
    ++same->count;
    same->where = detail::merged_place(same->where, change.where);
  }
  std::vector<std::string> lines;
  for (const Change& change : changes)
    lines.push_back(std::to_string(change.count) + " x [" + change.from + "] became " + change.to +
                    (change.where.empty() ? "" : "in " + change.where));
  return lines;
}

namespace {

std::string time_text(double microseconds) {
  if (microseconds <= 0) return "-";
  TextWriter text;
  text << std::fixed << std::setprecision(microseconds < 100 ? 2 : 1) << microseconds;
  return text.str();
}

std::string shortened(const std::string& text, std::size_t most) {
  return text.size() <= most ? text : text.substr(0, most - 3) + "...";
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const TuneSummary& summary) {
  std::vector<const TunedGroup*> rows;
  for (const TunedGroup& group : summary.groups) rows.push_back(&group);
  std::stable_sort(rows.begin(), rows.end(), [](const TunedGroup* a, const TunedGroup* b) {
    return a->count * a->after_us > b->count * b->after_us;
  });
  TextWriter text;
  text << "tuned for " << summary.device << ": " << summary.trials << " schedules in " << std::fixed
       << std::setprecision(1) << summary.seconds << " s, " << summary.failures
       << " of them failed; " << summary.end << '\n';
  text << "groups  before us   after us   trials of space  operators, and what runs them\n";
  for (const TunedGroup* row : rows) {
    text << std::setw(6) << row->count << std::setw(11) << time_text(row->before_us)
         << std::setw(11) << time_text(row->after_us) << std::setw(9) << row->trials << " of "
         << std::left << std::setw(7) << row->space << std::right << shortened(row->operators, 60)
         << '\n';
    constexpr int kIndent = 41;
    text << std::string(kIndent, ' ')
         << (row->before.empty() || row->before == row->after ? "" : row->before + " -> ")
         << row->after << '\n';
  }
  for (const std::string& line : summary.overturned) text << "overturned: " << line << '\n';
  for (const std::string& line : summary.chosen) text << "chosen in the model: " << line << '\n';
  text << "all groups: " << std::setprecision(3) << summary.before_us / 1e3 << " ms before, "
       << summary.after_us / 1e3 << " ms after";
  if (summary.after_us > 0)
    text << " (" << std::setprecision(2) << summary.before_us / summary.after_us << " x)";
  return out << text.str() << "\nlog: " << summary.log << '\n';
}

}  // namespace tensor
