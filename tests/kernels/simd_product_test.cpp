// The small products of attention, of every instruction set this processor has: on whole numbers,
// where every sum is exact whatever its order.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "src/kernels/host/simd/table.h"
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

void check_product(const Table& table, Table::Product product, bool in_pairs) {
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
      ASSERT_NO_FATAL_FAILURE(check_product(*table, table->product, false));
      if (!table->product_pairs) continue;
      ASSERT_NO_FATAL_FAILURE(check_product(*table, table->product_pairs, true));
    }
}

TEST(SimdProducts, TilesAreExactOnWholeNumbers) {
  if (!has_tiles()) GTEST_SKIP() << "this processor has no tile instructions for bf16 (AMX)";
  for (int round = 0; round < 500; ++round)
    ASSERT_NO_FATAL_FAILURE(check_product(table(), table().product_tiles, true));
}

// Every element comes once, and nothing else is written.
TEST(SimdProducts, TurnedAndCollectedRows) {
  int count;
  const Table* const* first = tables(&count);
  for (const Table* table : std::vector(first, first + count))
    for (int round = 0; round < 300; ++round) {
      const std::int64_t rows = from_one_to(40), columns = from_one_to(40);
      const std::int64_t from_row = columns + pick(30), to_row = rows + pick(30);
      std::vector<float> from(static_cast<std::size_t>(rows * from_row)), turned, collected;
      for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
      turned.assign(static_cast<std::size_t>(columns * to_row), -1);
      collected.assign(static_cast<std::size_t>(rows * columns + 16), -1);
      table->turn(turned.data(), to_row, from.data(), from_row, rows, columns);
      for (std::int64_t i = 0; i < columns * to_row; ++i) {
        const std::int64_t row = i % to_row, column = i / to_row;
        ASSERT_EQ(turned[static_cast<std::size_t>(i)],
                  row < rows ? static_cast<float>(row * from_row + column) : -1)
            << table->name << ' ' << rows << " x " << columns;
      }
      // Rows of a matrix, its columns, or one number again and again.
      const int kind = pick(3);
      const std::int64_t row = kind == 0 ? from_row : 1, column = kind == 0   ? 1
                                                                  : kind == 1 ? rows
                                                                              : 0;
      if (kind == 1) from.resize(static_cast<std::size_t>(rows * columns));
      for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
      table->collect(collected.data(), from.data(), rows, row, columns, column);
      for (std::int64_t i = 0; i < rows * columns + 16; ++i)
        ASSERT_EQ(
            collected[static_cast<std::size_t>(i)],
            i < rows * columns ? static_cast<float>(i / columns * row + i % columns * column) : -1)
            << table->name << ' ' << rows << " x " << columns << ", kind " << kind;
    }
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

// A row of `numbers` in tiles of so many columns, as attention goes through it.
struct Softened {
  std::vector<double> weights;  // as if all had been softened with the last top
  double total = 0;
};
Softened soften_in_tiles(const Table& table, const std::vector<float>& numbers,
                         std::int64_t columns) {
  Softened result;
  float top = -INFINITY, total = 0, factor = 0;
  const auto count = static_cast<std::int64_t>(numbers.size());
  for (std::int64_t begin = 0; begin < count; begin += columns) {
    const std::int64_t n = std::min(columns, count - begin),
                       padded = (n + table.lanes - 1) / table.lanes * table.lanes;
    std::vector<float> tile(static_cast<std::size_t>(padded), std::nanf(""));
    std::copy_n(numbers.begin() + begin, n, tile.begin());
    table.soften(tile.data(), 1, n, padded, &top, &total, &factor);
    for (double& weight : result.weights) weight *= static_cast<double>(factor);
    for (std::int64_t i = 0; i < padded; ++i) {
      const float weight = tile[static_cast<std::size_t>(i)];
      if (i < n) result.weights.push_back(static_cast<double>(weight));
      EXPECT_TRUE(i < n || weight == 0 || std::isnan(total)) << table.name << " column " << i;
    }
  }
  result.total = static_cast<double>(total);
  return result;
}

// A quotient of a weight and the total is off by the roundings of a number in powers of 2 before
// it is reduced, of the exponential (2 ulp), of the factors of earlier tiles, and of the sum.
TEST(SimdProducts, WeightsOfManyTilesAreASoftmax) {
  int count;
  const Table* const* first = tables(&count);
  for (const Table* table : std::vector(first, first + count))
    for (int round = 0; round < 300; ++round) {
      const std::int64_t columns = from_one_to(70);
      std::vector<float> numbers(static_cast<std::size_t>(from_one_to(200)));
      const float reach = round % 3 ? 3.0f : 300.0f;
      for (float& x : numbers) x = reach * 0.1f * (digit() + 0.1f * digit());
      if (round % 4 == 0) numbers[numbers.size() / 2] = -INFINITY;
      const double top = static_cast<double>(*std::max_element(numbers.begin(), numbers.end()));
      if (std::isinf(top)) continue;
      double sum = 0, largest = 0;
      for (const float x : numbers) {
        sum += std::exp(static_cast<double>(x) - top);
        if (std::isfinite(x)) largest = std::max(largest, std::abs(static_cast<double>(x)));
      }
      const auto tiles = static_cast<double>(numbers.size()) / static_cast<double>(columns) + 1;
      const double eps = 0x1p-24 * (2 * largest * 1.45 + 6) * tiles +
                         0x1p-24 * static_cast<double>(columns / table->lanes + 5);
      const Softened got = soften_in_tiles(*table, numbers, columns);
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const double need = std::exp(static_cast<double>(numbers[i]) - top) / sum;
        ASSERT_NEAR(got.weights[i] / got.total, need, 2 * eps * need + 0x1p-126)
            << table->name << ' ' << i << " of " << numbers.size() << " in tiles of " << columns;
      }
    }
}

TEST(SimdProducts, WeightsOfSpecialNumbers) {
  int count;
  const Table* const* first = tables(&count);
  for (const Table* table : std::vector(first, first + count))
    for (const std::int64_t columns : {3, 16, 19, 40})
      for (const std::size_t place : {0, 7, 39}) {
        std::vector<float> numbers(40, -INFINITY);
        EXPECT_EQ(soften_in_tiles(*table, numbers, columns).total, 0) << "nothing but -inf";
        numbers[place] = -5;
        const Softened one = soften_in_tiles(*table, numbers, columns);
        for (std::size_t i = 0; i < 40; ++i)
          EXPECT_NEAR(one.weights[i] / one.total, i == place ? 1 : 0, 1e-6) << table->name;
        std::fill(numbers.begin(), numbers.end(), 1.0f);
        for (const float special : {std::nanf(""), INFINITY}) {
          numbers[place] = special;
          EXPECT_TRUE(std::isnan(soften_in_tiles(*table, numbers, columns).total))
              << table->name << ' ' << special << " at " << place << " in tiles of " << columns;
        }
      }
}

}  // namespace
