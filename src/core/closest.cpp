#include "src/core/closest.h"

#include <algorithm>
#include <numeric>

namespace tensor {
namespace {

// Levenshtein's distance by the two-row recurrence.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, substituted});
    }
  }
  return row.back();
}

}  // namespace

std::string_view closest(std::string_view name, const std::vector<std::string_view>& candidates) {
  // A hostile file may have a million names, or one of a hundred megabytes.
  constexpr std::size_t kLongest = 256, kMostCompared = 1000;
  if (name.size() > kLongest) return {};
  std::string_view best;
  std::size_t compared = 0;
  std::size_t best_distance = std::max<std::size_t>(name.size() / 3, 1) + 1;
  for (const std::string_view candidate : candidates) {
    const auto [shorter, longer] = std::minmax({name.size(), candidate.size()});
    if (longer - shorter >= best_distance) continue;  // it takes at least so many edits
    if (++compared > kMostCompared) break;
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) best = candidate, best_distance = distance;
  }
  return best;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string_view>& candidates) {
  const std::string_view best = closest(name, candidates);
  return best.empty() ? "" : "; did you mean \"" + std::string(best) + "\"?";
}

}  // namespace tensor
