// stack, tile, repeat, tril and triu against plain loops.
#include "src/trace/trace.h"
#include "tests/ops/check.h"

namespace tensor {
namespace {

using check::error_of;
using check::kAllTypes;
using check::layouts;
using check::random_tensor;

using Numbers = std::vector<double>;

TEST(Stack, EveryAxis) {
  const Tensor a = random_tensor({2, 3}), b = random_tensor({2, 3});
  for (int axis = -3; axis < 3; ++axis) {
    for (std::size_t layout = 0; layout < layouts(a).size(); ++layout) {
      const Tensor got = stack({layouts(a)[layout], layouts(b)[layout]}, axis);
      Shape shape{2, 3};
      shape.insert(axis < 0 ? axis + 3 : axis, 2);
      ASSERT_EQ(got.shape(), shape);
      for (int part = 0; part < 2; ++part)
        EXPECT_EQ(take(got, part, axis).to_vector<float>(), (part == 0 ? a : b).to_vector<float>());
    }
  }
}

TEST(Stack, PromotesAndTakesNumbers) {
  EXPECT_EQ(stack({array({1, 2}), array({1.5f, 2.5f})}).dtype(), f64);
  EXPECT_EQ(stack({1, 2, 3}).to_vector<int>(), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(stack({zeros({0}), zeros({0})}).shape(), (Shape{2, 0}));
}

TEST(Stack, Errors) {
  EXPECT_EQ(error_of([] { stack({}); }), "stack: got no tensors, need at least one");
  EXPECT_EQ(error_of([] {
              stack({zeros({2}), zeros({3})});
            }),
            "stack: got the shapes (2,) and (3,), need equal ones");
  EXPECT_EQ(error_of([] { stack({zeros({2})}, 2); }),
            "stack: got the axis 2 for a tensor of rank 2");
}

TEST(Tile, EveryTypeAndLayout) {
  for (const DType dtype : kAllTypes) {
    const Tensor x = random_tensor({2, 3}, dtype);
    const Numbers values = x.to_vector<double>();
    for (const Dims& reps : {Dims{2, 3}, Dims{4}, Dims{}, Dims{1, 1}, Dims{2, 1, 2}, Dims{0, 2}}) {
      Dims wide = reps;
      while (wide.rank() < 3) wide.insert(0, 1);
      Numbers expected;
      for (int i = 0; i < wide[0]; ++i)
        for (std::size_t row = 0; row < static_cast<std::size_t>(2 * wide[1]); ++row)
          for (std::size_t column = 0; column < static_cast<std::size_t>(3 * wide[2]); ++column)
            expected.push_back(values[row % 2 * 3 + column % 3]);
      Shape shape{2 * wide[1], 3 * wide[2]};
      if (reps.rank() == 3) shape.insert(0, wide[0]);
      for (const Tensor& view : layouts(x)) {
        const Tensor got = tile(view, reps);
        ASSERT_EQ(got.shape(), shape);
        ASSERT_EQ(got.dtype(), dtype);
        ASSERT_EQ(got.to_vector<double>(), expected);
      }
    }
  }
}

TEST(Repeat, EveryTypeAxisAndLayout) {
  for (const DType dtype : kAllTypes) {
    const Tensor x = random_tensor({2, 3, 2}, dtype);
    for (int axis = -3; axis < 3; ++axis) {
      for (const std::int64_t repeats : {0, 1, 3}) {
        for (const Tensor& view : layouts(x)) {
          const Tensor got = repeat(view, repeats, axis);
          Shape shape = x.shape();
          shape[axis < 0 ? axis + 3 : axis] *= repeats;
          ASSERT_EQ(got.shape(), shape);
          ASSERT_EQ(got.dtype(), dtype);
          for (int i = 0; i < got.shape(axis); ++i)
            ASSERT_EQ(take(got, i, axis).to_vector<double>(),
                      take(x, i / static_cast<int>(repeats), axis).to_vector<double>());
        }
      }
    }
  }
}

TEST(TileAndRepeat, GiveMemoryOfTheirOwn) {
  Tensor x = ones({1, 3});
  for (Tensor copy : {tile(x, {1, 1}), tile(x, {2, 1}), repeat(x, 1, 0), repeat(x, 2, 0)}) {
    EXPECT_FALSE(copy.shares_storage(x));
    EXPECT_FALSE(copy.is_read_only());
  }
}

TEST(TileAndRepeat, Errors) {
  const Tensor x = zeros({2, 3});
  EXPECT_EQ(error_of([&] {
              tile(x, {1, -1});
            }),
            "tile: got the repetitions (1, -1), need at least 0");
  EXPECT_EQ(error_of([&] { repeat(x, -1, 0); }), "repeat: got -1 repeats, need at least 0");
  EXPECT_EQ(error_of([&] { repeat(x, 1, 2); }), "repeat: got the axis 2 for a tensor of rank 2");
  const std::int64_t large = std::int64_t{1} << 62;
  EXPECT_EQ(error_of([&] { repeat(x, large, 0); }),
            "shape: the shape (2, 4611686018427387904) holds more than 2^63 elements");
  EXPECT_EQ(error_of([&] {
              tile(x, {large, 1});
            }),
            "shape: the shape (2, 4611686018427387904) holds more than 2^63 elements");
}

TEST(Triangles, EveryTypeDiagonalAndLayout) {
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  for (const DType dtype : kAllTypes) {
    const Tensor x = random_tensor({2, 4, 3}, dtype);
    const Numbers values = x.to_vector<double>();
    for (const std::int64_t k : {-kLargest - 1, std::int64_t{-4}, std::int64_t{-1}, std::int64_t{0},
                                 std::int64_t{1}, std::int64_t{5}, kLargest}) {
      Numbers lower, upper;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto row = static_cast<std::int64_t>(i / 3 % 4), column = std::int64_t(i % 3);
        lower.push_back(column - row <= k ? values[i] : 0);
        upper.push_back(column - row >= k ? values[i] : 0);
      }
      for (const Tensor& view : layouts(x)) {
        ASSERT_EQ(tril(view, k).to_vector<double>(), lower);
        ASSERT_EQ(triu(view, k).to_vector<double>(), upper);
        ASSERT_EQ(tril(view, k).dtype(), dtype);
        ASSERT_EQ(triu(view, k).dtype(), dtype);
      }
    }
  }
  EXPECT_EQ(tril(zeros({0, 3})).shape(), (Shape{0, 3}));
}

TEST(Triangles, Errors) {
  EXPECT_EQ(error_of([] { tril(zeros({3})); }),
            "tril: got the shape (3,), need at least 2 axes (matrices)");
  EXPECT_EQ(error_of([] { triu(zeros({3})); }),
            "triu: got the shape (3,), need at least 2 axes (matrices)");
}

// They are functions of tensors alone, so a trace of them computes the same.
TEST(Composites, CanBeTraced) {
  const auto f = [](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor& x = in[0];
    return {stack({x, x}, 1), tile(x, {2, 1, 3}),          repeat(x, 2, -1),          tril(x, 1),
            triu(x),          pad(x, {{1, 0}, {0, 2}}, 7), take(x, array({1, -1}), 0)};
  };
  const Tensor x = random_tensor({3, 4});
  const std::vector<Tensor> expected = f({x}), got = interpret(trace(f, {x.type()}), {x});
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].type(), expected[i].type());
    EXPECT_EQ(got[i].to_vector<float>(), expected[i].to_vector<float>());
  }
}

}  // namespace
}  // namespace tensor
