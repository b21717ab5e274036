#include "bench/curve.h"

#include <algorithm>
#include <limits>

namespace tensor {

std::vector<Search::Best> search_curve(Search& search, int task, Measurer& measurer,
                                       CostModel& model, std::size_t trials, std::size_t batch,
                                       const std::function<bool(const Search::Best&)>& is_enough) {
  std::vector<Search::Best> curve;
  while (curve.size() < trials && !search.is_exhausted()) {
    const std::vector<Schedule> proposed =
        search.propose(std::min(batch, trials - curve.size()), model);
    std::vector<Candidate> candidates;
    for (const Schedule& s : proposed) candidates.push_back({task, s});
    const std::vector<Measured> measured = measurer.measure(candidates);
    for (std::size_t i = 0; i < proposed.size(); ++i) {
      search.learn(std::span(proposed).subspan(i, 1), std::span(measured).subspan(i, 1));
      const Search::Best nothing{{}, std::numeric_limits<double>::infinity()};
      curve.push_back(search.best().value_or(nothing));
    }
    if (is_enough && !curve.empty() && is_enough(curve.back())) break;
    if (search.options().use_model) model.train(search.samples());
  }
  return curve;
}

std::size_t trials_to(std::span<const double> curve, double microseconds) {
  const auto found =
      std::find_if(curve.begin(), curve.end(), [&](double us) { return us <= microseconds; });
  return static_cast<std::size_t>(found - curve.begin()) + 1;
}

}  // namespace tensor
