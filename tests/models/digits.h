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

/// The model compiled in 16 bits names the same digit as the eager one in float32 on every test
/// image.
inline void expect_same_classes(const tensor::CompileOptions& options) {
  using tensor::Tensor;
  const std::string folder = TENSOR_TEST_DATA "/../../models/vit/pretrained/digits";
  models::vit::LoadedVit vit = models::vit::load_vit(models::open_checkpoint(folder));
  const Tensor images = tensor::load_npz(folder + "/test.npz").at("images");
  const std::int64_t count = images.shape(0);
  std::vector<Tensor> pixels;
  for (std::int64_t i = 0; i < count; ++i) {
    const Tensor grey = images(i).expand_dims(2);
    pixels.push_back(models::preprocess(
        tensor::copy(tensor::broadcast_to(grey, {grey.shape(0), grey.shape(1), 3})),
        vit.preprocessing));
  }
  const std::vector<Tensor> inputs = {tensor::stack(pixels)};
  const auto f = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    return {vit.model(in[0]).logits};
  };
  const Tensor exact = f(inputs)[0];
  const Tensor narrow = tensor::compile(f, inputs, options)(inputs)[0];
  const auto [best, order] = tensor::topk(exact, 2);
  const Tensor margin = best(tensor::ellipsis, 0) - best(tensor::ellipsis, 1);
  const double epsilon = options.dtype == tensor::bf16 ? 0x1p-8 : 0x1p-11;
  const double resolution = epsilon * tensor::max(tensor::abs(exact)).item() * 4;
  EXPECT_GT(tensor::min(margin).item(), resolution) << "rounding may decide between two classes";
  const Tensor differs = tensor::argmax(narrow, 1) != order(tensor::ellipsis, 0);
  EXPECT_EQ(tensor::sum(differs).item<int>(), 0) << "of " << count;
}

}  // namespace digits
