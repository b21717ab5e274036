// Whole models in 16 bits on a GPU: the reference checkpoints against their outputs in float64, the
// standard models kernel by kernel.
#include "tests/device/gpu.h"
#include "tests/models/narrow.h"
#include "tests/models/standard.h"

namespace tensor {
namespace {

class ModelsOnGpu : public OnGpu {};

TEST_F(ModelsOnGpu, ReferenceCheckpointsAreRight) {
  for (const std::string& folder : golden::folders(""))
    for (const DType dtype : {f16, bf16}) {
      SCOPED_TRACE(name(dtype));
      golden::expect_right(folder, {.dtype = dtype, .device = "cuda"});
    }
}

TEST_F(ModelsOnGpu, KernelsOfStandardModelsAreRight) {
  for (const standard::Case& c : standard::cases()) {
    const standard::Model model = standard::model(c);
    nn::randomize(model.parameters, 20);
    const nn::StateDict inputs = {{"pixel_values", random_.normal({1, 3, c.height, c.width})}};
    for (const DType dtype : {f16, bf16}) {
      SCOPED_TRACE(standard::word(c) + " " + std::string(name(dtype)));
      const models::NamedExecutable fast =
          models::compile_named(model.run, inputs, {.dtype = dtype, .device = "cuda"});
      golden::expect_verified(fast.executable, fast.arguments(inputs));
    }
  }
}

}  // namespace
}  // namespace tensor
