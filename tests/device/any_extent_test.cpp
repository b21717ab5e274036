// A model compiled for inputs of several sizes with kernels that take any extents.
#include "src/compile.h"
#include "tests/device/gpu.h"

namespace tensor {
namespace {

using AnyExtent = OnGpu;

// A convolution, a product, a normalisation and an attention of one head.
Tensors any_extent_model(const Tensors& in, const Tensors& weights) {
  const Conv2dOptions options{2, 1};
  const Tensor image = relu(conv2d(in[0], weights[0], {}, options));
  const Tensor tokens = transpose(reshape(image, {image.shape(0), image.shape(1), -1}), {0, 2, 1});
  const Tensor rows = layer_norm(matmul(tokens, weights[1]), weights[2], weights[3], 1e-5);
  const Tensor scores = softmax(matmul(rows, transpose(rows, {0, 2, 1})) * 0.25, -1);
  return {matmul(scores, rows), mean(rows, {1})};
}

TEST_F(AnyExtent, KernelsServeSeveralSizes) {
  Generator random(5);
  const Tensors weights = {random.normal({16, 8, 3, 3}) * 0.2, random.normal({16, 16}) * 0.2,
                           random.normal({16}), random.normal({16})};
  const auto model = [&](const Tensors& in) { return any_extent_model(in, weights); };
  cuda::Machine machine = cuda::machine_of(cuda::Device::get().info());
  machine.any_extent = true;
  for (const Shape& shape : {Shape{1, 8, 9, 11}, Shape{2, 8, 7, 13}, Shape{1, 8, 12, 6}}) {
    const Tensor image = random.normal(shape);
    const Tensors want = model({image});
    for (const DType dtype : {f32, f16}) {
      const Executable executable = detail::compile(
          model, {image.type()}, {.device = "cuda", .dtype = dtype}, detail::cuda_target(machine));
      const Tensors got = executable({image});
      for (std::size_t i = 0; i < want.size(); ++i)
        expect_near(got[i], want[i], dtype == f32 ? 1e-5 : 2e-2, "result " + std::to_string(i));
    }
  }
}

}  // namespace
}  // namespace tensor
