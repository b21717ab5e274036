// Dims, broadcasting, axes: values and messages.
#include "tensor/shape.h"

#include <gtest/gtest.h>

#include <limits>
#include <sstream>

#include "tests/ops/check.h"

namespace tensor {
namespace {

using check::error_of;

std::string printed_dims(const Dims& dims) {
  std::ostringstream text;
  text << dims;
  return text.str();
}

TEST(Dims, PrintsAsPythonTuples) {
  EXPECT_EQ(printed_dims({}), "()");
  EXPECT_EQ(printed_dims({4}), "(4,)");
  EXPECT_EQ(printed_dims({2, 0, -3}), "(2, 0, -3)");
}

TEST(Dims, InsertEraseContains) {
  Dims dims{1, 2, 3};
  dims.insert(0, 9);
  dims.push_back(7);
  dims.insert(2, 5);
  EXPECT_EQ(dims, (Dims{9, 1, 5, 2, 3, 7}));
  dims.erase(0);
  dims.erase(4);
  dims.erase(1);
  EXPECT_EQ(dims, (Dims{1, 2, 3}));
  EXPECT_TRUE(dims.contains(3));
  EXPECT_FALSE(dims.contains(9));
  EXPECT_EQ(dims.back(), 3);
  EXPECT_EQ(Dims::filled(3, 8), (Dims{8, 8, 8}));
  EXPECT_FALSE((Dims{1, 2}) == (Dims{1, 2, 3}));
  EXPECT_TRUE(Dims{}.empty());
}

TEST(Dims, HoldsSixteenAxesAndNoMore) {
  EXPECT_EQ(Dims::filled(kMaxRank, 1).rank(), 16);
  EXPECT_EQ(error_of([] { Dims::filled(17, 1); }), "shape: got 17 axes, need at most 16");
  EXPECT_EQ(error_of([] { Dims(std::vector<std::int64_t>(20, 1)); }),
            "shape: got 20 axes, need at most 16");
  Dims full = Dims::filled(kMaxRank, 1);
  EXPECT_EQ(error_of([&] { full.push_back(1); }), "shape: got more than 16 axes");
}

TEST(Shape, NumElements) {
  EXPECT_EQ(num_elements({}), 1);
  EXPECT_EQ(num_elements({2, 3, 4}), 24);
  EXPECT_EQ(num_elements({2, 0, 4}), 0);
  EXPECT_EQ(error_of([] {
              num_elements({2, -1});
            }),
            "shape: got (2, -1), need extents of at least 0");
  const std::int64_t large = std::int64_t{1} << 32;
  const std::string message =
      "shape: the shape (4294967296, 4294967296) holds more than 2^63 elements";
  EXPECT_EQ(error_of([&] { num_elements({large, large}); }), message);
  // Whether a shape is too large does not depend on where its zero stands.
  for (const Shape& shape :
       {Shape{0, large, large}, Shape{large, 0, large}, Shape{large, large, 0}})
    EXPECT_NE(error_of([&] { num_elements(shape); }), "no error");
}

TEST(Shape, RowMajor) {
  EXPECT_EQ(row_major({2, 3, 4}), (Strides{12, 4, 1}));
  EXPECT_EQ(row_major({}), Strides{});
  EXPECT_EQ(row_major({2, 0, 4}), (Strides{4, 4, 1}));
}

TEST(Shape, BroadcastsAsNumPy) {
  EXPECT_EQ(broadcast_shapes({}, {3}), (Shape{3}));
  EXPECT_EQ(broadcast_shapes({2, 1, 5}, {4, 1}), (Shape{2, 4, 5}));
  EXPECT_EQ(broadcast_shapes({0}, {1}), (Shape{0}));
  EXPECT_EQ(broadcast_shapes({1}, {0}), (Shape{0}));
  EXPECT_EQ(broadcast_shapes({3, 1}, {1, 0}), (Shape{3, 0}));
  EXPECT_EQ(broadcast_shapes({5}, {2, 3, 1}), (Shape{2, 3, 5}));
  EXPECT_EQ(error_of([] {
              broadcast_shapes({2, 3}, {2, 4}, "add");
            }),
            "add: the shapes (2, 3) and (2, 4) do not broadcast: axes must be equal or 1, counted "
            "from the last");
  EXPECT_NE(error_of([] { broadcast_shapes({0}, {2}); }), "no error");
}

TEST(Shape, NormalizeAxis) {
  EXPECT_EQ(normalize_axis(-1, 3, "sum"), 2);
  EXPECT_EQ(normalize_axis(2, 3, "sum"), 2);
  EXPECT_EQ(error_of([] { normalize_axis(3, 3, "sum"); }),
            "sum: got the axis 3 for a tensor of rank 3");
  EXPECT_EQ(error_of([] { normalize_axis(-4, 3, "sum"); }),
            "sum: got the axis -4 for a tensor of rank 3");
  EXPECT_EQ(error_of([] { normalize_axis(0, 0, "sum"); }),
            "sum: got the axis 0 for a tensor of rank 0 (it has none)");
}

}  // namespace
}  // namespace tensor
