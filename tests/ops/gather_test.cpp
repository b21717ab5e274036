// concatenate, pad, take and take_along_axis: every element of the
// result is looked up by its index in the flat list of the input elements.
#include <functional>

#include "tests/ops/check.h"
#include "tests/seed.h"

namespace tensor {
namespace {

using check::error_of;
using check::kAllTypes;
using check::layouts;
using check::random;
using check::random_tensor;

using Numbers = std::vector<double>;

// The elements of x with access by index.
struct Array {
  explicit Array(const Tensor& x) : shape(x.shape()), values(x.to_vector<double>()) {}
  double operator()(const Dims& index) const {
    std::int64_t flat = 0;
    for (int axis = 0; axis < shape.rank(); ++axis) flat = flat * shape[axis] + index[axis];
    return values.at(static_cast<std::size_t>(flat));
  }
  Shape shape;
  Numbers values;
};

// value_at(index) of every index of `shape` in row-major order.
Numbers table(const Shape& shape, const std::function<double(const Dims&)>& value_at) {
  Numbers result;
  for (std::int64_t flat = 0; flat < num_elements(shape); ++flat) {
    Dims index = shape;
    std::int64_t rest = flat;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      index[axis] = rest % shape[axis];
      rest /= shape[axis];
    }
    result.push_back(value_at(index));
  }
  return result;
}

void expect_equal(const Tensor& got, const Shape& shape, DType dtype, const Numbers& expected) {
  ASSERT_EQ(got.shape(), shape);
  ASSERT_EQ(got.dtype(), dtype);
  ASSERT_EQ(got.to_vector<double>(), expected);
}

Tensor random_indices(std::int64_t extent, const Shape& shape) {
  return random().randint(-extent, extent, shape);
}
std::int64_t wrapped(double index, std::int64_t extent) {
  const auto whole = static_cast<std::int64_t>(index);
  return whole < 0 ? whole + extent : whole;
}

TEST(Concatenate, EveryTypeAxisAndLayout) {
  for (const DType dtype : kAllTypes) {
    for (int axis = -3; axis < 3; ++axis) {
      const int at = axis < 0 ? axis + 3 : axis;
      Shape shape{2, 3, 4};
      std::vector<Tensor> parts;
      for (const std::int64_t extent : {3, 0, 1, 2}) {
        shape[at] = extent;
        parts.push_back(random_tensor(shape, dtype));
      }
      shape[at] = 6;
      const std::vector<Array> arrays(parts.begin(), parts.end());
      const Numbers expected = table(shape, [&](Dims index) {
        std::size_t part = 0;
        while (index[at] >= arrays[part].shape[at]) index[at] -= arrays[part++].shape[at];
        return arrays[part](index);
      });
      for (std::size_t layout = 0; layout < layouts(parts[0]).size(); ++layout) {
        std::vector<Tensor> views;
        for (const Tensor& part : parts) views.push_back(layouts(part)[layout]);
        expect_equal(concatenate(views, axis), shape, dtype, expected);
      }
    }
  }
}

TEST(Concatenate, PromotesAndTakesBroadcasts) {
  const Tensor narrow = random_tensor({3}, i16), wide = random_tensor({2}, f32);
  const Tensor joined = concatenate({narrow, wide});
  EXPECT_EQ(joined.dtype(), f32);
  EXPECT_EQ(joined(slice(0, 3)).to_vector<double>(), narrow.to_vector<double>());
  const Tensor row = broadcast_to(array({1, 2}), {2, 2});
  EXPECT_EQ(concatenate({row, row}, 1).to_vector<int>(),
            (std::vector<int>{1, 2, 1, 2, 1, 2, 1, 2}));
  EXPECT_EQ(concatenate({zeros({0, 3}), zeros({0, 3})}).shape(), (Shape{0, 3}));
}

TEST(Concatenate, KeepsEveryBit) {
  // A signalling NaN with a payload: arithmetic would change it, moving it must not.
  const std::vector<Float16> numbers = {std::bit_cast<Float16>(std::uint16_t{0x7d23}),
                                        Float16(1.f)};
  const Tensor x = array(numbers);
  for (const Tensor& moved : {concatenate({x, x}), pad(x, {{0, 1}}), take(x, array({0, 1}), 0)})
    EXPECT_EQ(moved.data<Float16>()[0].bits, 0x7d23);
}

TEST(Concatenate, Errors) {
  const Tensor x = zeros({2, 3});
  EXPECT_EQ(error_of([] { concatenate({}); }), "concatenate: got no tensors, need at least one");
  EXPECT_EQ(error_of([&] {
              concatenate({x, zeros({3, 3})}, 1);
            }),
            "concatenate: part 1 has the shape (3, 3), part 0 has (2, 3): only the extents of axis "
            "1 may differ");
  EXPECT_EQ(error_of([&] {
              concatenate({x, zeros({2})});
            }),
            "concatenate: part 1 has the shape (2,), part 0 has (2, 3): only the extents of axis 0 "
            "may differ");
  EXPECT_EQ(error_of([&] { concatenate({x}, 2); }),
            "concatenate: got the axis 2 for a tensor of rank 2");
  EXPECT_EQ(error_of([] {
              concatenate({Tensor(1.0), Tensor(2.0)});
            }),
            "concatenate: got the axis 0 for a tensor of rank 0 (it has none)");
  const Tensor huge = zeros({std::int64_t{1} << 62, 0});
  EXPECT_EQ(error_of([&] {
              concatenate({huge, huge});
            }),
            "concatenate: the extents of axis 0 add up to more than 2^63");
}

TEST(Pad, EveryTypeAndLayout) {
  for (const DType dtype : kAllTypes) {
    const Tensor x = random_tensor({2, 3, 4}, dtype);
    const Array array(x);
    const Shape shape{2 + 1, 3 + 2 + 3, 4};
    const Numbers expected = table(shape, [&](Dims index) {
      index[1] -= 2;
      const bool inside = index[0] < 2 && index[1] >= 0 && index[1] < 3;
      return inside ? array(index) : 1.;
    });
    for (const Tensor& view : layouts(x))
      expect_equal(pad(view, {{0, 1}, {2, 3}, {0, 0}}, 1), shape, dtype, expected);
  }
}

TEST(Pad, TheValueTakesTheType) {
  EXPECT_EQ(pad(array({7}), {{1, 1}}, -2.7).to_vector<int>(), (std::vector<int>{-2, 7, -2}));
  const std::int64_t large = (std::int64_t{1} << 62) + 1;
  EXPECT_EQ(pad(zeros({1}, i64), {{0, 1}}, large).item<std::int64_t>(1), large);
  EXPECT_EQ(pad(zeros({1}, f16), {{0, 1}}, -check::kInfinity).item(1), -check::kInfinity);
  EXPECT_EQ(pad(zeros({0, 2}), {{1, 0}, {0, 1}}, 3).to_vector<int>(), (std::vector<int>{3, 3, 3}));
  EXPECT_EQ(pad(ones({1, 1}), {{1, 0}}).to_vector<int>(), (std::vector<int>{0, 0, 0, 1}));
  EXPECT_EQ(pad(Tensor(4), {}).item<int>(), 4);
}

TEST(Pad, Errors) {
  const Tensor x = zeros({2, 3, 4});
  EXPECT_EQ(
      error_of([&] {
        pad(x, {{1, 1}, {0, 0}});
      }),
      "pad: got widths for 2 axes for the shape (2, 3, 4), need 3 (or one pair for all axes)");
  EXPECT_EQ(error_of([&] {
              pad(x, {{1, -1}});
            }),
            "pad: got the widths 1 and -1 for axis 0, need at least 0: leave elements out with a "
            "slice");
  const std::int64_t half = std::int64_t{1} << 62;
  EXPECT_EQ(error_of([&] {
              pad(x, {{half, half}});
            }),
            "pad: the widths 4611686018427387904 and 4611686018427387904 of axis 0 are too large");
  EXPECT_EQ(error_of([&] {
              pad(x, {{1, 1}}, zeros({2}));
            }),
            "pad: got a value of the shape (2,), need a single number");
}

TEST(Take, EveryTypeAxisIndexRankAndLayout) {
  for (const DType dtype : kAllTypes) {
    const Tensor x = random_tensor({3, 5, 4}, dtype);
    const Array array(x);
    for (int axis = 0; axis < 3; ++axis) {
      for (const Shape& index_shape : {Shape{}, Shape{6}, Shape{2, 3}, Shape{1, 0, 2}}) {
        const Tensor indices = random_indices(x.shape(axis), index_shape);
        const Array places(indices);
        Shape shape = x.shape();
        shape.erase(axis);
        for (int i = 0; i < index_shape.rank(); ++i) shape.insert(axis + i, index_shape[i]);
        const Numbers expected = table(shape, [&](const Dims& index) {
          Dims from, which;
          for (int i = 0; i < index.rank(); ++i)
            (i >= axis && i < axis + index_shape.rank() ? which : from).push_back(index[i]);
          from.insert(axis, wrapped(places(which), x.shape(axis)));
          return array(from);
        });
        for (const Tensor& view : layouts(x))
          for (const Tensor& index : layouts(indices))
            expect_equal(take(view, index, axis - 3), shape, dtype, expected);
      }
    }
  }
}

TEST(Take, IndicesOfEveryIntegerType) {
  const Tensor x = arange(5) * 10;
  for (const DType dtype : {u8, i8, i16, i32, i64})
    EXPECT_EQ(take(x, array({4, 0}).astype(dtype), 0).to_vector<int>(), (std::vector<int>{40, 0}));
  EXPECT_EQ(take(x, -1, 0).item<int>(), 40);
  EXPECT_EQ(take(x, -1, 0).rank(), 0);
  EXPECT_EQ(take(zeros({0, 2}), zeros({0}, i64), 0).shape(), (Shape{0, 2}));
}

TEST(Take, Errors) {
  const Tensor x = zeros({3, 4});
  EXPECT_EQ(error_of([&] {
              take(x, array({0, 3}), 0);
            }),
            "take: index 3 is out of bounds for axis 0 of the shape (3, 4)");
  EXPECT_EQ(error_of([&] { take(x, -5, 1); }),
            "take: index -5 is out of bounds for axis 1 of the shape (3, 4)");
  EXPECT_EQ(error_of([&] { take(zeros({0}), 0, 0); }),
            "take: index 0 is out of bounds for axis 0 of the shape (0,)");
  EXPECT_EQ(error_of([&] { take(x, 0.5, 0); }), "take: got indices of f64, need integers");
  EXPECT_EQ(error_of([&] { take(x, array({true}), 0); }),
            "take: got indices of bool, need integers");
  EXPECT_EQ(error_of([&] { take(x, 0, 2); }), "take: got the axis 2 for a tensor of rank 2");
}

// Indices that are repeated along the last axes move blocks, where elements lie in order; of equal
// ones the last wins.
TEST(PutAlongAxis, RepeatedIndicesAndEveryLayout) {
  Generator random(check::seed());
  const Tensor x = random.randint(0, 100, {2, 5, 3, 4}),
               values = random.randint(100, 200, {2, 6, 3, 4});
  for (const Shape& own : {Shape{2, 6, 1, 1}, {2, 6, 3, 1}, {1, 6, 1, 4}, {2, 6, 3, 4}}) {
    const Tensor index = random.randint(-5, 5, own);
    const Tensor repeated = broadcast_to(index, values.shape());
    std::vector<std::int64_t> want = x.to_vector<std::int64_t>();
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 6; ++j)
        for (int k = 0; k < 3; ++k)
          for (int l = 0; l < 4; ++l) {
            const auto at = repeated.item<std::int64_t>(i, j, k, l);
            const auto row = static_cast<std::size_t>(i * 5 + (at < 0 ? at + 5 : at));
            want[(row * 3 + static_cast<std::size_t>(k)) * 4 + static_cast<std::size_t>(l)] =
                values.item<std::int64_t>(i, j, k, l);
          }
    const auto turned = [](const Tensor& t) {  // the same elements, last axes exchanged in memory
      return copy(t.swapaxes(2, 3)).swapaxes(2, 3);
    };
    for (const Tensor& v : {values, turned(values)})
      for (const Tensor& base : {x, turned(x)})
        EXPECT_EQ(put_along_axis(base, repeated, v, 1).to_vector<std::int64_t>(), want) << own;
  }
}

TEST(TakeAlongAxis, EveryTypeAxisAndLayout) {
  for (const DType dtype : kAllTypes) {
    const Tensor x = random_tensor({3, 5, 4}, dtype);
    const Array array(x);
    for (int axis = 0; axis < 3; ++axis) {
      Shape shape = x.shape();
      shape[axis] = 7;
      const Tensor indices = random_indices(x.shape(axis), shape);
      const Array places(indices);
      const Numbers expected = table(shape, [&](Dims index) {
        index[axis] = wrapped(places(index), x.shape(axis));
        return array(index);
      });
      for (const Tensor& view : layouts(x))
        for (const Tensor& index : layouts(indices))
          expect_equal(take_along_axis(view, index, axis - 3), shape, dtype, expected);
    }
  }
}

// Many places before the axis, and one to nine behind it: an index moves blocks, or all at once.
TEST(Take, OfManyShortBlocks) {
  for (const std::int64_t before : {1, 31, 32, 33, 100})
    for (const std::int64_t behind : {1, 3, 4, 9}) {
      const Tensor x = random_tensor({before, 5, behind}), index = random_indices(5, {2, 3});
      const Array array(x), index_array(index);
      const Shape shape{before, 2, 3, behind};
      expect_equal(take(x, index, 1), shape, f32, table(shape, [&](const Dims& i) {
                     return array({i[0], wrapped(index_array({i[1], i[2]}), 5), i[3]});
                   }));
    }
}

TEST(TakeAlongAxis, BroadcastsTheOtherAxes) {
  const Tensor x = random_tensor({3, 4}), row = random_tensor({1, 4});
  const Array array(x), row_array(row);
  const Tensor one = random_indices(4, {1, 2}), many = random_indices(4, {5, 2});
  const Array one_array(one), many_array(many);
  expect_equal(take_along_axis(x, one, 1), {3, 2}, f32, table({3, 2}, [&](const Dims& index) {
                 return array({index[0], wrapped(one_array({0, index[1]}), 4)});
               }));
  expect_equal(take_along_axis(row, many, 1), {5, 2}, f32, table({5, 2}, [&](const Dims& index) {
                 return row_array({0, wrapped(many_array(index), 4)});
               }));
  EXPECT_EQ(take_along_axis(zeros({2, 0}), zeros({2, 0}, i64), 1).shape(), (Shape{2, 0}));
}

TEST(TakeAlongAxis, Errors) {
  const Tensor x = zeros({3, 4});
  EXPECT_EQ(error_of([&] { take_along_axis(x, zeros({3}, i64), 1); }),
            "take_along_axis: got indices of the shape (3,) for the shape (3, 4), need as many "
            "axes");
  EXPECT_EQ(error_of([&] {
              take_along_axis(x, zeros({2, 1}, i64), 1);
            }),
            "take_along_axis: the shapes (3, 1) and (2, 1) do not broadcast: axes must be equal or "
            "1, counted from the last");
  EXPECT_EQ(error_of([&] {
              take_along_axis(x, full({3, 1}, 4), 1);
            }),
            "take_along_axis: index 4 is out of bounds for axis 1 of the shape (3, 4)");
  EXPECT_EQ(error_of([&] {
              take_along_axis(x, zeros({3, 1}), 1);
            }),
            "take_along_axis: got indices of f32, need integers");
}

}  // namespace
}  // namespace tensor
