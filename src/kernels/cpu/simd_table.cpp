// Which copies of the vector kernels this processor can run.
#include <cstdlib>
#include <string_view>
#include <vector>

#include "src/kernels/cpu/simd/table.h"

namespace tensor::simd {

// Defined by src/kernels/cpu/simd/entry.cpp, once for each instruction set.
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
#endif

namespace {

std::vector<const Table*> usable_tables() {
  const char* limit = std::getenv("TENSOR_MAX_ISA");
  const std::string_view most = limit ? limit : "";
  std::vector<const Table*> found;
#ifdef TENSOR_SIMD_X86
  // x86-64-v4 and x86-64-v3; see the flags in src/CMakeLists.txt.
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("bmi2");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512vl");
  if (has_avx512 && most != "avx2" && most != "baseline") found.push_back(&avx512::the_table());
  if (has_avx2 && most != "baseline") found.push_back(&avx2::the_table());
#endif
  found.push_back(&baseline::the_table());
  return found;
}

}  // namespace

const Table* const* tables(int* count) {
  static const std::vector<const Table*> found = usable_tables();
  *count = static_cast<int>(found.size());
  return found.data();
}

const Table& table() {
  int count;
  return *tables(&count)[0];
}

}  // namespace tensor::simd
