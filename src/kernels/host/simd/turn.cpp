// Rows that become columns, and rows that are collected.
#include "parts.h"
#include "vector.h"

namespace tensor::simd::TENSOR_SIMD_ISA {
namespace {

typedef float Quad __attribute__((vector_size(16)));

Quad load_quad(const float* p) { return load_as<Quad>(p); }
void store_quad(float* p, Quad v) { std::memcpy(p, &v, sizeof v); }

// to[j * to_row + i] = from[i * from_row + j], 4 x 4.
void transpose_quad(float* to, std::int64_t to_row, const float* from, std::int64_t from_row) {
  const Quad a = load_quad(from), b = load_quad(from + from_row),
             c = load_quad(from + 2 * from_row), d = load_quad(from + 3 * from_row);
  const Quad ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5),
             ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7),
             cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5),
             cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  store_quad(to, __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5));
  store_quad(to + to_row, __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7));
  store_quad(to + 2 * to_row, __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5));
  store_quad(to + 3 * to_row, __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7));
}

// Three rows that become columns, as the planes of a picture: each store of four is one too many,
// which the next one overwrites. Returns their number.
std::int64_t turn_three(float* to, const float* rows, std::int64_t from_row, std::int64_t columns) {
  std::int64_t k = 0;
  for (; k + 4 < columns; k += 4) {
    const float* from = rows + k;
    const Quad a = load_quad(from), b = load_quad(from + from_row),
               c = load_quad(from + 2 * from_row);
    const Quad ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5),
               ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    float* const at = to + 3 * k;
    store_quad(at, __builtin_shufflevector(ab_low, c, 0, 1, 4, 4));
    store_quad(at + 3, __builtin_shufflevector(ab_low, c, 2, 3, 5, 5));
    store_quad(at + 6, __builtin_shufflevector(ab_high, c, 0, 1, 6, 6));
    store_quad(at + 9, __builtin_shufflevector(ab_high, c, 2, 3, 7, 7));
  }
  for (; k < columns; ++k)
    for (int j = 0; j < 3; ++j) to[3 * k + j] = rows[j * from_row + k];
  return 3;
}

// A line of the cache.
constexpr std::int64_t kLine = 16;

}  // namespace

// to[k * to_row + i] = from[i * from_row + k]. Of the side whose rows are farther apart, which may
// meet in the same lines of the cache, four are touched at a time, and each line once.
void turn(float* to, std::int64_t to_row, const float* from, std::int64_t from_row,
          std::int64_t rows, std::int64_t columns) {
  std::int64_t i = 0, k = 0;
  const std::int64_t whole_rows = rows / 4 * 4, whole_columns = columns / 4 * 4;
  const auto quad = [&] {
    transpose_quad(to + k * to_row + i, to_row, from + i * from_row + k, from_row);
  };
  const auto end_of = [](std::int64_t begin, std::int64_t all) {
    return begin + kLine < all ? begin + kLine : all;
  };
  if (from_row >= to_row) {
    for (std::int64_t line = 0; line < whole_columns; line += kLine)
      for (i = 0; i < whole_rows; i += 4)
        for (k = line; k < end_of(line, whole_columns); k += 4) quad();
  } else {
    for (std::int64_t line = 0; line < whole_rows; line += kLine)
      for (k = 0; k < whole_columns; k += 4)
        for (i = line; i < end_of(line, whole_rows); i += 4) quad();
  }
  for (k = whole_columns; k < columns; ++k)
    for (i = 0; i < whole_rows; ++i) to[k * to_row + i] = from[i * from_row + k];
  i = whole_rows;
  if (rows == 3 && to_row == 3) i = turn_three(to, from, from_row, columns);
  for (; i < rows; ++i)
    for (k = 0; k < columns; ++k) to[k * to_row + i] = from[i * from_row + k];
}

namespace {

void pack_columns(float* panel, std::int64_t width, const float* rows, std::int64_t row_stride,
                  std::int64_t count, std::int64_t depth) {
  turn(panel, width, rows, row_stride, count, depth);
  for (std::int64_t i = count; i < width; ++i)
    for (std::int64_t k = 0; k < depth; ++k) panel[k * width + i] = 0.0f;
}

// Each number so many times, as often as a picture has channels.
template <int columns>
void repeat(float* to, const float* from, std::int64_t rows, std::int64_t row) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) to[r * columns + c] = from[r * row];
}

void collect(float* to, const float* from, std::int64_t rows, std::int64_t row,
             std::int64_t columns, std::int64_t column) {
  if (row == 1 && column != 1 && column != 0) return turn(to, columns, from, column, columns, rows);
  if (column == 0 && columns == 2) return repeat<2>(to, from, rows, row);
  if (column == 0 && columns == 3) return repeat<3>(to, from, rows, row);
  for (std::int64_t r = 0; r < rows; ++r, from += row, to += columns) {
    if (column == 1)
      for (std::int64_t c = 0; c < columns; ++c) to[c] = from[c];
    else if (column == 0)
      for (std::int64_t c = 0; c < columns; ++c) to[c] = *from;
    else
      for (std::int64_t c = 0; c < columns; ++c) to[c] = from[c * column];
  }
}

}  // namespace

void fill_turns(Table& table) {
  table.turn = turn;
  table.pack_columns = pack_columns;
  table.collect = collect;
}

}  // namespace tensor::simd::TENSOR_SIMD_ISA
