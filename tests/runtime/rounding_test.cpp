#include "src/runtime/rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tensor/tensor.h"

namespace tensor {
namespace {

// So many that several threads look at them; one element differs, wherever it is and however the
// axes lie.
TEST(Rounding, OneElementOfManyIsFound) {
  Generator random(7);
  const Tensor expected = random.normal({3, 700, 1100}, 0, 1, f16);
  for (const Ints& place : {Ints{0, 0, 0}, {1, 350, 550}, {2, 699, 1099}, {0, 699, 0}}) {
    const Tensor got = expected.copy();
    got(place[0], place[1], place[2]) = full({}, 100, f16);
    const double difference = 100 - expected(place[0], place[1], place[2]).item<double>();
    EXPECT_EQ(largest_difference(got, expected), difference);
    EXPECT_EQ(largest_difference(transpose(got, {2, 0, 1}), transpose(expected, {2, 0, 1})),
              difference);
    EXPECT_EQ(largest_magnitude(got), 100);
  }
  EXPECT_EQ(largest_difference(expected, expected.copy()), 0);
  EXPECT_EQ(largest_difference(expected, expected), 0);
}

TEST(Rounding, NanIsFarFromNumbersAndLikeItself) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor number = array({1.0, 2.0}), one = array({1.0, nan});
  EXPECT_TRUE(std::isinf(largest_difference(one, number)));
  EXPECT_EQ(largest_difference(one, one.copy()), 0);
  EXPECT_EQ(largest_magnitude(one), 1);
}

TEST(Rounding, NothingDoesNotDiffer) {
  EXPECT_EQ(largest_difference(zeros({0, 3}), zeros({0, 3})), 0);
  EXPECT_EQ(largest_magnitude(zeros({0, 3})), 0);
  EXPECT_EQ(largest_magnitude(array({-3.0})), 3);
}

}  // namespace
}  // namespace tensor
