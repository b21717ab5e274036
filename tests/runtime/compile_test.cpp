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
#include "tensor/io.h"
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

TEST(PlanFile, SavedAndLoadedExecutableComputesTheSame) {
  tn::Generator random(17);
  const Tensor x = random.normal({4, 6, 32}), weight = random.normal({48, 32}),
               bias = random.normal({48});
  const auto f = [&](const Tensors& in) -> Tensors {
    const Tensor y =
        tn::gelu(tn::linear(in[0], weight, bias)).reshape({4, 6, 3, 16}).transpose({0, 2, 1, 3});
    return {tn::softmax(tn::matmul(y, y.swapaxes(-1, -2)) * 0.25, -1), tn::clip(in[0], -1, 1)};
  };
  const tn::Executable fast = tn::compile(f, {x}, {.names = {{"fc.weight", weight}}});
  const TemporaryFolder folder;
  const std::string path = folder / "plan.safetensors";
  fast.save(path);
  fast.save(path, {{"model", "mine"}});
  EXPECT_EQ(tn::load_safetensors(path).metadata.at("model"), "mine");
  EXPECT_NE(error_of([&] {
              fast.save(path, {{"plan", ""}});
            }).find("the entry \"plan\""),
            std::string::npos);
  const tn::Executable loaded = tn::load_executable(path);
  EXPECT_EQ(loaded.group_count(), fast.group_count());
  const Tensors a = fast({x}), b = loaded({x});
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_EQ(a[i].to_vector<float>(), b[i].to_vector<float>());
}

TEST(PlanFile, ForeignAndDamagedFilesAreRefused) {
  const TemporaryFolder folder;
  const std::string path = folder / "plan.safetensors";
  const auto with = [&](const std::string& plan) {
    tn::save_safetensors(path, {}, {{"plan", plan}});
    return error_of([&] { tn::load_executable(path); });
  };
  tn::save_safetensors(path, {{"weight", tn::ones({2})}});
  EXPECT_NE(error_of([&] {
              tn::load_executable(path);
            }).find("is no plan file: it has no metadata entry \"plan\""),
            std::string::npos);
  EXPECT_NE(with(R"({"format":"other"})").find("its format is \"other\""), std::string::npos);
  EXPECT_NE(with(R"({"format":"tensor-plan","version":99})")
                .find("has the plan version 99, this build reads 1"),
            std::string::npos);
  const std::string head =
      R"({"format":"tensor-plan","version":1,"nodes":[{"input":[2,3],"dtype":"f32"},)";
  EXPECT_NE(with(head + R"({"op":"frobnicate","in":[0],"attrs":{}}],"outputs":[1],"groups":[[1]]})")
                .find("there is no operator \"frobnicate\""),
            std::string::npos);
  EXPECT_NE(with(head + R"({"op":"exp","in":[1],"attrs":{}}],"outputs":[1],"groups":[[1]]})")
                .find("got the value 1, need one of the 1 before it"),
            std::string::npos);
  EXPECT_NE(with(head + R"({"op":"exp","in":[0],"attrs":{}}],"outputs":[1],"groups":[]})")
                .find("no group runs the value 1"),
            std::string::npos);
  EXPECT_NE(with(head + R"({"op":"exp","in":[0],"attrs":{}}],"outputs":[1],"groups":[[1],[1]]})")
                .find("is no operator that is left to run"),
            std::string::npos);
  EXPECT_NE(with(head + R"({"op":"add","in":[0],"attrs":{}}],"outputs":[1],"groups":[[1]]})")
                .find("add: got 1 tensors, need 2"),
            std::string::npos);
  EXPECT_NE(with(head + R"({"constant":"constant.1"}],"outputs":[1],"groups":[]})")
                .find("the file holds no tensor"),
            std::string::npos);
  const std::string exp = head + R"({"op":"exp","in":[0],"attrs":{}}],"outputs":[1],"groups":[)";
  const std::string error = with(exp + R"({"nodes":[1],"schedule":"tiled rows=many"}]})");
  EXPECT_NE(error.find("groups[0].schedule: no schedule of a kernel"), std::string::npos) << error;
  EXPECT_NE(error.find("\"rows=many\""), std::string::npos) << error;
  EXPECT_NE(with(exp + R"({"nodes":[1],"schedule":7}]})").find("schedule"), std::string::npos);
}

// What a file may say, and kernels must never see.
TEST(PlanFile, RefusesWhatNoKernelRuns) {
  const TemporaryFolder folder;
  const std::string path = folder / "plan.safetensors";
  const auto with = [&](const std::string& nodes, const std::string& rest) {
    const std::string plan =
        R"({"format":"tensor-plan","version":2,"nodes":[{"input":[2,3],"dtype":"f32"},)" + nodes +
        "]," + rest + "}";
    tn::save_safetensors(path, {{"w", tn::ones({2, 3})}}, {{"plan", plan}});
    return error_of([&] { tn::load_executable(path); });
  };
  const std::string one = R"("outputs":[1],"groups":[[1]])";
  for (const std::string axis : {"17", "100000000", "-1"})
    for (const std::string op : {"cumsum", "argsort", "softmax"}) {
      const std::string error =
          with(R"({"op":")" + op + R"(","in":[0],"attrs":{"axis":)" + axis + "}}", one);
      EXPECT_NE(error.find("plan: nodes[1]: " + op + ": got the axis " + axis), std::string::npos)
          << error;
    }
  EXPECT_NE(with(R"({"op":"max","in":[0],"attrs":{"axis":100000000,"keepdims":false}})", one)
                .find("got the axes (100000000,)"),
            std::string::npos);
  EXPECT_NE(with(R"({"op":"astype","in":[0],"attrs":{"dtype":"f64"}},)"
                 R"({"op":"add","in":[0,1],"attrs":{}})",
                 R"("outputs":[2],"groups":[[1],[2]])")
                .find("need equal types"),
            std::string::npos);
  EXPECT_NE(with(R"({"op":"slice","in":[0],"attrs":{"start":[0,0],"extent":[2,4],"step":[1,1]}})",
                 R"("outputs":[1],"groups":[])")
                .find("does not hold"),
            std::string::npos);
  // Only who has looked at indices may say so, since kernels of a GPU do not.
  EXPECT_NE(with(R"({"input":[3],"dtype":"i64"},)"
                 R"({"op":"take","in":[0,1],"attrs":{"axis":0,"checked":true}})",
                 R"("outputs":[2],"groups":[[2]])")
                .find("says that indices were checked"),
            std::string::npos);
  for (const std::string order : {"[0,0]", "[0]", "[0,1,0]", "[1,7]"})
    EXPECT_NE(with(R"({"constant":"w","order":)" + order + "}", R"("outputs":[1],"groups":[])")
                  .find("axis"),
              std::string::npos)
        << order;
  const std::string two = R"({"op":"exp","in":[0],"attrs":{}},{"op":"tanh","in":[0],"attrs":{}})";
  EXPECT_NE(with(two, R"("outputs":[1,2],"groups":[[1,2]])")
                .find("the value 1 is not connected with the last one, 2"),
            std::string::npos);
  EXPECT_NE(with(two, R"("outputs":[1],"groups":[[1],[2]])").find("a group of which nothing is"),
            std::string::npos);
  EXPECT_NE(with(R"({"op":"broadcast_to","in":[0],"attrs":{"shape":[1152921504606846976,2,3]}})",
                 R"("outputs":[1],"groups":[])")
                .find("takes more than 2^63 bytes"),
            std::string::npos);
  EXPECT_NE(with(R"({"op":"broadcast_to","in":[0],"attrs":{"shape":[72057594037927936,2,3]}})",
                 R"("outputs":[1],"groups":[])")
                .find("need 2^56 at most"),
            std::string::npos);
  std::string chain = R"({"op":"tanh","in":[0],"attrs":{}})", group = "1";
  for (int i = 2; i <= 17; ++i) {
    chain += R"(,{"op":"tanh","in":[)" + std::to_string(i - 1) + R"(],"attrs":{}})";
    group += "," + std::to_string(i);
  }
  EXPECT_NE(with(chain, R"("outputs":[17],"groups":[[)" + group + "]]").find("need 16 at most"),
            std::string::npos);
}

// Of images and pools whose lists of places would fill the memory of this machine.
TEST(PlanFile, LoadsWithoutTheMemoryOfItsValues) {
  const TemporaryFolder folder;
  const std::string path = folder / "plan.safetensors";
  for (const std::string op :
       {R"({"op":"interpolate","in":[0],"attrs":{"size":[2147483647,3],"mode":"bicubic",)"
        R"("align_corners":false,"antialias":false}})",
        R"({"op":"max_pool2d","in":[0],"attrs":{"kernel_size":[1000000,1],"stride":[1,1],)"
        R"("padding":[500000,0]}})"}) {
    tn::save_safetensors(path, {},
                         {{"plan", R"({"format":"tensor-plan","version":2,"nodes":[)"
                                   R"({"input":[1,1,1000000,3],"dtype":"f32"},)" +
                                       op + R"(],"outputs":[1],"groups":[[1]]})"}});
    EXPECT_EQ(tn::load_executable(path).group_count(), 1u);
  }
}

// A schedule that no kernel here has is kept, and does not matter; with it stands its family.
TEST(PlanFile, KeepsTheSchedulesOfGroups) {
  const TemporaryFolder folder;
  const std::string path = folder / "plan.safetensors";
  tn::save_safetensors(path, {},
                       {{"plan", R"({"format":"tensor-plan","version":2,"nodes":[)"
                                 R"({"input":[3],"dtype":"f32"},)"
                                 R"({"op":"exp","in":[0],"attrs":{}},)"
                                 R"({"op":"sum","in":[1],"attrs":{"axis":[0],)"
                                 R"("keepdims":false}}],"outputs":[2],"groups":[)"
                                 R"({"nodes":[1],"schedule":"swapped tokens=8"},[2]]})"}});
  const tn::Executable loaded = tn::load_executable(path);
  const Tensor x = tn::arange(3).astype(tn::f32);
  EXPECT_NEAR(loaded({x})[0].item<float>(), 1 + std::exp(1.f) + std::exp(2.f), 1e-5);
  const std::string again = folder / "again.safetensors";
  loaded.save(again);
  const std::string plan = tn::load_safetensors(again).metadata.at("plan");
  EXPECT_NE(plan.find(R"({"nodes":[1],"family":"pointwise","schedule":"swapped tokens=8"},[2])"),
            std::string::npos)
      << plan;
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
