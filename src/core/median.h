// The median of measured times and other numbers.
#pragma once

#include <algorithm>
#include <vector>

namespace tensor {

/// The middle number, or the mean of the two in the middle. There is one at least.
inline double median(std::vector<double> numbers) {
  const auto middle = numbers.begin() + std::ssize(numbers) / 2;
  std::nth_element(numbers.begin(), middle, numbers.end());
  const double upper = *middle;
  if (numbers.size() % 2 == 1) return upper;
  return (*std::max_element(numbers.begin(), middle) + upper) / 2;
}

}  // namespace tensor
