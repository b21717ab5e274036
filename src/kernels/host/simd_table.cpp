// Which copies of the vector kernels this processor can run.
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
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
  [[maybe_unused]] const std::string_view most = most_wanted();  // other processors have one
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

// What the processor can do besides the instruction sets of the tables, from leaf 7 of CPUID.
struct Features {
  bool tiles_of_bf16 = false, tiles_of_bytes = false;
  bool wide_dots = false, dots = false;  // in vectors of 512 bits, and of 256
};

Features features() {
  Features found;
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return found;
  const bool has_tiles = d & 1u << 24;
  found.tiles_of_bf16 = has_tiles && d & 1u << 22;
  found.tiles_of_bytes = has_tiles && d & 1u << 25;
  found.wide_dots = c & 1u << 11;
  found.dots = __get_cpuid_count(7, 1, &a, &b, &c, &d) && a & 1u << 4;
#endif
  return found;
}

// Whether the system lets this process use tiles.
bool grants_tiles() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

bool wants_tiles() { return table().product_tiles && most_wanted() != "avx512_bf16"; }

}  // namespace

const Table* const* tables(int* count) {
  static const std::vector<const Table*> found = usable_tables();
  *count = static_cast<int>(found.size());
  return found.data();
}

bool has_tiles() {
  static const bool granted = wants_tiles() && features().tiles_of_bf16 && grants_tiles();
  return granted;
}

bool has_byte_tiles() {
  static const bool granted = wants_tiles() && features().tiles_of_bytes && grants_tiles();
  return granted;
}

bool has_byte_dots() {
  [[maybe_unused]] const std::string_view most = most_wanted();  // other processors have one
  if (!table().multiply_byte_dots || (!most.empty() && most != "avx512_bf16")) return false;
  return table().lanes == 16 ? features().wide_dots : features().dots;
}

const Table& table() {
  int count;
  return *tables(&count)[0];
}

}  // namespace tensor::simd
