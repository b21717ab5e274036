// Matrix products of bf16 by tile instructions (AMX): 16 x 16 results of 32 products each at a
// time.
#include "parts.h"
#include "vector.h"

namespace tensor::simd::TENSOR_SIMD_ISA {

#if defined(__AVX512BF16__)
namespace {

constexpr std::int64_t kTile = 16;  // rows, and words of a row

// What LDTILECFG reads.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  void set(int first, int last, std::int64_t height, std::int64_t words) {
    for (int tile = first; tile <= last; ++tile) {
      rows[tile] = static_cast<std::uint8_t>(height);
      row_bytes[tile] = static_cast<std::uint16_t>(4 * words);
    }
  }
};

// GCC 12 believes that only the first eight bytes are read.
[[gnu::target("amx-tile")]] void load_shapes(const TileShapes& shapes) {
  asm volatile("" : : "r"(&shapes) : "memory");
  _tile_loadconfig(&shapes);
}

// Tiles 0 and 1 are results; 2 is of a, 3 and 4 of b; 5 to 7 the same for what is left of a k
// that is no multiple of 16 words.
void configure(std::int64_t height, std::int64_t rest) {
  TileShapes shapes;
  shapes.set(0, 2, height, kTile);
  shapes.set(3, 4, kTile, kTile);
  if (rest > 0) {
    shapes.set(5, 5, height, rest);
    shapes.set(6, 7, rest, kTile);
  }
  load_shapes(shapes);
}

// result[height, width * 16] = a[height, depth] * b[depth, width * 16], rows 32 floats apart.
[[gnu::target("amx-tile,amx-bf16")]] void multiply(const float* a, std::int64_t a_row,
                                                   const float* b, std::int64_t depth,
                                                   std::int64_t width, float* result) {
  const std::int64_t whole = depth / kTile * kTile, a_bytes = 4 * a_row, b_bytes = 64 * width;
  _tile_zero(0);
  _tile_zero(1);
  for (std::int64_t k = 0; k < whole; k += kTile) {
    const float* right = b + k * width * kTile;
    _tile_loadd(2, a + k, a_bytes);
    _tile_loadd(3, right, b_bytes);
    _tile_dpbf16ps(0, 2, 3);
    if (width < 2) continue;
    _tile_loadd(4, right + kTile, b_bytes);
    _tile_dpbf16ps(1, 2, 4);
  }
  if (whole < depth) {
    const float* right = b + whole * width * kTile;
    _tile_loadd(5, a + whole, a_bytes);
    _tile_loadd(6, right, b_bytes);
    _tile_dpbf16ps(0, 5, 6);
    if (width == 2) {
      _tile_loadd(7, right + kTile, b_bytes);
      _tile_dpbf16ps(1, 5, 7);
    }
  }
  _tile_stored(0, result, 8 * kTile);
  if (width == 2) _tile_stored(1, result + kTile, 8 * kTile);
}

[[gnu::target("amx-tile")]] void release() { _tile_release(); }

void product_tiles(const float* a, std::int64_t a_row, std::int64_t rows, const float* panels,
                   std::int64_t panel_depth, std::int64_t depth, std::int64_t vectors, float times,
                   float* to, std::int64_t to_row, const float* scale) {
  alignas(64) float result[2 * kTile * kTile];
  std::int64_t configured = 0;
  for (std::int64_t row = 0; row < rows; row += kTile) {
    const std::int64_t height = rows - row < kTile ? rows - row : kTile;
    if (height != configured) configure(configured = height, depth % kTile);
    for (std::int64_t v = 0; v < vectors; v += 2) {
      const std::int64_t width = vectors - v < 2 ? 1 : 2;
      multiply(a + row * a_row, a_row, panels + v * kTile * panel_depth, depth, width, result);
      for (std::int64_t r = 0; r < height; ++r)
        for (std::int64_t i = 0; i < width; ++i) {
          float* place = to + (row + r) * to_row + (v + i) * kTile;
          const Floats sum = times * load(result + (2 * r + i) * kTile);
          store(place, scale ? splat(scale[row + r]) * load(place) + sum : sum);
        }
    }
  }
  release();
}

// Up to 32 x 32 sums over the whole of k: tiles 0 to 3 are results, 4 and 5 of a, 6 and 7 of b.
void configure_pair(std::int64_t rows) {
  const bool is_high = rows > kTile;
  const std::int64_t upper = is_high ? kTile : rows, lower = is_high ? rows - kTile : 1;
  TileShapes shapes;
  shapes.set(0, 1, upper, kTile);
  shapes.set(2, 3, lower, kTile);
  shapes.set(4, 4, upper, kTile);
  shapes.set(5, 5, lower, kTile);
  shapes.set(6, 7, kTile, kTile);
  load_shapes(shapes);
}

template <bool is_high, bool is_wide>
[[gnu::target("amx-tile,amx-bf16")]] void sum_tiles(const StripProduct& p, std::int64_t strip,
                                                    const char* next) {
  const auto* a = static_cast<const char*>(p.a);
  const float* b = p.strips + strip * p.strip_words;
  const float* first = p.first ? p.first + strip * kTile : nullptr;
  if (first) {  // with no distance between rows, all of them are the same
    _tile_loadd(0, first, 0);
    if (is_wide) _tile_loadd(1, first + kTile, 0);
    if (is_high) _tile_loadd(2, first, 0);
    if (is_high && is_wide) _tile_loadd(3, first + kTile, 0);
  } else {
    _tile_zero(0);
    if (is_wide) _tile_zero(1);
    if (is_high) _tile_zero(2);
    if (is_high && is_wide) _tile_zero(3);
  }
  for (std::int64_t step = 0; step < p.k / kTile; ++step, a += 4 * kTile, b += kTile * kTile) {
    _tile_loadd(4, a, p.a_row_bytes);
    _tile_loadd(6, b, 4 * kTile);
    _tile_dpbf16ps(0, 4, 6);
    if (is_wide) {
      _tile_loadd(7, b + p.strip_words, 4 * kTile);
      _tile_dpbf16ps(1, 4, 7);
    }
    if (is_high) {
      _tile_loadd(5, a + kTile * p.a_row_bytes, p.a_row_bytes);
      _tile_dpbf16ps(2, 5, 6);
      if (is_wide) _tile_dpbf16ps(3, 5, 7);
    }
    for (std::int64_t line = 0; line < p.next_lines; ++line, next += 64)
      _mm_prefetch(next, _MM_HINT_T1);
  }
  float* to = p.to + strip * kTile;
  const std::int64_t row_bytes = 4 * p.to_row;
  _tile_stored(0, to, row_bytes);
  if (is_wide) _tile_stored(1, to + kTile, row_bytes);
  if (is_high) _tile_stored(2, to + kTile * p.to_row, row_bytes);
  if (is_high && is_wide) _tile_stored(3, to + kTile * p.to_row + kTile, row_bytes);
}

void multiply_tiles(const StripProduct& p) {
  const bool is_high = p.rows > kTile;
  configure_pair(p.rows);
  const auto* next = static_cast<const char*>(p.next);
  for (std::int64_t strip = 0; strip < p.strip_count; strip += 2) {
    const bool is_wide = strip + 1 < p.strip_count;
    (is_high   ? is_wide ? sum_tiles<true, true> : sum_tiles<true, false>
       : is_wide ? sum_tiles<false, true>
               : sum_tiles<false, false>)(p, strip, next);
    next += 64 * p.next_lines * (p.k / kTile);
  }
  release();
}

// A step of k: 16 words of up to 32 rows and of one or two strips.
template <bool is_high, bool is_wide>
[[gnu::target("amx-tile,amx-int8")]] void add_bytes(const std::int8_t* a, std::int64_t a_row,
                                                    const std::int8_t* b, std::int64_t b_strip) {
  _tile_loadd(4, a, a_row);
  _tile_loadd(6, b, 4 * kTile);
  _tile_dpbssd(0, 4, 6);
  if (is_wide) {
    _tile_loadd(7, b + b_strip, 4 * kTile);
    _tile_dpbssd(1, 4, 7);
  }
  if (is_high) {
    _tile_loadd(5, a + kTile * a_row, a_row);
    _tile_dpbssd(2, 5, 6);
    if (is_wide) _tile_dpbssd(3, 5, 7);
  }
}

// The sums of bytes, in rows of two tiles.
template <bool is_high, bool is_wide>
[[gnu::target("amx-tile,amx-int8")]] void sum_bytes(const ByteProduct& p, std::int64_t strip,
                                                    std::int32_t* sums) {
  constexpr std::int64_t kBytes = 4 * kTile * kTile;  // of a tile of weights
  const std::int8_t *a = p.a, *b = p.strips + strip * p.strip_bytes;
  _tile_zero(0);
  if (is_wide) _tile_zero(1);
  if (is_high) _tile_zero(2);
  if (is_high && is_wide) _tile_zero(3);
  for (std::int64_t step = 0; step < p.k / kTile; ++step, a += 4 * kTile, b += kBytes)
    add_bytes<is_high, is_wide>(a, p.a_row_bytes, b, p.strip_bytes);
  if (const std::int64_t rest = p.k % kTile; rest > 0) {  // rows have zeros behind it
    alignas(64) std::int8_t last[2 * kBytes] = {};
    const auto bytes = static_cast<std::size_t>(4 * kTile * rest);
    std::memcpy(last, b, bytes);
    if (is_wide) std::memcpy(last + kBytes, b + p.strip_bytes, bytes);
    asm volatile("" : : "r"(last) : "memory");
    add_bytes<is_high, is_wide>(a, p.a_row_bytes, last, kBytes);
  }
  constexpr std::int64_t kRowBytes = 8 * kTile;
  _tile_stored(0, sums, kRowBytes);
  if (is_wide) _tile_stored(1, sums + kTile, kRowBytes);
  if (is_high) _tile_stored(2, sums + 2 * kTile * kTile, kRowBytes);
  if (is_high && is_wide) _tile_stored(3, sums + 2 * kTile * kTile + kTile, kRowBytes);
}

void multiply_byte_tiles(const ByteProduct& p) {
  configure_pair(p.rows);
  alignas(64) std::int32_t sums[4 * kTile * kTile];
  for (std::int64_t strip = 0; strip < p.strip_count; strip += 2) {
    const bool is_high = p.rows > kTile, is_wide = strip + 1 < p.strip_count;
    (is_high   ? is_wide ? sum_bytes<true, true> : sum_bytes<true, false>
       : is_wide ? sum_bytes<false, true>
               : sum_bytes<false, false>)(p, strip, sums);
    asm volatile("" : : "r"(sums) : "memory");
    finish_bytes(p, strip, is_wide ? 2 : 1, sums, 2 * kTile);
  }
  release();
}

}  // namespace

void fill_tiles(Table& table) {
  table.multiply_byte_tiles = multiply_byte_tiles;
  table.product_tiles = product_tiles;
  table.multiply_tiles = multiply_tiles;
}
#else
void fill_tiles(Table&) {}
#endif

}  // namespace tensor::simd::TENSOR_SIMD_ISA
