// Which products become eight bits, and how the channels in front of them are balanced.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "src/kernels/cpu/kernel.h"
#include "src/trace/passes/cast.h"
#include "src/trace/passes/clean.h"
#include "src/trace/passes/quantize.h"
#include "src/trace/trace.h"
#include "tensor/compile.h"
#include "tensor/tensor.h"
#include "tests/error_of.h"
#include "tests/trace/passes.h"

namespace tn = tensor;
using tn::Graph;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

Tensor random_matrix(std::int64_t rows, std::int64_t columns, unsigned seed) {
  return tn::Generator(seed).normal({rows, columns}) / std::sqrt(static_cast<double>(rows));
}

struct Weights {
  Tensor first = random_matrix(20, 32, 1), query = random_matrix(32, 32, 2),
         key = random_matrix(32, 32, 3), up = random_matrix(32, 64, 4),
         down = random_matrix(64, 32, 5), head = random_matrix(32, 24, 6);
  Tensor gain = tn::Generator(7).uniform({32}, 0.5, 2), shift = tn::Generator(8).normal({32});

  std::vector<std::pair<std::string, Tensor>> names() const {
    return {{"embed.weight", first},    {"layer.query.weight", query}, {"layer.key.weight", key},
            {"layer.up.weight", up},    {"layer.down.weight", down},   {"head.weight", head},
            {"layer.norm.weight", gain}};
  }
  // A patch embedding, something like attention, a residual, and a head.
  Tensor operator()(const Tensor& x) const {
    const Tensor rows = tn::matmul(x, first);
    const Tensor y = tn::layer_norm(rows, gain, shift);
    const Tensor scores =
        tn::softmax(tn::matmul(tn::matmul(y, query), tn::transpose(tn::matmul(y, key))), -1);
    const Tensor sum = rows + tn::matmul(scores, y);
    return tn::softmax(tn::matmul(sum + tn::matmul(tn::gelu(tn::matmul(sum, up)), down), head), -1);
  }
};

Graph traced(const Weights& f) {
  return tn::fold_constants(tn::trace([&](const Tensors& in) -> Tensors { return {f(in[0])}; },
                                      {{{6, 20}, tn::f32}}, f.names()));
}

std::vector<std::string> in_eight_bits(const Graph& graph) {
  std::vector<std::string> found;
  for (tn::ValueId id = 0; id < graph.size(); ++id)
    if (graph.is_op(id, tn::Op::quantized_matmul)) found.push_back(graph[id].where);
  std::sort(found.begin(), found.end());
  return found;
}

double relative_error(const Tensor& got, const Tensor& want) {
  return std::sqrt(tn::sum(tn::square(got - want)).item() / tn::sum(tn::square(want)).item());
}

TEST(Quantize, AllButTheFirstProductAndTheHead) {
  using Names = std::vector<std::string>;
  const Graph graph = traced(Weights());
  EXPECT_EQ(in_eight_bits(tn::quantize_products(graph, {})),
            (Names{"layer.down", "layer.key", "layer.query", "layer.up"}));
  EXPECT_EQ(in_eight_bits(tn::quantize_products(graph, {"layer.key", "*.d*n"})),
            (Names{"layer.query", "layer.up"}));
  EXPECT_EQ(in_eight_bits(tn::quantize_products(graph, {"head"})).size(), 4u);
  EXPECT_EQ(in_eight_bits(tn::quantize_products(graph, {"layer.*"})), Names{});
  EXPECT_EQ(tn::check::error_of([&] {
              tn::quantize_products(graph, {"layer.*", "keys"});
            }),
            "compile: got exclude \"keys\", which no product by constants matches: need names as "
            "report() has them, such as \"embed\", where * stands for any text");
}

TEST(Quantize, WhatCannotBeStaysWide) {
  Weights w;
  w.up = w.up.copy();
  w.up.at<float>(3, 3) = INFINITY;
  EXPECT_EQ(in_eight_bits(tn::quantize_products(traced(w), {})).size(), 3u);
  w.up = random_matrix(32, 15, 1), w.down = random_matrix(15, 32, 2);
  EXPECT_EQ(in_eight_bits(tn::quantize_products(traced(w), {})).size(), 2u);
}

// Filters of a stem, of two convolutions, of one in groups, of a small one, and of a head.
TEST(Quantize, ConvolutionsToo) {
  tn::Generator random(10);
  const auto filters = [&](std::int64_t outputs, std::int64_t inputs, std::int64_t size) {
    return random.normal({outputs, inputs, size, size}) / std::sqrt(inputs * size * size * 1.0);
  };
  const Tensor stem = filters(16, 3, 3), wide = filters(32, 16, 3), point = filters(16, 32, 1),
               grouped = filters(16, 4, 3), narrow = filters(8, 16, 3), head = filters(16, 8, 1),
               bias = random.normal({32});
  const auto f = [&](const Tensors& in) -> Tensors {
    Tensor x = tn::relu(tn::conv2d(in[0], stem, {}, {.padding = 1}));
    x = tn::relu(tn::conv2d(x, wide, bias, {.stride = 2, .padding = 1, .dilation = 1}));
    x = tn::relu(tn::conv2d(x, point));
    x = tn::relu(tn::conv2d(x, grouped, {}, {.padding = 1, .groups = 4}));
    x = tn::relu(tn::conv2d(x, narrow, {}, {.padding = 1}));
    return {tn::conv2d(x, head)};
  };
  const Tensor x = random.normal({2, 3, 9, 11});
  const Graph graph = tn::fold_constants(tn::trace(f, {x.type()},
                                                   {{"stem.weight", stem},
                                                    {"wide.weight", wide},
                                                    {"point.weight", point},
                                                    {"head.weight", head}}));
  const Graph after = tn::quantize_products(graph, {});
  EXPECT_EQ(tn::count(after, tn::Op::quantized_conv2d), 2);
  EXPECT_EQ(tn::count(after, tn::Op::conv2d), 4);
  tn::verify(after, "test");
  const Tensor got = tn::interpret(after, {x})[0], want = f({x})[0];
  EXPECT_LE(relative_error(got, want), 0.02);
  EXPECT_GT(relative_error(got, want), 1e-5);
  const Tensor compiled = tn::compile(f, std::vector<Tensor>{x}, {.dtype = tn::i8})({x})[0];
  const bool has_bf16 = tn::cpu::this_machine().has_bf16;  // in which the rest is multiplied then
  const Graph whole =
      has_bf16 ? tn::cast_rows(tn::cast_products(after, tn::bf16), tn::bf16) : after;
  const Tensor exact = tn::interpret(whole, {x})[0];
  EXPECT_LE(relative_error(compiled, exact), 0.005);  // a number here or there rounds otherwise
  EXPECT_EQ(tn::count(tn::quantize_products(graph, {"wide"}), tn::Op::quantized_conv2d), 1);
}

TEST(Quantize, ResultsAreNearAndMatchTheCompiledFunction) {
  const Weights f;
  const Tensor x = tn::Generator(9).normal({6, 20}), want = f(x);
  const Graph graph = tn::quantize_products(traced(f), {});
  tn::verify(graph, "test");
  const Tensor got = tn::interpret(graph, {x})[0];
  EXPECT_LE(relative_error(got, want), 0.02);
  EXPECT_GT(relative_error(got, want), 1e-5);
  const auto compiled = tn::compile(f, {.dtype = tn::i8, .names = f.names()});
  EXPECT_LE(relative_error(compiled(x), got), 0.005);  // a number here or there rounds otherwise
}

// Channels of the norm times a factor that the weights take back: the same function, and the same
// integers but for roundings of float32.
TEST(Quantize, BalancesOutliersThatTheWeightsTakeBack) {
  Weights f, with_outliers;
  Tensor factors = tn::ones({32});
  for (const std::int64_t channel : {3, 17, 30}) factors.at<float>(channel) = 80;
  // The products that read the norm alone; its rows are values of the attention, too.
  const auto plain = [](const Weights& w) {
    return tn::fold_constants(tn::trace(
        [&](const Tensors& in) -> Tensors {
          const Tensor y = tn::layer_norm(tn::matmul(in[0], w.first), w.gain, w.shift);
          const Tensor part = y(tn::slice(0, 2));
          return {tn::matmul(tn::tanh(tn::matmul(y, w.query)), w.head),
                  tn::matmul(tn::tanh(tn::matmul(part, w.key)), w.head)};
        },
        {{{6, 20}, tn::f32}}, w.names()));
  };
  with_outliers.gain = f.gain * factors, with_outliers.shift = f.shift * factors;
  with_outliers.query = f.query / factors.reshape({32, 1});
  with_outliers.key = f.key / factors.reshape({32, 1});
  const Tensor x = tn::Generator(9).normal({6, 20});
  const Graph one = plain(f), other = plain(with_outliers);
  const Tensors a = tn::interpret(tn::quantize_products(one, {}), {x}),
                b = tn::interpret(tn::quantize_products(other, {}), {x}),
                want = tn::interpret(one, {x});
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_LE(relative_error(a[i], want[i]), 0.02);
    EXPECT_LE(relative_error(b[i], a[i]), 0.002);
  }
  // A product that stays wide takes its part of the factors, too.
  const Tensors part = tn::interpret(tn::quantize_products(other, {"layer.key"}), {x});
  EXPECT_EQ(relative_error(part[0], b[0]), 0);
  EXPECT_LE(relative_error(part[1], want[1]), 1e-5);
}

// As ONNX's files have it: a tensor rounded by one scale, around a zero.
Tensor rounded(const Tensor& x, float scale, int zero, tn::DType dtype) {
  const int least = dtype == tn::i8 ? -128 : 0;
  const Tensor bytes = tn::clip(tn::round(x / scale) + zero, least, least + 255).astype(dtype);
  return (bytes.astype(tn::f32) - static_cast<float>(zero)) * scale;
}

TEST(Quantize, RowsThatAreRoundedAreMultipliedAsTheyAre) {
  // Weights that eight bits hold: 127 of a scale in every column.
  Tensor weights = tn::floor(tn::Generator(3).uniform({40, 24}, -127, 128));
  for (std::int64_t n = 0; n < 24; ++n) weights.at<float>(n, n) = 127;
  weights = weights * tn::Generator(4).uniform({24}, 0.01, 0.1);
  const Tensor x = tn::Generator(5).normal({7, 40});
  const std::pair<tn::DType, int> kinds[] = {
      {tn::i8, 0}, {tn::i8, 11}, {tn::u8, 128}, {tn::u8, 97}};
  for (const auto& [dtype, zero] : kinds) {
    const auto f = [&, dtype = dtype, zero = zero](const Tensors& in) -> Tensors {
      return {tn::matmul(rounded(in[0], 0.02F, zero, dtype), weights)};
    };
    const Graph graph = tn::fold_constants(tn::trace(f, {x.type()}));
    const Graph after = tn::quantize_products(graph, {});
    EXPECT_EQ(tn::count(after, tn::Op::quantized_matmul), 1);
    for (tn::ValueId id = 0; id < after.size(); ++id)
      if (after.is_op(id, tn::Op::quantized_matmul)) {
        EXPECT_EQ(after.type(after[id].inputs[0]).dtype, tn::i8);
      }
    tn::expect_same(graph, after, {x}, 64);  // sums of 40 products, and what the zero takes away
    const Tensor fast = tn::compile(f, Tensors{x}, {.dtype = tn::i8})({x})[0];
    EXPECT_LE(relative_error(fast, f({x})[0]), 1e-6);
  }
}

// What products of one value read, which was rounded once.
TEST(Quantize, ByOneScaleWhereThereIsOne) {
  const Weights f;
  const Graph graph = traced(f);
  const std::map<std::string, float> scales = {
      {"layer.query", 0.08F}, {"layer.key", 0.08F}, {"layer.down", 0.05F}, {"head", 1}};
  const Graph after =
      tn::eliminate_common_and_dead(tn::quantize_products(graph, {}, false, &tn::quantize, scales));
  EXPECT_EQ(in_eight_bits(after).size(), 4u);
  EXPECT_EQ(tn::count(after, tn::Op::round), 2) << after;
  for (tn::ValueId id = 0; id < after.size(); ++id)
    if (after.is_op(id, tn::Op::quantized_matmul)) {
      EXPECT_EQ(after.type(after[id].inputs[0]).dtype == tn::i8, after[id].where != "layer.up");
      EXPECT_EQ(after[id].attrs.flag(tn::kSymmetric, false), after[id].where != "layer.up");
    }
  const Tensor x = tn::Generator(9).normal({6, 20});
  EXPECT_LE(relative_error(tn::interpret(after, {x})[0], f(x)), 0.04);

  // Where kernels that make rows round them, those of norms are, and those that have a scale.
  const auto on_gpu = [&](const std::map<std::string, float>& by) {
    return in_eight_bits(tn::quantize_products(graph, {}, true, &tn::quantize, by));
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(on_gpu({}), (Names{"layer.key", "layer.query"}));
  EXPECT_EQ(on_gpu(scales), (Names{"layer.down", "layer.key", "layer.query"}));
  EXPECT_EQ(tn::quantize_products(graph, {"layer.*"}, false, &tn::quantize, scales).size(),
            graph.size());  // exclude says more than a scale
}

TEST(Quantize, ScalesThatAreRefused) {
  const Graph graph = traced(Weights());
  const auto error = [&](const std::string& name, float scale) {
    return tn::check::error_of([&] {
      tn::quantize_products(graph, {}, false, &tn::quantize, {{name, scale}});
    });
  };
  EXPECT_EQ(error("keys", 1),
            "compile: got a scale for \"keys\", which no product by constants matches: need names "
            "as report() has them, such as \"embed\"");
  for (const float scale : {0.0F, -1.0F, INFINITY, NAN})
    EXPECT_NE(error("head", scale).find("for \"head\", need a number from "), std::string::npos)
        << error("head", scale);
}

TEST(Quantize, ImagesByOneScale) {
  tn::Generator random(11);
  const Tensor stem = random.normal({16, 3, 3, 3}) / 5, wide = random.normal({32, 16, 3, 3}) / 12,
               point = random.normal({32, 16, 1, 1}) / 4, head = random.normal({16, 32, 1, 1});
  const auto f = [&](const Tensors& in) -> Tensors {
    const Tensor x = tn::relu(tn::conv2d(in[0], stem, {}, {.padding = 1}));
    const Tensor both = tn::conv2d(x, wide, {}, {.padding = 1}) + tn::conv2d(x, point);
    return {tn::conv2d(tn::relu(both), head)};
  };
  const Tensor x = random.normal({2, 3, 9, 11});
  const std::vector<std::pair<std::string, Tensor>> names = {{"wide.weight", wide},
                                                             {"point.weight", point}};
  const Graph graph = tn::fold_constants(tn::trace(f, {x.type()}, names));
  const Graph after = tn::eliminate_common_and_dead(
      tn::quantize_products(graph, {}, false, &tn::quantize, {{"wide", 0.03F}, {"point", 0.03F}}));
  tn::verify(after, "test");
  EXPECT_EQ(tn::count(after, tn::Op::round), 1) << after;
  for (tn::ValueId id = 0; id < after.size(); ++id)
    if (after.is_op(id, tn::Op::quantized_conv2d)) {
      EXPECT_EQ(after.type(after[id].inputs[0]).dtype, tn::i8);
    }
  EXPECT_LE(relative_error(tn::interpret(after, {x})[0], f({x})[0]), 0.02);

  // Where kernels that make rows round them, those that a kernel takes: of 16 channels, with a
  // scale.
  const auto on_gpu = [&](std::int64_t channels, const std::map<std::string, float>& by) {
    return tn::count(tn::quantize_products(graph, {}, true, &tn::quantize, by, channels),
                     tn::Op::quantized_conv2d);
  };
  EXPECT_EQ(on_gpu(16, {{"wide", 0.03F}}), 1);
  EXPECT_EQ(on_gpu(8, {{"wide", 0.03F}, {"point", 0.03F}}), 2);
  EXPECT_EQ(on_gpu(16, {}), 0);
  EXPECT_EQ(on_gpu(32, {{"wide", 0.03F}}), 0);
  EXPECT_EQ(on_gpu(0, {{"wide", 0.03F}}), 0);
}

TEST(Quantize, Patterns) {
  EXPECT_TRUE(tn::matches("layers.3.query", "layers.3.query"));
  EXPECT_FALSE(tn::matches("layers.3.query", "layers.3"));
  EXPECT_TRUE(tn::matches("layers.3.query", "layers.*.query"));
  EXPECT_TRUE(tn::matches("layers.3.query", "*"));
  EXPECT_TRUE(tn::matches("layers.3.query", "*.3.*y"));
  EXPECT_FALSE(tn::matches("layers.3.query", "*.4.*"));
  EXPECT_TRUE(tn::matches("", "*"));
  EXPECT_FALSE(tn::matches("", "?"));
}

TEST(Quantize, OptionsThatDoNotGoTogether) {
  const auto error = [](const tn::CompileOptions& options) {
    return tn::check::error_of([&] {
      tn::compile([](const Tensors& in) -> Tensors { return in; },
                  std::vector<tn::TensorType>{{{6, 20}, tn::f32}}, options);
    });
  };
  EXPECT_EQ(error({.exclude = {"head"}}),
            "compile: got exclude with dtype f32, but it says what stays wide in eight bits: need "
            "dtype i8, or leave exclude out");
  EXPECT_EQ(error({.dtype = tn::bf16, .scales = {{"head", 1}}}),
            "compile: got scales with dtype bf16, but they are of activations in eight bits: need "
            "dtype i8, or leave scales out");
  EXPECT_EQ(error({.dtype = tn::i8, .narrow_residuals = true}),
            "compile: got narrow_residuals with dtype i8, but they are stored as dtype says: need "
            "bf16, or leave narrow_residuals out");
  EXPECT_EQ(error({.dtype = tn::i16}), "compile: got dtype i16 on cpu, need f32, bf16 or i8");
}

}  // namespace
