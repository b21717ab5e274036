// Small matrix products: a few rows at a time, accumulated in registers over the whole depth.
#include "parts.h"
#include "vector.h"

namespace tensor::simd::TENSOR_SIMD_ISA {
namespace {

// Rows of a tile: with two vectors a row, the accumulators fill the register file but for the
// vectors of b and one of a.
constexpr int kTileRows = kLanes == 16 ? 12 : 6;

// to[rows, vectors] = scale * to + a[rows, depth] * b[depth, vectors]; scale nullptr: no `to`.
template <int rows, int vectors>
void tile(const float* a, std::int64_t a_row, const float* b, std::int64_t depth, float* to,
          std::int64_t to_row, const float* scale) {
  Floats sum[rows * vectors] = {};
  if (scale)
    unroll<rows * vectors>([&](int i) {
      sum[i] = splat(scale[i / vectors]) * load(to + i / vectors * to_row + i % vectors * kLanes);
    });
  for (std::int64_t k = 0; k < depth; ++k, b += vectors * kLanes) {
    Floats right[vectors];
    unroll<vectors>([&](int v) { right[v] = load(b + v * kLanes); });
    unroll<rows>([&](int r) {
      const Floats left = splat(a[r * a_row + k]);
      unroll<vectors>([&](int v) { sum[r * vectors + v] += left * right[v]; });
    });
  }
  unroll<rows * vectors>(
      [&](int i) { store(to + i / vectors * to_row + i % vectors * kLanes, sum[i]); });
}

using TileRun = void (*)(const float*, std::int64_t, const float*, std::int64_t, float*,
                         std::int64_t, const float*);
template <int vectors, int... rows>
struct Tiles {
  static constexpr TileRun of[] = {nullptr, tile<rows, vectors>...};
};

TileRun tile_of(int rows, int vectors) {
  using One = Tiles<1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12>;
  using Two = Tiles<2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12>;
  return vectors == 1 ? One::of[rows] : Two::of[rows];
}

}  // namespace

void product(const float* a, std::int64_t a_row, std::int64_t rows, const float* panels,
             std::int64_t panel_depth, std::int64_t depth, std::int64_t vectors, float* to,
             std::int64_t to_row, const float* scale) {
  // Tiles of nearly equal height.
  const std::int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  for (std::int64_t v = 0; v < vectors; v += 2) {
    const int width = vectors - v < 2 ? 1 : 2;
    const float* b = panels + v * kLanes * panel_depth;
    for (std::int64_t t = 0, row = 0; t < tiles; ++t) {
      const std::int64_t end = rows * (t + 1) / tiles;
      tile_of(static_cast<int>(end - row), width)(a + row * a_row, a_row, b, depth,
                                                  to + row * to_row + v * kLanes, to_row,
                                                  scale ? scale + row : nullptr);
      row = end;
    }
  }
}

}  // namespace tensor::simd::TENSOR_SIMD_ISA
