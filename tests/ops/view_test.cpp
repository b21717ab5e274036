// Views: that they share memory where the layout allows it, copy where it does not, and every
// message. Their values are among the generated cases.
#include <gtest/gtest.h>

#include "src/ops/op.h"
#include "src/ops/view.h"
#include "tests/ops/check.h"

namespace tensor {
namespace {

using check::error_of;
using Integers = std::vector<int>;

TEST(View, ReshapeSharesWhereTheLayoutAllows) {
  const Tensor x = arange(24).reshape({2, 3, 4});
  EXPECT_TRUE(x.reshape({6, 4}).shares_storage(x));
  EXPECT_TRUE(x.reshape({-1}).shares_storage(x));
  EXPECT_TRUE(x.reshape({2, 1, 3, 2, 2}).shares_storage(x));
  EXPECT_FALSE(x.flatten().shares_storage(x));
  EXPECT_EQ(x.flatten().to_vector<int>(), x.to_vector<int>());
  // The last two axes are still walkable as one.
  EXPECT_TRUE(x(slice(none, none, -1)).reshape({2, 12}).shares_storage(x));
  EXPECT_TRUE(x.transpose({1, 2, 0}).reshape({12, 2}).shares_storage(x));
  // These are not.
  EXPECT_FALSE(x.transpose().reshape({-1}).shares_storage(x));
  EXPECT_FALSE(x["..., :3"].reshape({2, 9}).shares_storage(x));
  EXPECT_EQ(x["..., ::-1"].reshape({-1}).shares_storage(x), false);
  EXPECT_TRUE(broadcast_to(array({1.f}), {4}).reshape({2, 2}).is_read_only());
}

TEST(View, TheOthersAlwaysShare) {
  const Tensor x = arange(24).reshape({2, 3, 4});
  const Tensor views[] = {x.transpose(),
                          x.swapaxes(0, -1),
                          x.expand_dims(-1),
                          x(0),
                          flip(x),
                          flip(x, {0, 2}),
                          broadcast_to(x, {5, 2, 3, 4}),
                          squeeze(x.expand_dims(1)),
                          split(x, 3, 1)[2]};
  for (const Tensor& view : views) EXPECT_TRUE(view.shares_storage(x)) << view.shape();
}

TEST(View, WritingThroughAView) {
  Tensor x = zeros({2, 3}, i64);
  Tensor columns = x.transpose();
  columns(2) = array({8, 9});
  EXPECT_EQ(x.to_vector<int>(), (Integers{0, 0, 8, 0, 0, 9}));
  Tensor last = flip(x, 1);
  last(all_of_axis, 0) = 1;
  EXPECT_EQ(x.to_vector<int>(), (Integers{0, 0, 1, 0, 0, 1}));
}

TEST(View, OfEmptyTensors) {
  EXPECT_EQ(zeros({0, 3}).reshape({3, 0}).shape(), (Shape{3, 0}));
  EXPECT_EQ(zeros({0, 3}).reshape({-1, 5}).shape(), (Shape{0, 5}));
  EXPECT_EQ(flip(zeros({0, 3})).shape(), (Shape{0, 3}));
  EXPECT_EQ(zeros({3, 0}).transpose().shape(), (Shape{0, 3}));
  EXPECT_EQ(broadcast_to(zeros({1, 0}), {4, 0}).shape(), (Shape{4, 0}));
  EXPECT_EQ(zeros({2, 0})(slice(1, none)).shape(), (Shape{1, 0}));
  EXPECT_EQ(error_of([] {
              zeros({0, 3}).reshape({-1, 0});
            }),
            "reshape: cannot fill in the -1 of (-1, 0) from the shape (0, 3) of 0 elements");
}

TEST(View, WeakNumbersBecomeOrdinaryTensors) {
  EXPECT_FALSE(Tensor(2).reshape({1}).is_weak());
  EXPECT_EQ((Tensor(2).reshape({1}) + array({1.f})).dtype(), f64);
}

TEST(View, SplitAsNumPy) {
  const Tensor x = arange(7);
  const auto parts = split(x, Ints{2, 5});
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[1].to_vector<int>(), (Integers{2, 3, 4}));
  EXPECT_EQ(split(x, Ints{5, 2})[1].size(), 0);  // numpy.split(range(7), [5, 2])
  EXPECT_EQ(split(x, Ints{5, 2})[2].to_vector<int>(), (Integers{2, 3, 4, 5, 6}));
  EXPECT_EQ(split(x, Ints{-2})[1].to_vector<int>(), (Integers{5, 6}));
  EXPECT_EQ(split(x, Ints{99})[1].size(), 0);
  EXPECT_EQ(split(x, Ints{}).size(), 1u);
}

TEST(View, Messages) {
  const Tensor x = zeros({2, 3});
  EXPECT_EQ(error_of([&] { x.reshape({4}); }),
            "reshape: cannot read the shape (2, 3) of 6 elements as (4,)");
  EXPECT_EQ(error_of([&] {
              x.reshape({-1, 4});
            }),
            "reshape: cannot fill in the -1 of (-1, 4) from the shape (2, 3) of 6 elements");
  EXPECT_EQ(error_of([&] {
              x.reshape({-1, -1});
            }),
            "reshape: got the shape (-1, -1), need extents >= 0 and at most one -1");
  EXPECT_EQ(error_of([&] { x.reshape({-2}); }),
            "reshape: got the shape (-2,), need extents >= 0 and at most one -1");
  const std::int64_t large = std::int64_t{1} << 62;
  EXPECT_EQ(error_of([&] {
              x.reshape({large, 4});
            }),
            "reshape: the shape (4611686018427387904, 4) is too large");
  EXPECT_EQ(error_of([&] { x.transpose({0}); }),
            "transpose: got 1 axes (0,) for the shape (2, 3), need each of its axes once");
  EXPECT_EQ(error_of([&] { x.transpose({0, -2}); }), "transpose: axis 0 is named twice in (0, -2)");
  EXPECT_EQ(error_of([&] {
              x.transpose({0, 2});
            }),
            "transpose: got the axis 2 for a tensor of rank 2");
  EXPECT_EQ(error_of([&] { x.swapaxes(0, 2); }), "swapaxes: got the axis 2 for a tensor of rank 2");
  EXPECT_EQ(error_of([&] { x.expand_dims(3); }),
            "expand_dims: got the axis 3 for a tensor of rank 3");
  EXPECT_EQ(error_of([&] { squeeze(x, 1); }), "squeeze: axis 1 of (2, 3) has the extent 3, need 1");
  EXPECT_EQ(error_of([&] {
              squeeze(zeros({1, 3}), {0, 1});
            }),
            "squeeze: axis 1 of (1, 3) has the extent 3, need 1");
  EXPECT_EQ(error_of([&] { broadcast_to(x, {3}); }),
            "broadcast_to: cannot stretch the shape (2, 3) to (3,): only axes of extent 1 stretch");
  EXPECT_EQ(error_of([&] {
              broadcast_to(x, {2, 4});
            }),
            "broadcast_to: the shapes (2, 3) and (2, 4) do not broadcast: axes must be equal or 1, "
            "counted from the last");
  EXPECT_EQ(error_of([&] { flip(x, 2); }), "flip: got the axis 2 for a tensor of rank 2");
  EXPECT_EQ(error_of([&] { flip(x, {0, -2}); }), "flip: axis 0 is named twice in (0, -2)");
  EXPECT_EQ(error_of([&] { split(x, 2, 1); }),
            "split: axis 1 of (2, 3) does not split into 2 equal sections");
  EXPECT_EQ(error_of([&] { split(x, 0, 1); }),
            "split: axis 1 of (2, 3) does not split into 0 equal sections");
}

TEST(View, BroadcastsThatNoShapeHas) {
  const std::int64_t large = std::int64_t{1} << 40;
  EXPECT_EQ(error_of([] { broadcast_to(5, {-3}); }),
            "shape: got (-3,), need extents of at least 0");
  EXPECT_THROW(broadcast_to(5., {large, large}), UserError);
  EXPECT_THROW(broadcast_to(5., {std::int64_t{1} << 61}), UserError);  // of 8 bytes each
}

TEST(View, SlicesOutsideAreRefused) {
  const Tensor x = zeros({4});
  EXPECT_EQ(error_of([&] { slice_axes(x, {0}, {5}, {1}); }),
            "slice: axis 0 of (4,) does not hold start=[0], extent=[5], step=[1]");
  EXPECT_THROW(slice_axes(x, {-1}, {1}, {1}), UserError);
  EXPECT_THROW(slice_axes(x, {0}, {3}, {std::int64_t{1} << 62}), UserError);
  EXPECT_THROW(slice_axes(x, {0, 0}, {1}, {1}), UserError);
  EXPECT_NO_THROW(slice_axes(x, {9}, {0}, {1}));  // nothing is read
  // The step of a single element leads nowhere.
  EXPECT_EQ(slice_axes(x, {1}, {1}, {std::int64_t{1} << 62}).strides()[0], x.strides()[0]);
}

}  // namespace
}  // namespace tensor
