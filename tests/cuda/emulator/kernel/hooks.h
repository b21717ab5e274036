// What instrumented code calls before every load and store, and where a pointer is not aligned for
// its type or an index lies outside of an array (the interfaces of GCC's sanitizers).
#pragma once

#include "gpu.h"

extern "C" {
tensor::emulated::Gpu* tensor_gpu = nullptr;
const tensor::emulated::Here* tensor_here = nullptr;
}

namespace tensor::emulated {

#define TENSOR_UNCHECKED __attribute__((no_sanitize("kernel-address", "undefined"), used, noinline))

#define TENSOR_HOOK(bytes)                                                                        \
  TENSOR_UNCHECKED void load##bytes(u64 at) asm("__asan_load" #bytes "_noabort");                 \
  TENSOR_UNCHECKED void load##bytes(u64 at) {                                                     \
    if (tensor_gpu)                                                                               \
      tensor_gpu->access(reinterpret_cast<void*>(at), bytes, false, __builtin_return_address(0)); \
  }                                                                                               \
  TENSOR_UNCHECKED void store##bytes(u64 at) asm("__asan_store" #bytes "_noabort");               \
  TENSOR_UNCHECKED void store##bytes(u64 at) {                                                    \
    if (tensor_gpu)                                                                               \
      tensor_gpu->access(reinterpret_cast<void*>(at), bytes, true, __builtin_return_address(0));  \
  }
TENSOR_HOOK(1)
TENSOR_HOOK(2)
TENSOR_HOOK(4)
TENSOR_HOOK(8)
TENSOR_HOOK(16)
#undef TENSOR_HOOK

TENSOR_UNCHECKED void load_any(u64 at, u64 bytes) asm("__asan_loadN_noabort");
TENSOR_UNCHECKED void load_any(u64 at, u64 bytes) {
  if (tensor_gpu)
    tensor_gpu->access(reinterpret_cast<void*>(at), bytes, false, __builtin_return_address(0));
}
TENSOR_UNCHECKED void store_any(u64 at, u64 bytes) asm("__asan_storeN_noabort");
TENSOR_UNCHECKED void store_any(u64 at, u64 bytes) {
  if (tensor_gpu)
    tensor_gpu->access(reinterpret_cast<void*>(at), bytes, true, __builtin_return_address(0));
}

struct SourceLocation {
  const char* file;
  u32 line, column;
};
struct TypeMismatch {
  SourceLocation location;
  const void* type;
  unsigned char log_alignment, kind;
};
TENSOR_UNCHECKED void misaligned(const TypeMismatch* what,
                                 u64 at) asm("__ubsan_handle_type_mismatch_v1");
TENSOR_UNCHECKED void misaligned(const TypeMismatch* what, u64 at) {
  if (tensor_gpu)
    tensor_gpu->misaligned(reinterpret_cast<void*>(at), u64{1} << what->log_alignment,
                           __builtin_return_address(0));
}
TENSOR_UNCHECKED void outside(const void*, u64 index) asm("__ubsan_handle_out_of_bounds");
TENSOR_UNCHECKED void outside(const void*, u64 index) {
  if (tensor_gpu)
    tensor_gpu->outside_of_array(static_cast<long long>(index), __builtin_return_address(0));
}

}  // namespace tensor::emulated
