#include "src/tune/sampler.h"

#include <algorithm>
#include <cstdlib>

#include "tensor/error.h"

namespace tensor {
namespace {

// Of random draws until one is valid, and of changes to a schedule.
constexpr int kMaxDraws = 1 << 20, kMaxChanges = 16;
// How often a mutation changes the sketch, goes to a neighbouring value, changes one number more.
constexpr double kSketchShare = 0.15, kNeighbourShare = 0.5, kMoreShare = 0.25;

// The value of the knob that is closest to `wanted`.
int closest(const Sketch::Knob& knob, int wanted) {
  return *std::min_element(knob.values.begin(), knob.values.end(), [&](int a, int b) {
    return std::abs(static_cast<std::int64_t>(a) - wanted) <
           std::abs(static_cast<std::int64_t>(b) - wanted);
  });
}

}  // namespace

Sampler::Sampler(const Space& space, std::int64_t most) : space_(space) {
  for (const Sketch& sketch : space.sketches) combinations_ += sketch.combinations();
  if (combinations_ > most) return;
  all_ = space.all();
  if (all_->empty())
    fail("tune", "got a space of ", combinations_, " combinations, need one that is valid");
}

const Sketch* Sampler::sketch_of(const Schedule& schedule) const {
  for (const Sketch& sketch : space_.sketches)
    if (sketch.name == schedule.sketch) return &sketch;
  return nullptr;
}

Schedule Sampler::draw(Random& random) const {
  auto position = static_cast<std::int64_t>(random.below(static_cast<std::size_t>(combinations_)));
  for (const Sketch& sketch : space_.sketches) {
    if (position < sketch.combinations()) return sketch.at(position);
    position -= sketch.combinations();
  }
  internal_error("tune", "a space has fewer combinations than it said");
}

Schedule Sampler::sample(Random& random) const {
  if (all_) return (*all_)[random.below(all_->size())];
  for (int i = 0; i < kMaxDraws; ++i)
    if (Schedule schedule = draw(random); space_.fault(schedule).empty()) return schedule;
  fail("tune", "got a space of ", combinations_, " combinations of which ", kMaxDraws,
       " at random were invalid, need one where valid ones are found");
}

void Sampler::change_sketch(Schedule& schedule, Random& random) const {
  const Sketch& sketch = space_.sketches[random.below(space_.sketches.size())];
  if (sketch.combinations() == 0) return;
  Schedule changed{sketch.name, {}};
  for (const Sketch::Knob& knob : sketch.knobs) {
    const std::optional<int> shared = schedule.value(knob.name);
    const int any = knob.values[random.below(knob.values.size())];
    changed.values.emplace_back(knob.name, shared ? closest(knob, *shared) : any);
  }
  schedule = std::move(changed);
}

void Sampler::change_number(Schedule& schedule, Random& random) const {
  const Sketch* sketch = sketch_of(schedule);
  std::vector<std::size_t> free;  // knobs that can be something else
  for (std::size_t i = 0; sketch && i < sketch->knobs.size(); ++i)
    if (sketch->knobs[i].values.size() > 1) free.push_back(i);
  if (free.empty()) return;
  const std::size_t which = free[random.below(free.size())];
  const std::vector<int>& values = sketch->knobs[which].values;
  int& value = schedule.values[which].second;
  const auto found = std::find(values.begin(), values.end(), value);
  if (found != values.end() && random.uniform() < kNeighbourShare) {
    const bool up = random.below(2) == 0;
    if (up ? found + 1 != values.end() : found != values.begin()) {
      value = up ? found[1] : found[-1];
      return;
    }
  }
  value = values[random.below(values.size())];  // also the old one, which mutate() draws again
}

std::optional<Schedule> Sampler::mutate(const Schedule& parent, Random& random) const {
  for (int i = 0; i < kMaxChanges; ++i) {
    Schedule child = parent;
    if (space_.sketches.size() > 1 && random.uniform() < kSketchShare)
      change_sketch(child, random);
    else
      change_number(child, random);
    while (random.uniform() < kMoreShare) change_number(child, random);
    if (child != parent && space_.has(child)) return child;
  }
  return std::nullopt;
}

std::optional<Schedule> Sampler::cross(const Schedule& one, const Schedule& other,
                                       Random& random) const {
  for (int i = 0; i < kMaxChanges; ++i) {
    const bool swap = random.below(2) == 0;
    const Schedule &base = swap ? other : one, &donor = swap ? one : other;
    Schedule child = base;
    const Sketch* sketch = sketch_of(base);
    for (std::size_t k = 0; sketch && k < child.values.size(); ++k) {
      auto& [name, value] = child.values[k];
      const std::optional<int> donated = donor.value(name);
      if (donated && random.below(2) == 0) value = closest(sketch->knobs[k], *donated);
    }
    if (child != one && child != other && space_.has(child)) return child;
  }
  return std::nullopt;
}

}  // namespace tensor
