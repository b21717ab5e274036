// Which copies of the vector kernels this processor can run.
#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cstdlib>
#include <string_view>
#include <vector>

#include "src/kernels/host/simd/table.h"
#include "tensor/error.h"

namespace tensor::simd {

// Defined by src/kernels/host/simd/entry.cpp, once for each instruction set.
namespace baseline {
const Table& the_table();
}
#ifdef TENSOR_SIMD_X86
namespace avx2 {
const Table& the_table();
}
namespace avx512 {
const Table& the_table();
}
namespace avx512_bf16 {
const Table& the_table();
}
#endif

namespace {

std::string_view most_wanted() {
  const char* limit = std::getenv("TENSOR_MAX_ISA");
  const std::string_view most = limit ? limit : "";
  for (const std::string_view known : {"", "baseline", "avx2", "avx512", "avx512_bf16"})
    if (most == known) return most;
  fail("TENSOR_MAX_ISA", "got \"", most, "\", need baseline, avx2, avx512 or avx512_bf16: ",
       "leave it out for all that the processor has");
}

std::vector<const Table*> usable_tables() {
  const std::string_view most = most_wanted();
  std::vector<const Table*> found;
#ifdef TENSOR_SIMD_X86
  // x86-64-v4 and x86-64-v3; see the flags in src/CMakeLists.txt.
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("bmi2");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512vl");
  const bool wants_avx512 = most != "avx2" && most != "baseline";
  if (has_avx512 && __builtin_cpu_supports("avx512bf16") && wants_avx512 && most != "avx512")
    found.push_back(&avx512_bf16::the_table());
  if (has_avx512 && wants_avx512) found.push_back(&avx512::the_table());
  if (has_avx2 && most != "baseline") found.push_back(&avx2::the_table());
#endif
  found.push_back(&baseline::the_table());
  return found;
}

#if defined(__x86_64__) && defined(__linux__)
bool grants_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kBf16 = 1u << 22, kTiles = 1u << 24;  // of leaf 7, in edx
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & kBf16) || !(d & kTiles)) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#else
bool grants_tiles() { return false; }
#endif

}  // namespace

const Table* const* tables(int* count) {
  static const std::vector<const Table*> found = usable_tables();
  *count = static_cast<int>(found.size());
  return found.data();
}

bool has_tiles() {
  static const bool granted =
      table().product_tiles && most_wanted() != "avx512_bf16" && grants_tiles();
  return granted;
}

const Table& table() {
  int count;
  return *tables(&count)[0];
}

}  // namespace tensor::simd
