// Comparing what two runs in float32 computed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "tensor/tensor.h"

namespace tensor::check {

/// As many tensors of the same types, equal up to `ulps` float32 roundings of each one's largest
/// magnitude.
inline void expect_near(const std::vector<Tensor>& got, const std::vector<Tensor>& want,
                        double ulps) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].type(), want[i].type());
    const auto a = got[i].to_vector<double>(), b = want[i].to_vector<double>();
    double largest = 0;
    for (const double value : b) largest = std::max(largest, std::abs(value));
    for (std::size_t k = 0; k < a.size(); ++k)
      ASSERT_NEAR(a[k], b[k], ulps * 1.2e-7 * largest) << "tensor " << i << " element " << k;
  }
}

}  // namespace tensor::check
