// References, and measuring on this machine's cores: real kernels in a real child process.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "src/compile.h"
#include "src/kernels/cuda/driver/compiler.h"
#include "src/kernels/features.h"
#include "src/trace/parallel.h"
#include "src/trace/trace.h"
#include "src/tune/cpu_measurer.h"
#include "src/tune/gpu_loop.h"
#include "src/tune/gpu_measurer.h"
#include "src/tune/tuned_cost.h"
#include "tensor/io.h"
#include "tensor/tensor.h"
#include "tensor/threads.h"
#include "tests/families.h"
#include "tests/temporary_folder.h"

namespace tensor {
namespace {

using Tensors = std::vector<Tensor>;

// A product with an epilogue, over a view of its input, in a layout that is not row-major.
struct Example {
  Generator random{12};
  Tensor weight = random.normal({48, 64}, 0, 0.2), bias = random.normal({48});
  TensorFunction f = [this](const Tensors& in) -> Tensors {
    return {relu(linear(in[0].swapaxes(0, 1), weight, bias)) * 2};
  };
  LaidOutGraph laid = lay_out(trace(f, {{{64, 30}, f32}}));
  FusionPlan plan = fuse(propose_parallel(laid), cpu::cpu_cost(cpu::this_machine(2)));
  Isolated alone = isolate(laid, plan.groups.front());
};

TEST(Reference, IsWhatTheGroupComputes) {
  const Example example;
  ASSERT_EQ(example.plan.groups.size(), 1u);
  const Reference reference(example.alone);
  std::vector<OperandBlock> operands = reference.operands();
  ASSERT_EQ(operands.size(), example.alone.group.reads.size() + 1);
  // Nothing is written yet.
  EXPECT_NE(reference.fault(operands), "");
  for (const double x : operands.back().value.to_vector<double>()) EXPECT_TRUE(std::isnan(x));
  const std::unique_ptr<cpu::Kernel> kernel =
      cpu::build_group(example.alone.laid, example.alone.group, cpu::this_machine(2));
  std::vector<std::byte*> addresses;
  for (const OperandBlock& operand : operands) addresses.push_back(operand.first());
  std::vector<std::byte> scratch(kernel->scratch_bytes() + 64);
  void* aligned = scratch.data();
  std::size_t room = scratch.size();
  std::align(64, kernel->scratch_bytes(), aligned, room);
  kernel->run(addresses, static_cast<std::byte*>(aligned));
  EXPECT_EQ(reference.fault(operands), "");
  // One element that is wrong, or was not written, is found.
  float* const element = reinterpret_cast<float*>(operands.back().first());
  const float right = element[77];
  for (const float wrong : {right + 0.01f, std::numeric_limits<float>::quiet_NaN()}) {
    element[77] = wrong;
    EXPECT_NE(reference.fault(operands).find("wrong result"), std::string::npos);
  }
  element[77] = right;
  EXPECT_EQ(reference.fault(operands), "");
}

TEST(Reference, InputsAreTheSameEveryTimeAndConstantsTheModels) {
  const Example example;
  const auto one = operands_of(example.alone), other = operands_of(example.alone);
  for (std::size_t i = 0; i < one.size(); ++i) {
    ASSERT_EQ(one[i].bytes().size(), other[i].bytes().size());
    EXPECT_EQ(std::memcmp(one[i].bytes().data(), other[i].bytes().data(), one[i].bytes().size()),
              0);
    if (!one[i].is_constant || one[i].value.rank() != 1) continue;
    EXPECT_TRUE(all(one[i].value == example.bias).item<bool>());
  }
}

TEST(Problem, JoinsTheSpacesOfItsFamilies) {
  const auto space = [](int count, double us) {
    Space s;
    s.sketches = {{"tiled", {{"rows", std::vector<int>(static_cast<std::size_t>(count))}}}};
    for (int i = 0; i < count; ++i) s.sketches[0].knobs[0].values[static_cast<std::size_t>(i)] = i;
    s.fault = [](const Schedule& x) { return *x.value("rows") == 0 ? "none" : ""; };
    s.model_us = [us](const Schedule& x) { return us + *x.value("rows"); };
    s.features = [](const Schedule& x) { return std::vector<float>{1.f, float(*x.value("rows"))}; };
    s.chosen = Schedule::parse("tiled rows=1");
    return s;
  };
  const auto offer = [&](int family, const char* name, double us, int count) {
    Offer one{family, name, us};
    if (count > 0) one.lazy = std::make_shared<Offer::LazySpace>();
    if (count > 0) one.lazy->make = [=] { return space(count, us - 1); };
    return one;
  };
  const Problem problem("text", Example().alone,
                        {offer(3, "slow", 9, 4), offer(5, "fast", 6, 3), offer(7, "plain", 7, 0)});
  EXPECT_EQ(problem.space().size(), 3 + 2 + 1);
  EXPECT_EQ(problem.space().chosen.text(), "fast.tiled rows=1");
  const auto expect = [&](const char* text, int family, const char* own, double us,
                          std::vector<float> features) {
    const Schedule s = Schedule::parse(text);
    EXPECT_TRUE(problem.space().has(s)) << text;
    EXPECT_EQ(problem.choice(s).family, family);
    EXPECT_EQ(problem.choice(s).schedule, own);
    EXPECT_EQ(problem.space().model_us(s), us);
    EXPECT_EQ(problem.space().features(s), features);
    EXPECT_EQ(problem.group(s).family, family);
    EXPECT_EQ(problem.group(s).schedule, own);
    const auto [name, rest] = Problem::parted(text);
    EXPECT_EQ(rest, own);
    EXPECT_EQ(Problem::joined(name, rest), text);
  };
  expect("slow.tiled rows=2", 3, "tiled rows=2", 10, {1, 2});
  expect("fast.tiled rows=1", 5, "tiled rows=1", 6, {1, 1});
  Features plain;
  plain.time.total = 7;
  for (const float x : plain.values()) EXPECT_TRUE(std::isfinite(x));
  expect("plain", 7, "", 7, plain.values());
  for (const char* text : {"fast.tiled rows=0", "fast.tiled rows=3", "fast", "plain.tiled rows=1",
                           "other.tiled rows=1", "other"}) {
    EXPECT_FALSE(problem.space().has(Schedule::parse(text))) << text;
  }
  EXPECT_THROW(problem.group(Schedule::parse("other")), UserError);
}

TEST(TrialMemory, CopiesWeightsUntilTheyLeaveTheCache) {
  const Example example;
  const std::vector<OperandBlock> operands = operands_of(example.alone);
  cuda::Lowered lowered;
  cuda::Call call;
  for (int i = 0; i < static_cast<int>(operands.size()); ++i)
    if (!operands[static_cast<std::size_t>(i)].is_constant || i == 1)
      call.arguments.push_back(cuda::Pointer{.index = i});
  call.arguments.push_back(cuda::Pointer{cuda::Pointer::Base::packed, 0, 0});
  lowered.calls = {call};
  lowered.scratch_bytes = 3000;
  const std::vector<Tensor> packed = {zeros({1000}, f32)};
  for (const std::int64_t l2 : {std::int64_t{1} << 10, std::int64_t{50} << 20}) {
    const TrialMemory memory = place_trial(lowered, operands, packed, l2, std::int64_t{80} << 30);
    EXPECT_EQ(memory.copies, l2 > 1 << 20 ? 256 : 16);
    // Blocks of all copies lie apart, in lines of their own.
    std::vector<std::pair<std::int64_t, std::int64_t>> blocks;
    for (std::size_t i = 0; i < operands.size(); ++i)
      for (const std::int64_t place : memory.operands[i])
        blocks.emplace_back(place, operands[i].bytes().size());
    for (const std::int64_t place : memory.packed[0]) blocks.emplace_back(place, 4000);
    blocks.emplace_back(memory.scratch, 3000);
    std::sort(blocks.begin(), blocks.end());
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      EXPECT_EQ(blocks[i].first % 1024, 0);
      const std::int64_t end = blocks[i].first + blocks[i].second;
      EXPECT_LE(end, i + 1 < blocks.size() ? blocks[i + 1].first : memory.bytes);
    }
    // Launches have weights of their own.
    for (std::size_t i = 0; i < operands.size(); ++i) {
      EXPECT_EQ(memory.operands[i].empty(), !operands[i].is_constant || i != 1);
      if (memory.operands[i].empty()) continue;
      const cuda::Pointer pointer{.index = static_cast<int>(i)};
      EXPECT_NE(memory.at(pointer, 0, operands), memory.at(pointer, 1, operands));
      EXPECT_EQ(memory.at(pointer, 0, operands), memory.at(pointer, memory.copies, operands));
      EXPECT_EQ(memory.at(pointer, 2, operands) - memory.operands[i][2 % memory.operands[i].size()],
                operands[i].first_at());
    }
    EXPECT_EQ(memory.at({cuda::Pointer::Base::scratch, 0, 0}, 5, operands), memory.scratch);
  }
}

// What is larger than the cache sweeps it: few launches will do, and fewer of what is larger.
TEST(TrialMemory, LargeOperandsNeedFewCopies) {
  const auto copies = [](std::int64_t rows) {
    OperandBlock input, weight;
    input.memory = input.value = empty({rows << 20}, u8);
    weight.memory = weight.value = empty({1 << 20}, u8);
    weight.is_constant = true;
    cuda::Lowered lowered;
    lowered.calls.emplace_back();
    for (const int i : {0, 1}) lowered.calls[0].arguments.push_back(cuda::Pointer{.index = i});
    const std::vector<OperandBlock> operands = {input, weight};
    return place_trial(lowered, operands, {}, std::int64_t{50} << 20, std::int64_t{80} << 30)
        .copies;
  };
  EXPECT_EQ(copies(100), 151);
  EXPECT_EQ(copies(160), 16);
  EXPECT_EQ(copies(512), 8);
  EXPECT_EQ(copies(4000), 4);
}

TEST(GpuMeasurer, ADeviceIsTheSameAfterThePipe) {
  for (const int capability : {75, 90, 120}) {
    const cuda::DeviceInfo info = cuda::typical_device(capability);
    const cuda::DeviceInfo same = parse_device(device_text(info));
    EXPECT_EQ(device_text(same), device_text(info));
    EXPECT_EQ(same.name, info.name);
    EXPECT_EQ(same.memory_gbps, info.memory_gbps);
  }
  EXPECT_THROW(parse_device("nonsense"), InternalError);
}

TEST(GpuMeasurer, TunesOnAGpu) {
  try {
    ask_for_device(0);
    cuda::Compiler::get();
  } catch (const UserError& error) {
    GTEST_SKIP() << "SKIPPED: " << error.what();
  }
  const Example example;
  const check::TemporaryFolder folder;
  const std::string log = folder / "log.jsonl";
  const TuneSummary summary =
      tune(example.f, {{{64, 30}, f32}},
           {.device = "cuda", .dtype = f16, .tune_logs = std::vector<std::string>()},
           {.seconds = 20, .log = log});
  std::cout << summary;
  EXPECT_GT(summary.trials, 0);
  EXPECT_EQ(summary.failures, 0);  // whatever a space has compiles, runs and is right
  EXPECT_LE(summary.after_us, summary.before_us * 1.0001);
  // Compiled with the log it is right: the operands are rounded by 2^-11 each, and so is what is
  // multiplied; of 64 products that adds up to less than 2^-7 of the largest result.
  const Tensor x = Generator(13).normal({64, 30});
  const Executable fast =
      compile(example.f, Tensors{x},
              {.device = "cuda", .dtype = f16, .tune_logs = std::vector<std::string>{log}});
  const Tensor want = example.f({x})[0], got = fast({x})[0];
  EXPECT_LE(max(abs(got - want)).item(), 0x1p-7 * max(abs(want)).item());
  for (const GroupCheck& check : verify(fast, {x})) EXPECT_TRUE(check.ok()) << check.kernel;
}

// ---- tune() on the CPU

class CpuTuning : public ::testing::Test {
 protected:
  Tensors block(const Tensors& in) const {
    const Tensor y = layer_norm(in[0], gain_, gain_, 1e-6);
    const Tensor z = scaled_dot_product_attention(linear(y, first_), linear(y, second_), y);
    return {in[0] + gelu(linear(z, first_, gain_))};
  }
  Executable compiled(std::optional<std::vector<std::string>> logs) const {
    return compile(f_, Tensors{x_}, {.threads = 2, .tune_logs = std::move(logs)});
  }
  std::string saved(const Executable& executable) const {
    const std::string path = folder_ / "plan.safetensors";
    executable.save(path);
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  Generator random_{3};
  Tensor first_ = random_.normal({96, 96}, 0, 0.1), second_ = random_.normal({96, 96}, 0, 0.1),
         gain_ = random_.normal({96}, 1, 0.1), x_ = random_.normal({1, 50, 96});
  TensorFunction f_ = [this](const Tensors& in) { return block(in); };
  const check::TemporaryFolder folder_;
  const std::string log_ = folder_ / "log.jsonl";
};

TEST_F(CpuTuning, MeasuresEveryWayAndUsesTheBest) {
  std::int64_t told = 0;
  TuneOptions options{.seconds = 30, .log = log_};
  options.progress = [&](const TuneProgress& p) { told = p.trials; };
  const CompileOptions how{.threads = 2, .tune_logs = std::vector<std::string>()};
  const TuneSummary summary = tune(f_, {x_.type()}, how, options);
  EXPECT_EQ(summary.end, "nothing more is to be gained");
  EXPECT_EQ(summary.failures, 0);
  EXPECT_GT(summary.trials, 4);
  EXPECT_EQ(told, summary.trials);
  EXPECT_FALSE(summary.groups.empty());
  for (const TunedGroup& group : summary.groups) {
    EXPECT_GT(group.after_us, 0) << group.operators;
    EXPECT_LE(group.after_us, group.before_us) << group.operators;
    EXPECT_GT(group.trials, 0) << group.operators;
    EXPECT_LE(group.trials, group.space) << group.operators;
  }
  // Compiled with the log: the tuned plan, the same every time, and right.
  const Executable fast = compiled(std::vector<std::string>{log_});
  EXPECT_EQ(saved(fast), saved(compiled(std::vector<std::string>{log_})));
  const Tensor want = f_({x_})[0], got = fast({x_})[0];
  EXPECT_LE(max(abs(got - want)).item(), 1e-4);
  for (const GroupCheck& check : verify(fast, {x_})) EXPECT_TRUE(check.ok()) << check.kernel;
  std::size_t groups = 0;
  for (const TunedGroup& group : summary.groups) groups += static_cast<std::size_t>(group.count);
  EXPECT_EQ(groups, fast.group_count());
  // And again: all is known.
  const TuneSummary again = tune(f_, {x_.type()}, how, options);
  EXPECT_EQ(again.trials, 0);
  EXPECT_NEAR(again.after_us, summary.after_us, 1e-6 * summary.after_us);
  EXPECT_NEAR(again.before_us, summary.before_us, 1e-6 * summary.before_us);
}

// Neither tune() nor compile() is told of a log: both take the user's own.
TEST_F(CpuTuning, TheDefaultLogIsWrittenAndRead) {
  const char* before = std::getenv("TENSOR_CACHE_DIR");
  const std::string old = before ? before : "", cache = folder_ / "cache";
  ::setenv("TENSOR_CACHE_DIR", cache.c_str(), 1);
  const std::string untuned = saved(compiled(std::nullopt));
  const TuneSummary summary = tune(f_, {x_.type()}, {.threads = 2}, {.seconds = 30});
  EXPECT_GT(summary.trials, 0);
  const std::vector<Measurement> lines = read_log(cache + "/tuned.jsonl").measurements;
  EXPECT_GE(std::ssize(lines), summary.trials);  // the best are timed again
  const std::string tuned = saved(compiled(std::nullopt));
  ::setenv("TENSOR_CACHE_DIR", (folder_ / "empty").c_str(), 1);
  EXPECT_EQ(saved(compiled(std::nullopt)), untuned);
  EXPECT_NE(tuned, untuned);  // it names the schedules that were measured
  before ? ::setenv("TENSOR_CACHE_DIR", old.c_str(), 1) : ::unsetenv("TENSOR_CACHE_DIR");
}

TEST_F(CpuTuning, AnUntunedMachineIsPlannedAsEver) {
  std::ofstream(log_).flush();
  EXPECT_EQ(saved(compiled(std::vector<std::string>{log_})),
            saved(compiled(std::vector<std::string>())));
  EXPECT_THROW(compiled(std::vector<std::string>{folder_ / "absent.jsonl"}), UserError);
}

TEST_F(CpuTuning, ThreadsOfAScheduleAreThoseThatRun) {
  const cpu::Machine machine = cpu::this_machine(4);
  const LaidOutGraph laid = lay_out(
      trace([](const Tensors& in) -> Tensors { return {exp(in[0])}; }, {{{1000, 1000}, f32}}));
  Group group = fuse(propose_parallel(laid), cpu::cpu_cost(machine)).groups.front();
  const cpu::Family& family = cpu::cpu_families()[static_cast<std::size_t>(group.family)];
  const auto space = space_of(family, laid, group, machine);
  ASSERT_TRUE(space.has_value());
  EXPECT_EQ(space->size(), 3);  // 1, 2 and 4 threads
  EXPECT_TRUE(space->has(space->chosen));
  EXPECT_GT(space->model_us(Schedule::parse("loops threads=1")),
            space->model_us(Schedule::parse("loops threads=4")));
  EXPECT_FALSE(space_of(family, laid, group, cpu::this_machine(1)).has_value());
  for (const char* schedule : {"", "loops threads=1", "loops threads=4", "loops threads=3"}) {
    group.schedule = schedule;
    EXPECT_NE(cpu::build_group(laid, group, machine), nullptr);
  }
}

// A product with constant weights: both ways to multiply, each on any number of threads that there
// are cores for.
TEST_F(CpuTuning, TriesTheThreadsOfProducts) {
  if (cpu::cpu_families().front().name != "gemm")
    GTEST_SKIP() << "SKIPPED: this build has no oneDNN";
  const Tensor weight = random_.normal({192, 96}, 0, 0.1), x = random_.normal({50, 192});
  const TensorFunction f = [=](const Tensors& in) -> Tensors { return {matmul(in[0], weight)}; };
  const TuneSummary summary = tune(f, {x.type()}, {.threads = 4}, {.seconds = 30, .log = log_});
  EXPECT_EQ(summary.failures, 0);
  std::set<std::string> tried;
  for (const Measurement& m : read_log(log_).measurements)
    if (m.family == "gemm") tried.insert(m.schedule);
  for (const std::string way : {"as_convolution", "as_product"})
    for (int threads = 1; threads <= std::min(4, tensor::threads()); threads *= 2)
      EXPECT_TRUE(tried.contains(way + " threads=" + std::to_string(threads))) << way << threads;
  const Executable fast =
      compile(f, Tensors{x}, {.threads = 4, .tune_logs = std::vector<std::string>{log_}});
  // Sums around 1 of 192 products, which are added in another order than the reference adds them.
  EXPECT_LE(max(abs(fast({x})[0] - f({x})[0])).item(), 192 * 0x1p-24);
}

// Whether the images of a convolution are copied to blocks of channels is measured, and right.
TEST_F(CpuTuning, TriesTheMemoryFormatsOfConvolutions) {
  const auto& first = cpu::cpu_families();
  if (std::none_of(first.begin(), first.end(), [](const auto& f) { return f.name == "conv"; }))
    GTEST_SKIP() << "SKIPPED: this build has no oneDNN";
  const Tensor window = random_.normal({64, 32, 3, 3}, 0, 0.1),
               strided = random_.normal({32, 64, 1, 1}, 0, 0.1),
               image = random_.normal({1, 32, 28, 27});
  const TensorFunction f = [=](const Tensors& in) -> Tensors {
    return {conv2d(relu(conv2d(in[0], window, {}, {.padding = 1})), strided, {}, {.stride = 2})};
  };
  const TuneSummary summary = tune(f, {image.type()}, {.threads = 2}, {.seconds = 30, .log = log_});
  EXPECT_EQ(summary.failures, 0);
  std::map<std::string, int> tried;
  for (const Measurement& m : read_log(log_).measurements)
    if (m.family == "conv") ++tried[m.schedule.substr(0, m.schedule.rfind('='))];
  for (const char* form : {"channels_last", "blocks_of_channels", "nth_pixels"})
    EXPECT_GE(tried[std::string(form) + " threads"], 2) << form;
  const Executable fast =
      compile(f, Tensors{image}, {.threads = 2, .tune_logs = std::vector<std::string>{log_}});
  EXPECT_LE(max(abs(fast({image})[0] - f({image})[0])).item(), 1e-4);
}

TEST_F(CpuTuning, RefusesOptionsThatMakeNoSense) {
  EXPECT_THROW(tune(f_, {x_.type()}, {}, {.seconds = -1, .log = log_}), UserError);
  EXPECT_THROW(tune(f_, {x_.type()}, {}, {.trials = -1, .log = log_}), UserError);
  EXPECT_THROW(tune(f_, {x_.type()}, {}, {.log = log_, .goal_us = -1}), UserError);
  EXPECT_THROW(tune(f_, {x_.type()}, {}, {.seconds = 1, .log = "/dev/null/x"}), UserError);
}

}  // namespace
}  // namespace tensor
