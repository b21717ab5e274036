#include <filesystem>
#include <fstream>

#include "tests/fuzz/plan_seeds.h"
#include "tests/fuzz/targets.h"

// The seeds are made here: they are put into the first folder named, if that is empty.
extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  for (int i = 1; i < *count; ++i) {
    const std::filesystem::path folder = (*arguments)[i];
    if (!std::filesystem::is_directory(folder)) continue;
    if (!std::filesystem::is_empty(folder)) return 0;
    int number = 0;
    for (const std::string& seed : tensor::fuzzing::plan_seeds())
      std::ofstream(folder / ("seed" + std::to_string(number++)), std::ios::binary) << seed;
    return 0;
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tensor::fuzzing::plan(std::as_bytes(std::span(data, size)));
  tensor::fuzzing::plan_bytes(std::as_bytes(std::span(data, size)));
  return 0;
}
