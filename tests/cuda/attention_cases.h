// Attention as the projections of a transformer lead to it: cases for every family of it.
#pragma once

#include <cmath>

#include "src/trace/trace.h"
#include "tensor/tensor.h"
#include "tests/cuda/emulator/group_case.h"

namespace tensor::emulator {

struct AttentionShape {
  std::int64_t batches, heads, queries, keys, depth;
  bool is_masked = false;
  double magnitude = 1;  // of queries
  DType dtype = bf16;
  bool is_wide = false;   // the result is float32
  bool is_bytes = false;  // or bytes by one scale, which the largest exceed
  int windows = 0;        // of an image, each with a mask of its own, behind a bias of each head
};

// Heads as the projections of a transformer store them: [batch, tokens, heads, depth].
inline GroupCase attention_case(const AttentionShape& p, std::mt19937* layouts = nullptr) {
  const TensorFunction f = [=](const Tensors& in) -> Tensors {
    const Tensor q = in[0].transpose({0, 2, 1, 3}), k = in[1].transpose({0, 2, 3, 1}),
                 v = in[2].transpose({0, 2, 1, 3});
    Tensor scores = matmul(q, k).astype(f32) * (1 / std::sqrt(double(p.depth)));
    if (p.is_masked) scores = where(in[3], scores, full({}, -3e38, f32));
    if (p.windows > 0) {
      const Shape shape = scores.shape();
      const Tensor of_images =
          (scores + in[3]).reshape({p.batches / p.windows, p.windows, p.heads, p.queries, p.keys});
      scores = (of_images + in[4]).reshape(shape);
    }
    const Tensor sums = matmul(softmax(scores, -1).astype(p.dtype), v).astype(f32);
    if (p.is_bytes) return {round(maximum(sums * full({1}, 60, f32), -127)).astype(i8)};
    return {p.is_wide ? sums : sums.astype(p.dtype)};
  };
  Generator random(11);
  const auto normal = [&](std::int64_t tokens, double scale) {
    return (random.normal({p.batches, tokens, p.heads, p.depth}) * scale).astype(p.dtype);
  };
  Tensors in = {normal(p.queries, p.magnitude), normal(p.keys, 1), normal(p.keys, 1)};
  // Every third key is masked; of the first image all are.
  if (p.is_masked) {
    Tensor mask = zeros({p.batches, 1, 1, p.keys}, boolean);
    for (std::int64_t b = 1; b < p.batches; ++b)
      for (std::int64_t key = 0; key < p.keys; ++key) mask.at<bool>(b, 0, 0, key) = key % 3 != 0;
    in.push_back(mask);
  }
  if (p.windows > 0) {
    in.push_back(random.normal({p.heads, p.queries, p.keys}));
    in.push_back((random.uniform({1, p.windows, 1, p.queries, p.keys}) < 0.3).astype(f32) * -100);
  }
  return GroupCase(f, in, layouts);
}

}  // namespace tensor::emulator
