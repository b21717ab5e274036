// Convolutions of one tap before images are enlarged, against the graph as it was.
#include "src/trace/passes/early_convs.h"

#include <gtest/gtest.h>

#include "src/trace/passes/clean.h"
#include "src/trace/trace.h"
#include "tensor/tensor.h"
#include "tests/seed.h"
#include "tests/trace/passes.h"

namespace tn = tensor;
using tn::Graph;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

// A product of at most 40 channels and the taps of a pixel, in another order: each sum of n terms
// is off by at most n half roundings of its largest magnitude.
constexpr double kUlps = 64;

Graph traced(const tn::TensorFunction& f, const Tensors& inputs) {
  std::vector<tn::TensorType> types;
  for (const Tensor& x : inputs) types.push_back(x.type());
  return tn::fold_constants(tn::trace(f, types));
}

Graph changed(const Graph& before) {
  return tn::eliminate_common_and_dead(tn::early_convs(before));
}

/// The extents of the images that are convolved.
std::vector<std::int64_t> convolved_rows(const Graph& graph) {
  std::vector<std::int64_t> rows;
  for (tn::ValueId id = 0; id < graph.size(); ++id)
    if (graph.is_op(id, tn::Op::conv2d)) rows.push_back(graph.type(id).shape[2]);
  return rows;
}

void expect_unchanged(const tn::TensorFunction& f, const Tensors& inputs) {
  const Graph before = tn::eliminate_common_and_dead(traced(f, inputs));
  EXPECT_EQ(convolved_rows(changed(before)), convolved_rows(before));
}

class EarlyConvs : public ::testing::Test {
 protected:
  Tensor normal(const tn::Shape& shape) { return random_.normal(shape); }
  tn::Generator random_{tn::check::seed()};
};

TEST_F(EarlyConvs, OfAnEnlargedImage) {
  const Tensor weight = normal({5, 12, 1, 1}), bias = normal({5});
  for (const auto mode :
       {tn::Interpolation::nearest, tn::Interpolation::bilinear, tn::Interpolation::bicubic})
    for (const bool is_biased : {false, true}) {
      const Tensors inputs = {normal({2, 12, 7, 9})};
      const Graph before = traced(
          [&](const Tensors& in) -> Tensors {
            const Tensor large = tn::interpolate(in[0], {13, 9}, {.mode = mode});
            return {tn::relu(tn::conv2d(large, weight, is_biased ? bias : Tensor()))};
          },
          inputs);
      const Graph after = changed(before);
      EXPECT_EQ(convolved_rows(after), std::vector<std::int64_t>{7});
      tn::expect_same(before, after, inputs, kUlps);
    }
}

TEST_F(EarlyConvs, OfImagesOfWhichSomeAreEnlarged) {
  const Tensor weight = normal({6, 40, 1, 1}), other = normal({9, 40, 1, 1}), bias = normal({6});
  const Tensors inputs = {normal({1, 16, 3, 4}), normal({1, 8, 12, 16}), normal({1, 16, 6, 8})};
  const Graph before = traced(
      [&](const Tensors& in) -> Tensors {
        const auto large = [](const Tensor& x) {
          return tn::interpolate(x, {12, 16}, {.mode = tn::Interpolation::bilinear});
        };
        const Tensor all = tn::concatenate({large(in[0]), in[1], large(in[2])}, 1);
        return {tn::conv2d(all, weight, bias), tn::conv2d(all, other)};
      },
      inputs);
  const Graph after = changed(before);
  EXPECT_EQ(convolved_rows(after), (std::vector<std::int64_t>{3, 6, 12, 3, 6, 12}));
  EXPECT_EQ(tn::count(after, tn::Op::concatenate), 0);
  tn::expect_same(before, after, inputs, kUlps);
}

TEST_F(EarlyConvs, NotWhereItWouldCost) {
  const Tensor x = normal({1, 4, 6, 6});
  const auto large = [](const Tensor& y) { return tn::interpolate(y, {12, 12}); };
  const Tensor weight = normal({4, 4, 1, 1}), wide = normal({9, 4, 1, 1});
  // Of taps beside each other, in steps, in groups, with a border of zeros.
  expect_unchanged([&, w = normal({4, 4, 3, 3})](
                       const Tensors& in) -> Tensors { return {tn::conv2d(large(in[0]), w)}; },
                   {x});
  expect_unchanged(
      [&](const Tensors& in) -> Tensors {
        return {tn::conv2d(large(in[0]), weight, {}, {.stride = 2})};
      },
      {x});
  expect_unchanged(
      [&](const Tensors& in) -> Tensors {
        return {tn::conv2d(large(in[0]), weight, {}, {.padding = 1})};
      },
      {x});
  expect_unchanged(
      [&, w = normal({4, 1, 1, 1})](const Tensors& in) -> Tensors {
        return {tn::conv2d(large(in[0]), w, {}, {.groups = 4})};
      },
      {x});
  // The image is made smaller, others read it, or there would be many more channels to enlarge.
  expect_unchanged(
      [&](const Tensors& in) -> Tensors {
        return {tn::conv2d(tn::interpolate(in[0], {3, 3}), weight)};
      },
      {x});
  expect_unchanged(
      [&](const Tensors& in) -> Tensors {
        const Tensor y = large(in[0]);
        return {tn::conv2d(y, weight), y};
      },
      {x});
  expect_unchanged([&](const Tensors& in) -> Tensors { return {tn::conv2d(large(in[0]), wide)}; },
                   {x});
  // Nothing that is side by side is enlarged; or somebody else reads it all.
  const Tensor both = normal({4, 8, 1, 1});
  expect_unchanged(
      [&](const Tensors& in) -> Tensors {
        return {tn::conv2d(tn::concatenate({in[0], in[0]}, 1), both)};
      },
      {x});
  expect_unchanged(
      [&](const Tensors& in) -> Tensors {
        const Tensor all = tn::concatenate({large(in[0]), large(in[0] * 2.0)}, 1);
        return {tn::conv2d(all, both), all};
      },
      {x});
}

}  // namespace
