// The functions of src/kernels/cuda/templates/ptx.h, on the emulated GPU. What they mean is said
// there.
#pragma once

#include "gpu.h"

namespace tensor::device {

using emulated::u16;
using emulated::u32;
using emulated::u64;

inline u32 shared_address(const void* pointer) { return tensor_gpu->shared_address(pointer); }
inline bool elect_one() { return tensor_gpu->elect_one(); }

// ---- mbarrier

inline void barrier_init(u32 barrier, u32 arrivals) { tensor_gpu->barrier_init(barrier, arrivals); }
inline void barrier_init_fence() { tensor_gpu->barrier_init_fence(); }
inline void barrier_arrive(u32 barrier) { tensor_gpu->barrier_arrive(barrier); }
inline void barrier_expect(u32 barrier, u32 bytes) { tensor_gpu->barrier_expect(barrier, bytes); }
inline void barrier_wait(u32 barrier, u32 parity) {
  tensor_gpu->barrier_wait(barrier, parity, false);
}
inline void named_barrier(u32 number, u32 threads) {
  tensor_gpu->named_barrier(number, threads, true);
}
inline void named_barrier_arrive(u32 number, u32 threads) {
  tensor_gpu->named_barrier(number, threads, false);
}

// ---- The tensor memory accelerator

struct alignas(64) TensorMap {
  u64 words[16];
};

inline void prefetch(const TensorMap& map) { tensor_gpu->check_map(map.words); }
inline u64 evict_first() { return 0; }

template <int kAxes>
emulated::BoxCopy box_copy(const TensorMap& map, u32 shared, const int (&at)[kAxes]) {
  emulated::BoxCopy copy;
  copy.map = map.words;
  copy.axes = kAxes;
  for (int axis = 0; axis < kAxes; ++axis) copy.at[axis] = at[axis];
  copy.shared = shared;
  return copy;
}
template <int kAxes>
void load_box(u32 to, const TensorMap& map, u32 barrier, const int (&at)[kAxes]) {
  emulated::BoxCopy copy = box_copy(map, to, at);
  copy.barrier = barrier;
  tensor_gpu->load_box(copy);
}
inline void load_box(u32 to, const TensorMap& map, u32 barrier, int x, int y) {
  load_box(to, map, barrier, {x, y});
}
inline void load_box(u32 to, const TensorMap& map, u32 barrier, int x, int y, u64) {
  load_box(to, map, barrier, {x, y});
}
template <int kAxes>
void load_box_to_all(u32 to, const TensorMap& map, u32 barrier, const int (&at)[kAxes],
                     u16 blocks) {
  emulated::BoxCopy copy = box_copy(map, to, at);
  copy.barrier = barrier;
  copy.blocks = blocks;
  tensor_gpu->load_box(copy);
}
inline void load_pixels(u32 to, const TensorMap& map, u32 barrier, const int (&corner)[4],
                        const int (&shift)[2]) {
  emulated::BoxCopy copy = box_copy(map, to, corner);
  copy.barrier = barrier;
  copy.is_image = true;
  copy.shift[0] = shift[0];
  copy.shift[1] = shift[1];
  tensor_gpu->load_box(copy);
}
template <int kAxes>
void store_box(const TensorMap& map, u32 from, const int (&at)[kAxes]) {
  tensor_gpu->store_box(box_copy(map, from, at));
}
inline void store_box(const TensorMap& map, u32 from, int x, int y) {
  store_box(map, from, {x, y});
}
inline void store_commit() { tensor_gpu->store_commit(); }
template <int kPending = 0>
void store_wait_read() {
  tensor_gpu->store_wait(kPending);
}
inline void store_wait() { tensor_gpu->store_wait(0); }
inline void fence_for_copies() { tensor_gpu->fence_for_copies(); }

// ---- Copies by threads that arrive later

inline void copy_16(u32 to, const void* from, u32 bytes = 16) {
  tensor_gpu->copy_later(to, from, 16, bytes);
}
inline void copy_4(u32 to, const void* from, u32 bytes = 4) {
  tensor_gpu->copy_later(to, from, 4, bytes);
}
inline void copy_commit() { tensor_gpu->copy_commit(); }
template <int kPending>
void copy_wait() {
  tensor_gpu->copy_wait(kPending);
}

// ---- Clusters

inline u32 cluster_rank() { return tensor_gpu->cluster_rank(); }
inline void cluster_arrive() { tensor_gpu->cluster_arrive(); }
inline void cluster_wait() { tensor_gpu->cluster_wait(); }
inline u32 peer_address(u32 address, u32 rank) { return tensor_gpu->peer_address(address, rank); }
template <class T, int kCount>
void send(u32 peer, u32 barrier, const T (&value)[kCount]) {
  static_assert(sizeof(T) == 4 && (kCount == 2 || kCount == 4));
  tensor_gpu->send(peer, barrier, value, sizeof value);
}
inline void barrier_wait_for_sent(u32 barrier, u32 parity) {
  tensor_gpu->barrier_wait(barrier, parity, true);
}
template <class T, int kCount>
void load_own(T (&value)[kCount], u32 address) {
  static_assert(sizeof(T) == 4 && (kCount == 2 || kCount == 4));
  tensor_gpu->load_shared(value, address, sizeof value);
}
inline void barrier_arrive_peer(u32 peer) { tensor_gpu->barrier_arrive(peer); }

// ---- Programmatic dependent launch

inline void wait_for_previous() { tensor_gpu->wait_for_previous(); }
inline void launch_next() {}

// ---- Functions

inline float flushed(float x) { return x < 0x1p-126f && x > -0x1p-126f ? x * 0.f : x; }
inline float exp2_approximate(float x) { return flushed(exp2f(flushed(x))); }
inline float reciprocal_approximate(float x) { return flushed(1 / flushed(x)); }
inline float maximum_of(float a, float b) { return a >= b || a != a ? a : b; }
inline float minimum_of(float a, float b) { return a <= b || a != a ? a : b; }
inline signed char nearest_byte(float x) {
  return static_cast<signed char>(x != x ? 0 : x > 127 ? 127 : x < -128 ? -128 : rintf(x));
}

// ---- wgmma

inline void wgmma_fence() {}
inline void wgmma_commit() { tensor_gpu->group_commit(); }
template <int kPending>
void wgmma_wait() {
  tensor_gpu->group_wait(kPending);
}
inline void touch(float&) {}
inline void touch(int&) {}
inline void touch(u32&) {}
template <class T>
void keep_packed(T&) {}

inline u64 swizzled_tile(u32 address) {
  return u64{(address & 0x3ffff) >> 4} | u64{1} << 16 | u64{1024 >> 4} << 32 | u64{1} << 62;
}
inline u64 turned_swizzled_tile(u32 address, u32 panel_bytes) {
  return u64{(address & 0x3ffff) >> 4} | u64{panel_bytes >> 4} << 16 | u64{1024 >> 4} << 32 |
         u64{1} << 62;
}

template <int kCount>
void take_registers() {
  tensor_gpu->set_registers(kCount, true);
}
template <int kCount>
void give_registers() {
  tensor_gpu->set_registers(kCount, false);
}

// ---- Matrices from and to shared memory

inline void store_matrices(u32 row, const u32 (&m)[4]) {
  tensor_gpu->store_matrices(row, m, 4, false);
}
inline void store_matrices_transposed(u32 row, const u32 (&m)[4]) {
  tensor_gpu->store_matrices(row, m, 4, true);
}
inline void store_matrices_transposed(u32 row, u32 m0, u32 m1) {
  const u32 m[2] = {m0, m1};
  tensor_gpu->store_matrices(row, m, 2, true);
}
template <int kCount>
void load_matrices(u32 (&m)[kCount], u32 row) {
  static_assert(kCount == 2 || kCount == 4);
  tensor_gpu->load_matrices(m, kCount, false, row);
}
template <int kCount>
void load_matrices_transposed(u32 (&m)[kCount], u32 row) {
  static_assert(kCount == 2 || kCount == 4);
  tensor_gpu->load_matrices(m, kCount, true, row);
}

// ---- Numbers

struct Half {
  static constexpr emulated::Number kNumber = emulated::Number::half;
  u16 bits;
  explicit operator float() const { return tensor_gpu->from_half(bits); }
  static u32 pair(float low, float high) {
    return u32{tensor_gpu->to_half(low)} | u32{tensor_gpu->to_half(high)} << 16;
  }
  static void multiply(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    tensor_gpu->multiply(d, a, b, 16, kNumber);
  }
  static void multiply(float (&d)[4], const u32 (&a)[2], const u32 (&b)[1]) {
    tensor_gpu->multiply(d, a, b, 8, kNumber);
  }
};

struct Bfloat16 {
  static constexpr emulated::Number kNumber = emulated::Number::bfloat16;
  u16 bits;
  explicit operator float() const { return __uint_as_float(u32{bits} << 16); }
  static u32 rounded(float value) {
    const u32 bits = __float_as_uint(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return bits >> 16 | 0x40;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  }
  static u32 pair(float low, float high) { return rounded(low) | rounded(high) << 16; }
  static void multiply(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    tensor_gpu->multiply(d, a, b, 16, kNumber);
  }
  static void multiply(float (&d)[4], const u32 (&a)[2], const u32 (&b)[1]) {
    tensor_gpu->multiply(d, a, b, 8, kNumber);
  }
};

struct Bytes {
  static void multiply(int (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    tensor_gpu->multiply(d, a, b, 32, emulated::Number::byte);
  }
};

struct Tf32 {
  /// To nearest, ties away from zero.
  static u32 rounded(float value) {
    const u32 bits = __float_as_uint(value);
    return (bits & 0x7f800000) == 0x7f800000 ? bits : (bits + 0x1000) & ~0x1fffu;
  }
  static void multiply(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    tensor_gpu->multiply(d, a, b, 8, emulated::Number::tf32);
  }
};

template <class Element>
inline constexpr emulated::Number kNumberOf = Element::kNumber;
template <>
inline constexpr emulated::Number kNumberOf<signed char> = emulated::Number::byte;

template <int kColumns, class Element, bool kATurned, bool kBTurned>
emulated::GroupProduct group_product(void* sums, u64 b, int accumulates) {
  emulated::GroupProduct product;
  product.columns = kColumns;
  product.number = kNumberOf<Element>;
  product.a_turned = kATurned;
  product.b_turned = kBTurned;
  product.accumulates = accumulates != 0;
  product.b = b;
  product.sums = sums;
  return product;
}
/// What wgmma_text (src/kernels/cuda/wgmma.h) calls in place of the instruction.
template <int kColumns, class Element, bool kATurned, bool kBTurned, class Sum>
void emulated_wgmma(Sum (&sums)[kColumns / 2], u64 a, u64 b, int accumulates) {
  auto product = group_product<kColumns, Element, kATurned, kBTurned>(sums, b, accumulates);
  product.a = a;
  tensor_gpu->group_multiply(product);
}
template <int kColumns, class Element, bool kATurned, bool kBTurned>
void emulated_wgmma(float (&sums)[kColumns / 2], const u32 (&a)[4], u64 b, int accumulates) {
  auto product = group_product<kColumns, Element, kATurned, kBTurned>(sums, b, accumulates);
  product.has_registers = true;
  for (int i = 0; i < 4; ++i) product.a_registers[i] = a[i];
  tensor_gpu->group_multiply(product);
}

}  // namespace tensor::device
