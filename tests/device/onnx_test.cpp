// ONNX models on tensors of a GPU, against the same on the host.
#include "tensor/compile.h"
#include "tests/device/gpu.h"
#include "tests/onnx_writer.h"

namespace tensor {
namespace {

class OnnxOnGpu : public OnGpu {};

// Weights go to the device once; shapes, positions and sizes stay on the host.
TEST_F(OnnxOnGpu, RunsEagerlyAndCompiled) {
  using namespace by_hand;
  const Message m = model(
      graph({node("Shape", {"x"}, {"s"}), node("Gather", {"s", "one"}, {"n"}),
             node("Cast", {"n"}, {"f"}, {attribute("to", 1)}), node("Mul", {"w", "f"}, {"wf"}),
             node("Conv", {"x", "wf"}, {"c"}), node("Resize", {"c", "", "", "size"}, {"r"}),
             node("Gather", {"r", "places"}, {"g"}, {attribute("axis", 3)}),
             node("Reshape", {"g", "rows"}, {"y"})},
            {value("x", 1, {"n", "2", "4", "4"})}, {value("y", 1, {"n", "k"})},
            {tensor<float>("w", {1, -2, 0.5F, 3}, {2, 2, 1, 1}),
             tensor<std::int64_t>("one", {1}, {}), tensor<std::int64_t>("size", {1, 2, 6, 6}, {4}),
             tensor<std::int64_t>("places", {5, 0, 1}, {3}),
             tensor<std::int64_t>("rows", {0, -1}, {2})}));
  const OnnxModel model = parsed(m);
  const Tensor x = random_.normal({1, 2, 4, 4});
  const Tensor want = model({x})[0];
  for (int i = 0; i < 2; ++i) {
    const Tensor got = model({x.to(gpu_)})[0];
    EXPECT_EQ(got.device(), gpu_);
    expect_near(got.to("cpu"), want, 16 * 0x1p-23);
  }
  const auto fast = compile(model, {.device = gpu_});
  expect_near(fast({x})[0], want, 16 * 0x1p-23);
}

}  // namespace
}  // namespace tensor
