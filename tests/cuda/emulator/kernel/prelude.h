// CUDA C++ as far as kernels use it, for the host's compiler: included ahead of a kernel's text.
// Every load and store is instrumented (kernel-address sanitizer, calls only), and asks the
// emulator.
#pragma once

#include "gpu.h"

#define TENSOR_EMULATED 1
#define __CUDA_ARCH__ TENSOR_EMULATED_ARCH
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __align__(bytes) alignas(bytes)

extern "C" {
extern tensor::emulated::Gpu* tensor_gpu;
extern const tensor::emulated::Here* tensor_here;
}

#define threadIdx (tensor_here->thread)
#define blockIdx (tensor_here->block)
#define blockDim (tensor_here->block_size)
#define gridDim (tensor_here->grid)
constexpr int warpSize = 32;

namespace tensor::emulated {

template <class T>
struct Plain {
  using type = T;
};
template <class T>
struct Plain<const T> {
  using type = T;
};

/// A variable in shared memory; `key` tells variables apart.
template <class T, unsigned long kAlignment>
T& shared_variable(const void* key) {
  constexpr unsigned long kAtLeast = alignof(T) > kAlignment ? alignof(T) : kAlignment;
  return *static_cast<T*>(tensor_gpu->shared_variable(key, sizeof(T), kAtLeast));
}

template <unsigned... kIndex>
struct Indices {};

/// Calls a kernel with the addresses of its arguments.
template <class... T>
struct KernelOf {
  void (*kernel)(T...);
  template <unsigned... kIndex>
  __attribute__((no_sanitize("kernel-address"))) void call(void** arguments,
                                                           Indices<kIndex...>) const {
    kernel(*static_cast<typename Plain<T>::type*>(arguments[kIndex])...);
  }
  __attribute__((no_sanitize("kernel-address"))) void operator()(void** arguments) const {
    call(arguments, Indices<__integer_pack(sizeof...(T))...>{});
  }
  static unsigned sizes(unsigned* to) {
    const unsigned all[] = {sizeof(T)..., 0};
    for (unsigned i = 0; i < sizeof...(T); ++i) to[i] = all[i];
    return sizeof...(T);
  }
};
template <class... T>
KernelOf<T...> kernel_of(void (*kernel)(T...)) {
  return {kernel};
}

template <class T>
u64 bits_of(T value) {
  u64 bits = 0;
  __builtin_memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
T of_bits(u64 bits) {
  T value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
T shuffled(u32 mask, T value, Shuffle kind, int parameter, int width) {
  return of_bits<T>(tensor_gpu->shuffle(mask, bits_of(value), kind, parameter, width));
}

}  // namespace tensor::emulated

// ---- Synchronisation and exchange within a block

inline void __syncthreads() { tensor_gpu->sync_threads(); }
inline void __syncwarp(unsigned mask = ~0u) { tensor_gpu->sync_warp(mask); }
inline unsigned __ballot_sync(unsigned mask, bool vote) { return tensor_gpu->ballot(mask, vote); }
inline bool __any_sync(unsigned mask, bool vote) { return tensor_gpu->ballot(mask, vote) != 0; }
inline bool __all_sync(unsigned mask, bool vote) { return tensor_gpu->ballot(mask, !vote) == 0; }
template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
  return tensor::emulated::shuffled(mask, value, tensor::emulated::Shuffle::at, lane, width);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  return tensor::emulated::shuffled(mask, value, tensor::emulated::Shuffle::up,
                                    static_cast<int>(delta), width);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  return tensor::emulated::shuffled(mask, value, tensor::emulated::Shuffle::down,
                                    static_cast<int>(delta), width);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  return tensor::emulated::shuffled(mask, value, tensor::emulated::Shuffle::exclusive_or, lanes,
                                    width);
}
inline void __threadfence() {}
inline void __threadfence_block() {}
template <class T>
T atomicAdd(T* address, T value) {
  const T before = *address;
  *address = before + value;
  return before;
}
template <class T>
T atomicMax(T* address, T value) {
  const T before = *address;
  if (value > before) *address = value;
  return before;
}
template <class T>
T atomicMin(T* address, T value) {
  const T before = *address;
  if (value < before) *address = value;
  return before;
}
template <class T>
T __ldg(const T* address) {
  return *address;
}

// ---- Numbers

#define TENSOR_VECTOR(name, type)                                    \
  struct alignas(2 * sizeof(type)) name##2 {                         \
    type x, y;                                                       \
  };                                                                 \
  struct name##3 {                                                   \
    type x, y, z;                                                    \
  };                                                                 \
  struct alignas(sizeof(type) > 4 ? 16 : 4 * sizeof(type)) name##4 { \
    type x, y, z, w;                                                 \
  };                                                                 \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }   \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
TENSOR_VECTOR(float, float)
TENSOR_VECTOR(double, double)
TENSOR_VECTOR(int, int)
TENSOR_VECTOR(uint, unsigned)
TENSOR_VECTOR(short, short)
TENSOR_VECTOR(ushort, unsigned short)
TENSOR_VECTOR(char, signed char)
TENSOR_VECTOR(uchar, unsigned char)
TENSOR_VECTOR(longlong, long long)
TENSOR_VECTOR(ulonglong, unsigned long long)
#undef TENSOR_VECTOR

#define TENSOR_EXTREMES(type)                               \
  inline type min(type a, type b) { return b < a ? b : a; } \
  inline type max(type a, type b) { return a < b ? b : a; }
TENSOR_EXTREMES(int)
TENSOR_EXTREMES(unsigned)
TENSOR_EXTREMES(long)
TENSOR_EXTREMES(unsigned long)
TENSOR_EXTREMES(long long)
TENSOR_EXTREMES(unsigned long long)
#undef TENSOR_EXTREMES
inline unsigned min(int a, unsigned b) { return min(static_cast<unsigned>(a), b); }
inline unsigned min(unsigned a, int b) { return min(a, static_cast<unsigned>(b)); }
inline unsigned max(int a, unsigned b) { return max(static_cast<unsigned>(a), b); }
inline unsigned max(unsigned a, int b) { return max(a, static_cast<unsigned>(b)); }

#define TENSOR_FUNCTION(name)               \
  extern "C" double name(double) noexcept;  \
  extern "C" float name##f(float) noexcept; \
  inline float name(float x) noexcept { return name##f(x); }
TENSOR_FUNCTION(exp)
TENSOR_FUNCTION(exp2)
TENSOR_FUNCTION(expm1)
TENSOR_FUNCTION(log)
TENSOR_FUNCTION(log2)
TENSOR_FUNCTION(log10)
TENSOR_FUNCTION(log1p)
TENSOR_FUNCTION(sin)
TENSOR_FUNCTION(cos)
TENSOR_FUNCTION(tan)
TENSOR_FUNCTION(asin)
TENSOR_FUNCTION(acos)
TENSOR_FUNCTION(atan)
TENSOR_FUNCTION(sinh)
TENSOR_FUNCTION(cosh)
TENSOR_FUNCTION(tanh)
TENSOR_FUNCTION(erf)
TENSOR_FUNCTION(erfc)
TENSOR_FUNCTION(sqrt)
TENSOR_FUNCTION(cbrt)
TENSOR_FUNCTION(floor)
TENSOR_FUNCTION(ceil)
TENSOR_FUNCTION(trunc)
TENSOR_FUNCTION(round)
TENSOR_FUNCTION(rint)
TENSOR_FUNCTION(fabs)
#undef TENSOR_FUNCTION
#define TENSOR_FUNCTION(name)                      \
  extern "C" double name(double, double) noexcept; \
  extern "C" float name##f(float, float) noexcept; \
  inline float name(float x, float y) noexcept { return name##f(x, y); }
TENSOR_FUNCTION(pow)
TENSOR_FUNCTION(fmod)
TENSOR_FUNCTION(fmin)
TENSOR_FUNCTION(fmax)
TENSOR_FUNCTION(atan2)
TENSOR_FUNCTION(copysign)
#undef TENSOR_FUNCTION
extern "C" double fma(double, double, double) noexcept;
extern "C" float fmaf(float, float, float) noexcept;
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline int abs(int x) { return x < 0 ? -x : x; }
inline float abs(float x) { return fabsf(x); }
inline double abs(double x) { return fabs(x); }
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline double rsqrt(double x) { return 1 / sqrt(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1 / x; }
inline float __saturatef(float x) { return x > 0 ? fminf(x, 1) : 0; }
template <class T>
bool isnan(T x) {
  return x != x;
}
template <class T>
bool isfinite(T x) {
  return x - x == 0;
}
inline unsigned __float_as_uint(float x) {
  return tensor::emulated::of_bits<unsigned>(tensor::emulated::bits_of(x));
}
inline int __float_as_int(float x) { return static_cast<int>(__float_as_uint(x)); }
inline float __uint_as_float(unsigned x) { return tensor::emulated::of_bits<float>(x); }
inline float __int_as_float(int x) { return __uint_as_float(static_cast<unsigned>(x)); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const unsigned long long bytes = static_cast<unsigned long long>(b) << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned nibble = selector >> 4 * i & 15;
    const unsigned byte = bytes >> 8 * (nibble & 7) & 255;
    result |= (nibble & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
  }
  return result;
}
