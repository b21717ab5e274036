#include "src/tune/problem.h"

#include <algorithm>
#include <limits>

#include "src/kernels/features.h"
#include "tensor/error.h"

namespace tensor {
namespace {

constexpr char kDot = '.';

// The offer that a schedule's sketch names, and the schedule as its family knows it.
std::pair<const Offer*, Schedule> taken(const std::vector<Offer>& offers,
                                        const Schedule& schedule) {
  const std::size_t dot = std::min(schedule.sketch.find(kDot), schedule.sketch.size());
  const std::string_view family = std::string_view(schedule.sketch).substr(0, dot);
  for (const Offer& offer : offers) {
    if (offer.name != family || (offer.space() != nullptr) != (dot < schedule.sketch.size()))
      continue;
    Schedule own = schedule;
    own.sketch = offer.space() ? schedule.sketch.substr(dot + 1) : "";
    return {&offer, own};
  }
  return {nullptr, schedule};
}

Sketch named(const Offer& offer, Sketch sketch) {
  sketch.name = std::string(offer.name) + kDot + sketch.name;
  return sketch;
}

Space joined_space(const std::vector<Offer>& offers) {
  Space all;
  double best = std::numeric_limits<double>::infinity();
  for (const Offer& offer : offers) {
    const bool is_better = offer.microseconds < best;
    best = std::min(best, offer.microseconds);
    const std::string name(offer.name);
    if (const Space* space = offer.space()) {
      for (const Sketch& sketch : space->sketches) all.sketches.push_back(named(offer, sketch));
      if (is_better) all.chosen = space->chosen;
      if (is_better) all.chosen.sketch = name + kDot + all.chosen.sketch;
    } else {
      all.sketches.push_back({name, {}});
      if (is_better) all.chosen = {name, {}};
    }
  }
  all.fault = [&offers](const Schedule& schedule) -> std::string {
    const auto [offer, own] = taken(offers, schedule);
    if (!offer) return "no family of this name takes the group";
    return offer->space() ? offer->space()->fault(own) : "";
  };
  all.model_us = [&offers](const Schedule& schedule) {
    const auto [offer, own] = taken(offers, schedule);
    if (!offer) return std::numeric_limits<double>::infinity();
    return offer->space() ? offer->space()->model_us(own) : offer->microseconds;
  };
  all.features = [&offers](const Schedule& schedule) {
    const auto [offer, own] = taken(offers, schedule);
    if (offer && offer->space()) return offer->space()->features(own);
    Features estimated;
    if (offer) estimated.time.total = offer->microseconds;
    return estimated.values();
  };
  return all;
}

}  // namespace

std::vector<Offer> offers_of(const detail::Target& target, const Isolated& alone) {
  constexpr double kHopeless = 8;  // times the best one's estimate
  std::vector<Offer> all = target.offers->of(alone);
  std::erase_if(all, [](const Offer& offer) { return offer.name == "host"; });
  double best = std::numeric_limits<double>::infinity();
  for (const Offer& offer : all) best = std::min(best, offer.microseconds);
  std::erase_if(all, [&](const Offer& offer) { return offer.microseconds > kHopeless * best; });
  return all;
}

Problem::Problem(std::string text, Isolated alone, std::vector<Offer> offers, double model_bytes,
                 double reference_effort)
    : text_(std::move(text)),
      alone_(std::move(alone)),
      offers_(std::move(offers)),
      model_bytes_(model_bytes),
      reference_effort_(reference_effort),
      space_(joined_space(offers_)) {
  if (offers_.empty()) internal_error("tune", "no family takes ", text_);
}

Choice Problem::choice(const Schedule& schedule) const {
  const auto [offer, own] = taken(offers_, schedule);
  if (!offer) return {};
  return {offer->family, offer->space() ? own.text() : ""};
}

std::string Problem::joined(const std::string& family, const std::string& schedule) {
  return schedule.empty() ? family : family + kDot + schedule;
}

std::pair<std::string, std::string> Problem::parted(const std::string& text) {
  const std::size_t end = std::min(text.find(' '), text.size());
  const std::size_t dot = text.find(kDot);
  if (dot >= end) return {text, ""};
  return {text.substr(0, dot), text.substr(dot + 1)};
}

Group Problem::group(const Schedule& schedule) const {
  Group group = alone_.group;
  const Choice wanted = choice(schedule);
  if (wanted.family < 0) fail("tune", "there is no schedule \"", schedule.text(), '"');
  group.family = wanted.family;
  group.schedule = wanted.schedule;
  return group;
}

const Reference& Problem::reference() const {
  std::call_once(
      made_, [this] { reference_ = std::make_unique<const Reference>(alone_, reference_effort_); });
  return *reference_;
}

}  // namespace tensor
