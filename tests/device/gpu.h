// Cases that need a GPU: a real one in cuda_tests, pretended ones in device_tests.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "src/kernels/cuda/driver/device.h"
#include "tensor/tensor.h"

namespace tensor {

using Tensors = std::vector<Tensor>;

class OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      cuda::Device::get();
      cuda::Compiler::get();
    } catch (const UserError& error) {
      GTEST_SKIP() << error.what();
    }
  }

  /// Whether device_tests' driver plays it.
  static bool is_pretended() { return cuda::Device::get().info().name.starts_with("emulated"); }
  static bool has_two() { return cuda::Device::count() > 1; }

  /// Equal types, and elements that differ by `eps` of the largest one at most; NaNs at the same
  /// places.
  static void expect_near(const Tensor& got, const Tensor& want, double eps,
                          const std::string& what = "") {
    ASSERT_EQ(got.type(), want.type()) << what;
    const auto a = got.to_vector<double>(), b = want.to_vector<double>();
    double largest = 0;
    for (const double x : b)
      if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (std::isnan(b[i]) ? std::isnan(a[i]) : a[i] == b[i]) continue;
      ASSERT_LE(std::abs(a[i] - b[i]), eps * largest) << what << " at " << i;
    }
  }
  static void expect_same(const Tensor& got, const Tensor& want) { expect_near(got, want, 0); }

  Generator random_{17};
  const Device gpu_ = "cuda";
};

}  // namespace tensor
