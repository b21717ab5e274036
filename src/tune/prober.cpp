#include "src/tune/prober.h"

#include <algorithm>
#include <utility>

#include "src/core/median.h"

namespace tensor {

Prober::Prober(std::unique_ptr<Measurer> measurer, TuningTasks& tasks, Records& records,
               Progress& progress, CostModel model)
    : measurer_(std::move(measurer)),
      tasks_(tasks),
      records_(records),
      progress_(progress),
      model_(std::move(model)) {}

void Prober::add_slot(std::vector<Slot>& slots, TuningTask& task, std::size_t size) {
  std::size_t left = progress_.trials_left();
  for (const Slot& slot : slots) left -= slot.schedules.size();
  if (left == 0) return;
  slots.push_back({&task, task.search->propose(std::min(size, left), model_)});
}

std::vector<Slot> Prober::slots(const std::vector<TuningTask*>& tasks, std::size_t size) {
  std::vector<Slot> slots;
  for (TuningTask* task : tasks) add_slot(slots, *task, size);
  return slots;
}

void Prober::measure(const std::vector<Slot>& slots) {
  std::vector<Candidate> candidates;
  for (const Slot& slot : slots)
    for (const Schedule& schedule : slot.schedules)
      candidates.push_back({slot.task->index, schedule});
  std::vector<Measured> measured;
  std::vector<Written> written(candidates.size());
  if (!candidates.empty())
    measured = measurer_->measure_telling(candidates, [&](std::size_t i, const Measured& so_far) {
      write(candidates[i], so_far, written[i]);
      progress_.tell(tasks_.all()[static_cast<std::size_t>(candidates[i].task)]);
    });
  for (std::size_t i = 0; i < measured.size(); ++i) write(candidates[i], measured[i], written[i]);
  std::size_t next = 0;
  for (const Slot& slot : slots) {
    learn(slot, std::span(measured).subspan(next, slot.schedules.size()));
    next += slot.schedules.size();
  }
  train();
  if (!slots.empty()) progress_.tell(*slots.back().task);
}

// What the log does not have yet, so that whatever ends this process costs nothing.
void Prober::write(const Candidate& candidate, const Measured& measured, Written& written) {
  const bool has_news =
      measured.error.empty() ? measured.microseconds.size() > written.times : !written.has_error;
  if (!has_news) return;
  if (written.times == 0 && !written.has_error) progress_.count_trial();
  if (!measured.error.empty()) progress_.count_failure();
  const Search& search = *tasks_.all()[static_cast<std::size_t>(candidate.task)].search;
  Measurement m;
  m.problem = search.problem();
  m.schedule = candidate.schedule.text();
  m.features = search.features(candidate.schedule);
  m.error = measured.error;
  if (m.error.empty())
    m.microseconds.assign(
        measured.microseconds.begin() + static_cast<std::ptrdiff_t>(written.times),
        measured.microseconds.end());
  records_.write(std::move(m));
  written = {measured.microseconds.size(), !measured.error.empty()};
}

void Prober::learn(const Slot& slot, std::span<const Measured> measured) {
  TuningTask& task = *slot.task;
  const std::string level0 = task.level0().text();
  std::vector<Schedule> schedules;
  std::vector<Measured> answers;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    if (measured[i].microseconds.empty() && measured[i].error.empty()) continue;
    schedules.push_back(slot.schedules[i]);
    answers.push_back(measured[i]);
    if (measured[i].error.empty() && slot.schedules[i].text() == level0)
      task.before_us = median(measured[i].microseconds);
  }
  std::vector<Measurement> lines = task.search->learn(schedules, answers);
  if (!lines.empty() || slot.schedules.empty())
    task.history.push_back(task.search->best() ? task.search->best()->microseconds : HUGE_VAL);
  records_.learn(std::move(lines));
}

void Prober::train() {
  std::vector<Sample> samples;
  for (const TuningTask& task : tasks_.all()) {
    const SearchOptions& how = task.search->options();
    if (how.use_model && how.use_evolution)  // else nobody asks the model
      samples.insert(samples.end(), task.search->samples().begin(), task.search->samples().end());
  }
  if (!samples.empty()) model_.train(samples);
}

}  // namespace tensor
