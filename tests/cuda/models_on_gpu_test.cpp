// Whole models in 16 and eight bits on a GPU: the reference checkpoints against their outputs in
// float64, the standard models kernel by kernel.
#include "tests/device/gpu.h"
#include "tests/models/narrow.h"
#include "tests/models/standard.h"

namespace tensor {
namespace {

class ModelsOnGpu : public OnGpu {};

TEST_F(ModelsOnGpu, ReferenceCheckpointsAreRight) {
  for (const std::string& folder : golden::folders(""))
    for (const DType dtype : {f16, bf16, i8}) {
      SCOPED_TRACE(name(dtype));
      golden::expect_right(folder, {.device = "cuda", .dtype = dtype});
    }
}

// Each a case of its own, so that several processes can share them out: references take seconds.
class StandardModelsOnGpu : public OnGpu,
                            public ::testing::WithParamInterface<std::pair<standard::Case, DType>> {
};

TEST_P(StandardModelsOnGpu, KernelsAreRight) {
  const auto& [c, dtype] = GetParam();
  const standard::Model model = standard::model(c);
  nn::randomize(model.parameters, 20);
  const nn::StateDict inputs = {{"pixel_values", random_.normal({1, 3, c.height, c.width})}};
  const models::NamedExecutable fast =
      models::compile_named(model.run, inputs, {.device = "cuda", .dtype = dtype});
  golden::expect_verified(fast.executable, fast.arguments(inputs));
}

std::vector<std::pair<standard::Case, DType>> cases_of_all_types() {
  std::vector<std::pair<standard::Case, DType>> all;
  for (const standard::Case& c : standard::cases())
    for (const DType dtype : {f16, bf16, i8}) all.emplace_back(c, dtype);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, StandardModelsOnGpu, ::testing::ValuesIn(cases_of_all_types()),
                         [](const auto& case_) {
                           return standard::word(case_.param.first) + "_" +
                                  std::string(name(case_.param.second));
                         });

}  // namespace
}  // namespace tensor
