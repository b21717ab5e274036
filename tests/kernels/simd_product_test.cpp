// The small products of attention, of every instruction set this processor has: on whole numbers,
// where every sum is exact whatever its order.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "src/kernels/cpu/simd/table.h"
#include "tests/kernels/group_testing.h"

using namespace tensor::simd;
using tensor::testing::pick;

namespace {

std::int64_t from_one_to(int n) { return 1 + pick(n); }
float digit() { return static_cast<float>(pick(9) - 4); }

// A matrix of words in float32 or, in pairs, in bf16.
struct Words {
  std::int64_t rows, depth;     // depth in words
  std::vector<double> numbers;  // [rows, depth * per_word]
  std::vector<float> words;
};

Words any_words(std::int64_t rows, std::int64_t depth, bool in_pairs) {
  Words m{rows, depth, {}, {}};
  for (std::int64_t i = 0; i < rows * depth; ++i) {
    const float low = digit(), high = digit();
    m.numbers.push_back(low);
    if (in_pairs) m.numbers.push_back(high);
    const auto bits = std::bit_cast<std::uint32_t>(low) >> 16 |
                      (std::bit_cast<std::uint32_t>(high) & 0xffff0000u);
    m.words.push_back(in_pairs ? std::bit_cast<float>(bits) : low);
  }
  return m;
}

void check(const Table& table, Table::Product product, bool in_pairs) {
  const float nan = std::nanf("");
  const std::int64_t lanes = table.lanes, per_word = in_pairs ? 2 : 1;
  const std::int64_t rows = from_one_to(50), depth = from_one_to(45), vectors = from_one_to(5);
  const std::int64_t columns = from_one_to(static_cast<int>(vectors * lanes));
  const std::int64_t used = (columns + lanes - 1) / lanes, skipped = from_one_to(3) - 1;
  const Words a = any_words(rows, depth, in_pairs), b = any_words(columns, depth, in_pairs);
  // Panels have rows that are not used before and after those that are.
  const std::int64_t panel_depth = depth + skipped;
  std::vector<float> panels(static_cast<std::size_t>(used * lanes * panel_depth), nan);
  for (std::int64_t c = 0; c < columns; c += 2 * lanes) {
    const std::int64_t width = columns - c > lanes ? 2 * lanes : lanes;
    table.pack_columns(panels.data() + c * panel_depth, width, b.words.data() + c * depth, depth,
                       std::min(columns - c, width), depth);
  }
  const std::int64_t pitch = used * lanes + 3;
  std::vector<float> to(static_cast<std::size_t>(rows * pitch), nan), scale;
  const bool adds = pick(2) == 0;
  const auto at = [&](std::int64_t row, std::int64_t column) -> float& {
    return to[static_cast<std::size_t>(row * pitch + column)];
  };
  if (adds)
    for (std::int64_t row = 0; row < rows; ++row) {
      scale.push_back(digit());
      for (std::int64_t column = 0; column < used * lanes; ++column) at(row, column) = digit();
    }
  const std::vector<float> before = to;
  const float times = digit();
  product(a.words.data(), depth, rows, panels.data(), panel_depth, depth, used, times, to.data(),
          pitch, adds ? scale.data() : nullptr);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < pitch; ++column) {
      const float got = at(row, column);
      if (column >= used * lanes) {
        ASSERT_TRUE(std::isnan(got)) << "beyond the result";
        continue;
      }
      double sum = 0;
      if (column < columns)
        for (std::int64_t k = 0; k < depth * per_word; ++k)
          sum += a.numbers[static_cast<std::size_t>(row * depth * per_word + k)] *
                 b.numbers[static_cast<std::size_t>(column * depth * per_word + k)];
      const auto i = static_cast<std::size_t>(row * pitch + column);
      const double need =
          times * sum + (adds ? scale[static_cast<std::size_t>(row)] * before[i] : 0.0f);
      ASSERT_EQ(got, need) << table.name << " row " << row << " of " << rows << ", column "
                           << column << " of " << columns << ", depth " << depth;
    }
}

TEST(SimdProducts, AreExactOnWholeNumbers) {
  int count;
  const Table* const* first = tables(&count);
  for (const Table* table : std::vector(first, first + count))
    for (int round = 0; round < 300; ++round) {
      ASSERT_NO_FATAL_FAILURE(check(*table, table->product, false));
      if (!table->product_pairs) continue;
      ASSERT_NO_FATAL_FAILURE(check(*table, table->product_pairs, true));
    }
}

TEST(SimdProducts, TilesAreExactOnWholeNumbers) {
  if (!has_tiles()) GTEST_SKIP() << "this processor has no tile instructions for bf16 (AMX)";
  for (int round = 0; round < 500; ++round)
    ASSERT_NO_FATAL_FAILURE(check(table(), table().product_tiles, true));
}

// Rows of weights: what is rounded to bf16 must be the float32 weights rounded, and nothing else
// may differ.
TEST(SimdProducts, WeightsInPairsAreTheOthersRounded) {
  int count;
  const Table* const* first = tables(&count);
  for (const Table* table : std::vector(first, first + count))
    for (int round = 0; round < 50; ++round) {
      const std::int64_t rows = from_one_to(5), columns = from_one_to(100);
      const std::int64_t padded = (columns + table->lanes - 1) / table->lanes * table->lanes;
      std::vector<float> wide(static_cast<std::size_t>(rows * padded), std::nanf(""));
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < columns; ++c)
          wide[static_cast<std::size_t>(r * padded + c)] = digit() + 0.1f * digit();
      std::vector<float> narrow = wide;
      const auto n = static_cast<std::size_t>(rows);
      std::vector<float> top(n, -INFINITY), total(n, 0), factor(n);
      std::vector<float> other_top = top, other_total = total, other_factor = factor;
      table->soften(wide.data(), rows, columns, padded, top.data(), total.data(), factor.data());
      table->soften_pairs(narrow.data(), rows, columns, padded, other_top.data(),
                          other_total.data(), other_factor.data());
      EXPECT_EQ(top, other_top);
      EXPECT_EQ(total, other_total);
      EXPECT_EQ(factor, other_factor);
      std::vector<std::uint16_t> rounded(static_cast<std::size_t>(padded));
      for (std::int64_t r = 0; r < rows; ++r) {
        table->store[static_cast<int>(Storage::bf16)](rounded.data(), 1, wide.data() + r * padded,
                                                      padded);
        const auto* got = reinterpret_cast<const unsigned char*>(narrow.data() + r * padded);
        ASSERT_EQ(std::memcmp(got, rounded.data(), rounded.size() * 2), 0) << table->name;
      }
    }
}

}  // namespace
