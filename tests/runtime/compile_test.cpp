// Compiled functions against the eager run.
#include "tensor/compile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "src/compile.h"
#include "src/kernels/cuda/family.h"
#include "src/runtime/cpu_engine.h"
#include "src/trace/layout.h"
#include "tensor/tensor.h"
#include "tests/error_of.h"
#include "tests/near.h"
#include "tests/temporary_folder.h"

namespace tn = tensor;
using tn::Tensor;
using tn::check::error_of;
using tn::check::TemporaryFolder;
using Tensors = std::vector<Tensor>;

namespace {

// Compiles, runs twice (the second time in a used arena) and compares with the eager result:
// |difference| at most `bound` ulps of the largest magnitude of the output.
void expect_equal(const tn::TensorFunction& f, const Tensors& inputs, double bound) {
  const Tensors expected = f(inputs);
  for (const bool fuse : {true, false}) {
    const tn::Executable fast = tn::compile(f, inputs, {.fuse = fuse});
    fast(inputs);
    tn::check::expect_near(fast(inputs), expected, bound);
  }
}

TEST(Compile, LinearWithEpilogue) {
  tn::Generator random(11);
  const Tensor x = random.normal({2, 7, 33}), weight = random.normal({20, 33}),
               bias = random.normal({20});
  const Tensor residual = random.normal({2, 7, 20});
  // The sum of 33 products of standard normals, compared at sqrt(33) * a few ulps.
  expect_equal(
      [&](const Tensors& in) -> Tensors {
        return {tn::gelu(tn::linear(in[0], weight, bias)) + in[1]};
      },
      {x, residual}, 32);
  expect_equal(
      [&](const Tensors& in) -> Tensors { return {tn::relu(tn::linear(in[0], weight)) * 0.5}; },
      {x}, 32);
}

TEST(Compile, HeadsAreMergedWithoutACopy) {
  tn::Generator random(12);
  const Tensor x = random.normal({2, 5, 3, 4}), y = random.normal({2, 3, 5, 5});
  const auto f = [](const Tensors& in) -> Tensors {
    return {tn::exp(tn::matmul(in[1], in[0].transpose({0, 2, 1, 3}))
                        .transpose({0, 2, 1, 3})
                        .reshape({2, 5, 12}))};
  };
  expect_equal(f, {x, y}, 64);
}

TEST(Compile, OutputsThatAreViewsInputsAndConstants) {
  tn::Generator random(13);
  const Tensor x = random.normal({3, 4}), weight = random.normal({4, 4});
  expect_equal(
      [&](const Tensors& in) -> Tensors {
        const Tensor y = in[0] + 1;
        return {y.transpose(), y, in[0], weight, y};
      },
      {x}, 0);
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  const Tensor scores =
      tn::matmul(q, k.swapaxes(-1, -2)) / std::sqrt(static_cast<double>(q.shape(-1)));
  return tn::matmul(tn::softmax(scores, -1), v);
}

TEST(Compile, OneFunctionForEveryShape) {
  tn::Generator random(18);
  const auto fast = tn::compile(attention);
  for (const std::int64_t tokens : {5, 9, 5, 12, 5}) {
    const Tensor q = random.normal({2, tokens, 8}), k = random.normal({2, 7, 8}),
                 v = random.normal({2, 7, 8});
    const Tensor expected = attention(q, k, v), got = fast(q, k, v);
    const auto a = got.to_vector<double>(), b = expected.to_vector<double>();
    for (std::size_t i = 0; i < a.size(); ++i)
      ASSERT_NEAR(a[i], b[i], 1e-5);  // a convex combination of values near 1
  }
  const Tensor q = random.normal({2, 5, 8});
  EXPECT_EQ(&fast.executable(q, q, q).program(), &fast.executable(q, q, q).program());
}

// The function runs once for every compilation, and not for calls.
TEST(Compile, TheExecutableUsedLeastRecentlyIsEvicted) {
  for (const std::size_t capacity : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
    std::vector<std::int64_t> compiled;
    const tn::Compiled fast(
        [&](const Tensors& in) -> Tensors {
          compiled.push_back(in[0].shape(0));
          return {in[0] + 1};
        },
        {}, capacity);
    for (const std::int64_t extent : {1, 2, 1, 3, 1, 3, 2, 2, 3, 1}) {
      const Tensor y = fast({tn::ones({extent})})[0];
      EXPECT_EQ(y.to_vector<float>(), std::vector<float>(static_cast<std::size_t>(extent), 2));
    }
    // Of two, 3 evicts 2, since 1 was used after it; then 2 evicts 1, and 1 evicts 2.
    const std::vector<std::int64_t> of_two = {1, 2, 3, 2, 1}, of_one = {1, 2, 1, 3, 1, 3, 2, 3, 1};
    EXPECT_EQ(compiled, capacity == 2 ? of_two : of_one) << capacity;
  }
}

TEST(Compile, WrongInputsAreNamed) {
  const tn::Executable f =
      tn::compile([](const Tensors& in) -> Tensors { return {in[0] + 1}; }, {tn::zeros({2, 3})});
  EXPECT_EQ(error_of([&] {
              f({tn::zeros({3, 2})});
            }),
            "run: input 0 is f32(3, 2), this executable was compiled for f32(2, 3): compile it "
            "again for other types");
}

// A kernel that computes the right thing and then spoils one element.
class WrongKernel : public tn::cpu::Kernel {
 public:
  WrongKernel(std::unique_ptr<tn::cpu::Kernel> right, std::size_t operand)
      : right_(std::move(right)), operand_(operand) {}
  void run(std::span<std::byte* const> operands, std::byte* scratch) const override {
    right_->run(operands, scratch);
    reinterpret_cast<float*>(operands[operand_])[3] += 0.25f;
  }
  std::size_t scratch_bytes() const override { return right_->scratch_bytes(); }
  std::string description() const override { return "planted"; }

 private:
  std::unique_ptr<tn::cpu::Kernel> right_;
  std::size_t operand_;
};

TEST(Compile, VerifyFindsAPlantedWrongKernelAndNamesIt) {
  tn::Generator random(14);
  const Tensor x = random.normal({6, 32});
  std::vector<std::pair<std::string, Tensor>> names;
  for (int i = 0; i < 3; ++i)
    names.emplace_back("layer." + std::to_string(i) + ".weight", random.normal({32, 32}, 0, 0.2));
  const auto f = [&](const Tensors& in) -> Tensors {
    Tensor y = in[0];
    for (const auto& [name, weight] : names) y = tn::tanh(tn::linear(y, weight));
    return {y};
  };
  const tn::Executable fast = tn::compile(f, {x}, {.names = names});
  for (const tn::GroupCheck& check : tn::verify(fast, {x}))
    EXPECT_TRUE(check.ok()) << check.where << ' ' << check.error << " > " << check.bound;

  // The second group that belongs to layer 1 is not there: each layer is at least one group of its
  // own.
  const tn::detail::Program& program = fast.program();
  auto& engine = dynamic_cast<tn::detail::CpuEngine&>(*program.engine);
  std::size_t planted = engine.steps().size();
  for (std::size_t i = 0; i < engine.steps().size(); ++i) {
    const tn::Group& group = program.plan.groups[static_cast<std::size_t>(engine.steps()[i].group)];
    if (program.laid.graph[group.nodes[0]].where == "layer.1" && planted == engine.steps().size())
      planted = i;
  }
  ASSERT_LT(planted, engine.steps().size());
  engine.replace(planted, [&](std::unique_ptr<tn::cpu::Kernel> right) {
    const tn::Group& group =
        program.plan.groups[static_cast<std::size_t>(engine.steps()[planted].group)];
    return std::make_unique<WrongKernel>(std::move(right),
                                         group.reads.size() + group.writes.size() - 1);
  });
  int wrong = 0;
  for (const tn::GroupCheck& check : tn::verify(fast, {x})) {
    if (check.ok()) continue;
    ++wrong;
    EXPECT_EQ(check.where, "layer.1");
    EXPECT_EQ(check.kernel, "planted");
  }
  EXPECT_EQ(wrong, 1);  // the layers after it are fed from the reference and stay right
}

TEST(Compile, ReportAndProfileNameTheGroups) {
  tn::Generator random(15);
  const Tensor x = random.normal({6, 32}), weight = random.normal({32, 32});
  const tn::Executable fast = tn::compile(
      [&](const Tensors& in) -> Tensors { return {tn::relu(tn::linear(in[0], weight))}; }, {x},
      {.names = {{"block.fc.weight", weight}}});
  std::ostringstream text;
  fast.report(text, {x}, 3);
  EXPECT_NE(text.str().find("matmul"), std::string::npos) << text.str();
  EXPECT_NE(text.str().find("@ block.fc"), std::string::npos) << text.str();
  EXPECT_NE(text.str().find("total; arena"), std::string::npos) << text.str();
  EXPECT_NE(text.str().find(", peak rates assumed\n"), std::string::npos) << text.str();

  const TemporaryFolder folder;
  const std::string path = folder / "profile.json";
  fast.profile(path, {x});
  std::ifstream file(path);
  const std::string trace((std::istreambuf_iterator<char>(file)), {});
  EXPECT_NE(trace.find("\"where\":\"block.fc\""), std::string::npos) << trace;
  EXPECT_THROW(fast.profile("/nonexistent/folder/profile.json", {x}), tn::UserError);

  for (const Tensors& wrong : {Tensors{}, Tensors{x, x}, Tensors{x(tn::slice(0, 3))}}) {
    EXPECT_THROW(fast.report(text, wrong), tn::UserError);
    EXPECT_THROW(fast.profile(path, wrong), tn::UserError);
    EXPECT_THROW(fast.time(wrong, 1), tn::UserError);
    EXPECT_THROW(tn::verify(fast, wrong), tn::UserError);
  }
}

TEST(Compile, Bf16StaysNearFloat32) {
  tn::Generator random(16);
  const Tensor x = random.normal({9, 64}), a = random.normal({128, 64}, 0, 0.125),
               b = random.normal({64, 128}, 0, 0.09);
  const auto f = [&](const Tensors& in) -> Tensors {
    return {tn::linear(tn::gelu(tn::linear(in[0], a)), b) + in[0]};
  };
  const Tensor expected = f({x})[0], got = tn::compile(f, {x}, {.dtype = tn::bf16})({x})[0];
  EXPECT_EQ(got.dtype(), tn::f32);
  // Each product has operands rounded to 8 bits (2^-9 relative); sums of independent roundings of
  // terms of size ~ 1.
  double worst = 0;
  const auto p = got.to_vector<double>(), q = expected.to_vector<double>();
  for (std::size_t i = 0; i < p.size(); ++i) worst = std::max(worst, std::abs(p[i] - q[i]));
  EXPECT_LT(worst, 8 * 0x1p-9 * 4);
  EXPECT_GT(worst, 0);
  EXPECT_THROW(tn::compile(f, {x}, {.dtype = tn::i32}), tn::UserError);
}

TEST(Compile, ProcessorsWithoutBf16CalculateInFloat32) {
  tn::cpu::Machine machine = tn::cpu::this_machine();
  machine.has_bf16 = false;
  const tn::detail::Target target = tn::detail::cpu_target(machine);
  tn::Generator random(17);
  const Tensor x = random.normal({9, 64}), weight = random.normal({128, 64});
  const auto f = [&](const Tensors& in) -> Tensors {
    return {tn::gelu(tn::linear(in[0], weight.astype(in[0].dtype())))};
  };
  const auto compiled = [&](const Tensor& in, tn::DType dtype) {
    return tn::detail::compile(f, {in.type()}, {.dtype = dtype}, target)({in})[0];
  };
  EXPECT_TRUE(tn::all(compiled(x, tn::bf16) == compiled(x, tn::f32)).item<bool>());
  // What is bf16 by itself stays so. Sums of 64 products of normal numbers, below 64, are rounded
  // once more than the reference rounds them.
  const Tensor narrow = x.astype(tn::bf16), got = compiled(narrow, tn::bf16);
  EXPECT_EQ(got.dtype(), tn::bf16);
  const Tensor off = tn::abs(got.astype(tn::f32) - f({narrow})[0].astype(tn::f32));
  EXPECT_LE(tn::max(off).item<float>(), 64 * 0x1p-8);
}

TEST(Compile, Tf32IsForGpus) {
  const auto f = [](const Tensors& in) -> Tensors { return {tn::matmul(in[0], in[0])}; };
  const Tensor x = tn::ones({4, 4});
  EXPECT_EQ(error_of([&] { tn::compile(f, {x}, {.tf32 = true}); }),
            "compile: got tf32 on cpu, which has float32 only: leave tf32 out, or compile for "
            "\"cuda\"");
}

// Only where a family can use it, and only for narrow products: it is a rounding more.
TEST(Compile, NormsAreGivenSumsWhereTheyCanBeFolded) {
  const Tensor before = tn::ones({8, 64}), weight = tn::ones({64, 4}), one = tn::ones({64});
  const tn::TensorFunction f = [&](const Tensors& in) -> Tensors {
    return {tn::matmul(tn::layer_norm(tn::matmul(in[0], before), one, one), weight)};
  };
  const auto sums_rows = [&](int capability, tn::CompileOptions options) {
    const auto target = tn::detail::cuda_target(tn::cuda::typical_device(capability));
    const tn::Graph graph = tn::detail::prepare(f, {{{5, 8}, tn::f32}}, options, target).laid.graph;
    int sums = 0;
    for (tn::ValueId id = 0; id < graph.size(); ++id) sums += graph.is_op(id, tn::Op::row_sums);
    return sums == 1;
  };
  EXPECT_TRUE(sums_rows(90, {.dtype = tn::f16}));
  EXPECT_TRUE(sums_rows(90, {.dtype = tn::bf16}));
  EXPECT_FALSE(sums_rows(90, {.dtype = tn::f16, .fuse = false})) << "no kernel makes sums alone";
  EXPECT_FALSE(sums_rows(90, {.dtype = tn::f32}));
  EXPECT_FALSE(sums_rows(80, {.dtype = tn::f16}));
}

}  // namespace
