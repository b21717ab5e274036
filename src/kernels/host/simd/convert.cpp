// Elements in memory to floats and back.
#include "functions.h"
#include "parts.h"

namespace tensor::simd::TENSOR_SIMD_ISA {
namespace {

template <class T>
T element(const void* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// ---- One type each: how a vector, and how one element, is read and written.

template <class T>
struct Integer {
  using Element = T;
  static float read(T x) { return static_cast<float>(x); }
  // Both bounds are powers of two or less than 2^24: exact as floats.
  static T write(float x) {
    constexpr bool is_signed = static_cast<T>(-1) < static_cast<T>(0);
    constexpr int bits = 8 * sizeof(T) - is_signed;
    constexpr float above = 2.0f * static_cast<float>(std::uint64_t{1} << (bits - 1));
    constexpr T highest = static_cast<T>(~std::uint64_t{0} >> (64 - bits));
    if (x != x) return 0;
    if (x >= above) return highest;
    if (is_signed ? x < -above : x < 0) return static_cast<T>(is_signed ? -highest - 1 : 0);
    return static_cast<T>(x);
  }
};
struct Boolean {
  using Element = std::uint8_t;
  static float read(std::uint8_t x) { return x != 0 ? 1.0f : 0.0f; }
  static std::uint8_t write(float x) { return x != 0; }
};
struct Single {
  using Element = float;
  static float read(float x) { return x; }
  static float write(float x) { return x; }
  static Floats read(Floats x) { return x; }
};
struct Half {
  using Element = std::uint16_t;
  static float read(std::uint16_t x) { return float_of_half(splat_bits(x))[0]; }
  static std::uint16_t write(float x) { return static_cast<std::uint16_t>(half_bits(splat(x))[0]); }
  static Floats widen(Ints x) { return float_of_half(x); }
  static Ints narrow(Floats x) { return half_bits(x); }
};
struct Brain {
  using Element = std::uint16_t;
  static Floats widen(Ints x) { return from_bits(x << 16); }
  static Ints narrow(Floats x) {
    const Ints nan = (bits(x) >> 16) | 0x40;
    return (x == x ? bits(round_bf16(x)) >> 16 : nan) & 0xffff;
  }
  static float read(std::uint16_t x) { return widen(splat_bits(x))[0]; }
  static std::uint16_t write(float x) { return static_cast<std::uint16_t>(narrow(splat(x))[0]); }
};

template <class T>
void load_elements(float* to, const void* from, std::int64_t stride, std::int64_t count) {
  using E = typename T::Element;
  const auto* bytes = static_cast<const unsigned char*>(from);
  const std::int64_t step = stride * static_cast<std::int64_t>(sizeof(E));
  for (std::int64_t i = 0; i < count; ++i) to[i] = T::read(element<E>(bytes + i * step));
}
template <class T>
void store_elements(void* to, std::int64_t stride, const float* from, std::int64_t count) {
  using E = typename T::Element;
  auto* bytes = static_cast<unsigned char*>(to);
  const std::int64_t step = stride * static_cast<std::int64_t>(sizeof(E));
  for (std::int64_t i = 0; i < count; ++i) {
    const E value = T::write(from[i]);
    std::memcpy(bytes + i * step, &value, sizeof value);
  }
}

// 16-bit floating types, a vector at a time where the elements lie in a row.
template <class T>
void load_short(float* to, const void* from, std::int64_t stride, std::int64_t count) {
  std::int64_t i = 0;
  const auto* elements = static_cast<const unsigned char*>(from);
  if (stride == 1)
    for (; i + kLanes <= count; i += kLanes)
      store(to + i, T::widen(__builtin_convertvector(load_as<Halves>(elements + 2 * i), Ints)));
  load_elements<T>(to + i, elements + 2 * stride * i, stride, count - i);
}
template <class T>
void store_short(void* to, std::int64_t stride, const float* from, std::int64_t count) {
  std::int64_t i = 0;
  auto* elements = static_cast<unsigned char*>(to);
  if (stride == 1)
    for (; i + kLanes <= count; i += kLanes) {
      const Halves v = __builtin_convertvector(T::narrow(load(from + i)), Halves);
      std::memcpy(elements + 2 * i, &v, sizeof v);
    }
  store_elements<T>(elements + 2 * stride * i, stride, from + i, count - i);
}

// Bytes of 0 or 1.
void load_boolean(float* to, const void* from, std::int64_t stride, std::int64_t count) {
  std::int64_t i = 0;
  const auto* elements = static_cast<const unsigned char*>(from);
  if (stride == 1)
    for (; i + kLanes <= count; i += kLanes) {
      const Ints wide = __builtin_convertvector(load_as<Bytes>(elements + i), Ints);
      store(to + i, truth(wide != 0));
    }
  load_elements<Boolean>(to + i, elements + stride * i, stride, count - i);
}

// Integers of eight bits with a sign, as Integer<std::int8_t> writes them.
void store_signed(void* to, std::int64_t stride, const float* from, std::int64_t count) {
  constexpr float kLeast = -128, kMost = 127;
  std::int64_t i = 0;
  auto* elements = static_cast<unsigned char*>(to);
  if (stride == 1)
    for (; i + kLanes <= count; i += kLanes) {
      const Floats x = load(from + i);
      const Floats inside = at_most(at_least(x == x ? x : Floats{}, splat(kLeast)), splat(kMost));
      const Bytes bytes = __builtin_convertvector(__builtin_convertvector(inside, Ints), Bytes);
      std::memcpy(elements + i, &bytes, sizeof bytes);
    }
  store_elements<Integer<std::int8_t>>(elements + stride * i, stride, from + i, count - i);
}

void load_single(float* to, const void* from, std::int64_t stride, std::int64_t count) {
  if (stride == 1)
    std::memcpy(to, from, static_cast<std::size_t>(count) * 4);
  else
    load_elements<Single>(to, from, stride, count);
}
void store_single(void* to, std::int64_t stride, const float* from, std::int64_t count) {
  if (stride == 1)
    std::memcpy(to, from, static_cast<std::size_t>(count) * 4);
  else
    store_elements<Single>(to, stride, from, count);
}

template <class T>
void finish(const Finish& f) {
  using E = typename T::Element;
  const float *sums = f.sums, *add = f.add;
  auto* to = static_cast<E*>(f.to);
  const std::int64_t whole = f.columns / kLanes * kLanes;
  const bool is_bounded = f.bounds.are_any();
  for (std::int64_t row = 0; row < f.rows; ++row, sums += f.sums_row, to += f.to_row) {
    for (std::int64_t i = 0; i < whole; i += kLanes) {
      Floats x = load(sums + i);
      if (add) x += load(add + i);
      if (is_bounded) x = bounded(x, f.bounds);
      if constexpr (sizeof(E) == 4)
        store(to + i, x);
      else
        store_as(to + i, __builtin_convertvector(T::narrow(x), Halves));
    }
    for (std::int64_t i = whole; i < f.columns; ++i) {
      float x = add ? sums[i] + add[i] : sums[i];
      if (x < 0) x *= f.bounds.slope;
      to[i] = T::write(x < f.bounds.least ? f.bounds.least : x > f.bounds.most ? f.bounds.most : x);
    }
    if (add) add += f.add_row;
  }
}

}  // namespace

void fill_conversions(Table& table) {
  table.finish[static_cast<int>(Storage::f32)] = finish<Single>;
  table.finish[static_cast<int>(Storage::f16)] = finish<Half>;
  table.finish[static_cast<int>(Storage::bf16)] = finish<Brain>;
  const auto set = [&](Storage type, auto load, auto store) {
    table.load[static_cast<int>(type)] = load;
    table.store[static_cast<int>(type)] = store;
  };
  set(Storage::boolean, load_boolean, store_elements<Boolean>);
  set(Storage::u8, load_elements<Integer<std::uint8_t>>, store_elements<Integer<std::uint8_t>>);
  set(Storage::i8, load_elements<Integer<std::int8_t>>, store_signed);
  set(Storage::i16, load_elements<Integer<std::int16_t>>, store_elements<Integer<std::int16_t>>);
  set(Storage::i32, load_elements<Integer<std::int32_t>>, store_elements<Integer<std::int32_t>>);
  set(Storage::i64, load_elements<Integer<std::int64_t>>, store_elements<Integer<std::int64_t>>);
  set(Storage::f16, load_short<Half>, store_short<Half>);
  set(Storage::bf16, load_short<Brain>, store_short<Brain>);
  set(Storage::f32, load_single, store_single);
}

}  // namespace tensor::simd::TENSOR_SIMD_ISA
