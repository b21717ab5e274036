#include "src/tune/cost_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "src/tune/table.h"

namespace tensor {
namespace {

// 0 for the least; the same, in the middle, for equal values.
std::vector<double> ranks(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> result(values.size());
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (std::size_t i = begin; i < end; ++i)
      result[order[i]] = static_cast<double>(begin + end - 1) / 2;
  }
  return result;
}

std::vector<std::size_t> first(std::span<const double> values, std::size_t count) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  order.resize(std::min(count, order.size()));
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace

std::vector<Sample> samples_of(std::span<const Measurement> measurements) {
  struct Times {
    Sample sample;
    std::vector<double> microseconds;
    bool has_failed = false;
  };
  std::map<std::tuple<std::string, std::string, std::string>, std::size_t> known;
  std::vector<Times> all;
  for (const Measurement& m : measurements) {
    if (m.features.empty()) continue;
    const std::string task = m.device + '\n' + m.kernels + '\n' + m.problem;
    const auto [at, is_new] = known.try_emplace({task, m.family, m.schedule}, all.size());
    if (is_new) all.push_back({{task, m.features, 0}, {}, false});
    Times& times = all[at->second];
    times.microseconds.insert(times.microseconds.end(), m.microseconds.begin(),
                              m.microseconds.end());
    times.has_failed |= !m.error.empty();
  }
  std::vector<Sample> samples;
  for (Times& times : all) {
    times.sample.microseconds = times.has_failed ? INFINITY : median(std::move(times.microseconds));
    samples.push_back(std::move(times.sample));
  }
  return samples;
}

double rank_correlation(std::span<const double> one, std::span<const double> other) {
  const std::vector<double> a = ranks(one), b = ranks(other);
  const double mean = (static_cast<double>(a.size()) - 1) / 2;
  double products = 0, of_a = 0, of_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    products += (a[i] - mean) * (b[i] - mean);
    of_a += (a[i] - mean) * (a[i] - mean);
    of_b += (b[i] - mean) * (b[i] - mean);
  }
  return of_a == 0 || of_b == 0 ? 0 : products / std::sqrt(of_a * of_b);
}

double top_recall(std::span<const double> scores, std::span<const double> microseconds,
                  std::size_t count) {
  std::vector<double> slow(scores.begin(), scores.end());
  for (double& score : slow) score = -score;
  const auto chosen = first(slow, count), best = first(microseconds, count);
  std::vector<std::size_t> both;
  std::set_intersection(chosen.begin(), chosen.end(), best.begin(), best.end(),
                        std::back_inserter(both));
  return best.empty() ? 0 : static_cast<double>(both.size()) / static_cast<double>(best.size());
}

}  // namespace tensor
