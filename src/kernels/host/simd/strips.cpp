// Large matrix products: the right factor in strips of 16 columns, the sums of a few rows by one or
// two strips in registers over a part of the depth whose strips stay in the first-level cache
// (Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication).
#include "parts.h"
#include "words.h"

namespace tensor::simd::TENSOR_SIMD_ISA {
namespace {

constexpr std::int64_t kStrip = 16;  // columns
constexpr int kStripVectors = 16 / kLanes;
// The sums fill the register file but for what is multiplied: two vectors a row and 6 or 12 rows,
// or, of narrow vectors, four and 3.
constexpr int kStrips = kLanes == 16 ? 2 : 1;
constexpr int kTileRows = kLanes == 16 ? 12 : kLanes == 8 ? 6 : 3;
constexpr std::int64_t kDepthBytes = 16 << 10;  // of the strips of a part of the depth

// What the sums begin with: numbers of these rows, or the same for all of them.
struct Start {
  const float* at;  // nullptr: zeros
  std::int64_t row;
};

// `a` and `b` begin at the first word of `depth` ones. Flattened, because a lambda that is called
// keeps its captures in memory.
template <class Words, int rows, int strips>
[[gnu::flatten]] void sum(const float* a, std::int64_t a_row, const float* b,
                          std::int64_t strip_words, std::int64_t depth, Start start, float* to,
                          std::int64_t to_row) {
  constexpr int vectors = strips * kStripVectors;
  Floats sums[rows * vectors] = {};
  if (start.at)
    unroll<rows * vectors>(
        [&](int i) { sums[i] = load(start.at + i / vectors * start.row + i % vectors * kLanes); });
  for (std::int64_t k = 0; k < depth; ++k, ++a, b += kStrip) {
    Floats right[vectors];
    unroll<vectors>([&](int v) {
      right[v] = load(b + v / kStripVectors * strip_words + v % kStripVectors * kLanes);
    });
    unroll<rows>([&](int r) {
      const auto left = load_as<std::int32_t>(a + r * a_row);
      unroll<vectors>([&](int v) {
        sums[r * vectors + v] = Words::add(sums[r * vectors + v], left, right[v]);
      });
    });
  }
  unroll<rows * vectors>(
      [&](int i) { store(to + i / vectors * to_row + i % vectors * kLanes, sums[i]); });
}

using Sum = void (*)(const float*, std::int64_t, const float*, std::int64_t, std::int64_t, Start,
                     float*, std::int64_t);
template <class Words, int strips, int... rows>
struct Sums {
  static constexpr Sum of[] = {nullptr, sum<Words, rows, strips>...};
};
template <class Words, int strips>
Sum sum_of(std::int64_t rows) {
  if constexpr (kTileRows == 12)
    return Sums<Words, strips, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12>::of[rows];
  else if constexpr (kTileRows == 6)
    return Sums<Words, strips, 1, 2, 3, 4, 5, 6>::of[rows];
  else
    return Sums<Words, strips, 1, 2, 3>::of[rows];
}

template <class Words>
void multiply(const StripProduct& p) {
  const auto* a = static_cast<const float*>(p.a);
  const std::int64_t a_row = p.a_row_bytes / 4;
  const std::int64_t most = kDepthBytes / (kStrips * kStrip * 4);
  // Parts of the depth, and tiles of rows, of nearly equal size.
  const std::int64_t parts = (p.depth + most - 1) / most;
  const std::int64_t tiles = (p.rows + kTileRows - 1) / kTileRows;
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t begin = p.depth * part / parts, end = p.depth * (part + 1) / parts;
    for (std::int64_t strip = 0; strip < p.strip_count; strip += kStrips) {
      const bool is_whole = strip + kStrips <= p.strip_count;
      const float* b = p.strips + strip * p.strip_words + begin * kStrip;
      for (std::int64_t tile = 0, row = 0; tile < tiles; ++tile) {
        const std::int64_t next = p.rows * (tile + 1) / tiles;
        float* to = p.to + row * p.to_row + strip * kStrip;
        const Start start = part > 0  ? Start{to, p.to_row}
                            : p.first ? Start{p.first + strip * kStrip, 0}
                                      : Start{nullptr, 0};
        (is_whole ? sum_of<Words, kStrips>(next - row) : sum_of<Words, 1>(next - row))(
            a + row * a_row + begin, a_row, b, p.strip_words, end - begin, start, to, p.to_row);
        row = next;
      }
    }
  }
}

}  // namespace

void fill_strips(Table& table) {
  table.multiply = multiply<Singles>;
#if defined(__AVX512BF16__)
  table.multiply_pairs = multiply<Pairs>;
#endif
}

}  // namespace tensor::simd::TENSOR_SIMD_ISA
