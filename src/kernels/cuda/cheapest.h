// The order in which every family's schedules are given.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace tensor::cuda {

/// The schedules, those first that take the least time by the model: model(schedule) is called once
/// for each. Of equal times the one that was given first.
template <class Schedule, class Model>
std::vector<Schedule> cheapest_first(const std::vector<Schedule>& schedules, const Model& model) {
  std::vector<std::pair<double, std::size_t>> order;
  for (const Schedule& schedule : schedules) order.emplace_back(model(schedule), order.size());
  std::sort(order.begin(), order.end());
  std::vector<Schedule> sorted;
  for (const auto& [time, index] : order) sorted.push_back(schedules[index]);
  return sorted;
}

}  // namespace tensor::cuda
