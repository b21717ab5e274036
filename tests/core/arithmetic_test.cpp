// Small algorithms that have one home: rounding, the median, checksums.
#include <gtest/gtest.h>

#include <vector>

#include "src/core/checksum.h"
#include "src/core/median.h"
#include "src/core/rounding.h"

namespace tensor {
namespace {

TEST(Rounding, RoundsUpwards) {
  for (std::int64_t n = 0; n < 40; ++n)
    for (std::int64_t by = 1; by < 20; ++by) {
      std::int64_t pieces = 0;
      while (pieces * by < n) ++pieces;
      EXPECT_EQ(ceil_div(n, by), pieces) << n << " by " << by;
      EXPECT_EQ(round_up(n, by), pieces * by) << n << " by " << by;
    }
}

TEST(Median, IsTheMiddle) {
  EXPECT_EQ(median(std::vector<double>{3}), 3);
  EXPECT_EQ(median(std::vector<double>{9, 1, 5}), 5);
  EXPECT_EQ(median(std::vector<double>{4, 1, 10, 2}), 3);
}

// The check values that are published with the algorithms: files and their names depend on them.
TEST(Checksum, IsCrc32) {
  EXPECT_EQ(crc32_digits("123456789"), "cbf43926");
  EXPECT_EQ(crc32_digits(""), "00000000");
}

TEST(Hash, IsFnv1a) {
  EXPECT_EQ(hash_of(""), 0xcbf29ce484222325u);
  EXPECT_EQ(hash_of("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(hash_of("foobar"), 0x85944171f73967e8u);
  EXPECT_EQ(hash_of("bar", hash_of("foo")), hash_of("foobar"));
}

}  // namespace
}  // namespace tensor
