// Executables on a GPU whose inputs and outputs lie on the host, on the GPU, or on both.
#include "src/kernels/cuda/device.h"
#include "tensor/compile.h"
#include "tests/device/gpu.h"
#include "tests/error_of.h"

namespace tensor {
namespace {

using check::error_of;

class RunOnDevice : public OnGpu {
 protected:
  // A product, a view of it, an image whose channels lie last, an input, a constant, and the
  // product again.
  Tensors mixed(const Tensors& in) const {
    const Tensor y = relu(matmul(in[0], weight_));
    const Tensor map = conv2d(in[1], kernel_);
    return {y, y.transpose(), map, in[0], bias_, y, in[0](slice(1, 3))};
  }
  void expect_mixed(const Tensors& got) const {
    const Tensors want = mixed({x_, image_});
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      // Sums of 27 terms.
      expect_near(got[i].to("cpu"), want[i], 64 * 0x1p-23, "output " + std::to_string(i));
  }
  Executable compiled() const {
    return compile([this](const Tensors& in) { return mixed(in); }, Tensors{x_, image_},
                   {.device = gpu_});
  }

  Tensor weight_ = random_.normal({8, 6}), kernel_ = random_.normal({4, 3, 3, 3}),
         bias_ = random_.normal({5}), x_ = random_.normal({4, 8}),
         image_ = random_.normal({1, 3, 6, 7});
};

TEST_F(RunOnDevice, InputsAndOutputsMayBeAnywhere) {
  const Executable f = compiled();
  const Tensor x = x_.to(gpu_), image = image_.to(gpu_);
  const std::vector<Tensors> inputs = {
      {x_, image_},
      {x, image},
      {x, image_},
      {x_.transpose().copy().transpose(), image_},   // not contiguous
      {x_.transpose().to(gpu_).transpose(), image},  // nor there
      {concatenate({zeros({1}), x_.flatten()}).to(gpu_)["1:"].reshape({4, 8}), image},  // unaligned
  };
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    SCOPED_TRACE(i);
    for (int again = 0; again < 3; ++again) {  // one by one, recorded, started
      const Tensors got = f(inputs[i]);
      for (const Tensor& y : got) EXPECT_EQ(y.device(), i == 0 || i == 3 ? Device() : gpu_);
      expect_mixed(got);
    }
    for (const bool on_gpu : {false, true}) {
      Tensors outputs;
      for (std::size_t k = 0; k < f.output_types().size(); ++k) {
        const TensorType& type = f.output_types()[k];
        outputs.push_back(empty(type.shape, type.dtype, (k % 2 == 0) == on_gpu ? gpu_ : Device()));
      }
      for (int again = 0; again < 3; ++again) {
        f.run(inputs[i], outputs);
        expect_mixed(outputs);
        for (Tensor& y : outputs) y(ellipsis) = -1;
      }
    }
  }
}

TEST_F(RunOnDevice, ResultsGoOnWithoutTheHost) {
  const Executable f =
      compile([this](const Tensors& in) -> Tensors { return {gelu(conv2d(in[0], kernel_))}; },
              Tensors{image_}, {.device = gpu_});
  const Tensor there = image_.to(gpu_);
  const Tensor map = f({there})[0];
  EXPECT_EQ(map.device(), gpu_);
  expect_near((map * 2 + map).to("cpu"), 3 * gelu(conv2d(image_, kernel_)), 64 * 0x1p-23);
}

TEST_F(RunOnDevice, CompiledTakesThemAsWell) {
  const Compiled f = Compiled([this](const Tensors& in) { return mixed(in); }, {.device = gpu_});
  expect_mixed(f(Tensors{x_.to(gpu_), image_.to(gpu_)}));
  expect_mixed(f(Tensors{x_, image_}));
}

TEST_F(RunOnDevice, WhatIsNotItsOwnIsRefused) {
  const Executable f = compiled();
  const Tensor x = x_.to(gpu_), image = image_.to(gpu_);
  Tensors outputs;
  for (const TensorType& type : f.output_types())
    outputs.push_back(empty(type.shape, type.dtype, gpu_));
  Tensors overlapping = outputs;
  overlapping[5] = overlapping[0];
  EXPECT_EQ(error_of([&] {
              f.run({x, image}, overlapping);
            }),
            "run: output 5 lies in the memory of output 0, need memory of its own: use "
            "empty(shape, dtype)");
  overlapping = outputs;
  overlapping[3] = x;
  EXPECT_NE(error_of([&] {
              f.run({x, image}, overlapping);
            }).find("in the memory of input 0"),
            std::string::npos);
  const Executable on_cpu =
      compile([](const Tensors& in) -> Tensors { return {in[0] + 1}; }, Tensors{x_});
  EXPECT_EQ(
      error_of([&] { on_cpu({x}); }),
      "run: input 0 lies on cuda:0, this executable runs on cpu: move it with to(\"cpu\"), or "
      "compile for cuda:0");
}

TEST_F(RunOnDevice, WhatLiesOnAnotherGpuIsRefused) {
  if (!has_two()) GTEST_SKIP() << "needs two GPUs";
  const Executable f = compiled();
  EXPECT_EQ(error_of([&] {
              f({x_.to("cuda:1"), image_.to(gpu_)});
            }),
            "run: input 0 lies on cuda:1, this executable runs on cuda:0: move it with "
            "to(\"cuda:0\"), or compile for cuda:1");
}

TEST_F(RunOnDevice, ModelsOnTheDeviceAreCompiledToo) {
  // Weights that were moved there become constants all the same.
  const Tensor weight = weight_.to(gpu_);
  const auto f = [&](const Tensors& in) -> Tensors { return {matmul(in[0], weight)}; };
  for (const Device device : {Device(), gpu_})
    expect_near(compile(f, Tensors{x_}, {.device = device})({x_})[0], matmul(x_, weight_),
                16 * 0x1p-23);
}

TEST_F(RunOnDevice, VerifyAndTimeTakeThem) {
  const Executable f = compiled();
  for (const GroupCheck& check : verify(f, {x_.to(gpu_), image_}))
    EXPECT_TRUE(check.ok()) << check.kernel;
  EXPECT_EQ(f.time({x_.to(gpu_), image_}, 2).size(), 2u);
}

}  // namespace
}  // namespace tensor
