// Executables on a GPU whose inputs and outputs lie on the host, on the GPU, or on both.
#include <fstream>
#include <sstream>

#include "src/kernels/cuda/driver/device.h"
#include "tensor/compile.h"
#include "tests/device/gpu.h"
#include "tests/error_of.h"
#include "tests/stopped.h"
#include "tests/temporary_folder.h"

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

  std::vector<Device> devices() const {
    return has_two() ? std::vector<Device>{gpu_, "cuda:1"} : std::vector<Device>{gpu_};
  }
  // By all that tells of an executable.
  static void expect_checked_and_timed(const Executable& f, const Tensors& in) {
    const std::vector<GroupCheck> checks = verify(f, in);
    EXPECT_EQ(checks.size(), f.group_count());
    for (const GroupCheck& check : checks)
      EXPECT_TRUE(check.ok()) << check.kernel << ": " << check.error << " > " << check.bound;
    EXPECT_EQ(f.time(in, 2).size(), 2u);
    std::ostringstream report;
    f.report(report, in, 1);
    const check::TemporaryFolder folder;
    f.profile(folder / "trace.json", in);
    std::ifstream file(folder / "trace.json");
    const std::string trace{std::istreambuf_iterator<char>(file), {}};
    std::size_t timed = 0;
    for (auto at = trace.find("\"dur\":"); at != std::string::npos;
         at = trace.find("\"dur\":", at + 1))
      ++timed;
    EXPECT_EQ(timed, f.group_count());
    for (const GroupCheck& check : checks) {
      EXPECT_NE(report.str().find("[" + check.kernel + "]"), std::string::npos) << report.str();
      EXPECT_NE(trace.find("\"kernel\":\"" + check.kernel + "\""), std::string::npos) << trace;
    }
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

struct Numbers {
  DType dtype;
  bool tf32;
  double rounding;  // of a product's operands: half the distance of 1 to the next number
};
constexpr Numbers kNumbers[] = {
    {f32, false, 0}, {f32, true, 0x1p-11}, {f16, false, 0x1p-11}, {bf16, false, 0x1p-8}};

// The variance of a product's errors, where that of its first operand's is given. Both operands are
// rounded (an image between convolutions once, as operand), and each of at most 144 additions
// rounds or truncates a sum in float32. The errors are as good as independent: so their variances
// add, and reach the product through the squares of what they are multiplied by.
template <class Product>
Tensor error_variance(const Numbers& numbers, const Product& product, const Tensor& x,
                      const Tensor& variance, const Tensor& weight) {
  const double one = 2 * numbers.rounding * numbers.rounding + 144 * 0x1p-46;
  return product(variance, weight * weight) + one * product(x * x, weight * weight);
}

TEST_F(RunOnDevice, EveryTypeOfNumbersAgreesWithTheEagerRun) {
  const Tensor first = random_.normal({32, 64}, 0, 0.2), second = random_.normal({64, 16}, 0, 0.15),
               bias = random_.normal({64}), patch = random_.normal({16, 8, 3, 3}, 0, 0.1),
               kernel = random_.normal({8, 16, 3, 3}, 0, 0.1), x = random_.normal({24, 32}),
               image = random_.normal({1, 8, 6, 7});
  const auto convolved = [](const Tensor& in, const Tensor& weight) {
    return conv2d(in, weight, {}, {.padding = 1});
  };
  const auto f = [&](const Tensors& in) -> Tensors {
    return {softmax(matmul(relu(matmul(in[0], first) + bias), second), -1),
            convolved(relu(convolved(in[1], patch)), kernel)};
  };
  const Tensors want = f({x, image});
  for (const Numbers& numbers : kNumbers) {
    SCOPED_TRACE(std::string(name(numbers.dtype)) + (numbers.tf32 ? " as tf32" : ""));
    constexpr double kSure = 4;  // standard deviations, for roundings that are all the largest
    const auto bound_of_two = [&](const auto& product, const Tensor& in, const Tensor& between,
                                  const Tensor& one, const Tensor& two) {
      const Tensor variance = error_variance(numbers, product, in, zeros_like(in), one);
      return kSure * sqrt(error_variance(numbers, product, between, variance, two));
    };
    const Tensor score = bound_of_two(matmul, x, relu(matmul(x, first) + bias), first, second);
    // Scores that are wrong by e make weights of softmax wrong by a factor of exp(2e); its own
    // exponentials and sum are good to a few roundings of float32.
    const Tensors bounds = {
        want[0] * (expm1(2 * max(score, -1, true)) + 16 * 0x1p-23),
        bound_of_two(convolved, image, relu(convolved(image, patch)), patch, kernel)};
    for (const Device& device : devices()) {
      SCOPED_TRACE(testing::Message() << device);
      const Executable fast = compile(
          f, Tensors{x, image}, {.device = device, .dtype = numbers.dtype, .tf32 = numbers.tf32});
      for (const Tensors& in : {Tensors{x, image}, Tensors{x.to(device), image.to(device)}}) {
        const Tensors got = fast(in);
        for (std::size_t i = 0; i < want.size(); ++i)
          EXPECT_TRUE(all(abs(got[i].to("cpu") - want[i]) <= bounds[i]).item<bool>())
              << "output " << i << " is wrong by up to "
              << max(abs(got[i].to("cpu") - want[i]) / bounds[i]).item() << " of the bound";
      }
      expect_checked_and_timed(fast, {x, image});
    }
  }
}

TEST_F(RunOnDevice, StopsBetweenKernels) {
  const Tensors in = {random_.normal({4, 64}), random_.normal({64, 64})};
  const auto f = [](const Tensors& x) { return check::chain(x, 20); };
  const Executable fast = compile(f, in, {.device = gpu_});
  check::expect_stops(fast, in);
  check::expect_stops(fast, {in[0].to(gpu_), in[1]});
}

TEST_F(RunOnDevice, VerifyAndTimeTakeThem) {
  const Executable f = compiled();
  for (const GroupCheck& check : verify(f, {x_.to(gpu_), image_}))
    EXPECT_TRUE(check.ok()) << check.kernel;
  EXPECT_EQ(f.time({x_.to(gpu_), image_}, 2).size(), 2u);
}

// No kernel's row is of one number; what then runs it does not matter.
TEST_F(RunOnDevice, SoftmaxOfOneNumberIsOne) {
  const auto f = compile([](const Tensor& in) { return softmax(in * 3, -1); }, {.device = gpu_});
  expect_same(f(random_.normal({5, 1})), ones({5, 1}));
}

}  // namespace
}  // namespace tensor
