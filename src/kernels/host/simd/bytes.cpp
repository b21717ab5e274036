// Large products of bytes: rows are rounded to eight bits (src/ops/eight_bits.h), and their sums
// with strips of 16 columns of weights are exact in 32 bits by whatever instructions there are, so
// that all of them give the same bits. This file is compiled without contraction: a product and a
// sum are rounded one after the other.
#include "parts.h"
#include "src/ops/eight_bits.h"
#include "vector.h"

namespace tensor::simd::TENSOR_SIMD_ISA {
namespace {

constexpr std::int64_t kStrip = kByteColumns;
constexpr int kStripVectors = 16 / kLanes;
constexpr std::int64_t kWord = kByteWord;
constexpr std::int64_t kDepthBytes = 16 << 10;  // of the strips of a part of k

// A float this large has no digits behind the point: adding it rounds to an integer, which the
// lowest bits then hold.
constexpr float kRounder = 0x1.8p23f;
constexpr std::int32_t kRounderBits = 0x4b400000, kInfinityBits = 0x7f800000;

std::int32_t magnitude_bits(float x) {
  std::int32_t b;
  std::memcpy(&b, &x, sizeof b);
  return b & 0x7fffffff;
}

std::int32_t byte_of(float x, float inverse) {
  const float rounded = x * inverse + kRounder;
  std::int32_t b;
  std::memcpy(&b, &rounded, sizeof b);
  return b - kRounderBits;
}

// The bits of magnitudes are ordered as these are, with infinity and NaNs behind all others.
float largest_of(const float* from, std::int64_t count, bool* is_finite) {
  Ints four[4] = {};
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes)
    unroll<4>([&](int v) {
      const Ints b = bits(load(from + i + v * kLanes)) & 0x7fffffff;
      four[v] = b > four[v] ? b : four[v];
    });
  Ints most = {};
  unroll<4>([&](int v) { most = four[v] > most ? four[v] : most; });
  std::int32_t largest = 0;
  for (int lane = 0; lane < kLanes; ++lane) largest = most[lane] > largest ? most[lane] : largest;
  for (; i < count; ++i) {
    const std::int32_t b = magnitude_bits(from[i]);
    largest = b > largest ? b : largest;
  }
  *is_finite = largest < kInfinityBits;
  float result;
  std::memcpy(&result, &largest, sizeof result);
  return result > kLeastMagnitude ? result : kLeastMagnitude;
}

// Numbers from -127 to 127 as bytes, four vectors at a time.
inline void store_bytes(std::int8_t* to, const Ints x[4]) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  const __m256i shorts[2] = {_mm256_packs_epi32((__m256i)x[0], (__m256i)x[1]),
                             _mm256_packs_epi32((__m256i)x[2], (__m256i)x[3])};
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256i bytes =
      _mm256_permutevar8x32_epi32(_mm256_packs_epi16(shorts[0], shorts[1]), order);
  std::memcpy(to, &bytes, sizeof bytes);
#elif defined(__SSE2__) && !defined(__AVX512F__)
  const __m128i bytes = _mm_packs_epi16(_mm_packs_epi32((__m128i)x[0], (__m128i)x[1]),
                                        _mm_packs_epi32((__m128i)x[2], (__m128i)x[3]));
  std::memcpy(to, &bytes, sizeof bytes);
#else
  for (int v = 0; v < 4; ++v) {
    const Bytes bytes = __builtin_convertvector(x[v], Bytes);
    std::memcpy(to + v * kLanes, &bytes, sizeof bytes);
  }
#endif
}

float quantize(std::int8_t* to, const float* from, std::int64_t count, std::int32_t* sum) {
  bool is_finite;
  const float largest = largest_of(from, count, &is_finite);
  *sum = 0;
  if (!is_finite) {
    std::memset(to, 0, static_cast<std::size_t>(count));
    return __builtin_nanf("");
  }
  const float inverse = kMostByte / largest;
  Ints total = {};
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    Ints whole[4];
    unroll<4>([&](int v) {
      whole[v] = bits(load(from + i + v * kLanes) * inverse + kRounder) - kRounderBits;
      total += whole[v];
    });
    store_bytes(to + i, whole);
  }
  for (int lane = 0; lane < kLanes; ++lane) *sum += total[lane];
  for (; i < count; ++i) {
    const std::int32_t whole = byte_of(from[i], inverse);
    to[i] = static_cast<std::int8_t>(whole);
    *sum += whole;
  }
  return largest / kMostByte;
}

std::int32_t sum_bytes(const std::int8_t* from, std::int64_t count) {
  Ints four = {};
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    const auto words = load_as<Ints>(from + i);
    four += (words << 24 >> 24) + (words << 16 >> 24) + (words << 8 >> 24) + (words >> 24);
  }
  std::int32_t sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) sum += four[lane];
  for (; i < count; ++i) sum += from[i];
  return sum;
}

// As operators round by one scale: a NaN becomes 0, and what is too large 127.
inline Ints rounded(const Finish& f, const float* sums, const float* add) {
  Floats x = load(sums);
  if (add) x += load(add);
  x = bounded(x, f.bounds);
  x *= f.inverse;
  x = at_most(at_least(x == x ? x : Floats{}, splat(-kMostByte)), splat(kMostByte));
  return bits(x + kRounder) - kRounderBits;
}
void finish_rounded(const Finish& f) {
  const float *sums = f.sums, *add = f.add;
  auto* to = static_cast<std::int8_t*>(f.to);
  for (std::int64_t row = 0; row < f.rows; ++row, sums += f.sums_row, to += f.to_row) {
    std::int64_t i = 0;
    for (; i + 4 * kLanes <= f.columns; i += 4 * kLanes) {
      Ints whole[4];
      unroll<4>([&](int v) {
        const std::int64_t at = i + v * kLanes;
        whole[v] = rounded(f, sums + at, add ? add + at : nullptr);
      });
      store_bytes(to + i, whole);
    }
    for (; i < f.columns; i += kLanes) {
      const auto count = static_cast<std::size_t>(f.columns - i < kLanes ? f.columns - i : kLanes);
      float some[kLanes] = {}, more[kLanes] = {};
      std::memcpy(some, sums + i, count * sizeof(float));
      if (add) std::memcpy(more, add + i, count * sizeof(float));
      const Bytes bytes = __builtin_convertvector(rounded(f, some, add ? more : nullptr), Bytes);
      std::memcpy(to + i, &bytes, count);
    }
    if (add) add += f.add_row;
  }
}

typedef std::int16_t Shorts __attribute__((vector_size(kLanes * 4)));

// Sums of neighbouring products.
inline Ints pair_sums(Shorts a, Shorts b) {
#if defined(__AVX512BW__)
  return (Ints)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (Ints)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return (Ints)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
  Ints sums;
  for (int i = 0; i < kLanes; ++i) sums[i] = a[2 * i] * b[2 * i] + a[2 * i + 1] * b[2 * i + 1];
  return sums;
#endif
}

// Words along k are multiplied as two pairs of 16 bits: the even bytes, and the odd ones.
struct Pairs {
  static constexpr int kStrips = kLanes == 16 ? 2 : 1;
  static constexpr int kRows = kLanes == 16 ? 10 : kLanes == 8 ? 5 : 2;
  struct Word {
    Shorts even, odd;
  };
  static Word word(Ints x) { return {(Shorts)x << 8 >> 8, (Shorts)x >> 8}; }
  static Word left(Ints x) { return word(x); }
  static Word right(Ints x) { return word(x); }
  static Ints start(std::int32_t) { return Ints{}; }
  static Ints add(Ints sum, const Word& a, const Word& b) {
    return sum + pair_sums(a.even, b.even) + pair_sums(a.odd, b.odd);
  }
};

#if defined(__AVX2__) && !defined(__AVX512F__)
// The instruction that multiplies bytes without a sign by bytes with one adds two products in 16
// bits: at most 2 * 127 * 128, which does not saturate, if the weight's sign goes to the row. A row
// may not hold -128, which has no opposite.
struct Signs {
  static constexpr int kStrips = 1, kRows = 5;
  struct Right {
    __m256i weights, magnitudes;
  };
  static __m256i left(Ints x) { return (__m256i)x; }
  static Right right(Ints x) { return {(__m256i)x, _mm256_abs_epi8((__m256i)x)}; }
  static Ints start(std::int32_t) { return Ints{}; }
  static Ints add(Ints sum, __m256i a, const Right& b) {
    const __m256i pairs = _mm256_maddubs_epi16(b.magnitudes, _mm256_sign_epi8(a, b.weights));
    return sum + (Ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  }
};
using Plain = Signs;
#else
using Plain = Pairs;
#endif

#if defined(__AVX2__)
// The instruction that adds four products takes weights without a sign: they are 128 too large, and
// sums begin with -128 for each number of the row. It wraps around, and the last sum fits.
struct Dots {
  static constexpr int kStrips = kLanes == 16 ? 2 : 1, kRows = kLanes == 16 ? 12 : 6;
  static Ints left(Ints x) { return x; }
  static Ints right(Ints x) { return x ^ splat_bits(0x80808080u); }
  static Ints start(std::int32_t row_sum) { return splat_bits(0) - 128 * row_sum; }
  static Ints add(Ints sum, Ints a, Ints b) {
#if defined(__AVX512F__)
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(b), "v"(a));
#else
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(b), "x"(a));
#endif
    return sum;
  }
};
#endif

inline Floats finished(const ByteProduct& p, std::int64_t row, std::int64_t column, Ints sums) {
  const Floats scale = p.row_scales[row] * load(p.scales + column);
  const Floats x = __builtin_convertvector(sums, Floats) * scale;
  return p.bias ? x + load(p.bias + column) : x;
}

// Rows [row, row + rows) by some strips over a part of k: sums go on where the part before
// has left them, in the place of the result, which the last one makes of them.
template <class Words, int rows, int strips>
[[gnu::flatten]] void sum(const ByteProduct& p, std::int64_t row, std::int64_t strip,
                          std::int64_t begin, std::int64_t end) {
  constexpr int vectors = strips * kStripVectors;
  float* const to = p.to + row * p.to_row + strip * kStrip;
  const std::int64_t to_row = p.to_row, a_row = p.a_row_bytes, strip_bytes = p.strip_bytes;
  const auto place = [&](int i) TENSOR_INLINED {
    return to + i / vectors * to_row + i % vectors * kLanes;
  };
  Ints sums[rows * vectors];
  if (begin == 0)
    unroll<rows * vectors>(
        [&](int i) TENSOR_INLINED { sums[i] = Words::start(p.row_sums[row + i / vectors]); });
  else
    unroll<rows * vectors>([&](int i) TENSOR_INLINED { sums[i] = bits(load(place(i))); });
  const std::int8_t* a = p.a + row * a_row + begin * kWord;
  const std::int8_t* b = p.strips + strip * strip_bytes + begin * kWord * kStrip;
  for (std::int64_t k = begin; k < end; ++k, a += kWord, b += kWord * kStrip) {
    decltype(Words::right(Ints{})) right[vectors];
    unroll<vectors>([&](int v) TENSOR_INLINED {
      right[v] = Words::right(
          load_as<Ints>(b + v / kStripVectors * strip_bytes + v % kStripVectors * kWord * kLanes));
    });
    unroll<rows>([&](int r) TENSOR_INLINED {
      std::int32_t word;
      std::memcpy(&word, a + r * a_row, sizeof word);
      const auto left = Words::left(word - Ints{});
      unroll<vectors>([&](int v) TENSOR_INLINED {
        sums[r * vectors + v] = Words::add(sums[r * vectors + v], left, right[v]);
      });
    });
  }
  if (end < p.k) {
    unroll<rows * vectors>([&](int i) TENSOR_INLINED { store(place(i), from_bits(sums[i])); });
    return;
  }
  unroll<rows * vectors>([&](int i) TENSOR_INLINED {
    const std::int64_t column = strip * kStrip + i % vectors * kLanes;
    store(place(i), finished(p, row + i / vectors, column, sums[i]));
  });
}

using Sum = void (*)(const ByteProduct&, std::int64_t, std::int64_t, std::int64_t, std::int64_t);
template <class Words, int strips, int... rows>
struct Sums {
  static constexpr Sum of[] = {nullptr, sum<Words, rows, strips>...};
};
template <class Words, int strips>
Sum sum_of(std::int64_t rows) {
  if constexpr (Words::kRows == 12)
    return Sums<Words, strips, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12>::of[rows];
  else if constexpr (Words::kRows == 10)
    return Sums<Words, strips, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10>::of[rows];
  else if constexpr (Words::kRows == 6)
    return Sums<Words, strips, 1, 2, 3, 4, 5, 6>::of[rows];
  else if constexpr (Words::kRows == 5)
    return Sums<Words, strips, 1, 2, 3, 4, 5>::of[rows];
  else
    return Sums<Words, strips, 1, 2>::of[rows];
}

template <class Words>
void multiply(const ByteProduct& p) {
  constexpr int kStrips = Words::kStrips;
  constexpr std::int64_t kMost = kDepthBytes / (kStrips * kStrip * kWord);
  // Parts of k, and tiles of rows, of nearly equal size.
  const std::int64_t parts = p.k == 0 ? 1 : (p.k + kMost - 1) / kMost;
  const std::int64_t tiles = (p.rows + Words::kRows - 1) / Words::kRows;
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t begin = p.k * part / parts, end = p.k * (part + 1) / parts;
    for (std::int64_t strip = 0; strip < p.strip_count; strip += kStrips) {
      const bool is_whole = strip + kStrips <= p.strip_count;
      for (std::int64_t tile = 0, row = 0; tile < tiles; ++tile) {
        const std::int64_t next = p.rows * (tile + 1) / tiles;
        (is_whole ? sum_of<Words, kStrips>(next - row) : sum_of<Words, 1>(next - row))(
            p, row, strip, begin, end);
        row = next;
      }
    }
  }
}

}  // namespace

void finish_bytes(const ByteProduct& p, std::int64_t strip, std::int64_t strips,
                  const std::int32_t* sums, std::int64_t pitch) {
  for (std::int64_t row = 0; row < p.rows; ++row, sums += pitch)
    for (std::int64_t i = 0; i < strips * kStrip; i += kLanes) {
      const std::int64_t column = strip * kStrip + i;
      store(p.to + row * p.to_row + column, finished(p, row, column, load_as<Ints>(sums + i)));
    }
}

void fill_bytes(Table& table) {
  table.quantize = quantize;
  table.sum_bytes = sum_bytes;
  table.finish[static_cast<int>(Storage::i8)] = finish_rounded;
  table.multiply_bytes = multiply<Plain>;
  table.multiply_all_bytes = multiply<Pairs>;
#if defined(__AVX2__)
  table.multiply_byte_dots = multiply<Dots>;
#endif
}

}  // namespace tensor::simd::TENSOR_SIMD_ISA
