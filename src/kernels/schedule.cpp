#include "src/kernels/schedule.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "tensor/error.h"

namespace tensor {
namespace {

bool is_name(std::string_view word) {
  const auto belongs = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !word.empty() && std::all_of(word.begin(), word.end(), belongs);
}

// Families' sketches may stand together in one space, called "family.sketch".
bool is_sketch_name(std::string_view word) {
  const std::size_t dot = word.find('.');
  return is_name(word.substr(0, dot)) &&
         (dot == std::string_view::npos || is_name(word.substr(dot + 1)));
}

std::optional<int> number(std::string_view word) {
  int value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool is_shortest = std::to_string(value) == word;  // no "007": one text a schedule
  if (error != std::errc() || end != word.data() + word.size() || !is_shortest) return std::nullopt;
  return value;
}

bool has_sketch(const Space& space, const Schedule& schedule, bool any_size) {
  return std::any_of(space.sketches.begin(), space.sketches.end(),
                     [&](const Sketch& sketch) { return sketch.contains(schedule, any_size); });
}

template <class F>
void for_each_valid(const Space& space, F&& use) {
  for (const Sketch& sketch : space.sketches)
    for (std::int64_t i = 0; i < sketch.combinations(); ++i)
      if (Schedule schedule = sketch.at(i); space.fault(schedule).empty()) use(std::move(schedule));
}

}  // namespace

std::string Schedule::text() const {
  std::string result = sketch;
  for (const auto& [name, value] : values) result += ' ' + name + '=' + std::to_string(value);
  return result;
}

Schedule Schedule::parse(std::string_view text) {
  const auto refuse = [&](std::string_view word) {
    fail("schedule", "got \"", word, "\" in \"", text,
         "\", need a sketch and its numbers, one space apart: \"swapped tokens=104 splits=4\"");
  };
  Schedule result;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    if (begin == 0) {
      if (!is_sketch_name(word)) refuse(word);
      result.sketch = word;
    } else {
      const std::size_t equals = std::min(word.find('='), word.size());
      const std::string_view name = word.substr(0, equals);
      const auto value = equals < word.size() ? number(word.substr(equals + 1)) : std::nullopt;
      if (!is_name(name) || !value || result.value(name)) refuse(word);
      result.values.emplace_back(name, *value);
    }
    begin = end + 1;
  }
  return result;
}

std::optional<int> Schedule::value(std::string_view name) const {
  for (const auto& [known, value] : values)
    if (known == name) return value;
  return std::nullopt;
}

std::int64_t Sketch::combinations() const {
  std::int64_t count = 1;
  for (const Knob& knob : knobs) count *= static_cast<std::int64_t>(knob.values.size());
  return count;
}

Schedule Sketch::at(std::int64_t position) const {
  Schedule result{name, {}};
  for (auto knob = knobs.rbegin(); knob != knobs.rend(); ++knob) {
    const auto count = static_cast<std::int64_t>(knob->values.size());
    result.values.emplace_back(knob->name,
                               knob->values[static_cast<std::size_t>(position % count)]);
    position /= count;
  }
  std::reverse(result.values.begin(), result.values.end());
  return result;
}

bool Sketch::contains(const Schedule& schedule, bool any_size) const {
  return schedule.sketch == name &&
         std::equal(knobs.begin(), knobs.end(), schedule.values.begin(), schedule.values.end(),
                    [=](const Knob& knob, const std::pair<std::string, int>& value) {
                      return knob.name == value.first &&
                             ((any_size && knob.is_of_size) ||
                              std::count(knob.values.begin(), knob.values.end(), value.second) > 0);
                    });
}

bool Space::has(const Schedule& schedule) const {
  return has_sketch(*this, schedule, false) && fault(schedule).empty();
}

bool Space::runs(const Schedule& schedule) const {
  return has_sketch(*this, schedule, true) && (impossible ? impossible : fault)(schedule).empty();
}

Schedule Space::of(std::string_view text) const {
  if (text.empty()) return chosen;
  Schedule wanted = Schedule::parse(text);
  return runs(wanted) ? wanted : chosen;
}

std::vector<Schedule> Space::all() const {
  std::vector<Schedule> result;
  for_each_valid(*this, [&](Schedule schedule) { result.push_back(std::move(schedule)); });
  return result;
}

void Space::choose(Schedule level0) {
  chosen = std::move(level0);
  if (has(chosen)) return;
  double least = std::numeric_limits<double>::infinity();
  for_each_valid(*this, [&](Schedule schedule) {
    const double time = model_us(schedule);
    if (time < least) least = time, chosen = std::move(schedule);
  });
}

std::int64_t Space::size() const {
  std::int64_t count = 0;
  for_each_valid(*this, [&](const Schedule&) { ++count; });
  return count;
}

}  // namespace tensor
