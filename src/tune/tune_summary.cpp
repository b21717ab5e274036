// What tuning came to: before and after, group by group, and the fusions that measurements decided.
#include <algorithm>
#include <cmath>
#include <iomanip>
#include <ostream>
#include <sstream>

#include "src/runtime/describe.h"
#include "src/tune/tuner.h"

namespace tensor {

const Tuner::Entry* Tuner::entry_of(const LaidOutGraph& laid, const Group& group) const {
  const auto known = task_by_text_.find(problem_text(laid.graph, group));
  if (known == task_by_text_.end() || known->second < 0) return nullptr;
  return &tasks_[static_cast<std::size_t>(known->second)];
}

// Measured where a group was, estimated where not.
double Tuner::measured_sum(const Plans& plans, bool is_tuned) const {
  double sum = 0;
  for (const Group& group : plans.merged.second.groups) {
    const Entry* entry = entry_of(plans.merged.first, group);
    const double best = entry && entry->search->best() ? entry->search->best()->microseconds : 0;
    const double measured = !entry ? 0 : is_tuned ? best : entry->before_us;
    sum += measured > 0 ? measured : group.microseconds;
  }
  return sum;
}

TuneSummary Tuner::summary(const Plans& before, const Plans& after) const {
  TuneSummary result;
  result.device = target_.tuned_as;
  result.log = log_.path();
  result.seconds = seconds();
  result.trials = trials_;
  result.failures = failures_;
  result.before_us = measured_sum(before, false);
  result.after_us = measured_sum(after, true);
  result.overturned = overturned(before, after);
  result.chosen = chosen_;
  std::map<std::string, std::size_t> known;
  const auto& [laid, plan] = after.merged;
  for (const Group& group : plan.groups) {
    const std::string where = detail::place_of(laid.graph, group);
    const auto [at, is_new] =
        known.try_emplace(problem_text(laid.graph, group), result.groups.size());
    if (is_new) {
      TunedGroup& row = result.groups.emplace_back();
      row.operators = detail::operators_of(laid.graph, group);
      row.problem = at->first;
      row.where = where;
      row.after = Problem::joined(std::string(target_.family_name(group.family)), group.schedule);
      if (const Entry* entry = entry_of(laid, group)) {
        const Search& search = *entry->search;
        row.before_us = entry->before_us;
        row.before = entry->problem->space().chosen.text();
        if (search.best()) row.after_us = search.best()->microseconds;
        row.space = entry->problem->space().size();
        row.trials = std::ssize(search.samples());
        row.failures = std::count_if(search.samples().begin(), search.samples().end(),
                                     [](const Sample& s) { return std::isinf(s.microseconds); });
      }
    }
    TunedGroup& row = result.groups[at->second];
    ++row.count;
    row.where = detail::merged_place(row.where, where);
  }
  return result;
}

// Groups of the untuned plan that the tuned one has not, and what it has in their place.
std::vector<std::string> Tuner::overturned(const Plans& before, const Plans& after) const {
  struct Change {
    int count = 0;
    std::string from, to, where;
  };
  const Graph& graph = laid_.graph;
  std::map<ValueId, const Group*> now;  // by operator
  for (const Group& group : after.apart.groups)
    for (const ValueId id : group.nodes) now[id] = &group;
  std::vector<Change> changes;
  for (const Group& group : before.apart.groups) {
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
  std::ostringstream text;
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
  std::ostringstream text;
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
