// Reference checkpoints with their inputs and expected outputs (tests/data/golden), and comparing.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tensor/io.h"
#include "tensor/ops.h"

namespace golden {

inline std::string folder(const std::string& name) {
  return TENSOR_TEST_DATA "/golden/" + name;
}

/// pixel_values and the outputs that the reference implementation computed in float64.
inline std::map<std::string, tensor::Tensor> io(const std::string& name) {
  return tensor::load_safetensors(folder(name) + "/io.safetensors").tensors;
}

/// Float32 through a few layers: every listed output within 1e-4 of the largest expected value.
inline void expect_close(const tensor::Tensor& got, const tensor::Tensor& want,
                         const std::string& what) {
  ASSERT_TRUE(got.defined()) << what;
  ASSERT_EQ(got.shape(), want.shape()) << what;
  ASSERT_TRUE(tensor::all(tensor::isfinite(got)).item<bool>()) << what;
  const double error = tensor::max(tensor::abs(got - want)).item();
  const double scale = tensor::max(tensor::abs(want)).item();
  ASSERT_GT(scale, 0) << what;
  EXPECT_LE(error, 1e-4 * scale) << what;
  ::testing::Test::RecordProperty(what, std::to_string(error / scale));
}

}  // namespace golden
