// Pieces of streaming attention: rows in pairs, and the softmax of a tile of scores that goes on
// from tile to tile.
#include "functions.h"
#include "parts.h"

namespace tensor::simd::TENSOR_SIMD_ISA {
namespace {

// 2^x of x <= 0, 0 below 2^-127. Within 2 ulp where the result is not subnormal; the powers of e of
// the tile are taken as powers of 2, which saves a step of the reduction.
Floats power_of_two_of(Floats x) {
  constexpr float kPower[] = {0x1.62e42ap-1f, 0x1.ebf9a4p-3f, 0x1.c6b596p-5f, 0x1.3cf5ecp-7f,
                              0x1.5cde34p-10f};
  const Floats limited = at_least(x, splat(-127.0f));  // the power of which has the bits of 0
  const Floats shifted = limited + kRounder;
  const Floats rest = limited - (shifted - kRounder);
  return (rest * polynomial(kPower, rest) + 1.0f) *
         power_of_two(bits(shifted) - bits(splat(kRounder)));
}

constexpr float kLog2E = 0x1.715476p+0f;

// In every lane.
Floats largest(const float* row, std::int64_t count) {
  Floats most[2] = {load(row), load(row)};
  std::int64_t i = kLanes;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    most[0] = at_least(load(row + i), most[0]);
    most[1] = at_least(load(row + i + kLanes), most[1]);
  }
  for (; i < count; i += kLanes) most[0] = at_least(load(row + i), most[0]);
  return folded(at_least(most[1], most[0]), at_least);
}

void pair_rows(float* to, const void* first, const void* second, std::int64_t count) {
  const auto* low = static_cast<const unsigned char*>(first);
  const auto* high = static_cast<const unsigned char*>(second);
  const auto pair = [](Ints a, Ints b) { return from_bits(a | b << 16); };
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Halves a = load_as<Halves>(low + 2 * i),
                 b = high ? load_as<Halves>(high + 2 * i) : Halves{};
    store(to + i, pair(__builtin_convertvector(a, Ints), __builtin_convertvector(b, Ints)));
  }
  if (i == count) return;
  const auto bytes = static_cast<std::size_t>(count - i) * 2;
  Halves a = {}, b = {};
  std::memcpy(&a, low + 2 * i, bytes);
  if (high) std::memcpy(&b, high + 2 * i, bytes);
  store_part(to + i, pair(__builtin_convertvector(a, Ints), __builtin_convertvector(b, Ints)),
             count - i);
}

// Where the numbers of a softened row go: in place, or rounded into its first half, which is always
// behind what is still to be read.
struct Single {
  static void write(float* row, std::int64_t at, Floats x) { store(row + at, x); }
};
struct Brain {
  static void write(float* row, std::int64_t at, Floats x) {
    unsigned char* to = reinterpret_cast<unsigned char*>(row) + 2 * at;
#if defined(__AVX512BF16__)
    const __m256bh v = _mm512_cvtneps_pbh((__m512)x);  // subnormals become 0
#else
    const Halves v = __builtin_convertvector(bits(round_bf16(x)) >> 16, Halves);
#endif
    std::memcpy(to, &v, sizeof v);
  }
};

// The numbers of a row become exp(number - shift); their sum.
template <class To>
float soften_row(float* row, std::int64_t count, Floats shift) {
  Floats sum[2] = {};
  std::int64_t i = 0;
  const auto step = [&](std::int64_t at, int s) {
    const Floats p = power_of_two_of((load(row + at) - shift) * kLog2E);
    To::write(row, at, p);
    sum[s] += p;
  };
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) step(i, 0), step(i + kLanes, 1);
  if (i < count) step(i, 0);
  return folded(sum[0] + sum[1], [](Floats a, Floats b) { return a + b; })[0];
}

template <class To>
void soften(float* tile, std::int64_t rows, std::int64_t columns, std::int64_t pitch, float* top,
            float* total, float* factor) {
  const std::int64_t whole = columns / kLanes * kLanes,
                     padded = columns > whole ? whole + kLanes : whole;
  Ints lanes;
  for (int i = 0; i < kLanes; ++i) lanes[i] = i;
  const Ints is_column = lanes < static_cast<std::int32_t>(columns - whole);
  for (std::int64_t r = 0; r < rows; ++r) {
    float* row = tile + r * pitch;
    // Stored as it will be loaded, a vector at a time: anything else would wait for the cache.
    if (whole < padded)
      store(row + whole, is_column ? load(row + whole) : splat(-__builtin_inff()));
    const Floats before = splat(top[r]), most = at_least(largest(row, padded), before);
    // A row of -inf alone so far has no top to subtract.
    const Floats shift = most == splat(-__builtin_inff()) ? Floats{} : most;
    const float sum = soften_row<To>(row, padded, shift);
    factor[r] = power_of_two_of((before - shift) * kLog2E)[0];
    total[r] = total[r] * factor[r] + sum;
    top[r] = most[0];
  }
}

}  // namespace

void fill_attention(Table& table) {
  table.pair_rows = pair_rows;
  table.soften = soften<Single>;
  table.soften_pairs = soften<Brain>;
}

}  // namespace tensor::simd::TENSOR_SIMD_ISA
