#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tensor::fuzzing::log(std::as_bytes(std::span(data, size)));
  return 0;
}
