// Ranges for NVIDIA's profilers, as the pretended library of NVTX saw them.
#include <algorithm>

#include "tensor/compile.h"
#include "tests/cuda/emulator/driver.h"
#include "tests/device/gpu.h"

namespace tensor {
namespace {

class RangesOnGpu : public OnGpu {};

TEST_F(RangesOnGpu, StagesAndRunsSpeakTheModelsWords) {
  const Tensor weight = random_.normal({8, 8}), x = random_.normal({4, 8});
  const auto f = [&](const Tensors& in) -> Tensors { return {matmul(in[0], weight)}; };
  emulator::driver_ranges();
  const Executable fast =
      compile(f, Tensors{x}, {.device = gpu_, .names = {{"head.classifier.weight", weight}}});
  const std::vector<std::string> compiling = emulator::driver_ranges();
  for (const char* stage : {">compile: trace", ">compile: fuse", ">compile: link"})
    EXPECT_EQ(std::count(compiling.begin(), compiling.end(), stage), 1) << stage;
  fast({x});
  EXPECT_EQ(
      emulator::driver_ranges(),
      (std::vector<std::string>{">run head.classifier", ">head.classifier: matmul", "<", "<"}));
  // Nothing of the CPU.
  compile(f, Tensors{x})({x});
  EXPECT_TRUE(emulator::driver_ranges().empty());
}

}  // namespace
}  // namespace tensor
