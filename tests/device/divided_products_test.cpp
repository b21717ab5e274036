// One picture on two GPUs, which divide products among them.
#include <sstream>
#include <thread>

#include "src/kernels/cuda/driver/nccl.h"
#include "src/runtime/program.h"
#include "tensor/compile.h"
#include "tensor/nn.h"
#include "tensor/plan.h"
#include "tests/device/gpu.h"
#include "tests/error_of.h"
#include "tests/models/digits.h"

namespace tensor {
namespace {

using check::error_of;

class ProductsOnTwoGpus : public OnGpu {
 protected:
  static constexpr std::int64_t kWidth = 64, kHidden = 192, kHeads = 4;

  void SetUp() override {
    OnGpu::SetUp();
    if (IsSkipped()) return;
    if (!has_two())
      GTEST_SKIP() << "SKIPPED: needs two GPUs, this machine has " << cuda::Device::count();
    try {
      cuda::Nccl::get();
    } catch (const UserError& error) {
      GTEST_SKIP() << "SKIPPED: " << error.what();
    }
    // Of one model; among the pretended ones they are the first and the third.
    const std::string other = is_pretended() ? "cuda:2" : "cuda:1";
    devices_ = {"cuda:0", Device(other)};
    both_ = "cuda:0 and " + other;
  }

  Tensor weight(std::int64_t rows, std::int64_t columns) {
    return random_.normal({rows, columns}, 0, 1 / std::sqrt(static_cast<double>(columns)));
  }
  nn::Linear linear_of(std::int64_t in, std::int64_t out) {
    return {weight(out, in), random_.normal({out})};
  }
  Tensors mlp(const Tensors& in) const {
    return {in[0] + second_(gelu(first_(layer_norm(in[0]))))};
  }
  TensorFunction traced_mlp() const {
    return [this](const Tensors& in) { return mlp(in); };
  }
  Tensors rows(std::int64_t count) { return {random_.normal({count, kWidth})}; }

  CompileOptions options(DType dtype = f32) const {
    return {.devices = devices_, .divide = Divide::products, .dtype = dtype, .tune_logs = {{}}};
  }
  CompileOptions of_one(DType dtype) const {
    return {.device = devices_[0], .dtype = dtype, .tune_logs = {{}}};
  }

  // Sums of fewer than 2^9 terms in another order: of float32 each addition is off by half a unit
  // of at most the sum of magnitudes, which random signs leave 2^5 times the sum. Narrower operands
  // that lie between two numbers are rounded to either, by half a unit of each of as many layers;
  // of eight bits by half a 127th of a row's largest, and each device has other rows.
  static double rounding(DType dtype, int layers = 1) {
    return layers * (dtype == f32 ? 0x1p-24 * (1 << 5) : dtype == f16 ? 2 * 0x1p-11 : 2 * 0x1p-8);
  }
  void expect_as_on_one(const TensorFunction& f, const Tensors& in, DType dtype, int layers = 1) {
    const Executable divided = compile(f, in, options(dtype));
    const Tensors want = compile(f, in, of_one(dtype))(in);
    Tensors out;
    for (const Tensor& x : want) out.push_back(empty(x.shape(), x.dtype()));
    const Tensors got = divided(in);
    for (int call = 0; call < 2; ++call) {  // recorded, and what was recorded again
      divided.run(in, out);
      for (std::size_t i = 0; i < want.size(); ++i) {
        expect_near(got[i], want[i], rounding(dtype, layers));
        expect_same(out[i], got[i]);
      }
    }
  }

  std::vector<Device> devices_;
  std::string both_;  // in errors
  const nn::Linear first_ = linear_of(kWidth, kHidden), second_ = linear_of(kHidden, kWidth);
};

TEST_F(ProductsOnTwoGpus, OfAPerceptronAreThoseOfOne) {
  for (const DType dtype : {f32, f16, bf16, i8}) {
    const Tensors in = rows(24);
    expect_as_on_one(traced_mlp(), in, dtype);
    // And what the reference has, in which nothing is rounded before it is multiplied.
    expect_near(compile(traced_mlp(), in, options(dtype))(in)[0], mlp(in)[0], 4 * rounding(dtype));
  }
}

TEST_F(ProductsOnTwoGpus, OfAttentionAreThoseOfOne) {
  const nn::MultiheadAttention attention{linear_of(kWidth, kWidth), linear_of(kWidth, kWidth),
                                         linear_of(kWidth, kWidth), linear_of(kWidth, kWidth),
                                         kHeads};
  const nn::Linear all = linear_of(kWidth, 3 * kWidth);
  const Tensor mask = random_.normal({1, 1, 1, 20}), table = random_.normal({kHeads, 20, 20});
  const auto apart = [&](const Tensors& in) -> Tensors {
    return {in[0] + attention(in[0], in[0], in[0], mask + table)};
  };
  const auto together = [&](const Tensors& in) -> Tensors {
    const Tensor qkv = transpose(
        all(in[0]).reshape({in[0].shape(0), -1, 3, kHeads, kWidth / kHeads}), {2, 0, 3, 1, 4});
    const Tensor heads = scaled_dot_product_attention(qkv(0), qkv(1), qkv(2));
    return {in[0] + attention.output(transpose(heads, {0, 2, 1, 3}).reshape(in[0].shape()))};
  };
  const Tensors in = {random_.normal({2, 20, kWidth})};
  for (const DType dtype : {f32, f16}) {
    expect_as_on_one(apart, in, dtype, 2);
    expect_as_on_one(together, in, dtype, 2);
  }
}

TEST_F(ProductsOnTwoGpus, OfTheDigitsViTNameTheSameDigits) {
  const models::vit::LoadedVit vit = digits::shipped_vit();
  const auto function = [&](const Tensors& in) -> Tensors { return {vit.model(in[0]).logits}; };
  const Tensor pixels = digits::test_pixels(vit)(slice(0, 1));
  for (const DType dtype : {f32, f16})
    expect_as_on_one(function, {pixels}, dtype, 4 * static_cast<int>(vit.model.layers.size()));
}

// What all compute must be the same bits, whatever the constants of each.
TEST_F(ProductsOnTwoGpus, RunByTheSameKernels) {
  const Executable f = compile(traced_mlp(), rows(24), options(f16));
  const detail::Parts& parts = *f.program().parts;
  const auto &first = parts[0].plan.groups, &second = parts[1].plan.groups;
  ASSERT_EQ(first.size(), second.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].schedule, second[i].schedule);
    EXPECT_EQ(parts[0].engine->steps()[i].description, parts[1].engine->steps()[i].description);
  }
}

// Each GPU has half of the weights that are divided.
TEST_F(ProductsOnTwoGpus, HaveHalfOfTheWeightsOnEach) {
  const Compiled f(traced_mlp(), options());
  const Executable small = f.executable(rows(4)), large = f.executable(rows(9));
  const std::int64_t all = first_.weight.nbytes() + second_.weight.nbytes();
  for (const Executable& one : {small, large}) {
    const auto memory = one.memory_by_device();
    ASSERT_EQ(memory.size(), 2u);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(memory[i].first, devices_[i]);
      EXPECT_GE(memory[i].second.weights, all / 2);
      EXPECT_LT(memory[i].second.weights, all * 5 / 8);
      EXPECT_GE(memory[i].second.shared, all / 2);  // by both sizes
    }
  }
  for (const std::int64_t count : {4, 9, 4}) {
    const Tensors in = rows(count);
    expect_near(f(in)[0], mlp(in)[0], 4 * rounding(f32));
  }
}

// Of one executable and of another of the same GPUs, which take turns.
TEST_F(ProductsOnTwoGpus, RunForManyCallersAtATime) {
  const Tensors in = rows(5);
  const std::vector<Executable> both = {compile(traced_mlp(), in, options()),
                                        compile(traced_mlp(), in, options(f16))};
  const Tensors want[] = {both[0](in), both[1](in)};
  std::vector<int> same(4, 0);
  {
    std::vector<std::jthread> callers;
    for (std::size_t i = 0; i < same.size(); ++i)
      callers.emplace_back([&, i] {
        for (int call = 0; call < 4; ++call)
          same[i] += all(equal(both[i % 2](in)[0], want[i % 2][0])).item<bool>();
      });
  }
  EXPECT_EQ(same, std::vector<int>(4, 4));
}

TEST_F(ProductsOnTwoGpus, AreVerifiedTimedAndReported) {
  const nn::Linear odd_first = linear_of(kWidth, 15), odd_second = linear_of(15, kWidth);
  const Tensors in = rows(5);
  const Executable f = compile(
      [&](const Tensors& x) -> Tensors {
        return {odd_second(gelu(odd_first(layer_norm(mlp(x)[0]))))};
      },
      in,
      {.devices = devices_,
       .divide = Divide::products,
       .tune_logs = {{}},
       .names = {{"a.weight", second_.weight}, {"b.weight", odd_second.weight}}});
  for (const GroupCheck& check : verify(f, in))
    EXPECT_TRUE(check.ok()) << check.kernel << ": " << check.error << " > " << check.bound;
  EXPECT_EQ(f.time(in, 3).size(), 3u);
  std::ostringstream report;
  f.report(report, in, 2);
  for (const char* text :
       {"cuda:0, share 1 of 2\n", "share 2 of 2\n", "all_reduce @ a [nccl_all_reduce_f32]",
        "      products divided by columns or heads: 1 x 192 @ a\n",
        "      whole, since 2 devices cannot have equal shares: 1 x 15 @ b\n"})
    EXPECT_NE(report.str().find(text), std::string::npos) << text << report.str();
}

TEST_F(ProductsOnTwoGpus, AreRefusedWhereTheyCannotBeDivided) {
  const Tensors in = rows(4);
  const auto error = [&](const TensorFunction& f, const CompileOptions& how) {
    return error_of([&] { compile(f, in, how); });
  };
  EXPECT_EQ(error([&](const Tensors& x) -> Tensors { return {first_(x[0])}; }, options()),
            "compile: got a function without products that 2 devices can divide, need two by "
            "constant weights of which the second multiplies the first one's columns, or heads: "
            "divide the batch, or compile for one device");
  const nn::Linear odd_first = linear_of(kWidth, 15), odd_second = linear_of(15, kWidth);
  EXPECT_EQ(
      error([&](const Tensors& x) -> Tensors { return {odd_second(odd_first(x[0]))}; }, options()),
      "compile: got a function without products that 2 devices can divide (15 are no "
      "multiples), need two by constant weights of which the second multiplies the first "
      "one's columns, or heads: divide the batch, or compile for one device");
  EXPECT_EQ(error(traced_mlp(), {.device = "cuda", .divide = Divide::products}),
            "compile: got divide products on cuda:0 alone: name the GPUs in devices, or leave "
            "divide out");
  CompileOptions whole = options();
  whole.whole_inputs = {0};
  EXPECT_EQ(error(traced_mlp(), whole),
            "compile: got whole_inputs where devices divide products, and all of them have all "
            "inputs: leave it out");
  const Executable f = compile(traced_mlp(), in, options());
  EXPECT_EQ(error_of([&] { f({in[0].to(gpu_)}); }),
            "run: input 0 lies on cuda:0, this executable divides its products among " + both_ +
                ", need it on the host: bring it with to(\"cpu\")");
  EXPECT_EQ(
      error_of([&] { Plan().add(f); }),
      "plan: got an executable that divides its products among " + both_ +
          ", need one that has whole products: compile it where it runs, or divide the batch");
  Plan plan;
  plan.add(compile(traced_mlp(), in, of_one(f32)));
  EXPECT_TRUE(
      error_of([&] { Compiled(plan, traced_mlp(), options()); }).starts_with("Compiled: got "));
  // One device divides nothing.
  CompileOptions alone = options();
  alone.devices = {"cuda:0"};
  expect_near(compile(traced_mlp(), in, alone)(in)[0], mlp(in)[0], 4 * rounding(f32));
}

}  // namespace
}  // namespace tensor
