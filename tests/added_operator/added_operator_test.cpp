// The operators that check.sh adds: atan, a function of the C library, and tanhexp, composed of
// others.
#include <gtest/gtest.h>

#include <cmath>

#include "src/kernels/cuda/families.h"
#include "tensor/compile.h"
#include "tests/cuda/compiled.h"
#include "tests/cuda/emulator/group_case.h"
#include "tests/families.h"
#include "tests/kernels/group_testing.h"

namespace tensor {
namespace {

using Tensors = std::vector<Tensor>;

struct Added {
  Tensor (*f)(const Tensor&);
  double (*exact)(double);
};
constexpr Added kAdded[] = {
    {atan, [](double x) { return std::atan(x); }},
    {tanhexp, [](double x) { return x * std::tanh(std::exp(x)); }},
};

Tensor normal(const Shape& shape, DType dtype = f32) {
  static Generator random(7);
  return random.normal(shape).astype(dtype);
}

TEST(AddedOperator, RunsEagerly) {
  for (const Added& added : kAdded)
    for (const DType dtype : {f16, bf16, f32, f64}) {
      const Tensor x = normal({1000}, dtype);
      const auto operands = x.to_vector<double>(), got = added.f(x).to_vector<double>();
      const double unit = dtype == f64   ? 0x1p-52
                          : dtype == f32 ? 0x1p-23
                          : dtype == f16 ? 0x1p-10
                                         : 0x1p-7;
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], added.exact(operands[i]), 8 * unit * std::abs(operands[i]));
    }
  EXPECT_EQ(call("tanhexp", {Tensor(1.0)})[0].item<double>(), tanhexp(Tensor(1.0)).item<double>());
}

// One group with what is around it, by the vector program.
TEST(AddedOperator, RunsFusedOnTheCpu) {
  for (const Added& added : kAdded) {
    const TensorFunction f = [&](const Tensors& in) -> Tensors {
      return {added.f(in[0] + in[1]) * 2};
    };
    for (const DType dtype : {f32, bf16}) {
      const Tensors inputs = {normal({65, 257}, dtype), normal({257}, dtype)};
      const auto run = testing::run_group("pointwise", f, inputs, nullptr);
      testing::expect_close(run, 16 * (dtype == f32 ? 0x1p-23 : 0x1p-8));
      EXPECT_EQ(compile(f, inputs).group_count(), 1u);
    }
  }
}

// By the emulator, and compiled by NVRTC where that is installed.
void expect_on_gpu(const TensorFunction& f, const Tensors& inputs, const cuda::Family& family,
                   int capability) {
  emulator::GroupCase group(f, inputs);
  emulator::expect_emulated(group, family, capability);
  if (!cuda::no_compiler().empty()) return;
  const cuda::Machine machine = cuda::machine_of(cuda::typical_device(capability));
  for (const cuda::Call& call : built_by(family, group.laid(), group.group(), machine).calls)
    cuda::expect_no_trouble(call.source, machine.device.architecture());
}

TEST(AddedOperator, RunsFusedOnAGpu) {
  for (const Added& added : kAdded) {
    expect_on_gpu([&](const Tensors& in) -> Tensors { return {added.f(in[0] + in[1]) * 2}; },
                  {normal({33, 64}, f16), normal({64}, f16)}, cuda::kPointwise, 80);
    // And behind a product.
    const Tensor weight = normal({64, 32}, f16);
    expect_on_gpu(
        [&](const Tensors& in) -> Tensors {
          return {added.f(matmul(in[0], weight).astype(f32)).astype(f16)};
        },
        {normal({48, 64}, f16)}, cuda::kGemmMma, 80);
  }
}

}  // namespace
}  // namespace tensor
