// The emulated GPU itself: what kernels do right gives right results, and each thing they do wrong
// is found and named.
#include "tests/cuda/emulator/trial.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tensor/tensor.h"
#include "tests/cuda/emulator/group_case.h"

namespace tensor::emulator {
namespace {

using cuda::Launch;

TEST(Emulator, ThreadsAndBlocksAreNumbered) {
  const Trial trial{kTrialHead + R"(
    wait_for_previous();
    const int block = blockIdx.y * gridDim.x + blockIdx.x;
    const int i = (block * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    out[i] = 2 * in[i];
  })",
                    {.grid = {2, 2}, .block = {8, 5}}};
  std::vector<float> in(160), out(160);
  std::iota(in.begin(), in.end(), 0.f);
  for (const unsigned seed : {0u, 1u, 2u}) {
    std::fill(out.begin(), out.end(), NAN);
    trial(in, out, {seed});
    for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], 2 * in[i]);
  }
}

TEST(Emulator, BlocksExchangeThroughSharedMemory) {
  const Trial trial{kTrialHead + R"(
    extern __shared__ float all[];
    __shared__ float sums[4];
    wait_for_previous();
    all[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    float x = all[127 - threadIdx.x];
    for (int lane = 16; lane > 0; lane /= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
    __syncthreads();
    out[threadIdx.x] = sums[0] + sums[1] + sums[2] + sums[3];
  })",
                    {.block = {128}, .shared_bytes = 512}};
  std::vector<float> in(128), out(128);
  std::iota(in.begin(), in.end(), 0.f);
  trial(in, out);
  for (const float x : out) EXPECT_EQ(x, 127 * 64.f);
}

TEST(Emulator, FindsAccessesOutside) {
  const Trial reads{kTrialHead + "wait_for_previous(); out[0] = in[threadIdx.x];\n}",
                    {.block = {257}}};
  EXPECT_FOUND(reads.fault(), "thread 256, kernel.cpp:");
  EXPECT_FOUND(
      reads.fault(),
      "reads 4 bytes outside of all memory it was given: 4 bytes beyond operand 0 of 1024 bytes");
  const Trial writes{kTrialHead + "wait_for_previous(); out[int(blockIdx.x) - 1] = 1;\n}", {}};
  EXPECT_FOUND(writes.fault(), "4 bytes before operand 1");
  const Trial constant{kTrialHead + "wait_for_previous(); const_cast<float*>(in)[0] = 1;\n}", {}};
  EXPECT_FOUND(constant.fault(), "writes operand 0, which is only read");
}

TEST(Emulator, FindsReadsOfWhatWasNeverWritten) {
  const Trial trial{kTrialHead + R"(
    extern __shared__ float all[];
    if (threadIdx.x != 5) all[threadIdx.x] = 1;
    __syncthreads();
    wait_for_previous();
    out[threadIdx.x] = all[threadIdx.x ^ 1];
  })",
                    {.block = {32}, .shared_bytes = 128}};
  EXPECT_FOUND(trial.fault(), "thread 4,");
  EXPECT_FOUND(trial.fault(), "reads: byte 20 of shared memory was never written");
  const Trial beyond{kTrialHead + R"(
    extern __shared__ float all[];
    all[threadIdx.x] = 1;
  })",
                     {.block = {33}, .shared_bytes = 128}};
  EXPECT_FOUND(beyond.fault(),
               "writes: byte 128 of shared memory lies outside of what the kernel asked for");
}

// In one order of the threads or the other.
TEST(Emulator, FindsMissingBarriers) {
  const Trial trial{kTrialHead + R"(
    __shared__ float first;
    wait_for_previous();
    if (threadIdx.x == 0) first = in[0];
    out[threadIdx.x] = first;
  })",
                    {.block = {32}}};
  std::vector<float> in(32), out(32);
  EXPECT_NO_THROW(trial(in, out, {0}));
  EXPECT_THROW(trial(in, out, {1}), Fault);
}

TEST(Emulator, FindsWorkAheadOfTheKernelBefore) {
  EXPECT_FOUND((Trial{kTrialHead + "out[1] = 0;\n}", {}}.fault()),
               "writes operand 1 before wait_for_previous()");
  EXPECT_FOUND(
      (Trial{kTrialHead + "float x = in[1]; wait_for_previous(); out[1] = x;\n}", {}}.fault()),
      "reads operand 0 before wait_for_previous()");
  // To have met a thread that waited is enough.
  const std::string meet =
      "if (threadIdx.x == 0) wait_for_previous(); __syncthreads(); out[threadIdx.x] = 0;\n}";
  EXPECT_EQ((Trial{kTrialHead + meet, {.block = {64}}}.fault()), "");
}

TEST(Emulator, FindsDeadlocks) {
  const Trial half{kTrialHead + "if (threadIdx.x < 32) named_barrier(1, 64);\n}", {.block = {64}}};
  EXPECT_FOUND(half.fault(), "no thread can go on");
  EXPECT_FOUND(half.fault(), "32 threads, the first of them block (0, 0, 0) thread 0, kernel.cpp:");
  EXPECT_FOUND(half.fault(), "named barrier 1, where 32 of 64 have come");
  const Trial bytes{kTrialHead + R"(
    __shared__ u64 barrier;
    const u32 at = shared_address(&barrier);
    if (threadIdx.x == 0) barrier_init(at, 1);
    if (threadIdx.x == 0) barrier_expect(at, 64);
    __syncthreads();
    barrier_wait(at, 0);
  })",
                    {.block = {32}}};
  EXPECT_FOUND(bytes.fault(), "(0 arrivals and 64 bytes are missing)");
}

TEST(Emulator, FindsMisuseOfBarriersAndWarps) {
  const Trial often{kTrialHead + R"(
    __shared__ u64 barriers[2];
    const u32 first = shared_address(barriers);
    if (threadIdx.x == 0) barrier_init(first, 2);
    __syncthreads();
    barrier_expect(first, threadIdx.x == 0 ? 16 : 0);
  })",
                    {.block = {3}}};
  EXPECT_FOUND(often.fault(), "arrives at an mbarrier whose 2 arrivals of this phase have come");
  EXPECT_FOUND(
      (Trial{kTrialHead + "__shared__ u64 b; barrier_arrive(shared_address(&b));\n}", {}}.fault()),
      "was not initialised");
  const Trial apart{kTrialHead + "if (threadIdx.x % 2) __syncwarp(); else elect_one();\n}",
                    {.block = {32}}};
  EXPECT_FOUND(apart.fault(), "is at __syncwarp where others of its warp are at elect");
}

TEST(Emulator, FindsMisalignedVectorsAndIndices) {
  EXPECT_FOUND(
      (Trial{kTrialHead + "wait_for_previous(); *(float4*)out = *(const float4*)(in + 1);\n}", {}}
           .fault()),
      "goes through a pointer that is not a multiple of 16 bytes");
  EXPECT_FOUND(
      (Trial{kTrialHead + "float x[4] = {}; wait_for_previous(); out[0] = x[threadIdx.x];\n}",
             {.block = {5}}}
           .fault()),
      "indexes an array at 4");
}

TEST(Emulator, CopiesArriveWhenTheyAreWaitedFor) {
  const std::string copy = R"(
    extern __shared__ __align__(16) float all[];
    wait_for_previous();
    copy_16(shared_address(all + 4 * threadIdx.x), in + 4 * threadIdx.x, threadIdx.x == 7 ? 8 : 16);
    copy_commit();
    )",
                    use =
                        "__syncthreads(); for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = "
                        "all[31 - 4 * threadIdx.x - i];\n}";
  const Launch launch{.block = {8}, .shared_bytes = 128};
  EXPECT_FOUND((Trial{kTrialHead + copy + use, launch}.fault()),
               "of shared memory is still being copied to");
  std::vector<float> in(32), out(32);
  std::iota(in.begin(), in.end(), 0.f);
  Trial{kTrialHead + copy + "copy_wait<0>();" + use, launch}(in, out);
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i < 2 ? 0 : in[31 - i]);
}

// What is reported of a kernel of this text that should be exp(x).
std::string failures(const std::string& text) {
  GroupCase group([](const Tensors& in) -> Tensors { return {exp(in[0])}; },
                  {Generator(1).normal({64})});
  ::testing::TestPartResultArray results;
  ::testing::ScopedFakeTestPartResultReporter reporter(
      ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
  expect_emulated(
      group,
      [&](const LaidOutGraph&, const Group&, const cuda::Machine&) {
        cuda::Lowered lowered;
        lowered.calls.resize(1);
        cuda::Call& call = lowered.calls[0];
        call.source = {"trial.cu", "#include \"ptx.h\"\n" + kTrialHead + text + "}",
                       cuda::device_headers()};
        call.entry = "trial";
        call.launch.block = {64};
        call.arguments = {cuda::Pointer{}, cuda::Pointer{.index = 1}};
        return lowered;
      },
      90, 1);
  std::string all;
  for (int i = 0; i < results.size(); ++i)
    all += results.GetTestPartResult(i).message() + std::string("\n");
  return all;
}

TEST(Emulator, GroupsAreComparedWithFloat64) {
  const std::string wait = "tensor::device::wait_for_previous(); const int i = threadIdx.x; ";
  EXPECT_EQ(failures(wait + "out[i] = expf(in[i]);"), "");
  EXPECT_FOUND(failures(wait + "out[i] = expf(in[i]) * 1.00001f;"), "element 0: got ");
  EXPECT_FOUND(failures(wait + "if (i != 7) out[i] = expf(in[i]);"), "element 7: got ");
  EXPECT_FOUND(failures(wait + "out[i] = expf(in[i ^ 1]);"), "element 1: got ");
  EXPECT_FOUND(failures(wait + "out[i] = in[64];"), "beyond operand 0 of 256 bytes");
}

}  // namespace
}  // namespace tensor::emulator
