// Sampler: schedules of a space at random (GTCO, section IV-D, "annotation sampling"), and new ones
// out of good ones (section IV-E, "evolutionary search").
#pragma once

#include <optional>
#include <vector>

#include "src/kernels/schedule.h"
#include "src/tune/random.h"

namespace tensor {

class Sampler {
 public:
  /// Spaces of more combinations than this are not enumerated.
  static constexpr std::int64_t kMaxCombinations = 1 << 16;

  /// `space` must outlive the sampler. UserError when nothing in it is valid, as far as can be
  /// told.
  explicit Sampler(const Space& space, std::int64_t most = kMaxCombinations);

  /// Every valid schedule with the same probability.
  Schedule sample(Random& random) const;
  /// All valid schedules, where the space is small enough.
  const std::optional<std::vector<Schedule>>& all() const { return all_; }

  // Parents are schedules of the space (Space::has).

  /// Another valid schedule near this one: a number replaced, often by its neighbour, or the sketch
  /// with what numbers the two share. nullopt when the tries come to nothing.
  std::optional<Schedule> mutate(const Schedule& parent, Random& random) const;
  /// A valid schedule of one parent's sketch whose numbers come from either parent. Of another
  /// sketch come those of names that the two share, or the values closest to them.
  std::optional<Schedule> cross(const Schedule& one, const Schedule& other, Random& random) const;

 private:
  const Sketch* sketch_of(const Schedule& schedule) const;
  Schedule draw(Random& random) const;  // may be invalid
  void change_sketch(Schedule& schedule, Random& random) const;
  void change_number(Schedule& schedule, Random& random) const;

  const Space& space_;
  std::int64_t combinations_ = 0;
  std::optional<std::vector<Schedule>> all_;
};

}  // namespace tensor
