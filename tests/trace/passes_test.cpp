// Passes that clean, mark and lay out graphs keep what these compute.
#include <gtest/gtest.h>

#include "src/trace/layout.h"
#include "src/trace/passes/cast.h"
#include "src/trace/passes/clean.h"
#include "src/trace/passes/passes.h"
#include "src/trace/passes/pixel_products.h"
#include "src/trace/trace.h"
#include "tensor/tensor.h"
#include "tests/trace/passes.h"

namespace tn = tensor;
using tn::Graph;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

TEST(Passes, ConstantsFoldAndEqualNodesMerge) {
  tn::Generator random(22);
  const Tensor x = random.normal({3, 4});
  Graph graph;
  const auto in = graph.add_input(x.type());
  const auto a = graph.add_constant(tn::ones({4})), b = graph.add_constant(tn::ones({4}));
  const auto sum = graph.add(tn::Op::add, {a, b});
  const auto left = graph.add(tn::Op::multiply, {in, sum}),
             right = graph.add(tn::Op::multiply, {in, sum});
  graph.add(tn::Op::exp, {in});  // dead
  graph.set_outputs({graph.add(tn::Op::add, {left, right})});
  const Graph clean = tn::eliminate_common_and_dead(tn::fold_constants(graph));
  EXPECT_EQ(count(clean, tn::Op::multiply), 1);
  EXPECT_EQ(count(clean, tn::Op::exp), 0);
  EXPECT_EQ(count(clean, tn::Op::add), 1);
  expect_same(graph, clean, {x}, 0);
}

TEST(Passes, OperatorsWithOtherDigitsAreNotEqual) {
  const auto f = [](const Tensors& in) -> Tensors {
    return {tn::layer_norm(in[0], {}, {}, 1.000001e-5), tn::layer_norm(in[0], {}, {}, 1.0000014e-5),
            tn::layer_norm(in[0], {}, {}, 1.000001e-5)};
  };
  const Graph graph = tn::trace(f, {{{3, 4}, tn::f32}});
  EXPECT_EQ(count(tn::eliminate_common_and_dead(graph), tn::Op::layer_norm), 2);
}

// A convolution whose weights were scaled stays behind with the old ones, which nobody reads.
TEST(Passes, OnlyWeightsThatAreReadAreRounded) {
  tn::Generator random(26);
  const Tensor w = random.normal({3, 2, 3, 3}), scale = random.normal({3, 1, 1});
  Graph graph =
      tn::trace([&](const Tensors& in) -> Tensors { return {tn::conv2d(in[0], w) * scale}; },
                {{{1, 2, 4, 4}, tn::f32}});
  int rounded = 0;
  const auto rounding = [&](const Tensor& x, tn::DType to) {
    ++rounded;
    return x.to(to);
  };
  for (const tn::Pass& pass : tn::passes_for({.dtype = tn::f16}, rounding)) graph = pass.run(graph);
  EXPECT_EQ(rounded, 1);
}

TEST(Passes, ConvolutionsOfPixelsAreProducts) {
  tn::Generator random(27);
  const Tensor x = random.normal({2, 6, 1, 1}), w = random.normal({4, 6, 1, 1}),
               b = random.normal({4}), grouped = random.normal({4, 3, 1, 1});
  const Graph before = tn::trace(
      [&](const Tensors& in) -> Tensors {
        return {tn::relu(tn::conv2d(in[0], w, b)), tn::conv2d(in[0], w, {}, {.stride = 2}),
                tn::conv2d(in[0], grouped, {}, {.groups = 2}),
                tn::conv2d(in[0], w, {}, {.padding = 1})};
      },
      {x.type()});
  const Graph after = tn::drop_dead(tn::pixel_products(before));
  EXPECT_EQ(count(after, tn::Op::conv2d), 2);
  EXPECT_EQ(count(after, tn::Op::matmul), 2);
  // A sum of six products and a bias, in another order at most.
  expect_same(before, after, {x}, 7);
}

// Tensor Cores may round every product of float32, and no other; for the reference nothing changes.
TEST(Passes, ProductsAreMarkedForTf32) {
  tn::Generator random(25);
  const Tensor x = random.normal({1, 2, 4, 4}), w = random.normal({3, 2, 3, 3}),
               v = random.normal({2, 5});
  const Graph before = tn::trace(
      [&](const Tensors& in) -> Tensors {
        const Tensor y = tn::conv2d(in[0], w);
        const Tensor narrow = tn::matmul(y.astype(tn::bf16), v.astype(tn::bf16));
        return {tn::matmul(tn::relu(y), v), narrow};
      },
      {x.type()});
  const Graph after = tn::round_products(before);
  expect_same(before, after, {x}, 0);
  int marked = 0;
  for (tn::ValueId id = 0; id < after.size(); ++id) {
    const bool is_product = after.is_op(id, tn::Op::matmul) || after.is_op(id, tn::Op::conv2d);
    const bool is_marked = after[id].attrs.flag("tf32", false);
    EXPECT_EQ(is_marked, is_product && after.type(id).dtype == tn::f32) << id;
    marked += is_marked;
  }
  EXPECT_EQ(marked, 2);
}

TEST(Passes, LayoutMakesMergedHeadsAView) {
  const auto f = [](const Tensors& in) -> Tensors {
    return {(in[0] * 2.0).transpose({0, 2, 1, 3}).reshape({2, 5, 12})};
  };
  const tn::LaidOutGraph laid = tn::lay_out(tn::trace(f, {{{2, 3, 5, 4}, tn::f32}}));
  EXPECT_EQ(count(laid.graph, tn::Op::copy), 0);
  EXPECT_EQ(laid.layouts[static_cast<std::size_t>(laid.graph.outputs()[0])].strides,
            tn::row_major({2, 5, 12}));
  // A graph input lies row-major, so there the view needs a copy.
  const auto g = [](const Tensors& in) -> Tensors {
    return {in[0].transpose({0, 2, 1, 3}).reshape({2, 5, 12}) + 1.0};
  };
  EXPECT_EQ(count(tn::lay_out(tn::trace(g, {{{2, 3, 5, 4}, tn::f32}})).graph, tn::Op::copy), 1);
}

// What is normalized along its last axis has it innermost, though it is made of an image whose
// channels are not: as tokens [N, H W, C], and as an image that is turned for it alone.
TEST(Passes, LayoutPutsRowsThatAreNormalizedTogether) {
  const auto tokens = [](const Tensors& in) -> Tensors {
    const Tensor rows = in[0].reshape({2, 3, 20}).swapaxes(1, 2);
    return {tn::layer_norm(tn::exp(rows) + in[1])};
  };
  const auto image = [](const Tensors& in) -> Tensors {
    return {tn::layer_norm(tn::exp(in[0]).transpose({0, 2, 3, 1}))};
  };
  const std::vector<tn::TensorType> types = {{{2, 3, 5, 4}, tn::f32}, {{2, 20, 3}, tn::f32}};
  for (const tn::TensorFunction& f : {tn::TensorFunction(tokens), tn::TensorFunction(image)}) {
    const tn::LaidOutGraph laid = tn::lay_out(tn::trace(f, types));
    for (const tn::Node& node : laid.graph.nodes())
      if (node.kind == tn::NodeKind::operation && node.op == tn::Op::layer_norm) {
        const tn::Layout& x = laid.layouts[tn::at(node.inputs[0])];
        EXPECT_EQ(x.strides, tn::row_major(x.shape));
      }
    EXPECT_EQ(count(laid.graph, tn::Op::copy), 0);
  }
}

// An image with lines of its own around it (reflection) lies between convolutions as they do; rows
// that are taken of a turned matrix lie side by side.
TEST(Passes, LayoutKeepsTheOrderOfImagesThatAreTaken) {
  const Tensor filters = tn::ones({4, 4, 3, 3});
  const auto f = [&](const Tensors& in) -> Tensors {
    const Tensor x = tn::conv2d(in[0], filters);
    return {tn::conv2d(tn::pad(x, {{0, 0}, {0, 0}, {1, 1}, {2, 2}}, tn::PadMode::reflect), filters),
            tn::take(in[1].transpose(), in[2], 0)};
  };
  const tn::LaidOutGraph laid =
      tn::lay_out(tn::trace(f, {{{2, 4, 9, 8}, tn::f32}, {{5, 6}, tn::f32}, {{3}, tn::i64}}));
  int images = 0;
  for (tn::ValueId id = 0; id < laid.graph.size(); ++id) {
    if (!laid.graph.is_op(id, tn::Op::take)) continue;
    const tn::Layout& y = laid.layouts[tn::at(id)];
    const bool is_image = y.shape.rank() == 4;
    images += is_image;
    EXPECT_EQ(y.strides,
              is_image ? tn::strides_in_order(y.shape, {0, 2, 3, 1}) : tn::row_major(y.shape));
  }
  EXPECT_EQ(images, 2);
}

// What becomes a larger image, pixels from channels, has its channels last if a convolution made
// it, whoever reads it.
TEST(Passes, LayoutOfPixelsFromChannels) {
  const auto f = [](const Tensors& in) -> Tensors {
    const Tensor x = tn::conv2d(in[0], tn::ones({12, 4, 1, 1}));
    const Tensor wide = x.reshape({1, 3, 2, 2, 5, 6}).transpose({0, 1, 4, 2, 5, 3});
    return {tn::matmul(in[1], tn::gelu(wide.reshape({1, 3, 10, 12})).reshape({3, 120}))};
  };
  const tn::LaidOutGraph laid =
      tn::lay_out(tn::trace(f, {{{1, 4, 5, 6}, tn::f32}, {{2, 3}, tn::f32}}));
  for (tn::ValueId id = 0; id < laid.graph.size(); ++id)
    if (laid.graph.is_op(id, tn::Op::gelu)) {
      const tn::Layout& image = laid.layouts[tn::at(id)];
      EXPECT_EQ(image.strides, tn::strides_in_order(image.shape, {0, 2, 3, 1}));
    }
  EXPECT_EQ(count(laid.graph, tn::Op::copy), 1);
}

// What is made of a broadcast value has the axis of the broadcast outermost, not between elements.
TEST(Passes, LayoutOfBroadcastValues) {
  const auto f = [](const Tensors& in) -> Tensors {
    const Tensor turned = tn::broadcast_to(in[0], {2, 3, 4}).transpose({0, 2, 1});
    return {turned + in[1]};
  };
  const tn::LaidOutGraph laid =
      tn::lay_out(tn::trace(f, {{{3, 4}, tn::f32}, {{2, 4, 3}, tn::f32}}));
  const tn::Layout& y = laid.layouts[tn::at(laid.graph.outputs()[0])];
  EXPECT_EQ(y.strides, tn::strides_in_order(y.shape, {0, 2, 1}));
}

// A plan file has the copy that a view needed as an operator, and is laid out again.
TEST(Passes, LayingOutTwiceChangesNothing) {
  const auto f = [](const Tensors& in) -> Tensors {
    return {tn::exp(in[0].transpose().reshape({32}))};
  };
  const tn::LaidOutGraph once = tn::lay_out(tn::trace(f, {{{4, 8}, tn::f32}})),
                         twice = tn::lay_out(once.graph);
  ASSERT_EQ(count(once.graph, tn::Op::copy), 1);
  ASSERT_EQ(twice.graph.size(), once.graph.size());
  for (std::size_t i = 0; i < once.layouts.size(); ++i)
    EXPECT_EQ(twice.layouts[i].strides, once.layouts[i].strides) << i;
}

}  // namespace
