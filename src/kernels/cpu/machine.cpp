// What the cost model assumes of this machine, from its instruction set and number of cores.
#include <unistd.h>

#include <algorithm>

#include "src/core/parallel.h"
#include "src/kernels/cpu/kernel.h"
#include "src/kernels/host/simd/table.h"
#ifdef TENSOR_WITH_ONEDNN
#include "src/kernels/cpu/onednn.h"
#endif

namespace tensor::cpu {

Machine this_machine(int threads) {
  Machine m;
  m.threads = threads > 0 ? threads : tensor::threads();
  const double cores = m.threads;
#if defined(__x86_64__)
  const bool wide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  m.has_bf16 = __builtin_cpu_supports("avx512bf16");
#else
  const bool wide = false;
#endif
#ifdef TENSOR_WITH_ONEDNN
  m.has_bf16 = m.has_bf16 && onednn_multiplies_bf16();
#endif
  m.f32_gflops = cores * (wide ? 110 : 30);
  m.bf16_gflops = m.f32_gflops * (m.has_bf16 ? 2 : 1);
  m.tile_gflops = m.has_bf16 && simd::has_tiles() ? cores * 1000 : 0;
  // Four products an instruction; without that, half as many again as f32's (AVX2).
  m.byte_gflops = simd::has_byte_tiles()  ? cores * 2000
                  : simd::has_byte_dots() ? m.f32_gflops * 4
                                          : m.f32_gflops * 1.5;
  m.cache_gbps = cores * 40;
  m.memory_gbps = 15 + std::min(cores, 4.0) * 10;
  m.simple_gops = cores * (wide ? 8 : 3);
  m.special_gops = cores * (wide ? 1.5 : 0.3);
#ifdef _SC_LEVEL2_CACHE_SIZE
  if (const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE); bytes > 0)
    m.near_cache_bytes = static_cast<double>(bytes);
#endif
#ifdef _SC_LEVEL3_CACHE_SIZE
  if (const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE); bytes > 0)
    m.cache_bytes = static_cast<double>(bytes);
#endif
  return m;
}

}  // namespace tensor::cpu
