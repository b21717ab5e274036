#include "src/tune/recorder.h"

#include <algorithm>
#include <cstdint>
#include <iomanip>
#include <utility>

#include "tensor/text.h"

namespace tensor {

Recorder::Recorder(const TuningParts& parts, RecordOptions options, std::size_t trials)
    : parts_(parts), options_(std::move(options)), trials_(trials == 0 ? SIZE_MAX : trials) {}

std::string Recorder::record(const ModelPlan& untuned) {
  // Schedules of a problem at a time: cores wait for the device at the end of each batch alone, and
  // what is compiled ahead fits into memory.
  constexpr std::size_t kSlot = 32;
  Prober& prober = parts_.prober;
  prober.measure(prober.slots(parts_.tasks.adopt(untuned), 1));
  parts_.progress.set_before(parts_.tasks.sum(untuned, false));
  const std::vector<TuningTask*> tasks = heaviest();
  while (parts_.progress.over().empty()) {
    std::vector<Slot> next;
    for (TuningTask* task : tasks) {
      const std::size_t left = trials_ - std::min(trials_, task->search->trials());
      prober.add_slot(next, *task, std::min(kSlot, left));
    }
    std::erase_if(next, [](const Slot& slot) { return slot.schedules.empty(); });
    if (next.empty()) return "everything was measured";
    prober.measure(next);
  }
  return parts_.progress.over();
}

// The heaviest first, by what level 0 takes.
std::vector<TuningTask*> Recorder::heaviest() const {
  constexpr std::int64_t kLeastSpace = 100;
  std::vector<TuningTask*> tasks;
  for (TuningTask& task : parts_.tasks.all()) {
    const bool is_wanted = options_.only.empty()
                               ? task.problem->space().size() >= kLeastSpace
                               : task.problem->text().find(options_.only) != std::string::npos;
    if (is_wanted) tasks.push_back(&task);
  }
  std::stable_sort(tasks.begin(), tasks.end(), [](const TuningTask* a, const TuningTask* b) {
    return a->weight * a->before_us > b->weight * b->before_us;
  });
  tasks.resize(std::min(tasks.size(), static_cast<std::size_t>(options_.problems)));
  return tasks;
}

std::string Recorder::describe(const TuningTask& task) {
  TextWriter text;
  text << task.operators << ", " << task.search->samples().size() << " of "
       << task.problem->space().size() << " schedules, " << task.failures() << " failed, "
       << std::fixed << std::setprecision(2) << task.before_us << " -> " << task.measured_us()
       << " us";
  return text.str();
}

}  // namespace tensor
