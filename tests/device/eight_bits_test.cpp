// Functions compiled in eight bits for a GPU: what is rounded where, and the results.
#include <algorithm>

#include "src/runtime/program.h"
#include "src/trace/group.h"
#include "tensor/compile.h"
#include "tests/device/gpu.h"
#include "tests/models/golden.h"
#include "tests/models/narrow.h"

namespace tensor {
namespace {

class EightBitsOnGpu : public OnGpu {
 protected:
  // A layer of a transformer between a first product and a head.
  Tensors layer(const Tensors& in) const {
    const auto heads = [&](const Tensor& x) {
      return transpose(reshape(x, {2, 50, 4, 16}), kHeads);
    };
    const Tensor rows = matmul(in[0], first_), y = layer_norm(rows, gain_, shift_);
    const Tensor q = heads(matmul(y, query_)), k = heads(matmul(y, key_)),
                 v = heads(matmul(y, value_));
    const Tensor weights = softmax(matmul(q, k.swapaxes(-1, -2)) * 0.25, -1);
    const Tensor mixed = reshape(transpose(matmul(weights, v), kHeads), {2, 50, 64});
    const Tensor sum = rows + matmul(mixed, out_);
    const Tensor z = layer_norm(sum, gain_, shift_);
    const Tensor result = sum + matmul(gelu(matmul(z, up_) + shift_up_), down_);
    return {matmul(layer_norm(result, gain_, shift_), head_)};
  }
  std::vector<std::pair<std::string, Tensor>> names() const {
    return {{"first.weight", first_}, {"query.weight", query_}, {"key.weight", key_},
            {"value.weight", value_}, {"out.weight", out_},     {"up.weight", up_},
            {"down.weight", down_},   {"head.weight", head_}};
  }
  Tensor matrix(std::int64_t rows, std::int64_t columns) {
    return random_.normal({rows, columns}) / std::sqrt(static_cast<double>(rows));
  }
  static inline const Dims kHeads = {0, 2, 1, 3};

  Tensor first_ = matrix(24, 64), query_ = matrix(64, 64), key_ = matrix(64, 64),
         value_ = matrix(64, 64), out_ = matrix(64, 64), up_ = matrix(64, 256),
         down_ = matrix(256, 64), head_ = matrix(64, 10), gain_ = random_.uniform({64}, 0.5, 2),
         shift_ = random_.normal({64}), shift_up_ = random_.normal({256});
  const TensorFunction function_ = [this](const Tensors& in) { return layer(in); };
};

double off(const Tensor& got, const Tensor& want) {
  return std::sqrt(sum(square(got - want)).item() / sum(square(want)).item());
}

TEST_F(EightBitsOnGpu, IsAsExactAsOnTheHost) {
  const Tensors in = {random_.normal({2, 50, 24})};
  const Tensor want = function_(in)[0];
  const Executable here = compile(function_, in, {.dtype = i8}),
                   there = compile(function_, in, {.device = gpu_, .dtype = i8});
  const Tensor got = there(in)[0];
  // Rows and weights of up to six products in a row are off by a part of a step (tests/models).
  EXPECT_LE(off(got, want), 0.03);
  EXPECT_GT(off(got, want), 0.001) << "nothing was rounded";
  EXPECT_LE(off(here(in)[0], want), 0.03);
  golden::expect_verified(there, in);
}

// A norm's kernel rounds its rows, and queries, keys and values are one product.
TEST_F(EightBitsOnGpu, RowsOfNormsAreRoundedWhereTheyAreMade) {
  const Tensors in = {random_.normal({2, 50, 24})};
  const Executable fast = compile(function_, in, {.device = gpu_, .dtype = i8});
  const detail::Program& program = fast.program();
  const Graph& graph = program.laid.graph;
  int products = 0, norms = 0, others = 0;
  for (const Group& group : program.plan.groups) {
    const auto has = [&](Op op) {
      return std::any_of(group.nodes.begin(), group.nodes.end(),
                         [&](ValueId id) { return graph.is_op(id, op); });
    };
    products += has(Op::quantized_matmul);
    norms += has(Op::layer_norm) && has(Op::round);
    others += has(Op::round) && !has(Op::layer_norm);
  }
  EXPECT_EQ(products, 2) << graph;
  EXPECT_EQ(norms, 2) << graph;
  EXPECT_EQ(others, 0) << "no kernel does nothing else\n" << graph;
}

// With scales attention and GELU round what they make, and all products but two are in eight bits.
TEST_F(EightBitsOnGpu, ScalesNeedNoWholeRows) {
  const Tensors in = {random_.normal({2, 50, 24})};
  CompileOptions options{.device = gpu_, .dtype = i8, .names = names()};
  options.scales = calibrate(function_, in, options);
  EXPECT_EQ(options.scales.size(), 6u);
  const Executable fast = compile(function_, in, options);
  EXPECT_LE(off(fast(in)[0], function_(in)[0]), 0.03);
  golden::expect_verified(fast, in);
  const detail::Program& program = fast.program();
  const Graph& graph = program.laid.graph;
  int products = 0;
  for (const Group& group : program.plan.groups) {
    const auto has = [&](Op op) {
      return std::any_of(group.nodes.begin(), group.nodes.end(),
                         [&](ValueId id) { return graph.is_op(id, op); });
    };
    products += has(Op::quantized_matmul);
    EXPECT_TRUE(!has(Op::round) || has(Op::layer_norm) || has(Op::softmax) ||
                has(Op::quantized_matmul))
        << "a kernel does nothing else\n"
        << graph;
    EXPECT_FALSE(has(Op::max)) << graph;
  }
  EXPECT_EQ(products, 4) << graph;  // queries, keys and values are one
}

TEST_F(EightBitsOnGpu, WhatIsExcludedStaysWide) {
  const Tensors in = {random_.normal({2, 50, 24})};
  const CompileOptions options{.device = gpu_, .dtype = i8, .exclude = {"*"}, .names = names()};
  const Tensor got = compile(function_, in, options)(in)[0];
  expect_same(got, compile(function_, in, {.device = gpu_, .dtype = f16})(in)[0]);
}

TEST_F(EightBitsOnGpu, GoldenTransformers) {
  for (const char* name : {"vit_hf", "vit_timm"})
    golden::expect_right(golden::folder(name), {.device = gpu_, .dtype = i8});
}

}  // namespace
}  // namespace tensor
