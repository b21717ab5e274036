// Errors that end the use of a GPU: they name the kernel, or those that it is one of, and are told
// again by all that uses this GPU later. Each case is a process of its own.
#include <cstdlib>
#include <iostream>
#include <regex>

#include "tensor/compile.h"
#include "tests/cuda/emulator/driver.h"
#include "tests/device/gpu.h"
#include "tests/error_of.h"
#include "tests/temporary_folder.h"

namespace tensor {
namespace {

using emulator::fail_kernel;

class LostGpuDeathTest : public OnGpu {
 protected:
  // Five kernels: three products, between which something else stands.
  Executable chain(const Device& device) const {
    return compile(
        [this](const Tensors& in) -> Tensors {
          return {matmul(softmax(matmul(softmax(matmul(in[0], first_)), second_)), third_)};
        },
        Tensors{x_},
        {.device = device,
         .fuse = false,
         .names = {
             {"first.weight", first_}, {"second.weight", second_}, {"third.weight", third_}}});
  }

  // To be called in the child. What is said first is matched whole, with a kernel's name for
  // KERNEL and what the driver says after it; later, everything on this GPU repeats it.
  void expect_error(const Device& device, const std::string& pattern,
                    const std::function<void()>& first) {
    const auto expect = [&](const std::string& text, const std::string& before,
                            const std::string& after) {
      const std::string error =
          R"(: an illegal memory access was encountered \(CUDA_ERROR_ILLEGAL_ADDRESS\))";
      const std::string all = before + pattern + error + after;
      if (std::regex_match(text, std::regex(std::regex_replace(all, std::regex("KERNEL"), kName))))
        return;
      std::cerr << "got  " << text << "\nneed " << all << '\n';
      failed_ = true;
    };
    const std::string where = "cuda:" + std::to_string(device.index()) + ": ";
    expect(check::error_of<Error>(first), where,
           R"( \(a fault in tensor itself: please report it\))");
    for (const auto& later : {first, std::function([&] { x_.to(device); })})
      expect(check::error_of<Error>(later), where + "is out of use in this process since ",
             ": start the process again");
  }
  [[noreturn]] void end() {
    std::cerr << (failed_ ? "something is wrong\n" : "all is well\n");
    std::exit(failed_);
  }

  void SetUp() override {
    OnGpu::SetUp();
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
  void TearDown() override { GTEST_FLAG_SET(death_test_style, style_); }

  static constexpr const char* kName = "sm[0-9A-Za-z_]+";
  const std::string style_ = GTEST_FLAG_GET(death_test_style);
  Tensor x_ = random_.normal({4, 8}), first_ = random_.normal({8, 8}),
         second_ = random_.normal({8, 8}), third_ = random_.normal({8, 8});
  bool failed_ = false;
};

TEST_F(LostGpuDeathTest, AGraphNamesWhatItIsMadeOf) {
  const auto body = [&] {
    const Executable f = chain(gpu_), elsewhere = chain("cuda:2");
    f({x_});
    fail_kernel(2);
    expect_error(gpu_,
                 R"(running one of 5 kernels, from KERNEL \(first: matmul\) to KERNEL )"
                 R"(\(third: matmul\); set TENSOR_SYNC=1 to learn which)",
                 [&] { f({x_}); });
    elsewhere({x_});
    end();
  };
  EXPECT_EXIT(body(), testing::ExitedWithCode(0), "all is well");
}

TEST_F(LostGpuDeathTest, WhatRunsAloneIsNamed) {
  const auto body = [&] {
    const Executable f = chain("cuda:0"), g = chain("cuda:1");
    fail_kernel(2);
    expect_error("cuda:0", R"(running KERNEL \(second: matmul\))", [&] { verify(f, {x_}); });
    const check::TemporaryFolder folder;
    // The third step in its graph: behind a whole run, and two runs of ten launches of each step
    // before.
    fail_kernel(5 + 2 * 2 * 10 + 3);
    expect_error("cuda:1", R"(running KERNEL \(second: matmul\))",
                 [&] { g.profile(folder / "trace.json", {x_}); });
    const Tensor there = x_.to("cuda:2");
    fail_kernel(0);
    expect_error("cuda:2", R"(running KERNEL \(softmax\))", [&] { softmax(there); });
    end();
  };
  EXPECT_EXIT(body(), testing::ExitedWithCode(0), "all is well");
}

// The first GPU was opened before the variable was set.
TEST_F(LostGpuDeathTest, KernelsThatAreWaitedForAreNamed) {
  const auto body = [&] {
    ::setenv("TENSOR_SYNC", "1", 1);
    const Executable f = chain("cuda:1");
    const std::int64_t graphs = emulator::driver_counts().graphs;
    for (int i = 0; i < 3; ++i) f({x_});
    failed_ |= emulator::driver_counts().graphs != graphs;
    fail_kernel(2);
    expect_error("cuda:1", R"(running KERNEL \(second: matmul\))", [&] { f({x_}); });
    ::setenv("TENSOR_SYNC", "yes", 1);
    const std::string text = check::error_of([&] { x_.to("cuda:2"); });
    if (text != "TENSOR_SYNC: got \"yes\", need 1 to wait for every kernel, or 0") {
      std::cerr << text << '\n';
      failed_ = true;
    }
    end();
  };
  EXPECT_EXIT(body(), testing::ExitedWithCode(0), "all is well");
}

}  // namespace
}  // namespace tensor
