// Kernels that are only compiled: whether NVRTC is there, and what its report finds fault with.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <regex>
#include <string>

#include "src/core/checksum.h"
#include "src/kernels/cuda/driver/compiler.h"
#include "tensor/error.h"
#include "tests/seed.h"

namespace tensor::cuda {

/// Why nothing can be compiled on this machine, so that a test may skip; empty if it can. With
/// TENSOR_GPU_COMPILER=need the error is the test's.
inline std::string no_compiler() {
  try {
    Compiler::get();
  } catch (const UserError& error) {
    const char* wish = std::getenv("TENSOR_GPU_COMPILER");
    if (wish && wish == std::string("need")) throw;
    return error.what();
  }
  return {};
}

/// What is wrong with a kernel by the report of ptxas, empty if nothing is. `spilled`: so many
/// bytes may be.
inline std::string trouble(const std::string& log, int spilled = 0) {
  static const std::regex memory(
      R"(\b(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads)");
  // C7510 and the like: products of warps wait for each other.
  static const std::regex serialized(R"(\bC75\d\d\b)");
  auto kernel = std::sregex_iterator(log.begin(), log.end(), memory);
  if (kernel == std::sregex_iterator()) return "no line of ptxas about spills:\n" + log;
  for (; kernel != std::sregex_iterator(); ++kernel) {
    const int frame = std::stoi((*kernel)[1]), stored = std::stoi((*kernel)[2]),
              loaded = std::stoi((*kernel)[3]);
    if (stored > spilled || (spilled == 0 && loaded > 0)) return "registers spill:\n" + log;
    if (frame > spilled) return "variables lie in memory:\n" + log;
  }
  if (std::regex_search(log, serialized)) return "the compiler changed its instructions:\n" + log;
  return {};
}

/// Whether this run compiles the kernel: always, or with TENSOR_KERNELS_EVERY=N for one of N, which
/// the seed says. NVRTC takes a second for each, and the tests have thousands.
inline bool is_drawn(const KernelSource& source, const std::string& architecture) {
  static const char* const every = std::getenv("TENSOR_KERNELS_EVERY");
  if (!every) return true;
  const std::uint64_t hash = hash_of(source.text, mixed(hash_of(architecture), check::seed()));
  return hash % std::stoull(every) == 0;
}

/// A kernel compiles, and the report finds fault with nothing.
inline void expect_no_trouble(const KernelSource& source, const std::string& architecture,
                              int spilled = 0) {
  if (!is_drawn(source, architecture)) return;
  EXPECT_EQ(trouble(Compiler::get().compile(source, architecture).log, spilled), "") << source.name;
}

}  // namespace tensor::cuda
