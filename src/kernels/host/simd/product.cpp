// Small matrix products: a few rows at a time, accumulated in registers over the whole depth. The
// operands come in words: a float, or two neighbours of the depth in bf16.
#include "parts.h"
#include "words.h"

namespace tensor::simd::TENSOR_SIMD_ISA {
namespace {

// Rows of a tile: with two vectors a row, the accumulators fill the register file but for the
// vectors of b and one of a.
constexpr int kTileRows = kLanes == 16 ? 12 : 6;

// to[rows, vectors] = scale * to + times * a[rows, depth] * b[depth, vectors]; scale nullptr: no
// `to` on the right.
template <class Words, int rows, int vectors>
[[gnu::flatten]] void tile(const float* a, std::int64_t a_row, const float* b, std::int64_t depth,
                           float times, float* to, std::int64_t to_row, const float* scale) {
  Floats sum[rows * vectors] = {};
  for (std::int64_t k = 0; k < depth; ++k, b += vectors * kLanes) {
    Floats right[vectors];
    unroll<vectors>([&](int v) TENSOR_INLINED { right[v] = load(b + v * kLanes); });
    unroll<rows>([&](int r) TENSOR_INLINED {
      const auto left = load_as<std::int32_t>(a + r * a_row + k);
      unroll<vectors>([&](int v) TENSOR_INLINED {
        sum[r * vectors + v] = Words::add(sum[r * vectors + v], left, right[v]);
      });
    });
  }
  unroll<rows * vectors>([&](int i) TENSOR_INLINED { sum[i] *= times; });
  const auto place = [&](int i) TENSOR_INLINED {
    return to + i / vectors * to_row + i % vectors * kLanes;
  };
  if (scale)
    unroll<rows * vectors>(
        [&](int i) TENSOR_INLINED { sum[i] += splat(scale[i / vectors]) * load(place(i)); });
  unroll<rows * vectors>([&](int i) TENSOR_INLINED { store(place(i), sum[i]); });
}

using TileRun = void (*)(const float*, std::int64_t, const float*, std::int64_t, float, float*,
                         std::int64_t, const float*);
template <class Words, int vectors, int... rows>
struct Tiles {
  static constexpr TileRun of[] = {nullptr, tile<Words, rows, vectors>...};
};

template <class Words>
TileRun tile_of(int rows, int vectors) {
  using One = Tiles<Words, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12>;
  using Two = Tiles<Words, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12>;
  return vectors == 1 ? One::of[rows] : Two::of[rows];
}

template <class Words>
void product(const float* a, std::int64_t a_row, std::int64_t rows, const float* panels,
             std::int64_t panel_depth, std::int64_t depth, std::int64_t vectors, float times,
             float* to, std::int64_t to_row, const float* scale) {
  // Tiles of nearly equal height.
  const std::int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  for (std::int64_t v = 0; v < vectors; v += 2) {
    const int width = vectors - v < 2 ? 1 : 2;
    const float* b = panels + v * kLanes * panel_depth;
    for (std::int64_t t = 0, row = 0; t < tiles; ++t) {
      const std::int64_t end = rows * (t + 1) / tiles;
      tile_of<Words>(static_cast<int>(end - row), width)(a + row * a_row, a_row, b, depth, times,
                                                         to + row * to_row + v * kLanes, to_row,
                                                         scale ? scale + row : nullptr);
      row = end;
    }
  }
}

}  // namespace

void fill_products(Table& table) {
  table.product = product<Singles>;
#if defined(__AVX512BF16__)
  table.product_pairs = product<Pairs>;
#endif
}

}  // namespace tensor::simd::TENSOR_SIMD_ISA
