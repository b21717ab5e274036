// What tune() does when it is asked for a recording: no search, but the heaviest problems'
// schedules as chance draws them, so that searches can be compared on a log that none of them has
// made.
#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>
#include <utility>

#include "src/tune/tuner.h"

namespace tensor {
namespace {

constexpr std::int64_t kLeastSpace = 100;
// Schedules of a problem at a time: cores wait for the device at the end of each batch alone, and
// what is compiled ahead fits into memory.
constexpr std::size_t kSlot = 32;

}  // namespace

// The heaviest first, by what level 0 takes.
std::vector<int> Tuner::recorded_tasks() const {
  std::vector<std::pair<double, int>> tasks;
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    const Entry& entry = tasks_[i];
    const std::string& only = limits_.record.only;
    if (entry.problem->text().find(only) == std::string::npos ||
        (only.empty() && entry.problem->space().size() < kLeastSpace))
      continue;
    tasks.emplace_back(-entry.weight * entry.before_us, static_cast<int>(i));
  }
  std::sort(tasks.begin(), tasks.end());
  tasks.resize(std::min(tasks.size(), static_cast<std::size_t>(limits_.record.problems)));
  std::vector<int> heaviest;
  for (const auto& [time, task] : tasks) heaviest.push_back(task);
  return heaviest;
}

std::string Tuner::record(const Plans& before) {
  const auto limit = static_cast<std::size_t>(std::exchange(options_.trials, 0));
  measure(slots(adopt(before), 1));
  before_us_ = measured_sum(before, false);
  const std::vector<int> tasks = recorded_tasks();
  while (over().empty()) {
    std::vector<Slot> next;
    for (const int task : tasks) {
      Search& search = *tasks_[static_cast<std::size_t>(task)].search;
      const std::size_t left = limit == 0 ? kSlot : limit - std::min(limit, search.trials());
      next.push_back({task, search.propose(std::min(kSlot, left), model_)});
    }
    std::erase_if(next, [](const Slot& slot) { return slot.schedules.empty(); });
    if (next.empty()) return "everything was measured";
    measure(next);
  }
  return over();
}

// "matmul, gelu, 641 of 1034 schedules, 3 failed, 5.32 -> 4.86 us".
std::string Tuner::recorded(const Entry& entry) {
  const std::vector<Sample>& samples = entry.search->samples();
  std::ostringstream text;
  text << entry.operators << ", " << samples.size() << " of " << entry.problem->space().size()
       << " schedules, "
       << std::count_if(samples.begin(), samples.end(),
                        [](const Sample& s) { return std::isinf(s.microseconds); })
       << " failed, " << std::fixed << std::setprecision(2) << entry.before_us << " -> "
       << (entry.search->best() ? entry.search->best()->microseconds : 0) << " us";
  return text.str();
}

}  // namespace tensor
