// Products with few columns: a strip of them would leave most lanes idle, so lanes lie along
// k, and each sum is folded at its end.
#include "parts.h"
#include "vector.h"

namespace tensor::simd::TENSOR_SIMD_ISA {
namespace {

constexpr int kRegisters = kLanes == 16 ? 32 : 16;
constexpr int kMostColumns = kLanes / 2, kMostRows = 8;
// The sums, a vector of each column, and one of a row.
constexpr int rows_of(int columns) {
  const int fitting = (kRegisters - columns - 1) / columns;
  return fitting < kMostRows ? fitting : kMostRows;
}

// What follows the sums of a row, which are the first lanes.
void finish(const StripProduct& p, std::int64_t row, std::int64_t columns, Floats sums) {
  float* const to = p.to + row * p.to_row;
  const auto add = [&](const float* from) { sums += load_part(from, columns); };
  if (p.first) add(p.first);
  if (p.add && !p.adds_last) add(p.add + row * p.add_row);
  if (p.goes_on) add(to);
  sums = bounded(sums, p.bounds);
  if (p.scales) sums = sums * load_part(p.scales, columns) + load_part(p.shifts, columns);
  if (p.add && p.adds_last) add(p.add + row * p.add_row);
  for (std::int64_t at = 0; at < p.columns; at += kLanes, sums = Floats{}) {
    if (p.columns - at < kLanes)
      store_part(to + at, sums, p.columns - at);
    else
      store(to + at, sums);
  }
}

template <int rows, int columns>
[[gnu::flatten]] void sum(const StripProduct& p, std::int64_t row) {
  const std::int64_t a_row = p.a_row_bytes / 4, b_column = p.column_words;
  const float* a = static_cast<const float*>(p.a) + row * a_row;
  const float* b = p.strips;
  Floats sums[rows * columns] = {};
  const auto step = [&](auto&& loaded) TENSOR_INLINED {
    Floats right[columns];
    unroll<columns>([&](int c) TENSOR_INLINED { right[c] = loaded(b + c * b_column); });
    unroll<rows>([&](int r) TENSOR_INLINED {
      const Floats left = loaded(a + r * a_row);
      unroll<columns>([&](int c) TENSOR_INLINED { sums[r * columns + c] += left * right[c]; });
    });
  };
  for (std::int64_t part = p.parts; part > 0; --part, a += p.next_part - p.k) {
    std::int64_t left = p.k;
    for (; left >= kLanes; left -= kLanes, a += kLanes, b += kLanes)
      step([](const float* at) TENSOR_INLINED { return load(at); });
    if (left > 0) step([&](const float* at) TENSOR_INLINED { return load_part(at, left); });
    a += left, b += left;
  }
  unroll<rows>([&](int r) TENSOR_INLINED {
    Floats folds = {};
    unroll<columns>([&](int c) TENSOR_INLINED {
      folds[c] = folded(sums[r * columns + c], [](Floats x, Floats y) { return x + y; })[0];
    });
    finish(p, row + r, columns, folds);
  });
}

using Sum = void (*)(const StripProduct&, std::int64_t);

// All rows, in tiles of nearly equal height.
template <int columns, int... fewer>
void sum_all(const StripProduct& p) {
  constexpr int kRows = rows_of(columns);
  constexpr Sum sums[] = {sum<(fewer < kRows ? fewer : 0) + 1, columns>...};
  const std::int64_t tiles = (p.rows + kRows - 1) / kRows;
  for (std::int64_t tile = 0, row = 0; tile < tiles; ++tile) {
    const std::int64_t end = p.rows * (tile + 1) / tiles;
    sums[end - row - 1](p, row);
    row = end;
  }
}

template <int... fewer>
void multiply(const StripProduct& p) {
  using Run = void (*)(const StripProduct&);
  constexpr Run of[] = {sum_all<(fewer < kMostColumns ? fewer : 0) + 1, 0, 1, 2, 3, 4, 5, 6, 7>...};
  of[p.strip_words / p.column_words - 1](p);
}

}  // namespace

void fill_dots(Table& table) {
  table.multiply_few = multiply<0, 1, 2, 3, 4, 5, 6, 7>;
  table.few_columns = kMostColumns;
}

}  // namespace tensor::simd::TENSOR_SIMD_ISA
