// "Did you mean".
#include "src/core/closest.h"

#include <gtest/gtest.h>

namespace tensor {
namespace {

TEST(Closest, FindsTheNearestName) {
  const std::vector<std::string_view> names = {"softmax", "log_softmax", "matmul", "max"};
  EXPECT_EQ(closest("sofmax", names), "softmax");
  EXPECT_EQ(closest("matmull", names), "matmul");
  EXPECT_EQ(closest("mx", names), "max");
  EXPECT_EQ(closest("softmax", names), "softmax");
}

TEST(Closest, GivesNothingWhenAllAreFar) {
  EXPECT_EQ(closest("conv2d", {"softmax", "matmul"}), "");
  EXPECT_EQ(closest("conv2d", {}), "");
  EXPECT_EQ(did_you_mean("conv2d", {"softmax"}), "");
  EXPECT_EQ(did_you_mean("sofmax", {"softmax"}), "; did you mean \"softmax\"?");
}

// A third of the name may differ, one letter at least.
TEST(Closest, Threshold) {
  EXPECT_EQ(closest("abcdef", {"abcdxy"}), "abcdxy");
  EXPECT_EQ(closest("abcdef", {"abcxyz"}), "");
  EXPECT_EQ(closest("a", {"b"}), "b");
  EXPECT_EQ(closest("ab", {"ac", "ab"}), "ab");
}

}  // namespace
}  // namespace tensor
