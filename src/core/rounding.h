// Whole numbers that are divided or rounded upwards.
#pragma once

#include <cstdint>

namespace tensor {

/// How many pieces of size `by` cover `n`; n >= 0, by > 0.
constexpr std::int64_t ceil_div(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

/// The least multiple of `step` that is not less than `n`.
constexpr std::int64_t round_up(std::int64_t n, std::int64_t step) {
  return ceil_div(n, step) * step;
}

}  // namespace tensor
