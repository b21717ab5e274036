// Lines of an image's elements combined into one: weighted sums and maxima.
#include "functions.h"
#include "parts.h"

namespace tensor::simd::TENSOR_SIMD_ISA {
namespace {

struct Single {
  static Floats read(const void* line, std::int64_t at) {
    return load(static_cast<const float*>(line) + at);
  }
  static Floats read_part(const void* line, std::int64_t at, std::int64_t count) {
    return load_part(static_cast<const float*>(line) + at, count);
  }
};

template <Floats (*widen)(Ints)>
struct Short {
  static Floats read(const void* line, std::int64_t at) {
    const Halves x = load_as<Halves>(static_cast<const std::uint16_t*>(line) + at);
    return widen(__builtin_convertvector(x, Ints));
  }
  static Floats read_part(const void* line, std::int64_t at, std::int64_t count) {
    Halves x = {};
    std::memcpy(&x, static_cast<const std::uint16_t*>(line) + at,
                static_cast<std::size_t>(count) * 2);
    return widen(__builtin_convertvector(x, Ints));
  }
};
Floats widen_brain(Ints x) { return from_bits(x << 16); }

struct Sum {
  static Floats first(Floats x, float weight) { return x * weight; }
  static Floats next(Floats so_far, Floats x, float weight) { return so_far + x * weight; }
};
struct Largest {
  static Floats first(Floats x, float) { return x; }
  static Floats next(Floats so_far, Floats x, float) { return larger(so_far, x); }
};

template <class Fold, class Read>
void fold(float* to, const void* const* lines, const float* weights, std::int64_t line_count,
          std::int64_t count) {
  constexpr int kStreams = 4;
  std::int64_t i = 0;
  for (; i + kStreams * kLanes <= count; i += kStreams * kLanes) {
    Floats result[kStreams];
    unroll<kStreams>(
        [&](int s) { result[s] = Fold::first(Read::read(lines[0], i + s * kLanes), *weights); });
    for (std::int64_t k = 1; k < line_count; ++k)
      unroll<kStreams>([&](int s) {
        result[s] = Fold::next(result[s], Read::read(lines[k], i + s * kLanes), weights[k]);
      });
    unroll<kStreams>([&](int s) { store(to + i + s * kLanes, result[s]); });
  }
  for (; i + kLanes <= count; i += kLanes) {
    Floats result = Fold::first(Read::read(lines[0], i), *weights);
    for (std::int64_t k = 1; k < line_count; ++k)
      result = Fold::next(result, Read::read(lines[k], i), weights[k]);
    store(to + i, result);
  }
  if (i == count) return;
  Floats result = Fold::first(Read::read_part(lines[0], i, count - i), *weights);
  for (std::int64_t k = 1; k < line_count; ++k)
    result = Fold::next(result, Read::read_part(lines[k], i, count - i), weights[k]);
  store_part(to + i, result, count - i);
}

void squares(float* to, const void* const* lines, const float* sums, std::int64_t line_count,
             std::int64_t count) {
  constexpr int kStreams = 4;
  const float part = 1.f / static_cast<float>(line_count);
  const auto add = [](Floats& result, Floats x, Floats mean) {
    const Floats far = x - mean;
    result = result + far * far;
  };
  std::int64_t i = 0;
  for (; i + kStreams * kLanes <= count; i += kStreams * kLanes) {
    Floats result[kStreams] = {}, mean[kStreams];
    unroll<kStreams>([&](int s) { mean[s] = load(sums + i + s * kLanes) * part; });
    for (std::int64_t k = 0; k < line_count; ++k)
      unroll<kStreams>(
          [&](int s) { add(result[s], Single::read(lines[k], i + s * kLanes), mean[s]); });
    unroll<kStreams>([&](int s) { store(to + i + s * kLanes, result[s]); });
  }
  for (; i < count; i += kLanes) {
    const std::int64_t left = count - i < kLanes ? count - i : kLanes;
    const Floats mean = load_part(sums + i, left) * part;
    Floats result = {};
    for (std::int64_t k = 0; k < line_count; ++k)
      add(result, Single::read_part(lines[k], i, left), mean);
    if (left < kLanes)
      store_part(to + i, result, left);
    else
      store(to + i, result);
  }
}

}  // namespace

void fill_lines(Table& table) {
  const auto set = [&](Storage type, auto sum, auto largest) {
    table.weighted_sum[static_cast<int>(type)] = sum;
    table.largest[static_cast<int>(type)] = largest;
  };
  set(Storage::f16, fold<Sum, Short<float_of_half>>, fold<Largest, Short<float_of_half>>);
  set(Storage::bf16, fold<Sum, Short<widen_brain>>, fold<Largest, Short<widen_brain>>);
  set(Storage::f32, fold<Sum, Single>, fold<Largest, Single>);
  table.squares = squares;
}

}  // namespace tensor::simd::TENSOR_SIMD_ISA
