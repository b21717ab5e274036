#include "bench/recording.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <tuple>

#include "src/tune/table.h"
#include "tensor/error.h"

namespace tensor {
namespace {

// The sketches that the schedules have, with every value that occurs.
std::vector<Sketch> sketches_of(const std::vector<Schedule>& schedules) {
  std::vector<Sketch> sketches;
  for (const Schedule& s : schedules) {
    const auto is_same = [&](const Sketch& sketch) {
      return sketch.name == s.sketch &&
             std::equal(
                 sketch.knobs.begin(), sketch.knobs.end(), s.values.begin(), s.values.end(),
                 [](const auto& knob, const auto& value) { return knob.name == value.first; });
    };
    auto sketch = std::find_if(sketches.begin(), sketches.end(), is_same);
    if (sketch == sketches.end()) {
      sketches.push_back({s.sketch, {}});
      sketch = sketches.end() - 1;
      for (const auto& [name, value] : s.values) sketch->knobs.push_back({name, {}});
    }
    for (std::size_t i = 0; i < s.values.size(); ++i) {
      std::vector<int>& values = sketch->knobs[i].values;
      const auto at = std::lower_bound(values.begin(), values.end(), s.values[i].second);
      if (at == values.end() || *at != s.values[i].second) values.insert(at, s.values[i].second);
    }
  }
  return sketches;
}

}  // namespace

Recording::Recording(std::span<const Measurement> measurements) {
  for (const Measurement& m : measurements) {
    if (m.features.empty()) continue;
    problem_ = m.problem, family_ = m.family, device_ = m.device;
    const auto [at, is_new] = entries_.try_emplace(m.schedule);
    Entry& entry = at->second;
    if (is_new) entry = {Schedule::parse(m.schedule), m.features, {}};
    if (m.features.back() == 1 && chosen_.empty()) chosen_ = m.schedule;
    auto& times = entry.measured.microseconds;
    times.insert(times.end(), m.microseconds.begin(), m.microseconds.end());
    if (!m.error.empty()) entry.measured.error = m.error;
  }
  if (entries_.empty()) fail("recording", "got no measurement with features, need one at least");
  if (chosen_.empty())
    chosen_ = std::max_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
                return a.second.features.back() < b.second.features.back();
              })->first;
  for (auto& [text, entry] : entries_) {
    auto& times = entry.measured.microseconds;
    if (entry.measured.error.empty())
      times = {median(std::move(times))};
    else
      times.clear();
  }
}

Space Recording::space() const {
  const auto entries = std::make_shared<const std::map<std::string, Entry>>(entries_);
  std::vector<Schedule> schedules;
  for (const auto& [text, entry] : *entries) schedules.push_back(entry.schedule);
  Space space;
  space.sketches = sketches_of(schedules);
  space.fault = [entries](const Schedule& s) -> std::string {
    return entries->contains(s.text()) ? "" : "was not recorded";
  };
  space.model_us = [entries](const Schedule& s) {
    return 1 / static_cast<double>(entries->at(s.text()).features.back());
  };
  space.features = [entries](const Schedule& s) {
    std::vector<float> features = entries->at(s.text()).features;
    features.pop_back();
    return features;
  };
  space.chosen = entries->at(chosen_).schedule;
  return space;
}

Measured Recording::measured(const Schedule& schedule) const {
  const auto found = entries_.find(schedule.text());
  if (found != entries_.end()) return found->second.measured;
  return {{}, "was not recorded"};
}

double Recording::best_us() const {
  double best = INFINITY;
  for (const auto& [text, entry] : entries_)
    if (entry.measured.error.empty()) best = std::min(best, entry.measured.microseconds.front());
  return best;
}

std::vector<Recording> recordings(std::span<const Measurement> measurements, std::size_t least) {
  std::map<std::tuple<std::string, std::string, std::string>, std::vector<Measurement>> parts;
  for (const Measurement& m : measurements)
    if (!m.features.empty() && !m.schedule.empty())
      parts[{m.problem, m.family, m.device}].push_back(m);
  std::vector<Recording> result;
  for (const auto& [key, part] : parts)
    if (Recording recording(part); recording.size() >= least)
      result.push_back(std::move(recording));
  return result;
}

std::vector<Measured> RecordedMeasurer::measure(std::span<const Candidate> candidates) {
  std::vector<Measured> all;
  for (const Candidate& c : candidates)
    all.push_back(recordings_[static_cast<std::size_t>(c.task)].measured(c.schedule));
  return all;
}

}  // namespace tensor
