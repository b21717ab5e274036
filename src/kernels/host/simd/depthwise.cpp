// Depthwise convolutions: the sums of a few neighbouring pixels by 16 channels in registers over
// all numbers under the filters; the same pixels of all channels one after the other, as they lie.
// Where filters of neighbours lie on the same numbers, each is loaded once for some of their taps.
#include "parts.h"
#include "vector.h"

namespace tensor::simd::TENSOR_SIMD_ISA {
namespace {

constexpr std::int64_t kBlock = 16;  // channels
constexpr int kSums = 12;
constexpr int kMostVectors = kBlock / kLanes;
// A strip has its weights in registers, too: 11 sums, 4 weights and a number fill 16.
constexpr int kTaps = 4;

// `row` is at its first pixel of these.
template <int pixels, int vectors>
[[gnu::flatten, gnu::always_inline]] inline void sum(const DepthwiseRow& row, std::int64_t pixel,
                                                     std::int64_t channel, std::int64_t last) {
  const auto each = [](auto&& f) TENSOR_INLINED {
    unroll<pixels * vectors>([&](int i)
                                 TENSOR_INLINED { f(i, i / vectors, i % vectors * kLanes); });
  };
  const auto is_whole = [](int i) TENSOR_INLINED { return (i + 1) % vectors != 0; };
  const std::int64_t to_pixel = row.to_pixel;
  Floats sums[pixels * vectors] = {};
  if (row.first)
    each([&](int i, int, int v) TENSOR_INLINED { sums[i] = load(row.first + channel + v); });
  const auto add = [&]() TENSOR_INLINED {
    each([&](int i, int p, int v) TENSOR_INLINED {
      const float* at = row.add + (pixel + p) * row.add_pixel + channel + v;
      sums[i] += is_whole(i) || last == kLanes ? load(at) : load_part(at, last);
    });
  };
  if (row.add && !row.adds_last) add();
  const float *weights = row.weights + channel / kBlock * row.weights_block,
              *line = row.from + pixel * row.step + channel / kBlock * row.block;
  const std::int64_t step = row.step, number = row.number;
  for (std::int64_t y = row.line_count; y > 0; --y, line += row.line, weights += row.weights_line) {
    const float *from = line, *weight = weights;
    for (std::int64_t x = row.line_length; x > 0; --x, from += number, weight += kBlock)
      unroll<vectors>([&](int v) TENSOR_INLINED {
        const Floats by = load(weight + v * kLanes);
        unroll<pixels>([&](int p) TENSOR_INLINED {
          sums[p * vectors + v] += by * load(from + p * step + v * kLanes);
        });
      });
  }
  if (row.bounds.have_slope())
    each([&](int i, int, int) TENSOR_INLINED { sums[i] = sloped(sums[i], row.bounds); });
  if (row.bounds.have_limits())
    each([&](int i, int, int) TENSOR_INLINED { sums[i] = within(sums[i], row.bounds); });
  if (row.scales)
    each([&](int i, int, int v) TENSOR_INLINED {
      sums[i] = sums[i] * load(row.scales + channel + v) + load(row.shifts + channel + v);
    });
  if (row.add && row.adds_last) add();
  float* const to = row.to + pixel * to_pixel + channel;
  if (last == kLanes)
    each([&](int i, int p, int v) TENSOR_INLINED { store(to + p * to_pixel + v, sums[i]); });
  else
    each([&](int i, int p, int v) TENSOR_INLINED {
      float* at = to + p * to_pixel + v;
      is_whole(i) ? store(at, sums[i]) : store_part(at, sums[i], last);
    });
}

// Tiles of so many pixels, with all whole blocks of channels or what is left.
template <int pixels, int vectors>
void sum_all(const DepthwiseRow& row, std::int64_t pixel, std::int64_t tiles) {
  const std::int64_t whole = row.columns / kBlock * kBlock, rest = row.columns - whole;
  for (; tiles > 0; --tiles, pixel += pixels)
    if constexpr (vectors == kMostVectors) {
      for (std::int64_t channel = 0; channel < whole; channel += kBlock)
        sum<pixels, vectors>(row, pixel, channel, kLanes);
      if (rest > (vectors - 1) * kLanes)
        sum<pixels, vectors>(row, pixel, whole, rest - (vectors - 1) * kLanes);
    } else {
      sum<pixels, vectors>(row, pixel, whole, rest - (vectors - 1) * kLanes);
    }
}

// So many taps of a line of the filters: the numbers that lie under them, one after the other, each
// for all pixels whose filters lie on it.
template <int pixels, int taps>
[[gnu::always_inline]] inline void add_taps(Floats* sums, const float* from, std::int64_t step,
                                            const float* weights) {
  Floats by[taps];
  unroll<taps>([&](int tap) TENSOR_INLINED { by[tap] = load(weights + tap * kBlock); });
  unroll<pixels + taps - 1>([&](int i) TENSOR_INLINED {
    const Floats x = load(from);
    from += step;
    unroll<taps>([&](int tap) TENSOR_INLINED {
      if (tap <= i && i - tap < pixels) sums[i - tap] += x * by[tap];
    });
  });
}

// The same as `sum` with one vector of pixels that are as far apart as numbers under a filter.
template <int pixels>
[[gnu::flatten, gnu::always_inline]] inline void sum_strip(const DepthwiseRow& row,
                                                           std::int64_t pixel, std::int64_t channel,
                                                           std::int64_t last) {
  const auto each = [](auto&& f) TENSOR_INLINED { unroll<pixels>(f); };
  Floats sums[pixels] = {};
  if (row.first) {
    const Floats first = load(row.first + channel);
    each([&](int p) TENSOR_INLINED { sums[p] = first; });
  }
  const auto add = [&]() TENSOR_INLINED {
    each([&](int p) TENSOR_INLINED {
      const float* at = row.add + (pixel + p) * row.add_pixel + channel;
      sums[p] += last == kLanes ? load(at) : load_part(at, last);
    });
  };
  if (row.add && !row.adds_last) add();
  const std::int64_t step = row.step, in_block = channel % kBlock;
  const float *weights = row.weights + channel / kBlock * row.weights_block + in_block,
              *line = row.from + pixel * step + channel / kBlock * row.block + in_block;
  for (std::int64_t y = row.line_count; y > 0; --y, line += row.line, weights += row.weights_line) {
    const float *from = line, *weight = weights;
    std::int64_t left = row.line_length;
    for (; left > kTaps; left -= kTaps, from += kTaps * step, weight += kTaps * kBlock)
      add_taps<pixels, kTaps>(sums, from, step, weight);
    if (left == 4)
      add_taps<pixels, 4>(sums, from, step, weight);
    else if (left == 3)
      add_taps<pixels, 3>(sums, from, step, weight);
    else if (left == 2)
      add_taps<pixels, 2>(sums, from, step, weight);
    else if (left == 1)
      add_taps<pixels, 1>(sums, from, step, weight);
  }
  if (row.is_far && in_block == 0)
    each([&](int p) TENSOR_INLINED {
      __builtin_prefetch(line + p * step);
      __builtin_prefetch(row.to + (pixel + pixels + p) * row.to_pixel + channel, 1);
    });
  if (row.bounds.have_slope())
    each([&](int p) TENSOR_INLINED { sums[p] = sloped(sums[p], row.bounds); });
  if (row.bounds.have_limits())
    each([&](int p) TENSOR_INLINED { sums[p] = within(sums[p], row.bounds); });
  if (row.scales) {
    const Floats scale = load(row.scales + channel), shift = load(row.shifts + channel);
    each([&](int p) TENSOR_INLINED { sums[p] = sums[p] * scale + shift; });
  }
  if (row.add && row.adds_last) add();
  float* const to = row.to + pixel * row.to_pixel + channel;
  const std::int64_t to_pixel = row.to_pixel;
  if (last == kLanes)
    each([&](int p) TENSOR_INLINED { store(to + p * to_pixel, sums[p]); });
  else
    each([&](int p) TENSOR_INLINED { store_part(to + p * to_pixel, sums[p], last); });
}

template <int pixels>
void sum_strips(const DepthwiseRow& row, std::int64_t pixel, std::int64_t tiles) {
  for (; tiles > 0; --tiles, pixel += pixels)
    for (std::int64_t channel = 0; channel < row.columns; channel += kLanes) {
      const std::int64_t left = row.columns - channel;
      sum_strip<pixels>(row, pixel, channel, left < kLanes ? left : kLanes);
    }
}

using Sum = void (*)(const DepthwiseRow&, std::int64_t, std::int64_t);
template <int vectors, int... pixels>
struct Sums {
  static constexpr int kMost = kSums / vectors;
  static constexpr Sum of[] = {sum_all<(pixels < kMost ? pixels : 0) + 1, vectors>...};
};
template <int... pixels>
struct Strips {
  static constexpr int kMost = sizeof...(pixels);
  static constexpr Sum of[] = {sum_strips<pixels + 1>...};
};

// In tiles of nearly equal width.
template <class All>
void sum_tiles(const DepthwiseRow& row) {
  const std::int64_t tiles = (row.count + All::kMost - 1) / All::kMost;
  const std::int64_t pixels = row.count / tiles, wider = row.count % tiles;
  if (wider > 0) All::of[pixels](row, 0, wider);
  All::of[pixels - 1](row, wider * (pixels + 1), tiles - wider);
}
template <int vectors>
void sum_row(const DepthwiseRow& row) {
  sum_tiles<Sums<vectors, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11>>(row);
}

template <int... fewer>
struct Widths {
  using Run = void (*)(const DepthwiseRow&);
  static constexpr Run of[] = {sum_row<(fewer < kMostVectors ? fewer : 0) + 1>...};
};

void depthwise(const DepthwiseRow& row) {
  if (row.step == row.number && row.line_length > 1 && row.count > 1) {
    sum_tiles<Strips<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10>>(row);
    return;
  }
  const std::int64_t vectors = (row.columns % kBlock + kLanes - 1) / kLanes;
  if (row.columns >= kBlock || vectors == kMostVectors) sum_row<kMostVectors>(row);
  if (vectors > 0 && vectors < kMostVectors) Widths<0, 1, 2, 3>::of[vectors - 1](row);
}

void copy_rows(float* to, std::int64_t to_row, const float* from, std::int64_t from_row,
               std::int64_t rows, std::int64_t columns) {
  if (columns == kBlock) {
    for (; rows > 0; --rows, to += to_row, from += from_row)
      unroll<kMostVectors>([&](int v) { store(to + v * kLanes, load(from + v * kLanes)); });
    return;
  }
  const std::int64_t whole = columns / kLanes * kLanes;
  for (; rows > 0; --rows, to += to_row, from += from_row) {
    for (std::int64_t v = 0; v < whole; v += kLanes) store(to + v, load(from + v));
    if (whole < columns)
      store_part(to + whole, load_part(from + whole, columns - whole), columns - whole);
  }
}

}  // namespace

void fill_depthwise(Table& table) {
  table.depthwise = depthwise;
  table.copy_rows = copy_rows;
}

}  // namespace tensor::simd::TENSOR_SIMD_ISA
