// Schedules as data: which structure a group's kernel has, the numbers that fill it in, and all
// that may be tried for a group on a machine. Search, logs and plans know kernels by these alone.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensor {

/// A structure of kernels (a sketch) and the numbers that fill it in (its annotations).
struct Schedule {
  std::string sketch;                               // "swapped"
  std::vector<std::pair<std::string, int>> values;  // in the order of the sketch's knobs

  /// "swapped tokens=104 groups=1 splits=4 stages=5"; parse() makes the same schedule of it.
  std::string text() const;
  /// Names are of small letters, digits and underscores; a sketch's may be two of them with a dot
  /// between. UserError on any other text.
  static Schedule parse(std::string_view text);

  /// The number of this name, nullopt where there is none.
  std::optional<int> value(std::string_view name) const;
  bool operator==(const Schedule&) const = default;
};

/// A structure, and what each of its numbers may be.
struct Sketch {
  struct Knob {
    std::string name;
    std::vector<int> values;
    /// Whether they depend on the size, so that kernels for other sizes have others.
    bool is_of_size = false;
  };
  std::string name;
  std::vector<Knob> knobs;

  /// How many schedules there are before any is ruled out.
  std::int64_t combinations() const;
  /// The schedule at `position` (from 0, below combinations()); the last knob turns fastest.
  Schedule at(std::int64_t position) const;
  /// Whether the schedule has this sketch's knobs, in order, each at one of its values; with
  /// `any_size`, those that depend on the size at any.
  bool contains(const Schedule& schedule, bool any_size = false) const;
};

/// Everything that may be tried for a group on a machine.
struct Space {
  std::vector<Sketch> sketches;
  /// Why there is no such kernel, empty if there is: what can be told without compiling.
  std::function<std::string(const Schedule&)> fault;
  /// Why a kernel that was made for another size cannot run this one, empty if it can: fault()
  /// finds more, for it also refuses what nobody would make for this size. Null where it does not.
  std::function<std::string(const Schedule&)> impossible = nullptr;
  /// Microseconds by the analytic model: level 0, without measuring.
  std::function<double(const Schedule&)> model_us;
  /// Of schedule, problem and machine, for a learned cost model: the same numbers in every space.
  std::function<std::vector<float>(const Schedule&)> features;
  /// What level 0 takes: the best by the model, one of the valid schedules.
  Schedule chosen;

  /// Whether a sketch has the schedule and fault() finds nothing: a text from elsewhere may be
  /// asked for.
  bool has(const Schedule& schedule) const;
  /// Whether a kernel of the schedule can run the group, be it made for another size.
  bool runs(const Schedule& schedule) const;
  /// The schedule of a group: what its text says where runs() holds, otherwise the chosen one.
  Schedule of(std::string_view text) const;
  /// All valid schedules, sketch by sketch, in the order of Sketch::at.
  std::vector<Schedule> all() const;
  /// How many there are.
  std::int64_t size() const;
  /// Sets `chosen`: what level 0 takes if it is valid, otherwise the best of all by the model.
  void choose(Schedule level0);
};

}  // namespace tensor
