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

// What depends on elements runs on the host, between parts on the GPU.
TEST_F(OnnxOnGpu, RunsInParts) {
  using namespace by_hand;
  const Message m = model(graph(
      {node("MatMul", {"x", "w"}, {"h"}),
       node("ReduceMax", {"h"}, {"most"}, {attribute("axes", Ints{1}), attribute("keepdims", 0)}),
       node("Relu", {"most"}, {"flags"}), node("NonZero", {"flags"}, {"places"}),
       node("Reshape", {"places", "row"}, {"which"}), node("Gather", {"h", "which"}, {"g"}),
       node("MatMul", {"g", "w"}, {"y"})},
      {value("x", 1, {"n", "2"})}, {value("y", 1, {"k", "2"}), value("h", 1, {"n", "2"})},
      {tensor<float>("w", {1, -2, 0.5F, 3}, {2, 2}), tensor<std::int64_t>("row", {-1}, {1})}));
  const OnnxModel model = parsed(m);
  const Tensor x = array({{1.0F, 2.0F}, {-4.0F, -1.0F}, {0.0F, 0.0F}, {2.0F, 0.0F}}).to(f32);
  const auto want = model({x});
  const TensorFunction fast = model.in_parts({.device = gpu_});
  for (const Tensor& given : {x, x.to(gpu_)}) {
    const auto got = fast({given});
    for (std::size_t i = 0; i < want.size(); ++i) {
      EXPECT_FALSE(got[i].device().is_cuda());
      EXPECT_TRUE(array_equal(got[i], want[i]));  // sums of few binary fractions are exact
    }
  }
}

}  // namespace
}  // namespace tensor
