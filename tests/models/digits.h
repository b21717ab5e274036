// The digits that ship, with the model trained on them: what reduced precision may change.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "models/common/checkpoint.h"
#include "models/common/preprocess.h"
#include "models/vit/vit_checkpoint.h"
#include "tensor/compile.h"
#include "tensor/io.h"
#include "tensor/tensor.h"

namespace digits {

using tensor::Tensor;

inline models::vit::LoadedVit shipped_vit() {
  return models::vit::load_vit(
      models::open_checkpoint(TENSOR_TEST_DATA "/../../models/vit/pretrained/digits"));
}

/// All test images, as that model takes them.
inline Tensor test_pixels(const models::vit::LoadedVit& vit) {
  const Tensor images =
      tensor::load_npz(TENSOR_TEST_DATA "/../../models/vit/pretrained/digits/test.npz")
          .at("images");
  std::vector<Tensor> pixels;
  for (std::int64_t i = 0; i < images.shape(0); ++i)
    pixels.push_back(models::preprocess(tensor::stack({images(i), images(i), images(i)}, -1),
                                        vit.preprocessing));
  return tensor::stack(pixels);
}

/// Logits computed in `dtype` name the same digits as exact ones.
inline void expect_same_classes(const Tensor& narrow, const Tensor& exact, tensor::DType dtype) {
  // Some forty products one after the other, whose operands are rounded, move a logit by 4 eps of
  // the largest. The two best classes of no image are so near.
  const auto [best, order] = tensor::topk(exact, 2);
  const Tensor margin = best(tensor::ellipsis, 0) - best(tensor::ellipsis, 1);
  const double epsilon = dtype == tensor::bf16 ? 0x1p-8 : 0x1p-11;
  const double resolution = 4 * epsilon * tensor::max(tensor::abs(exact)).item();
  EXPECT_GT(tensor::min(margin).item(), resolution) << "rounding may decide between two classes";
  const Tensor differs = tensor::argmax(narrow, 1) != order(tensor::ellipsis, 0);
  EXPECT_EQ(tensor::sum(differs).item<int>(), 0) << "of " << exact.shape(0);
}

/// The model compiled in 16 bits, beside the eager one in float32.
inline void expect_same_classes(const tensor::CompileOptions& options) {
  const models::vit::LoadedVit vit = shipped_vit();
  const auto f = [&](const Tensor& pixels) { return vit.model(pixels).logits; };
  const Tensor pixels = test_pixels(vit);
  expect_same_classes(tensor::compile(f, options)(pixels), f(pixels), options.dtype);
}

}  // namespace digits
