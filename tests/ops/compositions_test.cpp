// Compositions: what golden cases cannot hold (infinite arguments, views, several types), and every
// message. Their values are in tests/data/composed.safetensors.
#include "src/trace/trace.h"
#include "tests/ops/check.h"

namespace tensor {
namespace {

using check::error_of;
using check::kInfinity;
using check::kNan;
using Integers = std::vector<int>;
using Numbers = std::vector<double>;

TEST(Compositions, NormsOfInfiniteOrder) {
  const Tensor x = array({{3.0, -4.0}, {0.0, 1.0}});
  EXPECT_EQ(vector_norm(x, kInfinity).item(), 4);
  EXPECT_EQ(vector_norm(x, -kInfinity, 1).to_vector<double>(), (Numbers{3, 0}));
  EXPECT_EQ(vector_norm(x, 0, 1).to_vector<double>(), (Numbers{2, 1}));
  EXPECT_EQ(error_of([&] { vector_norm(x, kNan); }),
            "vector_norm: got the order NaN, need a number");
}

TEST(Compositions, NumbersForNanAndInfinities) {
  const Tensor x = array({kNan, kInfinity, -kInfinity, 1.0});
  EXPECT_EQ(nan_to_num(x).to_vector<double>(), (Numbers{0, std::numeric_limits<double>::max(),
                                                        std::numeric_limits<double>::lowest(), 1}));
  EXPECT_EQ(nan_to_num(x.astype(bf16)).to_vector<double>(),
            (Numbers{0, 0x1.FEp127, -0x1.FEp127, 1}));
  EXPECT_FALSE(nan_to_num(arange(3)).shares_storage(arange(3)));
}

TEST(Compositions, KeepTheirType) {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    const Tensor x = check::random_tensor({1, 4, 6, 6}, dtype),
                 weight = check::random_tensor({6}, dtype);
    const Tensor grid = zeros({1, 2, 2, 2}, dtype);
    for (const Tensor& y :
         {rms_norm(x, weight), instance_norm(x), prelu(x, 0.5), leaky_relu(x), elu(x), mish(x),
          adaptive_avg_pool2d(x, {4, 5}), adaptive_max_pool2d(x, 4), grid_sample(x, grid),
          median(x), quantile(x, 0.5), vector_norm(x), logsumexp(x), pixel_shuffle(x, 2),
          unfold(x, 2)})
      EXPECT_EQ(y.dtype(), dtype);
  }
  EXPECT_EQ(elu(arange(3)).dtype(), f64);
  EXPECT_EQ(leaky_relu(array<std::int8_t>({-100, 1})).dtype(), f16);
  EXPECT_EQ(vector_norm(arange(3)).dtype(), f64);
}

TEST(Compositions, PixelsBetweenOthers) {
  const Tensor x = arange(6).astype(f32).reshape({1, 1, 2, 3});
  const Tensor row = array({{{0.0F, 0.5F, 1.0F, 1.5F, -1.0F}}});
  const Tensor column = array({{{2.0F, 0.25F, 1.5F, 1.0F, 0.0F}}});
  const Tensor want = array({2.0F, 1.75F, 4.5F, 2.0F, 0.0F}).reshape({1, 1, 1, 5});
  EXPECT_TRUE(array_equal(sample_pixels(x, row, column), want));
  EXPECT_TRUE(array_equal(call("sample_pixels", {x, row, column})[0], want));
}

TEST(Compositions, ViewsAndCopies) {
  const Tensor x = arange(12).reshape({3, 4});
  EXPECT_TRUE(diagonal(x).shares_storage(x));
  EXPECT_TRUE(moveaxis(x, 0, 1).shares_storage(x));
  EXPECT_TRUE(ravel(x).shares_storage(x));
  for (const Tensor& y : {diag(x), roll(x, Dims{}, Dims{}), diff(x, 0), nan_to_num(x),
                          pad(x, {{0, 0}}, PadMode::edge), roll(x, 0)})
    EXPECT_FALSE(y.shares_storage(x));
}

TEST(Compositions, UniqueWithItsParts) {
  const Unique u = unique_all(array({{3.0, kNan, 1.0}, {kNan, 3.0, 3.0}}));
  EXPECT_EQ(u.values.shape(), (Shape{3}));
  EXPECT_EQ(u.indices.to_vector<int>(), (Integers{2, 0, 1}));
  EXPECT_EQ(u.counts.to_vector<int>(), (Integers{1, 3, 2}));
  EXPECT_EQ(u.inverse_indices.shape(), (Shape{2, 3}));
  EXPECT_EQ(u.inverse_indices.to_vector<int>(), (Integers{1, 2, 0, 2, 1, 1}));
  EXPECT_EQ(unique_all(empty({0, 2})).inverse_indices.shape(), (Shape{0, 2}));
}

// What depends on values says so where there are none.
TEST(Compositions, RefuseToBeTraced) {
  const auto traced = [](const std::function<Tensor(const Tensor&)>& f) {
    return error_of([&] {
      const TensorFunction function = [&](const auto& in) -> std::vector<Tensor> {
        return {f(in[0])};
      };
      trace(function, {{{3, 4}, f32}});
    });
  };
  const std::string mend =
      ": asks for the values of a traced tensor (f32(3, 4)), which exist only when the compiled "
      "function runs: how many there are depends on them, leave it out of functions that are "
      "traced";
  EXPECT_EQ(traced([](const Tensor& x) { return nonzero(x)[0]; }), "nonzero" + mend);
  EXPECT_EQ(traced([](const Tensor& x) { return unique(x); }), "unique" + mend);
  EXPECT_EQ(traced([](const Tensor& x) { return nms(x, ones({3}), 0.5); }), "nms" + mend);
}

TEST(Compositions, MessagesOfArrangements) {
  const Tensor x = ones({2, 3}), v = ones({3});
  EXPECT_EQ(error_of([&] {
              moveaxis(x, Dims{0, 1}, Dims{0});
            }),
            "moveaxis: got the axes (0, 1) and the places (0,), need as many of both");
  EXPECT_EQ(error_of([&] {
              moveaxis(x, Dims{0, -2}, Dims{0, 1});
            }),
            "moveaxis: got the axis 0 twice in (0, -2)");
  EXPECT_EQ(error_of([&] {
              roll(x, Dims{1}, Dims{0, 1});
            }),
            "roll: got the shifts (1,) and the axes (0, 1), need as many of both");
  EXPECT_EQ(error_of([&] {
              pad(x, {{1, 1}, {0, 0}, {0, 0}}, PadMode::edge);
            }),
            "pad: got widths for 3 axes for the shape (2, 3), need 2 (or one pair for all axes)");
  EXPECT_EQ(error_of([&] {
              pad(x, {{-1, 1}}, PadMode::edge);
            }),
            "pad: got the widths -1 and 1 for axis 0, need at least 0: leave elements out with a "
            "slice");
  EXPECT_EQ(error_of([&] {
              pad(ones({0}), {{0, 1}}, PadMode::wrap);
            }),
            "pad: axis 0 of the shape (0,) is empty, and has nothing to repeat: pad it with a "
            "constant");
  EXPECT_EQ(error_of([&] { meshgrid({v}, "yx"); }),
            "meshgrid: got the indexing \"yx\", need xy or ij");
  EXPECT_EQ(error_of([&] { meshgrid({x}); }),
            "meshgrid: got a tensor of the shape (2, 3), need vectors");
  EXPECT_EQ(error_of([&] { diagonal(v); }), "diagonal: got the shape (3,), need at least 2 axes");
  EXPECT_EQ(error_of([&] { trace(x, 0, 1, 1); }), "diagonal: got the axis 1 twice in (1, 1)");
  EXPECT_EQ(error_of([&] {
              diag(ones({1, 1, 1}));
            }),
            "diag: got the shape (1, 1, 1), need a vector or a matrix");
  EXPECT_EQ(error_of([&] { diff(x, -1); }), "diff: got n = -1, need at least 0");
}

TEST(Compositions, MessagesOfStatistics) {
  const Tensor x = ones({2, 3});
  EXPECT_EQ(error_of([&] { quantile(x, 1.5); }), "quantile: got q = 1.5, need numbers from 0 to 1");
  EXPECT_EQ(error_of([&] {
              quantile(ones({2, 0}), 0.5, 1);
            }),
            "quantile: there are no elements along the axes (1,) of f32(2, 0)");
  EXPECT_EQ(error_of([&] { searchsorted(x, x); }),
            "searchsorted: got a of the shape (2, 3), need a sorted vector");
  EXPECT_EQ(error_of([&] { histogram(x, 0); }), "histogram: got 0 bins, need at least 1");
  EXPECT_EQ(error_of([&] {
              histogram(x, 2, {{1.0, 0.0}});
            }),
            "histogram: got the range from 1 to 0, need finite numbers in this order");
  EXPECT_EQ(error_of([&] {
              histogram(array({1.0, kInfinity}));
            }),
            "histogram: the elements go from 1 to inf, need finite ones: give a range");
  EXPECT_EQ(error_of([&] { tensordot(x, x, 1); }),
            "tensordot: got the axes (1,) of the shape (2, 3) and (0,) of (2, 3), need equal "
            "extents");
  EXPECT_EQ(error_of([&] { tensordot(x, x, 3); }),
            "tensordot: got 3 axes of the shapes (2, 3) and (2, 3), need at most as many as both "
            "have");
  EXPECT_EQ(error_of([&] { cross(x, x, 0); }),
            "cross: got the shapes (2, 3) and (2, 3), need 3 elements along axis 0");
  EXPECT_EQ(error_of([&] { bitwise_and(x, 1); }),
            "bitwise_and: is not defined on f32: it has no bits that count, use astype(i64)");
  EXPECT_EQ(error_of([&] { invert(x); }),
            "invert: is not defined on f32: it has no bits that count, use astype(i64)");
}

TEST(Compositions, MessagesOfPositions) {
  const Tensor x = ones({2, 3}), two = array<std::int64_t>({{1, 3}});
  EXPECT_EQ(error_of([&] { gather_nd(x, two); }),
            "gather_nd: an index is out of bounds for axis 1 of the shape (2, 3)");
  EXPECT_EQ(error_of([&] {
              scatter_nd(x, array<std::int64_t>({{-3}}), ones({1, 3}));
            }),
            "scatter_nd: an index is out of bounds for axis 0 of the shape (2, 3)");
  EXPECT_EQ(error_of([&] { scatter_nd(x, array<std::int64_t>({{0}}), ones({3})); }),
            "scatter_nd: got updates of the shape (3,) for indices of the shape (1, 1) in the "
            "shape (2, 3), need (1, 3)");
  EXPECT_EQ(error_of([&] { gather_nd(x, ones({1})); }),
            "gather_nd: got indices of f32, need integers");
  EXPECT_EQ(error_of([&] { gather_nd(x, Tensor(1)); }),
            "gather_nd: got indices of the shape (), need the numbers of an index as their last "
            "axis");
  EXPECT_EQ(error_of([&] { gather_nd(x, two, 2); }),
            "gather_nd: got 2 batch axes for the shape (2, 3) and indices of the shape (1, 2)");
  EXPECT_EQ(error_of([&] { gather_nd(x, two, 1); }),
            "gather_nd: got the shape (2, 3) and indices of the shape (1, 2), need the same first "
            "1 axes");
  EXPECT_EQ(error_of([&] { gather_nd(ones({3}), two); }),
            "gather_nd: got indices of 2 numbers for the shape (3,), need from 1 to 1");
  EXPECT_EQ(error_of([&] { one_hot(x, 3); }), "one_hot: got classes of f32, need integers");
  EXPECT_EQ(error_of([&] { one_hot(two, 0); }), "one_hot: got 0 classes, need at least 1");
  EXPECT_EQ(error_of([&] { nonzero(Tensor(1)); }),
            "nonzero: got a 0-d tensor, which has no positions: reshape it to {1}");
  EXPECT_EQ(error_of([&] { nms(x, ones({2}), 0.5); }),
            "nms: got boxes of the shape (2, 3) and scores of (2,), need (n, 4) and (n,)");
}

TEST(Compositions, MessagesOfPuts) {
  const Tensor x = ones({2, 3}), two = zeros({2, 2}, i64);
  EXPECT_EQ(error_of([&] {
              put_along_axis(x, zeros({2, 3}), 1, 0);
            }),
            "put_along_axis: got indices of f32, need integers");
  EXPECT_EQ(error_of([&] { put_along_axis(x, two + 5, 1, 1); }),
            "put_along_axis: index 5 is out of bounds for axis 1 of the shape (2, 3)");
  EXPECT_EQ(
      error_of([&] {
        put_along_axis(x, two, ones({2, 3}), 1);
      }),
      "put_along_axis: the shapes (2, 2) and (2, 3) do not broadcast: axes must be equal or 1, "
      "counted from the last");
  EXPECT_EQ(error_of([&] {
              put_along_axis(x, two, ones({4, 2, 2}), 1);
            }),
            "put_along_axis: got values of the shape (4, 2, 2) for places of the shape (2, 2)");
  EXPECT_EQ(error_of([&] {
              put_along_axis(ones({1, 3}), two, 1, 1);
            }),
            "put_along_axis: got indices of the shape (2, 2) for the shape (1, 3), which is "
            "stretched on axis 1 alone");
}

TEST(Compositions, MessagesOfNeuralOperators) {
  const Tensor x = ones({1, 4, 5, 5}), v = ones({3});
  EXPECT_EQ(error_of([&] { prelu(x, v); }),
            "prelu: got a weight of the shape (3,) for the shape (1, 4, 5, 5), need one number or "
            "one a channel (axis 1)");
  EXPECT_EQ(error_of([&] { rms_norm(Tensor(1.0)); }),
            "rms_norm: got a 0-d tensor, need (..., features)");
  EXPECT_EQ(error_of([&] { rms_norm(x, v); }),
            "rms_norm: got a weight of the shape (3,) for 5 features, need (5,)");
  EXPECT_EQ(error_of([&] {
              instance_norm(ones({2, 3}));
            }),
            "instance_norm: got the shape (2, 3), need (batch, channels, ...)");
  EXPECT_EQ(error_of([&] { conv1d(x, x); }),
            "conv1d: got the shape (1, 4, 5, 5) and a weight of the shape (1, 4, 5, 5), need "
            "(batch, channels, length) and (outputs, channels / groups, kernel)");
  EXPECT_EQ(error_of([&] {
              adaptive_avg_pool2d(x, {0, 1});
            }),
            "adaptive_avg_pool2d: got an input of the shape (1, 4, 5, 5) and the size 0 x 1, need "
            "at least 1 x 1 of both");
  EXPECT_EQ(error_of([&] {
              adaptive_avg_pool2d(zeros({1, 1, 2, 2}, i32), 1);
            }),
            "adaptive_avg_pool2d: got a tensor of i32, need a floating type: convert it with "
            "astype(f32)");
  EXPECT_EQ(error_of([&] { pixel_shuffle(x, 3); }),
            "pixel_shuffle: cannot divide 4 channels by 3 x 3");
  EXPECT_EQ(error_of([&] { pixel_unshuffle(x, 2); }),
            "pixel_unshuffle: cannot divide 5 x 5 pixels by 2");
  EXPECT_EQ(error_of([&] { pixel_shuffle(v, 2); }),
            "pixel_shuffle: got the shape (3,), need (..., channels, height, width)");
  EXPECT_EQ(error_of([&] { pixel_shuffle(x, 0); }),
            "pixel_shuffle: got the factor 0, need at least 1");
  EXPECT_EQ(error_of([&] { unfold(x, 0); }),
            "unfold: got the kernel 0 x 0, dilation 1 x 1, padding 0 x 0 and stride 1 x 1, need at "
            "least 1 (0 of the padding)");
  EXPECT_EQ(error_of([&] { unfold(x, 7); }),
            "unfold: the kernel covers 7 x 7 elements, but the padded input has 5 x 5");
  EXPECT_EQ(error_of([&] { grid_sample(x, v); }),
            "grid_sample: got a grid of the shape (3,) for the shape (1, 4, 5, 5), need (1, "
            "height, width, 2)");
  EXPECT_EQ(error_of([&] {
              grid_sample(ones({1, 1, 0, 2}), ones({1, 1, 1, 2}));
            }),
            "grid_sample: got an input of the shape (1, 1, 0, 2), need at least 1 x 1");
  EXPECT_EQ(error_of([&] { sample_pixels(x, v, v); }),
            "sample_pixels: got rows of the shape (3,) and columns of the shape (3,) for the shape "
            "(1, 4, 5, 5), need (1, height, width) of both");
  EXPECT_EQ(error_of([&] {
              sample_pixels(x, ones({1, 2, 2}, i32), ones({1, 2, 2}));
            }),
            "sample_pixels: got rows of i32 and columns of f32, need one floating type");
  EXPECT_EQ(error_of([&] {
              grid_sample(x, ones({1, 1, 1, 2}), {Interpolation::bicubic});
            }),
            "grid_sample: got the mode bicubic, need bilinear or nearest");
  const Tensor boxes = ones({2, 5});
  EXPECT_EQ(
      error_of([&] { roi_align(x, x, 2); }),
      "roi_align: got boxes of the shape (1, 4, 5, 5), need (K, 5): the image of each, x1, y1, "
      "x2 and y2");
  EXPECT_EQ(error_of([&] {
              roi_align(ones({1, 1, 0, 2}), boxes, 2);
            }),
            "roi_align: got an input of the shape (1, 1, 0, 2), need at least one image of 1 x 1");
  EXPECT_EQ(error_of([&] { roi_align(x, boxes, 2, {.sampling_ratio = 1 << 20}); }),
            "roi_align: got sampling_ratio=1048576, need 1 to 32768, or 0 for as many as there are "
            "pixels");
  EXPECT_EQ(error_of([&] { roi_align(x, boxes, 2, {.spatial_scale = HUGE_VAL}); }),
            "roi_align: got spatial_scale=inf, need a finite number");
  EXPECT_EQ(error_of([&] {
              roi_align(x, boxes, {0, 2});
            }),
            "roi_align: got 0 in the output_size (0, 2), need at least 1 and less than 2^31");
  EXPECT_EQ(error_of([&] { roi_align(x.astype(i32), boxes, 2); }),
            "roi_align: got a tensor of i32, need a floating type: convert it with astype(f32)");
}

TEST(Compositions, MessagesOfNames) {
  const Tensor x = ones({1, 4, 5, 5});
  EXPECT_EQ(error_of([&] {
              call("pad", {x}, {{"pad_width", Ints{1, 1}}, {"mode", "mean"}});
            }),
            "pad: got the mode \"mean\", need constant, edge, reflect, symmetric or wrap");
  EXPECT_EQ(error_of([&] {
              call("searchsorted", {x, x}, {{"side", "both"}});
            }),
            "searchsorted: got the side \"both\", need left or right");
  EXPECT_EQ(error_of([&] {
              call("histogram", {x, x});
            }),
            "histogram: got 2 tensors, need 1, or 3 with the ends of the range");
  EXPECT_EQ(error_of([&] {
              call("grid_sample", {x, x}, {{"padding_mode", "wrap"}});
            }),
            "grid_sample: got the padding_mode \"wrap\", need zeros, border or reflection");
}

}  // namespace
}  // namespace tensor
