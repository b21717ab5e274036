// Large matrix products: the right factor in strips of 16 columns, the sums of a few rows by a few
// vectors of columns in registers over a part of k (Goto and van de Geijn, Anatomy of
// High-Performance Matrix Multiplication).
#include "parts.h"
#include "words.h"

namespace tensor::simd::TENSOR_SIMD_ISA {
namespace {

constexpr std::int64_t kStrip = 16;  // columns
constexpr int kStripVectors = 16 / kLanes;
// The sums fill the register file but for what is multiplied: of 32 registers three vectors a row
// and 8 rows or four and 6, which take the fewest loads; of 16 two and 6, or three and 4 instead of
// one at the end, or, of narrow vectors, four and 3. Fewer vectors have more rows.
constexpr int kSums = kLanes == 16 ? 24 : 12, kMostRows = 12;
constexpr int kMostVectors = kLanes == 8 ? 3 : 4, kOneRowVectors = 8;
constexpr int rows_of(int vectors) {
  return kSums / vectors < kMostRows ? kSums / vectors : kMostRows;
}

constexpr int strips_of(int vectors) { return (vectors * kLanes + kStrip - 1) / kStrip; }

constexpr std::int64_t kAhead = 2;  // tiles
// The strips may have left the first-level cache, most of all where another thread shares it.
constexpr std::int64_t kNearWords = 8 * kStrip;
// Between so many steps of k are lines fetched that come later: many together would wait
// for each other, and the sums for them.
constexpr std::int64_t kRound = 8;

// Some rows by vectors of columns, of which the last has so many; pointers to the first of them.
struct Tile {
  const float *a, *b;
  std::int64_t column;
  const float* add;
  float* to;
  std::int64_t last;
  const float *soon = nullptr, *soon_end = nullptr;  // the strips that come next
  std::int64_t soon_lines = 0;                       // of each of them, in a round
};

// k is what costs time: everything else is asked for at run time.
template <class Words, int rows, int vectors>
[[gnu::flatten, gnu::always_inline]] inline void sum(const StripProduct& p, const Tile& tile) {
  const auto each = [](auto&& f) TENSOR_INLINED {
    unroll<rows * vectors>([&](int i) TENSOR_INLINED { f(i, i / vectors, i % vectors * kLanes); });
  };
  const auto is_whole = [](int i) TENSOR_INLINED { return (i + 1) % vectors != 0; };
  const std::int64_t last = tile.last;
  Floats sums[rows * vectors] = {};
  const auto add = [&](const float* from, std::int64_t from_row) TENSOR_INLINED {
    if (last == kLanes)
      each([&](int i, int row, int v)
               TENSOR_INLINED { sums[i] += load(from + row * from_row + v); });
    else
      each([&](int i, int row, int v) TENSOR_INLINED {
        const float* at = from + row * from_row + v;
        sums[i] += is_whole(i) ? load(at) : load_part(at, last);
      });
  };
  if (p.first)
    each([&](int i, int, int v) TENSOR_INLINED { sums[i] = load(p.first + tile.column + v); });
  if (tile.add && !p.adds_last) add(tile.add, p.add_row);
  if (p.goes_on) add(tile.to, p.to_row);
  const float *a = tile.a, *b = tile.b;
  const std::int64_t a_row = p.a_row_bytes / 4, strip_words = p.strip_words;
  const auto step = [&]() TENSOR_INLINED {
    Floats right[vectors];
    unroll<vectors>([&](int v) TENSOR_INLINED {
      const float* const at = b + v / kStripVectors * strip_words + v % kStripVectors * kLanes;
      right[v] = load(at);
      if (v % kStripVectors == 0) __builtin_prefetch(at + kNearWords);
    });
    unroll<rows>([&](int r) TENSOR_INLINED {
      const auto left = load_as<std::int32_t>(a + r * a_row);
      unroll<vectors>([&](int v) TENSOR_INLINED {
        sums[r * vectors + v] = Words::add(sums[r * vectors + v], left, right[v]);
      });
    });
    ++a, b += kStrip;
  };
  const float* soon = tile.soon;
  for (std::int64_t part = p.parts; part > 0; --part, a += p.next_part - p.k) {
    std::int64_t left = p.k;
    for (; left >= kRound; left -= kRound) {
      for (std::int64_t i = 0; i < tile.soon_lines && soon < tile.soon_end; ++i, soon += kStrip)
        unroll<strips_of(vectors)>([&](int strip) TENSOR_INLINED {
          __builtin_prefetch(soon + strip * strip_words, 0, 2);
        });
      for (int i = 0; i < kRound; ++i) step();
    }
    for (; left > 0; --left) step();
  }
  if (p.bounds.have_slope())
    each([&](int i, int, int) TENSOR_INLINED { sums[i] = sloped(sums[i], p.bounds); });
  if (p.bounds.have_limits())
    each([&](int i, int, int) TENSOR_INLINED { sums[i] = within(sums[i], p.bounds); });
  if (p.scales)
    each([&](int i, int, int v) TENSOR_INLINED {
      const std::int64_t at = tile.column + v;
      sums[i] = sums[i] * load(p.scales + at) + load(p.shifts + at);
    });
  if (tile.add && p.adds_last) add(tile.add, p.add_row);
  float* const to = tile.to;
  const std::int64_t to_row = p.to_row;
  if (last == kLanes)
    each([&](int i, int row, int v) TENSOR_INLINED { store(to + row * to_row + v, sums[i]); });
  else
    each([&](int i, int row, int v) TENSOR_INLINED {
      float* at = to + row * to_row + v;
      is_whole(i) ? store(at, sums[i]) : store_part(at, sums[i], last);
    });
}

// So many tiles, one below the other, each of so many neighbours.
template <class Words, int rows, int vectors>
void sum_all(const StripProduct& p, Tile& tile, std::int64_t count, std::int64_t neighbours) {
  constexpr std::int64_t kColumns = vectors * kLanes;
  const std::int64_t a_rows = rows * (p.a_row_bytes / 4), to_rows = rows * p.to_row;
  const std::int64_t add_rows = rows * p.add_row, b_columns = kColumns / kStrip * p.strip_words;
  const bool is_far = p.is_far && tile.b == p.strips;  // only in the first round
  for (; count > 0; --count) {
    // The place of the next tile's results may be far away.
    if (count > 1)
      for (int row = 0; row < rows; ++row)
        for (std::int64_t i = 0; i < kColumns; i += kStrip)
          __builtin_prefetch(tile.to + to_rows + row * p.to_row + i, 1);
    Tile next = tile;
    for (std::int64_t i = 0; i < neighbours; ++i) {
      // Rows of a later tile, some with each neighbour: read together, they look like no stream.
      if (is_far)
        for (std::int64_t row = i; row < rows; row += neighbours)
          for (std::int64_t k = 0; k < p.k; k += 16)
            __builtin_prefetch(tile.a + kAhead * a_rows + row * (p.a_row_bytes / 4) + k);
      sum<Words, rows, vectors>(p, next);
      next.b += b_columns, next.to += kColumns, next.column += kColumns;
      if (next.add) next.add += kColumns;
    }
    tile.a += a_rows, tile.to += to_rows;
    tile.soon += p.parts * (p.k / kRound) * tile.soon_lines * kStrip;
    if (tile.add) tile.add += add_rows;
  }
}

using Sum = void (*)(const StripProduct&, Tile&, std::int64_t, std::int64_t);
template <class Words, int vectors, int... rows>
struct Sums {
  static constexpr Sum of[] = {
      sum_all<Words, (rows < rows_of(vectors) ? rows : 0) + 1, vectors>...};
};

// All rows, in tiles of nearly equal height.
template <class Words, int vectors>
void multiply_columns(const StripProduct& p, Tile tile, std::int64_t neighbours) {
  constexpr auto sums = Sums<Words, vectors, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11>::of;
  const std::int64_t tiles = (p.rows + rows_of(vectors) - 1) / rows_of(vectors);
  const std::int64_t rows = p.rows / tiles, higher = p.rows % tiles;
  if (neighbours == 1 && tile.soon) {
    tile.soon_end = tile.soon + p.parts * p.k * kStrip;
    tile.soon_lines = (kRound + tiles - 1) / tiles;
  }
  if (higher > 0) sums[rows](p, tile, higher, neighbours);
  sums[rows - 1](p, tile, tiles - higher, neighbours);
}

template <class Words, int... fewer>
struct Widths {
  using Run = void (*)(const StripProduct&, Tile, std::int64_t);
  static constexpr Run of[] = {multiply_columns<Words, (fewer < kMostVectors ? fewer : 0) + 1>...};
};

// How wide the next tiles of so many vectors of columns are, and how many there are of that width:
// none should be narrow. Threes, but for a rest of ones or twos, which makes fours; of 8 lanes
// twos, of which a rest of one makes the last a three.
struct Width {
  std::int64_t vectors, neighbours;
};
constexpr Width width_of(std::int64_t left) {
  const std::int64_t most = left < kMostVectors ? left : kMostVectors;
  if (kLanes == 8 && left > 3) return {2, left / 2 - left % 2};
  if (kLanes != 16 || left <= 4) return {most, left / most};
  if (left == 5 || left % 3 == 0) return {3, left / 3};
  return {4, left % 3};
}

template <class Words>
void multiply(const StripProduct& p) {
  const auto at = [&](std::int64_t column, std::int64_t last) {
    return Tile{static_cast<const float*>(p.a),
                p.strips + column / kStrip * p.strip_words,
                column,
                p.add ? p.add + column : nullptr,
                p.to + column,
                last};
  };
  std::int64_t column = 0;
  if (p.rows == 1) {  // fills the registers with more columns
    constexpr std::int64_t kWidest = kOneRowVectors * kLanes;
    const std::int64_t widest = p.columns / kWidest;
    if (widest > 0) multiply_columns<Words, kOneRowVectors>(p, at(0, kLanes), widest);
    column = widest * kWidest;
  }
  while (column < p.columns) {
    const std::int64_t left = p.columns - column;
    const auto [vectors, most] = width_of((left + kLanes - 1) / kLanes);
    const std::int64_t whole = left / (vectors * kLanes);
    const std::int64_t neighbours = !p.is_by_rows || whole == 0 ? 1 : whole < most ? whole : most;
    const std::int64_t last = whole > 0 ? kLanes : left - (vectors - 1) * kLanes;
    Tile tile = at(column, last);
    column += neighbours * vectors * kLanes;
    tile.soon = column < p.columns ? at(column, 0).b : static_cast<const float*>(p.next);
    Widths<Words, 0, 1, 2, 3>::of[vectors - 1](p, tile, neighbours);
  }
}

// Each run with whole vectors, of which the next one overwrites what is too much.
// `Short` has as many numbers as there are lanes.
template <class Short, class Number>
void gather(const Runs& runs) {
  constexpr auto kLong = static_cast<std::int64_t>(sizeof(Floats) / sizeof(Number));
  const auto* from = static_cast<const Number*>(runs.from);
  auto* to = static_cast<Number*>(runs.to);
  const std::int64_t length = runs.length;
  for (std::int64_t row = 0; row < runs.rows; ++row, from += runs.from_row, to += runs.to_row) {
    Number* at = to;
    if (length <= kLanes) {
      for (std::int64_t run = 0; run < runs.count; ++run, at += length)
        store_as(at, load_as<Short>(from + runs.offsets[run]));
      continue;
    }
    for (std::int64_t run = 0; run < runs.count; ++run, at += length) {
      const Number* numbers = from + runs.offsets[run];
      for (std::int64_t i = 0; i < length; i += kLong)
        store_as(at + i, load_as<Floats>(numbers + i));
    }
  }
}

}  // namespace

void fill_strips(Table& table) {
  table.multiply = multiply<Singles>;
#if defined(__AVX512BF16__)
  table.multiply_pairs = multiply<Pairs>;
#endif
  table.gather = gather<Floats, float>;
  table.gather_halves = gather<Halves, std::uint16_t>;
  table.gather_bytes = gather<Bytes, std::uint8_t>;
}

}  // namespace tensor::simd::TENSOR_SIMD_ISA
