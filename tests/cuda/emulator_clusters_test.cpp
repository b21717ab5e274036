// Emulated clusters: what blocks send each other arrives late, and arrivals order nothing. What is
// planted wrong is found, in small kernels and in the library's own.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "src/kernels/cuda/attention/sm90.h"
#include "src/kernels/cuda/conv/conv.h"
#include "tests/cuda/attention_cases.h"
#include "tests/cuda/conv_cases.h"
#include "tests/cuda/emulator/trial.h"
#include "tests/cuda/gemm_sm90_cases.h"
#include "tests/families.h"

namespace tensor::emulator {
namespace {

using Replacement = std::pair<std::string, std::string>;

std::string with(std::string text, const std::vector<Replacement>& replacements) {
  for (const auto& [right, wrong] : replacements) {
    const std::size_t at = text.find(right);
    EXPECT_NE(at, std::string::npos) << right;
    if (at != std::string::npos) text.replace(at, right.size(), wrong);
  }
  return text;
}

// Four blocks send each other four numbers a thread, and add up what they get.
const std::string kExchange = kTrialHead + R"(
  __shared__ alignas(16) float got[4][32][4];
  __shared__ u64 counter;
  const u32 barrier = shared_address(&counter), rank = cluster_rank();
  if (threadIdx.x == 0) {
    barrier_init(barrier, 1);
    barrier_init_fence();
    barrier_expect(barrier, sizeof got);
  }
  __syncthreads();
  cluster_arrive();
  cluster_wait();
  wait_for_previous();
  const float x = in[32 * blockIdx.x + threadIdx.x];
  for (u32 to = 0; to < 4; ++to)
    send(peer_address(shared_address(got[rank][threadIdx.x]), to), peer_address(barrier, to),
         {x, 2 * x, 3 * x, 4 * x});
  barrier_wait_for_sent(barrier, 0);
  float sum = 0;
  for (u32 from = 0; from < 4; ++from) {
    float parts[4];
    load_own(parts, shared_address(got[from][threadIdx.x]));
    sum += parts[0] + parts[1] + parts[2] + parts[3];
  }
  out[32 * blockIdx.x + threadIdx.x] = sum;
})";
const cuda::Launch kFourBlocks = {.grid = {8}, .block = {32}, .cluster = 4};

TEST(EmulatorClusters, BlocksSendToEachOther) {
  std::vector<float> in(256), out(256);
  std::iota(in.begin(), in.end(), 0.f);
  for (const unsigned seed : {0u, 1u, 2u}) {
    std::fill(out.begin(), out.end(), NAN);
    Trial{kExchange, kFourBlocks}(in, out, {seed});
    for (std::size_t i = 0; i < in.size(); ++i)
      EXPECT_EQ(out[i], static_cast<float>(10 * (4 * (i / 128 * 128 + i % 32) + 32 * 6)));
  }
}

TEST(EmulatorClusters, FindsWhatIsWrongInAnExchange) {
  const std::string arrive = "  cluster_arrive();\n", wait = "  cluster_wait();\n",
                    get = "  barrier_wait_for_sent(barrier, 0);\n",
                    fence = "    barrier_init_fence();\n";
  const std::pair<std::vector<Replacement>, std::string> planted[] = {
      // Bytes come late.
      {{{get, ""}}, "of shared memory"},
      {{{get, "  barrier_wait(barrier, 0);\n"}}, "does not see it: barrier_wait_for_sent()"},
      {{{"sizeof got", "sizeof got / 2"}}, "is still being copied to"},
      {{{"sizeof got", "2 * sizeof got"}}, "no thread can go on"},
      {{{get, "  return;\n"}}, "ends as the last of its block while bytes are on their way to it"},
      {{{"peer_address(barrier, to)", "peer_address(barrier, 0)"}},
       "sends to one block and lets another one count the bytes"},
      // Who is not known to run, or to have initialised its barriers, is sent nothing.
      {{{wait, ""}, {get, wait + get}}, "a block that may not run yet: cluster_wait() first"},
      {{{fence, ""}}, "barrier_init_fence() before cluster_arrive()"},
      {{{fence, ""}, {arrive, arrive + "  if (threadIdx.x == 0) barrier_init_fence();\n"}},
       "barrier_init_fence() before cluster_arrive()"},
      {{{wait, ""}, {get, "  return;\n"}, {"  wait_for_previous();\n", "  return;\n"}},
       "ends between cluster_arrive() and cluster_wait()"},
      // An arrival says nothing of what came before: not that the kernel ahead has ended,
      {{{"  wait_for_previous();\n", ""},
        {arrive, "  if (rank == 0) wait_for_previous();\n" + arrive}},
       "before wait_for_previous()"},
      // and not what was written.
      {{{get, get + "  float theirs[4];\n  tensor_gpu->load_shared(theirs, "
                    "peer_address(shared_address(got[rank][threadIdx.x]), rank ^ 1), 16);\n"}},
       "reads another block's shared memory, whose writes nothing orders"}};
  for (const auto& [replacements, complaint] : planted) {
    const Trial trial{with(kExchange, replacements), kFourBlocks};
    EXPECT_FOUND(trial.fault(), complaint) << "\n" << trial.text;
  }
}

// A block gives another one back what it has read, and stays until it got its own back.
TEST(EmulatorClusters, FindsWhatIsWrongInGivingBack) {
  const std::string text = kTrialHead + R"(
  __shared__ u64 counter;
  const u32 barrier = shared_address(&counter), rank = cluster_rank();
  if (threadIdx.x == 0) {
    barrier_init(barrier, 1);
    barrier_init_fence();
  }
  __syncthreads();
  cluster_arrive();
  cluster_wait();
  wait_for_previous();
  if (threadIdx.x == 0) {
    barrier_arrive_peer(peer_address(barrier, rank ^ 1));
    barrier_wait(barrier, 0);
  }
  out[32 * blockIdx.x + threadIdx.x] = in[32 * blockIdx.x + threadIdx.x];
})";
  const cuda::Launch two = {.grid = {4}, .block = {32}, .cluster = 2};
  EXPECT_EQ((Trial{text, two}).fault(), "");
  const std::string wait = "    barrier_wait(barrier, 0);\n";
  EXPECT_FOUND((Trial{with(text, {{wait, ""}}), two}).fault(), "an mbarrier of a block that has");
  EXPECT_FOUND((Trial{with(text, {{"    barrier_init_fence();\n", ""}}), two}).fault(),
               "barrier_init_fence() before cluster_arrive()");
  // That the other block waited for the kernel ahead is not for this one to know.
  EXPECT_FOUND(
      (Trial{with(text, {{"  wait_for_previous();\n", "  if (rank == 0) wait_for_previous();\n"},
                         {wait, wait + "    out[0] = in[0];\n"}}),
             two})
          .fault(),
      "before wait_for_previous()");
}

// ---- The library's kernels

// What is found in a kernel whose template `header` is changed, "" if nothing is.
std::string found(GroupCase& group, const GroupCase::Lower& lower, const std::string& header,
                  const std::vector<Replacement>& replacements) {
  ::testing::TestPartResultArray results;
  {
    ::testing::ScopedFakeTestPartResultReporter reporter(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    expect_emulated(
        group,
        [&](const LaidOutGraph& laid, const Group& g, const cuda::Machine& machine) {
          cuda::Lowered lowered = lower(laid, g, machine);
          for (cuda::Call& call : lowered.calls)
            for (auto& [name, text] : call.source.headers.edit())
              if (name == header) text = with(text, replacements);
          return lowered;
        },
        90, 3);
  }
  std::string all;
  for (int i = 0; i < results.size(); ++i)
    all += results.GetTestPartResult(i).message() + std::string("\n");
  return all;
}

TEST(EmulatorClusters, FindsWhatIsWrongInProducts) {
  Generator random(3);
  const cuda::GemmSchedule shares = {
      .tile_m = 64, .tile_n = 64, .stages = 2, .groups = 1, .shares = 2};
  const cuda::GemmSchedule splits = {
      .tile_m = 24, .tile_n = 64, .stages = 2, .swapped = true, .splits = 3};
  GroupCase many = cuda::product_case(random, 130, 64, 328, false);
  GroupCase few = cuda::product_case(random, 20, 64, 328, false);
  const auto in_shares = [&](const std::vector<Replacement>& replacements) {
    return found(many, cuda::by(shares, 2), "gemm_sm90.h", replacements);
  };
  const auto in_splits = [&](const std::vector<Replacement>& replacements) {
    return found(few, cuda::by(splits), "gemm_sm90.h", replacements);
  };
  EXPECT_EQ(in_shares({}), "");
  EXPECT_EQ(in_splits({}), "");
  const std::string multiplied = "      wgmma_wait<1>();\n";
  // Stages are given back that are still multiplied.
  EXPECT_NE(in_shares({{multiplied, ""}}), "");
  EXPECT_FOUND(in_shares({{"if constexpr (S::kShares > 1) cluster_wait();", ""},
                          {"    gemm.leave();\n", "    cluster_wait();\n"}}),
               "a box of a block that may not run yet");
  EXPECT_FOUND(in_shares({{"    gemm.leave();\n", ""}}), "of a block that has ended");
  const std::string sent = "    barrier_wait_for_sent(exchanged(), 0);\n";
  EXPECT_FOUND(in_splits({{sent, ""}}), "is still being copied to");
  EXPECT_FOUND(in_splits({{"S::kSplits * my_part_bytes()", "my_part_bytes()"}}),
               "is still being copied to");
  EXPECT_FOUND(in_splits({{"    cluster_wait();  // until all blocks run\n", ""},
                          {sent, "    cluster_wait();\n" + sent}}),
               "a write of a block that may not run yet");
}

TEST(EmulatorClusters, FindsWhatIsWrongInConvolutions) {
  const auto shapes = testing::conv_shapes();
  const auto shape = std::find_if(shapes.begin(), shapes.end(),
                                  [](const auto& s) { return s.name == "wide_window"; });
  const testing::ConvCase c = testing::conv_cases(*shape, f16)[2];
  GroupCase group(c.f, testing::inputs_of(c));
  const auto conv = cuda::match_convolution(group.laid().graph, group.group());
  ASSERT_TRUE(conv);
  cuda::ConvSm90Schedule schedule = cuda::conv_sm90_schedules().front();
  schedule.parts = 3;
  const auto in_parts = [&](const std::vector<Replacement>& replacements) {
    return found(
        group,
        [&](const LaidOutGraph& laid, const Group& g, const cuda::Machine& on) {
          return cuda::lower_conv_sm90(laid, g, *conv, on, schedule);
        },
        "conv_sm90.h", replacements);
  };
  EXPECT_EQ(in_parts({}), "");
  const std::string all_run = "    cluster_arrive();\n    cluster_wait();\n";
  const std::string multiplied = "    conv.multiply(sums, warp);\n";
  // Sums are sent to where others still multiply.
  EXPECT_NE(in_parts({{all_run, ""}, {multiplied, all_run + multiplied}}), "");
  EXPECT_FOUND(in_parts({{"    barrier_wait_for_sent(sent(), 0);\n", ""}}),
               "is still being copied to");
  EXPECT_FOUND(in_parts({{"S::kParts * my_share()", "my_share()"}}), "is still being copied to");
}

TEST(EmulatorClusters, FindsWhatIsWrongInAttention) {
  GroupCase group = attention_case({1, 1, 70, 100, 32});
  const auto in_parts = [&](const std::vector<Replacement>& replacements) {
    return found(
        group,
        [&](const LaidOutGraph& laid, const Group& g, const cuda::Machine& on) {
          return cuda::lower_attention_sm90(laid, g, on, {1, 1, 32, 1, 3});
        },
        "attention_sm90.h", replacements);
  };
  EXPECT_EQ(in_parts({}), "");
  const std::string sent = "    barrier_wait_for_sent(sent(), 0);\n";
  EXPECT_FOUND(in_parts({{sent, ""}}), "of shared memory");
  EXPECT_FOUND(in_parts({{"    if constexpr (S::kParts > 1) cluster_wait();  // until all", "//"},
                         {sent, "    cluster_wait();\n" + sent}}),
               "a write of a block that may not run yet");
  // Rows without a query are not waited for.
  EXPECT_FOUND(in_parts({{"min(kShare, max(rows() - part * kShare, 0))", "kShare"}}),
               "no thread can go on");
}

}  // namespace
}  // namespace tensor::emulator
