// What only a pretended GPU can tell: how much memory is taken, what is copied, and that nobody
// reaches over.
#include <atomic>
#include <cstdlib>
#include <optional>
#include <thread>

#include "models/vit/vit.h"
#include "models/vit/vit_standard.h"
#include "src/core/storage.h"
#include "src/kernels/cuda/driver/device.h"
#include "src/kernels/cuda/templates.h"
#include "tensor/compile.h"
#include "tensor/nn.h"
#include "tests/cuda/emulator/driver.h"
#include "tests/device/gpu.h"
#include "tests/error_of.h"

namespace tensor {
namespace {

using check::error_of;

using emulator::driver_counts;
using emulator::DriverCounts;

class EmulatedGpu : public OnGpu {
 protected:
  // What earlier cases freed on a GPU is kept, until somebody asks for all of its memory.
  static void give_back_freed(const Device& device) {
    empty({cuda::Device::get(device.index()).info().memory_bytes}, u8, device);
  }
};
using EmulatedGpuDeathTest = EmulatedGpu;

TEST_F(EmulatedGpuDeathTest, HostCodeCannotTouchItsMemory) {
  const Tensor x = zeros({16}).to(gpu_);
  auto* address = reinterpret_cast<volatile float*>(detail::placed(x).first());
  EXPECT_DEATH(static_cast<void>(*address), "");
  EXPECT_DEATH(*address = 1, "");
}

TEST_F(EmulatedGpu, FreshMemoryIsPoisoned) {
  give_back_freed("cuda:1");
  EXPECT_TRUE(all(isnan(empty({3000}, f32, "cuda:1"))).item<bool>());
}

// A kernel may have 48 KiB of both kinds together without asking for more.
TEST_F(EmulatedGpu, SharedMemoryIsAskedForWhereBothKindsAreMoreThanIsFree) {
  cuda::Device& device = cuda::Device::get();
  const cuda::KernelSource source = {"last.cu", R"(#include "ptx.h"
extern "C" __global__ void last(int* out, int bytes) {
  extern __shared__ char dynamic[];
  __shared__ int fixed[8];
  dynamic[bytes - 1] = 40;
  fixed[7] = 2;
  tensor::device::wait_for_previous();
  *out = dynamic[bytes - 1] + fixed[7];
})",
                                     cuda::device_headers()};
  cuda::Kernel last(device, cuda::Compiler::get().compile(source, device.info().architecture()),
                    "last");
  cuda::Buffer out(device, 4);
  cuda::Stream stream(device);
  last(stream, {.shared_bytes = 48 << 10}, out.address(), 48 << 10);
  stream.synchronize();
  int got = 0;
  out.download(std::as_writable_bytes(std::span(&got, 1)));
  EXPECT_EQ(got, 42);
}

// The most that was asked for so far is for all threads: a smaller launch does not take it back.
TEST_F(EmulatedGpu, ThreadsShareAKernelWithMuchAndLittleSharedMemory) {
  cuda::Device& device = cuda::Device::get();
  const cuda::KernelSource source = {"end.cu", R"(#include "ptx.h"
extern "C" __global__ void end(int* out, int bytes) {
  extern __shared__ char dynamic[];
  dynamic[bytes - 1] = 42;
  tensor::device::wait_for_previous();
  *out = dynamic[bytes - 1];
})",
                                     cuda::device_headers()};
  const cuda::Cubin code = cuda::Compiler::get().compile(source, device.info().architecture());
  for (int round = 0; round < 200; ++round) {
    cuda::Kernel end(device, code, "end");
    std::atomic<int> ready = 0;
    cuda::Buffer much(device, 4), little(device, 4);  // no memory is freed while work is queued
    const auto launch = [&](int bytes, cuda::Buffer& out) {
      cuda::Stream stream(device);
      for (++ready; ready < 2;) {
      }
      EXPECT_NO_THROW(
          end(stream, {.shared_bytes = static_cast<unsigned>(bytes)}, out.address(), bytes);
          stream.synchronize());
      int got = 0;
      out.download(std::as_writable_bytes(std::span(&got, 1)));
      EXPECT_EQ(got, 42);
    };
    std::thread other(launch, 64 << 10, std::ref(little));
    launch(96 << 10, much);
    other.join();
    if (HasFailure()) FAIL() << "round " << round;
  }
}

// Made before all that the first use of a GPU makes, and so destroyed after it.
struct KeptToTheEnd {
  std::optional<Executable> executable;
  Tensor tensor;
} kept_to_the_end;

// AddressSanitizer sees more than the exit code says.
TEST_F(EmulatedGpuDeathTest, GlobalVariablesMayHoldItsMemory) {
  const auto end = [&] {
    kept_to_the_end.tensor = ones({64}).to(gpu_);
    kept_to_the_end.executable =
        compile([](const Tensors& in) -> Tensors { return {exp(in[0]) * 2.0}; },
                Tensors{ones({64})}, {.device = gpu_});
    (*kept_to_the_end.executable)({kept_to_the_end.tensor});
    std::exit(0);
  };
  const std::string style = GTEST_FLAG_GET(death_test_style);
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // children cannot use their parent's GPU
  EXPECT_EXIT(end(), testing::ExitedWithCode(0), "");
  GTEST_FLAG_SET(death_test_style, style);
}

TEST_F(EmulatedGpu, BuffersRepeatWhatLiesInThem) {
  cuda::Buffer buffer(cuda::Device::get(), 48);
  std::vector<int> x = {1, 2, 3}, got(3);
  buffer.upload(std::as_bytes(std::span(x)), 12);
  buffer.repeat(12, 12, std::vector<std::int64_t>{0, 36});
  for (const std::int64_t place : {0, 36}) {
    buffer.download(std::as_writable_bytes(std::span(got)), place);
    EXPECT_EQ(got, x);
  }
  EXPECT_THROW(buffer.repeat(0, 12, std::vector<std::int64_t>{40}), InternalError);
}

TEST_F(EmulatedGpu, OperatorsCopyNothingThroughTheHost) {
  const Tensor x = random_.normal({8, 8}).to(gpu_);
  const Tensor once = relu(x);
  const DriverCounts before = driver_counts();
  Tensor y = x;
  for (int i = 0; i < 5; ++i) y = relu(y);
  const DriverCounts after = driver_counts();
  EXPECT_EQ(after.launches - before.launches, 5);
  EXPECT_EQ(after.uploaded_bytes, before.uploaded_bytes);
  EXPECT_EQ(after.downloaded_bytes, before.downloaded_bytes);
  EXPECT_EQ(after.graphs, before.graphs);
  EXPECT_LE(after.allocations - before.allocations, 2);  // freed results are used again
}

TEST_F(EmulatedGpu, OperatorsWithKernelsBringNothingHere) {
  const Tensor image = random_.normal({1, 8, 6, 6}).to(gpu_);
  const Tensor weight = random_.normal({4, 8, 3, 3}).to(gpu_);
  const Tensor turned = random_.normal({8, 4, 2, 2}).to(gpu_);
  const Tensor rows = array({1, -1, 0}).astype(i64).to(gpu_);
  const auto resized = [&](Interpolation mode) {
    return interpolate(image, {9, 4}, {.mode = mode});
  };
  const std::vector<std::pair<std::function<Tensor()>, std::int64_t>> cases = {
      {[&] { return conv2d(image, weight, {}, {.padding = 1}); }, 0},
      {[&] { return conv2d(image.astype(f16), weight.astype(f16)); }, 0},
      {[&] { return conv_transpose2d(image, turned, {}, {.stride = 2}); }, 0},
      {[&] { return resized(Interpolation::nearest); }, 0},
      {[&] { return resized(Interpolation::bilinear); }, 0},
      {[&] { return resized(Interpolation::bicubic); }, 0},
      {[&] { return avg_pool2d(image, 2); }, 0},
      {[&] { return take(image, rows, 2); }, rows.nbytes()},  // which are checked
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const DriverCounts before = driver_counts();
    cases[i].first();
    const DriverCounts after = driver_counts();
    EXPECT_EQ(after.downloaded_bytes - before.downloaded_bytes, cases[i].second) << i;
    EXPECT_EQ(after.uploaded_bytes, before.uploaded_bytes) << i;
  }
}

TEST_F(EmulatedGpu, RunsOnItsOwnMemoryCopyNothing) {
  const Tensor weight = random_.normal({8, 8});
  const auto f = [&](const Tensors& in) -> Tensors {
    return {softmax(matmul(in[0], weight)), sum(cumsum(in[0], 1), 0)};
  };
  const Tensor x = random_.normal({4, 8});
  const Executable fast = compile(f, Tensors{x}, {.device = gpu_});
  const Tensors inputs{x.to(gpu_)};
  Tensors outputs{empty({4, 8}, f32, gpu_), empty({8}, f32, gpu_)};
  fast.run(inputs, outputs);
  fast.run(inputs, outputs);
  const DriverCounts before = driver_counts();
  for (int i = 0; i < 4; ++i) fast.run(inputs, outputs);
  const DriverCounts after = driver_counts();
  EXPECT_EQ(after.uploaded_bytes, before.uploaded_bytes);
  EXPECT_EQ(after.downloaded_bytes, before.downloaded_bytes);
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_LE(after.graphs, before.graphs + 1);
  expect_near(outputs[0].to("cpu"), f({x})[0], 64 * 0x1p-23);
}

TEST_F(EmulatedGpu, TooLittleMemoryForAnOperatorIsToldAndNothingIsLost) {
  give_back_freed("cuda:1");
  const Tensor x = random_.normal({1 << 16}), there = x.to("cuda:1");
  Tensor filler = empty({cuda::Device::get(1).free_bytes() - x.nbytes() / 2}, u8, "cuda:1");
  const std::string text = error_of([&] { there + 1; });
  EXPECT_TRUE(text.starts_with("cuda:1: cannot allocate 262144 bytes: ")) << text;
  EXPECT_EQ(error_of([&] { sort(there); }).substr(0, 24), "cuda:1: cannot allocate ");
  EXPECT_EQ(error_of([&] { x.to("cuda:1"); }).substr(0, 24), "cuda:1: cannot allocate ");
  expect_same(there.to("cpu"), x);
  filler = Tensor();
  expect_same((there + 1).to("cpu"), x + 1);
}

TEST_F(EmulatedGpu, WhatOperatorsKeepIsGivenBackWhenMemoryIsShort) {
  {
    const Tensor x = random_.normal({8, 64}).to("cuda:1");
    softmax(matmul(x, x.transpose()) * 2);
  }
  const std::int64_t all_of_it = cuda::Device::get(1).info().memory_bytes;
  EXPECT_EQ(empty({all_of_it}, u8, "cuda:1").nbytes(), all_of_it);
  // It begins anew.
  const Tensor x = random_.normal({4, 4});
  expect_same((x.to("cuda:1") * 2).to("cpu"), x * 2);
}

TEST_F(EmulatedGpu, OperatorsOnTheHostKeepNothing) {
  const Tensor x = random_.normal({1 << 18}), there = x.to(gpu_);
  sort(there["100:"]);
  const DriverCounts before = driver_counts();
  expect_same(sort(there).to("cpu"), sort(x));
  EXPECT_EQ(driver_counts().pinned_bytes, before.pinned_bytes);
}

TEST_F(EmulatedGpu, AnExecutableTellsAllThatItHolds) {
  give_back_freed("cuda:2");
  const Tensor weight = random_.normal({64, 64}), x = random_.normal({16, 64});
  const auto f = [&](const Tensors& in) -> Tensors {
    return {matmul(softmax(matmul(in[0], weight)), weight)};
  };
  const std::int64_t before = driver_counts().allocated_bytes;
  {
    const Executable fast = compile(f, Tensors{x}, {.device = "cuda:2"});
    fast({x});
    const std::int64_t taken = driver_counts().allocated_bytes - before;
    const DeviceMemory memory = fast.device_memory();
    EXPECT_GE(memory.weights, weight.nbytes());
    EXPECT_GE(memory.arena, fast.arena_bytes());
    EXPECT_GE(taken, memory.total());
    EXPECT_LE(taken, memory.total() + 4096);  // blocks are rounded
    std::ostringstream report;
    fast.report(report, {x}, 1);
    EXPECT_NE(report.str().find("GPU memory"), std::string::npos) << report.str();
  }
  const Executable on_cpu = compile(f, Tensors{x});
  on_cpu({x});
  EXPECT_GE(on_cpu.device_memory().weights, weight.nbytes());
  EXPECT_GE(on_cpu.device_memory().arena, on_cpu.arena_bytes());
}

TEST_F(EmulatedGpu, AModelTakesItsWeightsItsArenaAndLittleMore) {
  give_back_freed("cuda:2");
  const models::vit::VitConfig config = models::vit::standard_config("vit-base-patch16-224");
  models::vit::Vit model = models::vit::Vit::sized(config);
  std::int64_t parameters = 0;
  for (const nn::Parameter& p : nn::parameters(model)) {
    *p.tensor = zeros(p.tensor->shape());
    parameters += p.tensor->size();
  }
  const auto f = [&](const Tensors& in) -> Tensors { return {model(in[0], {}).logits}; };
  const std::int64_t before = driver_counts().allocated_bytes;
  const Executable fast = compile(f, std::vector<TensorType>{{{1, 3, 224, 224}, f32}},
                                  {.device = "cuda:2", .dtype = f16});
  const std::int64_t taken = driver_counts().allocated_bytes - before;
  constexpr std::int64_t kMore = std::int64_t{64} << 20;
  EXPECT_GE(fast.device_memory().weights, 2 * parameters);
  EXPECT_LE(fast.device_memory().weights, 2 * parameters + kMore);
  EXPECT_LE(taken, 2 * parameters + kMore);
  // A call takes the arena, scratch, copies of what the caller has on the host, and whatever freed
  // memory is kept for the next one: besides weights and arena, all of it is a part of `kMore`.
  const emulator::SkippedKernels nothing_runs;
  const Tensor image = zeros({1, 3, 224, 224});
  fast({image});
  fast({image.to("cuda:2")});
  const std::int64_t taken_by_calls = driver_counts().allocated_bytes - before;
  EXPECT_GE(fast.device_memory().arena, fast.arena_bytes());  // and scratch
  EXPECT_GE(taken_by_calls, taken + fast.arena_bytes());
  EXPECT_GE(taken_by_calls, fast.device_memory().total());
  EXPECT_LE(taken_by_calls, 2 * parameters + fast.arena_bytes() + kMore);
}

}  // namespace
}  // namespace tensor
