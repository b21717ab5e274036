// The driver and one GPU. Without a GPU the cases that need one are skipped, with the reason.
#include "src/kernels/cuda/driver/device.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <numeric>
#include <vector>

#include "src/kernels/cuda/driver/graph.h"
#include "tensor/error.h"
#include "tests/cuda/compiled.h"
#include "tests/error_of.h"

#if __has_include(<cuda.h>)
#include <cuda.h>
#endif

namespace tensor::cuda {
namespace {

std::string why_no_gpu() {
  try {
    Device::count();
    Compiler::get();
    return {};
  } catch (const UserError& error) {
    return error.what();
  }
}

class Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_gpu(); !reason.empty()) GTEST_SKIP() << reason;
  }
};

Kernel compiled(Device& device, const std::string& text, const std::string& name) {
  return Kernel(device, Compiler::get().compile({name + ".cu", text}, device.info().architecture()),
                name);
}

TEST(Conditions, AreSetByAKernelThatCompiles) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  for (const char* architecture : {"sm_75", "sm_90a"})
    expect_no_trouble(Conditions::source(), architecture);
}

TEST(CudaDriver, IsThereOrSaysWhatWasTried) {
  const std::string reason = check::error_of<Error>([] { Device::count(); });
  if (reason == "no error") {
    EXPECT_GE(Device::count(), 1);
  } else {
    EXPECT_TRUE(reason.starts_with("the CUDA driver: ")) << reason;
    EXPECT_NE(reason.find("the CPU works without it"), std::string::npos) << reason;
  }
}

TEST_F(Gpu, IsDescribed) {
  const DeviceInfo& info = Device::get().info();
  EXPECT_FALSE(info.name.empty());
  EXPECT_GE(info.capability, 50);
  EXPECT_GE(info.multiprocessors, 1);
  EXPECT_GE(info.registers, 32768);
  EXPECT_GE(info.threads, 1024);
  EXPECT_GE(info.memory_bytes, std::int64_t{1} << 30);
  EXPECT_GE(info.l2_bytes, 1 << 18);
  EXPECT_GE(info.shared_bytes, 48 << 10);
  EXPECT_GE(info.shared_block_bytes, 48 << 10);
  EXPECT_GT(info.clock_ghz, 0.1);
  EXPECT_GT(info.memory_gbps, 10);
  EXPECT_GT(Device::get().free_bytes(), 0);
  const int count = Device::count();
  EXPECT_EQ(check::error_of<Error>([&] { Device::get(count); }),
            "device: got cuda:" + std::to_string(count) + ", this machine has " +
                std::to_string(count) + " (0 to " + std::to_string(count - 1) + ")");
}

TEST_F(Gpu, RunsAKernelInOrderAndTellsItsTime) {
  Device& device = Device::get();
  Kernel scale = compiled(device,
                          "extern \"C\" __global__ void scale(float* x, float by, int n) {\n"
                          "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                          "  if (i < n) x[i] = x[i] * by + i;\n"
                          "}\n",
                          "scale");
  EXPECT_GT(scale.registers(), 0);
  EXPECT_EQ(scale.local_bytes(), 0);
  constexpr int kCount = 1000;
  std::vector<float> x(kCount, 3), got(kCount, -1);
  Buffer buffer(device, kCount * 4);
  buffer.upload(std::as_bytes(std::span(x)));
  Stream stream(device);
  Event before(device), after(device);
  before.record(stream);
  for (int repeat = 0; repeat < 2; ++repeat)
    scale(stream, {.grid = {4}, .block = {256}}, buffer.address(), 2.f, kCount);
  after.record(stream);
  stream.synchronize();
  buffer.download(std::as_writable_bytes(std::span(got)));
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(got[static_cast<std::size_t>(i)], 12 + 3 * i) << i;
  EXPECT_GT(after.microseconds_since(before), 0);
  EXPECT_THROW(buffer.upload(std::as_bytes(std::span(x)), 4), InternalError);
}

TEST_F(Gpu, GivesAKernelAllTheSharedMemoryThereIs) {
  Device& device = Device::get();
  Kernel last = compiled(device,
                         "extern \"C\" __global__ void last(int* out, int bytes) {\n"
                         "  extern __shared__ char shared[];\n"
                         "  __shared__ int fixed[8];\n"
                         "  shared[bytes - 1] = 40;\n"
                         "  fixed[7] = 2;\n"
                         "  *out = shared[bytes - 1] + fixed[7];\n"
                         "}\n",
                         "last");
  const auto most = static_cast<int>(device.info().shared_block_bytes);
  Buffer out(device, 4);
  Stream stream(device);
  for (const int bytes : {48 << 10, most - 32}) {  // of both kinds, 48 KiB are free
    last(stream, {.shared_bytes = static_cast<unsigned>(bytes)}, out.address(), bytes);
    stream.synchronize();
    int value = 0;
    out.download(std::as_writable_bytes(std::span(&value, 1)));
    EXPECT_EQ(value, 42);
  }
}

TEST_F(Gpu, RepeatsWhatLiesInABuffer) {
  Device& device = Device::get();
  constexpr std::int64_t kCount = 1 << 16, kBytes = 4 * kCount;
  std::vector<int> x(kCount), got(kCount, -1);
  std::iota(x.begin(), x.end(), 1);
  Buffer buffer(device, 4 * kBytes);
  buffer.upload(std::as_bytes(std::span(x)), kBytes);
  const std::vector<std::int64_t> places = {0, 3 * kBytes};
  buffer.repeat(kBytes, kBytes, places);
  for (const std::int64_t place : places) {
    std::fill(got.begin(), got.end(), -1);
    buffer.download(std::as_writable_bytes(std::span(got)), place);
    EXPECT_EQ(got, x) << place;
  }
  EXPECT_THROW(buffer.repeat(0, kBytes, std::vector<std::int64_t>{3 * kBytes + 4}), InternalError);
}

TEST_F(Gpu, OutOfMemoryIsClearAndLosesNothing) {
  Device& device = Device::get();
  const std::int64_t huge = 2 * device.info().memory_bytes;
  const std::string text = check::error_of<Error>([&] { Buffer buffer(device, huge); });
  EXPECT_TRUE(text.starts_with("cuda:0: cannot allocate " + std::to_string(huge) + " bytes: "))
      << text;
  Buffer small(device, 1024);
  EXPECT_NE(small.address(), 0u);
}

// An illegal address ends the use of a device in its process: so this case runs in one of its own.
TEST_F(Gpu, AFatalErrorIsNeverHidden) {
  if (std::getenv("TENSOR_TEST_FATAL") == nullptr) {
    const pid_t child = ::fork();  // and exec at once: the driver does not survive a fork
    if (child == 0) {
      ::setenv("TENSOR_TEST_FATAL", "1", 1);
      ::execl("/proc/self/exe", "cuda_tests", "--gtest_filter=Gpu.AFatalErrorIsNeverHidden",
              nullptr);
      ::_exit(2);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    return;
  }
  Device& device = Device::get();
  Kernel wild = compiled(device, "extern \"C\" __global__ void wild(int* x) { *x = 1; }\n", "wild");
  Buffer kept(device, 16);
  Stream stream(device);
  wild(stream, {}, Address{0x10});
  const std::string first = check::error_of<Error>([&] { stream.synchronize(); });
  EXPECT_TRUE(first.starts_with("cuda:0: running wild: an illegal memory access")) << first;
  const std::string later = check::error_of<Error>([&] { Buffer another(device, 16); });
  EXPECT_TRUE(
      later.starts_with("cuda:0: is out of use in this process since running wild: an illegal "
                        "memory access"))
      << later;
}

#if __has_include(<cuda.h>)
static_assert(sizeof(LaunchConfig) == sizeof(CUlaunchConfig));
static_assert(sizeof(ConditionalNode) == sizeof(CUgraphNodeParams));
static_assert(offsetof(ConditionalNode, handle) == offsetof(CUgraphNodeParams, conditional));
static_assert(offsetof(ConditionalNode, bodies) ==
              offsetof(CUgraphNodeParams, conditional.phGraph_out));
static_assert(offsetof(ConditionalNode, context) == offsetof(CUgraphNodeParams, conditional.ctx));
static_assert(ConditionalNode().type == CU_GRAPH_NODE_TYPE_CONDITIONAL);
static_assert(kInPlaceOfOthers == CU_STREAM_SET_CAPTURE_DEPENDENCIES);
static_assert(sizeof(LaunchAttribute) == sizeof(CUlaunchAttribute));
static_assert(offsetof(LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream));
static_assert(offsetof(LaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs));
static_assert(offsetof(LaunchConfig, attribute_count) == offsetof(CUlaunchConfig, numAttrs));
static_assert(offsetof(LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
static_assert(sizeof(Address) == sizeof(CUdeviceptr) && sizeof(int) == sizeof(CUdevice));
constexpr int number(DeviceAttribute which) { return static_cast<int>(which); }
static_assert(number(DeviceAttribute::clock_khz) == CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
static_assert(number(DeviceAttribute::multiprocessors) == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(number(DeviceAttribute::memory_clock_khz) == CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
static_assert(number(DeviceAttribute::memory_bits) == CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
static_assert(number(DeviceAttribute::l2_bytes) == CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
static_assert(number(DeviceAttribute::threads) ==
              CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
static_assert(number(DeviceAttribute::major) == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(number(DeviceAttribute::minor) == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(number(DeviceAttribute::shared_bytes) ==
              CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
static_assert(number(DeviceAttribute::registers) ==
              CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
static_assert(number(DeviceAttribute::shared_block_bytes) ==
              CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
static_assert(static_cast<int>(FunctionAttribute::local_bytes) ==
              CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
static_assert(static_cast<int>(FunctionAttribute::registers) == CU_FUNC_ATTRIBUTE_NUM_REGS);
static_assert(static_cast<int>(FunctionAttribute::dynamic_shared_bytes) ==
              CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(kOverlapsPrevious == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
static_assert(kStreamOfItsOwn == CU_STREAM_NON_BLOCKING);
static_assert(kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY && kNoDevice == CUDA_ERROR_NO_DEVICE);
#endif

}  // namespace
}  // namespace tensor::cuda
