// Reference checkpoints with their inputs and expected outputs (tests/data/golden), and comparing.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tensor/io.h"
#include "tensor/ops.h"

namespace golden {

inline std::string folder(const std::string& name) { return TENSOR_TEST_DATA "/golden/" + name; }

/// All folders that begin so; in TENSOR_MODELS_GOLDEN, if that names another place to find them.
inline std::vector<std::string> folders(const std::string& prefix) {
  const char* elsewhere = std::getenv("TENSOR_MODELS_GOLDEN");
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(elsewhere ? elsewhere : folder("")))
    if (entry.path().filename().string().starts_with(prefix))
      found.push_back(entry.path().string());
  std::sort(found.begin(), found.end());
  return found;
}

/// pixel_values and the outputs that the reference implementation computed in float64.
inline std::map<std::string, tensor::Tensor> io(const std::string& name) {
  return tensor::load_safetensors(folder(name) + "/io.safetensors").tensors;
}

/// Float32 rounds by 2^-24 at most. Roundings come with either sign: the longest sums, of some
/// thousand products, are off by 32 of them, and of 16 layers in a row their errors add up to four
/// times that: 7.6e-6 of the largest value. (The worst so far: 2e-6.)
constexpr double kRounding = 0x1p-24 * 32 * 4;

/// Every element within `bound` of the largest expected value.
inline void expect_close(const tensor::Tensor& got, const tensor::Tensor& want,
                         const std::string& what, double bound = kRounding) {
  ASSERT_TRUE(got.defined()) << what;
  ASSERT_EQ(got.shape(), want.shape()) << what;
  ASSERT_TRUE(tensor::all(tensor::isfinite(got)).item<bool>()) << what;
  const double error = tensor::max(tensor::abs(got - want)).item();
  const double scale = tensor::max(tensor::abs(want)).item();
  ASSERT_GT(scale, 0) << what;
  EXPECT_LE(error, bound * scale) << what;
  char text[32];
  std::snprintf(text, sizeof text, "%.2e", error / scale);
  ::testing::Test::RecordProperty(what, text);
}

}  // namespace golden
