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

// Files may hold anything: no name is so long, and no list so full, that looking takes long.
TEST(Closest, LooksAtNoMoreThanIsSensible) {
  EXPECT_EQ(closest(std::string(300, 'x'), {"x"}), "");
  EXPECT_EQ(closest(std::string(200, 'x') + "y", {"y"}), "");
  const std::string huge(100'000'000, 'x');
  EXPECT_EQ(closest("softmax", {huge, "softmix"}), "softmix");
  std::vector<std::string> words;
  for (int i = 0; i < 999; ++i) words.push_back("word" + std::to_string(1000 + i));
  std::vector<std::string_view> names(words.begin(), words.end());
  names.push_back("softmix");
  EXPECT_EQ(closest("softmax", names), "softmix");  // the 1000th whose length fits
  names.insert(names.begin(), 10, "wordless");
  EXPECT_EQ(closest("softmax", names), "");
}

}  // namespace
}  // namespace tensor
