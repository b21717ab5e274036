// What the operators' tests share: fresh random tensors, the same values in every memory layout,
// comparison with float64 references, and the text of an expected error.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tensor/tensor.h"
#include "tests/error_of.h"
#include "tests/seed.h"

namespace tensor::check {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr DType kAllTypes[] = {boolean, u8, i8, i16, i32, i64, f16, bf16, f32, f64};

/// Random numbers from the seed of the run.
inline Generator& random() {
  static Generator generator(seed());
  return generator;
}

/// Normal numbers for floating types, -9 ... 9 for signed, 0 ... 9 for unsigned ones, both truth
/// values for bool.
inline Tensor random_tensor(const Shape& shape, DType dtype = f32) {
  if (is_floating(dtype)) return random().normal(shape).astype(dtype);
  if (dtype == boolean) return random().randint(0, 2, shape).astype(dtype);
  return random().randint(dtype == u8 ? 0 : -9, 10, shape).astype(dtype);
}

/// x in other layouts: as it is, column-major, every second element amid poison, backwards.
inline std::vector<Tensor> layouts(const Tensor& x) {
  std::vector<Tensor> result{x, copy(transpose(x)).transpose()};
  Shape wide;
  std::vector<Index> odd;
  for (const auto extent : x.shape()) {
    wide.push_back(2 * extent + 1);
    odd.emplace_back(slice(1, none, 2));
  }
  const Tensor poison = is_floating(x.dtype()) ? Tensor(std::nan("")) : Tensor(1);
  const Tensor block = full(wide, poison, x.dtype());
  set_index(block, odd, x);
  result.push_back(get_index(block, odd));
  result.push_back(flip(copy(flip(x))));
  return result;
}

/// The unit in the last place of 1.
inline double epsilon(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 0x1p-10;
    case DType::bf16:
      return 0x1p-7;
    case DType::f32:
      return 0x1p-23;
    case DType::f64:
      return 0x1p-52;
    default:
      return 0;
  }
}

/// Every element within `relative` * max(|expected|, scale); NaN equals NaN, an infinity equals
/// itself.
inline void expect_near(const Tensor& got, const std::vector<double>& expected, double relative,
                        double scale = 0) {
  const std::vector<double> values = got.to_vector<double>();
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(expected[i])) {
      ASSERT_TRUE(std::isnan(values[i])) << "at " << i << ": got " << values[i] << ", need NaN";
    } else if (std::isinf(expected[i])) {
      ASSERT_EQ(values[i], expected[i]) << "at " << i;
    } else {
      const double bound = relative * std::max(std::fabs(expected[i]), scale);
      ASSERT_LE(std::fabs(values[i] - expected[i]), bound)
          << "at " << i << ": got " << values[i] << ", need " << expected[i];
    }
  }
}

/// Every element rounded once to the floating type of `got` from something within `error` of the
/// expected value.
inline void expect_rounded(const Tensor& got, const std::vector<double>& expected, double error) {
  const double unit = epsilon(got.dtype());
  if (got.dtype() == f16) error += 0x1p-25;  // nothing is finer than 2^-24
  expect_near(got, expected, unit,
              2 * error / unit);  // |e| unit / 2 + error <= max(|e| unit, 2 error)
}

}  // namespace tensor::check
