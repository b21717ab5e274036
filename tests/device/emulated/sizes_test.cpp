// One function compiled for many sizes on a pretended GPU: what it takes of its memory.
#include <atomic>
#include <thread>

#include "src/compile.h"
#include "src/runtime/program.h"
#include "src/runtime/recordings.h"
#include "tensor/compile.h"
#include "tests/cuda/emulator/driver.h"
#include "tests/device/gpu.h"
#include "tests/error_of.h"

namespace tensor {
namespace {

using check::error_of;
using emulator::driver_counts;

class GpuSizes : public OnGpu {
 protected:
  // What earlier cases freed is kept, until somebody asks for all of the memory.
  void SetUp() override {
    OnGpu::SetUp();
    if (!IsSkipped()) give_back_freed();
  }
  void give_back_freed() {
    error_of([&] { empty({cuda::Device::get(gpu_.index()).info().memory_bytes}, u8, gpu_); });
  }
  static std::int64_t taken() { return driver_counts().allocated_bytes; }
  Tensors rows(std::int64_t count) { return {random_.normal({count, 64})}; }

  const Tensor weight_ = random_.normal({64, 2048}), scale_ = random_.uniform({2048}, 0.5, 2);
};

TEST_F(GpuSizes, WeightsAreThereOnce) {
  for (const DType dtype : {f32, f16}) {
    const Compiled f(
        [&](const Tensors& in) -> Tensors { return {sum(matmul(in[0], weight_) * scale_, -1)}; },
        {.device = gpu_, .dtype = dtype});
    const std::int64_t before = taken();
    const Executable first = f.executable(rows(2));
    const std::int64_t one = taken() - before, weights = first.device_memory().weights;
    EXPECT_GE(weights, 64 * 2048 * item_size(dtype));
    EXPECT_LT(first.device_memory().shared, weights / 2);
    const Executable second = f.executable(rows(3)), third = f.executable(rows(16));
    EXPECT_LT(taken() - before, one + one / 2) << dtype;
    EXPECT_GT(first.device_memory().shared, weights / 2) << dtype;
    EXPECT_LT(second.device_memory().own(), weights / 2) << dtype;
    for (const std::int64_t count : {2, 3, 16}) {
      const Tensors in = rows(count);
      expect_same(f(in)[0], compile(
                                [&](const Tensors& x) -> Tensors {
                                  return {sum(matmul(x[0], weight_) * scale_, -1)};
                                },
                                in, {.device = gpu_, .dtype = dtype})(in)[0]);
    }
  }
}

TEST_F(GpuSizes, PlansHoldThemOnceAndShareThem) {
  const auto function = [&](const Tensors& in) -> Tensors {
    return {sum(matmul(in[0], weight_) * scale_, -1)};
  };
  const CompileOptions options{.device = gpu_, .dtype = f16};
  const Compiled f(function, options);
  for (const std::int64_t count : {2, 3}) f.executable(rows(count));
  const std::vector<std::byte> bytes = f.plan().bytes();
  Plan one;
  one.add(f.executable(rows(2)));
  EXPECT_LT(bytes.size(), one.bytes().size() * 11 / 10);
  const Compiled loaded(Plan::parse(bytes), function, options);
  const Executable first = loaded.executable(rows(2));
  const std::int64_t weights = first.device_memory().weights;
  for (const std::int64_t count : {2, 3, 16}) {  // the last is compiled
    const Tensors in = rows(count);
    expect_same(loaded(in)[0], f(in)[0]);
    if (count == 2) continue;
    EXPECT_LT(loaded.executable(in).device_memory().own(), weights / 2) << count;
  }
  Plan plan = Plan::parse(bytes);
  EXPECT_EQ(error_of([&] { plan.add(compile(function, rows(5))); }),
            "plan: has executables that compute f16 on cuda, got one for f32 on cpu: put it into "
            "another plan");
}

TEST_F(GpuSizes, ConstantsOnTheDeviceAreSharedToo) {
  Tensor there = weight_.to(gpu_);
  const Compiled f([&](const Tensors& in) -> Tensors { return {matmul(in[0], there)}; },
                   {.device = gpu_});
  const Executable first = f.executable(rows(2)), second = f.executable(rows(3));
  EXPECT_GT(first.device_memory().shared, weight_.nbytes() / 2);
  there(ellipsis) = 2;
  const Executable third = f.executable(rows(4));
  EXPECT_LT(third.device_memory().shared, weight_.nbytes() / 2);
  expect_same(third({ones({4, 64})})[0], full({4, 2048}, 128, f32));
  expect_near(second({ones({3, 64})})[0], matmul(ones({3, 64}), weight_), 1e-5);
}

TEST_F(GpuSizes, WhatOnlyDroppedExecutablesNeededGoes) {
  const Tensor weights[] = {weight_, random_.normal({64, 2048})};
  const Compiled f(
      [&](const Tensors& in) -> Tensors { return {matmul(in[0], weights[in[0].shape(0) % 2])}; },
      {.device = gpu_}, 1);
  f(rows(2));
  give_back_freed();
  const std::int64_t before = taken();
  for (const std::int64_t count : {3, 4, 5}) f(rows(count));
  give_back_freed();
  EXPECT_LT(taken() - before, weight_.nbytes() / 4);
}

// Recorded graphs hold the arena's address: what was recorded for a smaller one is not used.
TEST_F(GpuSizes, ShareOneArenaThatGrows) {
  const Tensor weight = random_.normal({64, 512});
  const auto function = [&](const Tensors& in) -> Tensors {
    return {softmax(softmax(matmul(softmax(in[0], -1), weight), -1) * 3, 0)};
  };
  const Compiled f(function, {.device = gpu_});
  const std::vector<Tensors> inputs = {rows(2), rows(24), rows(3)};
  std::vector<Tensor> expected;
  for (const Tensors& in : inputs)
    expected.push_back(compile(function, in, {.device = gpu_})(in)[0]);
  for (int round = 0; round < 3; ++round)
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Tensors there = {inputs[i][0].to(gpu_)};
      for (int call = 0; call < 3; ++call) {
        expect_same(f(inputs[i])[0], expected[i]);
        expect_same(f(there)[0].to("cpu"), expected[i]);
      }
    }
  const std::int64_t arena = f.executable(inputs[0]).device_memory().arena;
  EXPECT_EQ(arena, f.executable(inputs[1]).device_memory().arena);
  const Executable largest = compile(function, inputs[1], {.device = gpu_});
  EXPECT_LT(arena, 2 * largest.arena_bytes() + 8192);
  // So they do the copies of what the caller has on the host.
  largest(inputs[1]);
  const std::int64_t copies = largest.device_memory().other;
  EXPECT_GT(copies, 0);
  for (const Tensors& in : inputs) EXPECT_EQ(f.executable(in).device_memory().other, copies);
}

TEST_F(GpuSizes, AMemoryLimitCountsTheDevice) {
  const auto function = [&](const Tensors& in) -> Tensors { return {matmul(in[0], weight_)}; };
  const std::string error =
      error_of([&] { compile(function, rows(2), {.device = gpu_, .memory_limit = 1 << 16}); });
  EXPECT_NE(error.find("got memory_limit 65536 bytes, but executables that share on cuda:0 hold"),
            std::string::npos)
      << error;
}

TEST(Recordings, AreBoundedAndTheOldestGo) {
  detail::Recordings all;
  std::vector<int> contexts(20);
  for (int& context : contexts)
    for (cuda::Address at = 0; at < 6; ++at) EXPECT_TRUE(all.of(&context, {}, {at}).is_new);
  // Of the last context the last four, of all together the last 64.
  EXPECT_TRUE(all.of(&contexts[19], {}, {1}).is_new);
  EXPECT_FALSE(all.of(&contexts[19], {}, {5}).is_new);
  EXPECT_FALSE(all.of(&contexts[4], {}, {5}).is_new);
  EXPECT_TRUE(all.of(&contexts[3], {}, {5}).is_new);
  EXPECT_TRUE(all.of(&contexts[19], {0, 0, 1}, {5}).is_new);  // with copies elsewhere
  const auto kept = all.of(&contexts[19], {}, {5});
  all.forget(&contexts[19]);
  EXPECT_EQ(kept.recorded->at, std::vector<cuda::Address>{5});
  EXPECT_TRUE(all.of(&contexts[19], {}, {5}).is_new);
}

// A size that would gain by kernels that are not there runs by those that are, and by the others
// as soon as these are compiled; who has an executable keeps it.
TEST_F(GpuSizes, BetterKernelsComeInTheBackground) {
  const auto function = [&](const Tensors& in) -> Tensors {
    return {gelu(matmul(in[0], weight_) * scale_)};
  };
  const CompileOptions options{.device = gpu_, .dtype = f16};
  // Of those behind `first`, the first that is in haste: no kernel is compiled to find it.
  cuda::Machine machine = cuda::machine_of(cuda::Device::get(gpu_.index()).info());
  machine.any_extent = true;
  const std::int64_t first = 16;
  std::int64_t second = 0;
  for (std::int64_t count = 2 * first; count <= 4096 && second == 0; count += first) {
    CompileOptions planned = options;
    planned.sharing = Sharing();
    const auto is_hasty = [&](std::int64_t size) {
      detail::Target target = detail::cuda_target(machine);
      target.build = [](const detail::Program&, std::unique_ptr<detail::Kernels>) {
        return std::unique_ptr<detail::Engine>();
      };
      return detail::compile_until(detail::Until::linked, function, {rows(size)[0].type()}, planned,
                                   target, nullptr, true)
          .is_hasty;
    };
    EXPECT_FALSE(is_hasty(first)) << "nothing is there";
    if (is_hasty(count)) second = count;
  }
  ASSERT_GT(second, 0);
  CompileOptions hurried = options;
  hurried.better_kernels = When::in_background;
  const Compiled f(function, hurried);
  const Tensors in = rows(second), want = function(in);
  f(rows(first));
  const Executable quick = f.executable(in);
  const Tensors of_quick = quick(in);
  expect_near(of_quick[0], want[0], 2e-2);
  // Several threads call it meanwhile.
  std::atomic<bool> is_better = false;
  std::vector<std::thread> callers;
  std::vector<Tensors> results(3);
  for (Tensors& result : results)
    callers.emplace_back([&] {
      do result = f(in);
      while (!is_better);
    });
  const auto is_new = [&] { return &f.executable(in).program() != &quick.program(); };
  while (!is_new()) std::this_thread::yield();
  is_better = true;
  for (std::thread& caller : callers) caller.join();
  for (const Tensors& result : results) expect_near(result[0], want[0], 2e-2);
  expect_near(f(in)[0], want[0], 2e-2);
  expect_same(quick(in)[0], of_quick[0]);
  for (const Executable& executable : {quick, f.executable(in)})
    for (const GroupCheck& check : verify(executable, in)) EXPECT_TRUE(check.ok()) << check.kernel;
  // What is prepared is not in haste.
  const Compiled prepared(function, hurried);
  prepared.prepare({{rows(first)[0].type()}, {in[0].type()}});
  const Executable best = prepared.executable(in);
  EXPECT_EQ(best.program().plan.groups[0].schedule,
            f.executable(in).program().plan.groups[0].schedule);
}

}  // namespace
}  // namespace tensor
