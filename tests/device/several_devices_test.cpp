// One call on two GPUs, which divide its batch.
#include <sstream>
#include <thread>

#include "tensor/compile.h"
#include "tensor/plan.h"
#include "tests/device/gpu.h"
#include "tests/error_of.h"

namespace tensor {
namespace {

using check::error_of;

class BatchOnTwoGpus : public OnGpu {
 protected:
  void SetUp() override {
    OnGpu::SetUp();
    if (!IsSkipped() && !has_two())
      GTEST_SKIP() << "SKIPPED: needs two GPUs, this machine has " << cuda::Device::count();
  }

  Tensors inputs(std::int64_t items) {
    return {random_.normal({items, 32, 64}), random_.normal({64, 32})};
  }
  Tensors function(const Tensors& in) const {
    const Tensor rows = gelu(matmul(in[0], weight_));
    return {softmax(rows), mean(matmul(in[0], in[1]), 1)};
  }
  TensorFunction traced() const {
    return [this](const Tensors& in) { return function(in); };
  }
  CompileOptions options(DType dtype = f32) const {
    return {.devices = devices_, .whole_inputs = {1}, .dtype = dtype, .tune_logs = {{}}};
  }
  static std::vector<TensorType> types_of(const Tensors& inputs) {
    std::vector<TensorType> types;
    for (const Tensor& x : inputs) types.push_back(x.type());
    return types;
  }
  static void expect_all_same(const Tensors& got, const Tensors& want) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) expect_same(got[i], want[i]);
  }
  // The outputs of the parts, each compiled and run on its GPU by itself, in this order.
  Tensors one_by_one(const Tensors& in, const std::vector<std::int64_t>& counts,
                     DType dtype = f32) const {
    CompileOptions how = options(dtype);
    how.devices = {}, how.whole_inputs = {}, how.sharing = Sharing();
    std::vector<Tensors> parts(2);
    for (std::int64_t i = 0, begin = 0; i < std::ssize(counts); begin += counts[at(i++)]) {
      how.device = devices_[at(i)];
      const Tensors own = {in[0](slice(begin, begin + counts[at(i)])), in[1]};
      const Tensors out = compile(traced(), own, how)(own);
      for (std::size_t k = 0; k < out.size(); ++k) parts[k].push_back(out[k]);
    }
    return {concatenate(parts[0], 0), concatenate(parts[1], 0)};
  }
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

  const std::vector<Device> devices_ = {"cuda:0", "cuda:1"};
  const Tensor weight_ = random_.normal({64, 96});
};

TEST_F(BatchOnTwoGpus, GivesTheBitsOfEachPart) {
  for (const DType dtype : {f32, f16})
    for (const auto& [items, counts] : std::vector<std::pair<int, std::vector<std::int64_t>>>{
             {4, {2, 2}}, {5, {3, 2}}, {1, {1}}}) {
      const Tensors in = inputs(items);
      const Executable f = compile(traced(), in, options(dtype));
      EXPECT_EQ(f.output_types(), types_of(function(in)));
      const Tensors want = one_by_one(in, counts, dtype);
      expect_all_same(f(in), want);
      Tensors out;
      for (const Tensor& x : want) out.push_back(empty(x.shape()));
      for (int run = 0; run < 3; ++run) f.run(in, out);  // also as a recorded graph
      expect_all_same(out, want);
    }
}

// Each GPU has one copy for all sizes.
TEST_F(BatchOnTwoGpus, HasTheWeightsOnEach) {
  const Compiled f(traced(), options());
  const Executable first = f.executable(inputs(4)), second = f.executable(inputs(7));
  const auto memory = first.memory_by_device();
  ASSERT_EQ(memory.size(), 2u);
  std::int64_t total = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(memory[i].first, devices_[i]);
    EXPECT_GE(memory[i].second.weights, weight_.nbytes());
    EXPECT_GE(memory[i].second.shared, weight_.nbytes());
    total += memory[i].second.total();
  }
  EXPECT_EQ(first.device_memory().total(), total);
  for (const auto& [device, other] : second.memory_by_device())
    EXPECT_LT(other.own(), weight_.nbytes()) << device;
  for (const std::int64_t items : {4, 7, 1}) {
    const Tensors in = inputs(items);
    expect_near(f(in)[0], function(in)[0], 1e-5);
  }
}

TEST_F(BatchOnTwoGpus, RunsForManyCallersAtATime) {
  const Tensors in = inputs(5);
  const Executable f = compile(traced(), in, options());
  const Tensors want = f(in);
  std::vector<int> same(3, 0);
  {
    std::vector<std::jthread> callers;
    for (int& mine : same)
      callers.emplace_back([&f, &in, &want, &mine] {
        for (int i = 0; i < 4; ++i) mine += all(equal(f(in)[0], want[0])).item<bool>();
      });
  }
  EXPECT_EQ(same, std::vector<int>(3, 4));
}

TEST_F(BatchOnTwoGpus, IsVerifiedTimedAndReported) {
  const Tensors in = inputs(5);
  const Executable f = compile(traced(), in, options());
  std::size_t groups = 0;
  for (const GroupCheck& check : verify(f, in)) {
    EXPECT_TRUE(check.ok()) << check.kernel << ": " << check.error << " > " << check.bound;
    ++groups;
  }
  EXPECT_GE(groups, 2 * f.group_count());
  EXPECT_EQ(f.time(in, 2).size(), 2u);
  std::ostringstream report;
  f.report(report, in, 1);
  EXPECT_NE(report.str().find("cuda:0, items 0 to 2 of 5\n"), std::string::npos) << report.str();
  EXPECT_NE(report.str().find("cuda:1, items 3 to 4 of 5\n      GPU memory "), std::string::npos);
}

TEST_F(BatchOnTwoGpus, ComesFromPlansOfItsParts) {
  const Tensors in = inputs(5);
  const Compiled f(traced(), options());
  const Tensors want = f(in);
  const std::vector<std::byte> bytes = f.plan().bytes();
  const Plan plan = Plan::parse(bytes);
  EXPECT_EQ(plan.sizes().size(), 2u);
  const LoadOptions how{.devices = devices_, .whole_inputs = {1}};
  EXPECT_TRUE(plan.holds(types_of(in), how));
  EXPECT_FALSE(plan.holds(types_of(in)));
  EXPECT_FALSE(plan.holds(types_of(inputs(4)), how) && plan.holds(types_of(inputs(8)), how));
  expect_all_same(plan.executable(types_of(in), how)(in), want);
  const Compiled alone(plan, how), with_function(plan, traced(), options());
  expect_all_same(alone(in), want);
  for (const std::int64_t items : {5, 9}) {  // the last is compiled
    const Tensors other = inputs(items);
    expect_near(with_function(other)[1], function(other)[1], 1e-5);
  }
  EXPECT_EQ(
      error_of([&] { alone(inputs(9)); }),
      "plan: has no executable for f32(5, 32, 64), f32(64, 32), only for f32(3, 32, 64), "
      "f32(64, 32); f32(2, 32, 64), f32(64, 32): use one of these sizes, or compile the model "
      "for this one");
  // One that mixes its items was compiled for one device.
  Plan mixing;
  mixing.add(compile([](const Tensors& x) -> Tensors { return {x[0] - mean(x[0], 0, true)}; },
                     Tensors{zeros({2, 8}, f32)}, {.device = gpu_}));
  const std::string text = error_of([&] {
    mixing.executable({{{4, 8}, f32}}, {.devices = devices_});
  });
  EXPECT_TRUE(text.starts_with("compile: got a function that mixes the items of its batch, in "))
      << text;
}

TEST_F(BatchOnTwoGpus, RefusesWhatItCannotDivide) {
  const Tensors in = inputs(4);
  const auto error = [&](const TensorFunction& mixing) {
    return error_of([&] { compile(mixing, in, options()); });
  };
  EXPECT_EQ(error([](const Tensors& x) -> Tensors { return {x[0] - mean(x[0], 0, true)}; }),
            "compile: got a function that mixes the items of its batch, in mean : f32(1, 32, 64), "
            "need one that computes each by itself for several devices: name inputs that are no "
            "batches in whole_inputs, or compile for one device");
  EXPECT_EQ(error([](const Tensors& x) -> Tensors {
              return {x[0], x[1] * 2};
            }),
            "compile: output 1, f32(64, 32), does not depend on the batch, need outputs whose axis "
            "0 counts its items for several devices: leave it out, or compile for one device");
  CompileOptions more = options();
  more.devices = {"cuda:0", "cuda:99"};
  EXPECT_TRUE(error_of([&] {
                compile(traced(), in, more);
              }).starts_with("device: got cuda:99, this machine has "));
  more = options();
  more.memory_limit = 4096;
  EXPECT_TRUE(error_of([&] { compile(traced(), in, more); })
                  .starts_with("compile: got memory_limit 4096 bytes, but executables that share "
                               "on cuda:0 hold "));
  const Executable f = compile(traced(), in, options());
  EXPECT_EQ(error_of([&] {
              f({in[0].to(gpu_), in[1]});
            }),
            "run: input 0 lies on cuda:0, this executable divides its batch among cuda:0 and "
            "cuda:1, need it on the host: bring it with to(\"cpu\")");
}

}  // namespace
}  // namespace tensor
