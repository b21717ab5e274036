// Rows rounded by operators have the bits of rows that the product rounds itself.
#include "src/trace/passes/round_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "src/ops/op.h"
#include "src/trace/passes/clean.h"
#include "src/trace/passes/passes.h"
#include "src/trace/trace.h"
#include "tensor/tensor.h"
#include "tests/trace/passes.h"

namespace tn = tensor;
using tn::Graph;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

// Products of one value by two weights.
struct Products {
  Tensor weights = tn::round(tn::Generator(1).normal({2, 10, 16, 4}) * 40).astype(tn::i8),
         scales = tn::Generator(2).uniform({32}, 0.1, 2);
  Tensors operator()(const Tensors& in) const {
    const auto product = [&](const Tensor& by) {
      return tn::apply_op(tn::Op::quantized_matmul, {in[0], weights, by});
    };
    return {product(scales), product(scales * 2)};
  }
};

void expect_same_bits(const Tensor& rows) {
  const Graph before = tn::fold_constants(tn::trace(Products(), {rows.type()}));
  const Graph after = tn::eliminate_common_and_dead(tn::round_rows(before));
  tn::verify(after, "test");
  EXPECT_EQ(tn::count(after, tn::Op::max), 1) << "rows are rounded once\n" << after;
  const Tensors want = tn::interpret(before, {rows}), got = tn::interpret(after, {rows});
  for (std::size_t i = 0; i < want.size(); ++i) {
    const auto a = want[i].to_vector<float>(), b = got[i].to_vector<float>();
    for (std::size_t j = 0; j < a.size(); ++j)
      ASSERT_TRUE(std::memcmp(&a[j], &b[j], sizeof a[j]) == 0 ||
                  (std::isnan(a[j]) && std::isnan(b[j])))
          << j << ": got " << b[j] << ", need " << a[j];
  }
}

TEST(RoundRows, HaveTheBitsOfTheDefinition) {
  const Tensor rows = tn::Generator(3).normal({2, 30, 40});
  expect_same_bits(rows);
  expect_same_bits(rows * 0x1p120f);
  expect_same_bits(rows * 0x1p-140f);
  expect_same_bits(rows * 0);
  expect_same_bits(tn::floor(rows * 100) / 254 * tn::Generator(4).uniform({2, 30, 1}));
  for (const tn::DType dtype : {tn::f16, tn::bf16}) expect_same_bits(rows.astype(dtype));
}

TEST(RoundRows, OfInfinitiesAndNans) {
  for (const float wrong : {INFINITY, -INFINITY, NAN}) {
    const Tensor rows = tn::Generator(5).normal({6, 40}).copy();
    rows(1, 3) = wrong;
    rows(4, 39) = wrong;
    expect_same_bits(rows);
  }
}

TEST(RoundRows, LeaveRowsOfBytes) {
  const Tensor rows = tn::round(tn::Generator(6).normal({5, 40}) * 40).astype(tn::i8);
  const Graph before = tn::trace(Products(), {rows.type()});
  EXPECT_EQ(tn::count(tn::round_rows(before), tn::Op::max), 0);
}

// As a GPU computes it: those of a norm, also with something added, and no others.
TEST(RoundRows, AreThoseOfNorms) {
  tn::Generator random(7);
  const Tensor first = random.normal({32, 32}), second = random.normal({32, 48}),
               third = random.normal({48, 32}), head = random.normal({32, 8});
  const auto f = [&](const Tensors& in) -> Tensors {
    const Tensor y = tn::layer_norm(tn::matmul(in[0], first), tn::ones({32}), tn::zeros({32}));
    const Tensor up = tn::matmul(y, second) + tn::matmul(y + in[1], second);
    return {tn::matmul(tn::matmul(tn::gelu(up), third), head)};
  };
  Graph graph = tn::trace(f, {{{20, 32}, tn::f32}, {{20, 32}, tn::f32}});
  const tn::Precision precision{.dtype = tn::f16, .eight_bits = true, .rounds_rows = true};
  for (const tn::Pass& pass : tn::passes_for(precision)) graph = pass.run(graph);
  EXPECT_EQ(tn::count(graph, tn::Op::quantized_matmul), 2) << graph;
  EXPECT_EQ(tn::count(graph, tn::Op::matmul), 3) << graph;
  EXPECT_EQ(tn::count(graph, tn::Op::round), 2) << graph;
}

TEST(RoundRows, ByOneScale) {
  const float scale = 0.03F;
  Graph graph;
  const tn::ValueId x = graph.add_input({{400}, tn::f32});
  const tn::ValueId bytes = tn::add_rounding(graph, x, scale, "place");
  graph.set_outputs({bytes});
  tn::verify(graph, "test");
  const auto found = tn::rounding_of(graph, bytes);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->x, x);
  EXPECT_EQ(found->inverse, 1 / scale);
  EXPECT_FALSE(tn::rounding_of(graph, found->rounded));
  std::vector<float> numbers = tn::Generator(8).normal({394}, 0, 3).to_vector<float>();
  for (const float x : {INFINITY, -INFINITY, NAN, 1e30F, -1e30F, -0.0F}) numbers.push_back(x);
  const auto got = tn::interpret(graph, {tn::array(numbers)})[0].to_vector<int>();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    // In float64, where only the two roundings to float32 are made.
    const float steps =
        static_cast<float>(static_cast<double>(numbers[i]) * static_cast<double>(1 / scale));
    const double need = std::isnan(steps)
                            ? 0
                            : std::clamp(std::nearbyint(static_cast<double>(steps)), -127.0, 127.0);
    EXPECT_EQ(got[i], need) << numbers[i];
  }
}

}  // namespace
