// What becomes of executables that divide products when NCCL or one of the GPUs fails.
#include <cstdlib>
#include <iostream>
#include <regex>

#include "tensor/compile.h"
#include "tests/cuda/emulator/driver.h"
#include "tests/device/gpu.h"
#include "tests/error_of.h"

namespace tensor {
namespace {

using check::error_of;

class FailingNccl : public OnGpu {
 protected:
  Executable mlp(const std::vector<Device>& devices) const {
    return compile(
        [this](const Tensors& in) -> Tensors {
          return {matmul(relu(matmul(in[0], first_)), second_)};
        },
        Tensors{x_}, {.devices = devices, .divide = Divide::products, .tune_logs = {{}}});
  }

  const Tensor x_ = random_.normal({8, 32}), first_ = random_.normal({32, 64}),
               second_ = random_.normal({64, 32});
};

TEST_F(FailingNccl, IsTold) {
  emulator::let_nccl_connect(false);
  EXPECT_EQ(error_of([&] {
              mlp({"cuda:2", "cuda:0"});
            }),
            "NCCL: does not connect cuda:2 and cuda:0: unhandled cuda error; set NCCL_DEBUG=INFO "
            "to learn why");
  emulator::let_nccl_connect(true);
}

TEST_F(FailingNccl, IsNotAskedToConnectGpusOfTwoModels) {
  const std::string text = error_of([&] { mlp({"cuda:0", "cuda:1"}); });
  EXPECT_TRUE(std::regex_match(
      text, std::regex("compile: got cuda:0, .*, and cuda:1, .*, need GPUs of one model to divide "
                       "products: divide the batch, or choose others")))
      << text;
}

// In a process of its own, which has not opened it.
TEST_F(FailingNccl, IsNamedWhereItCannotBeOpened) {
  const std::string style = GTEST_FLAG_GET(death_test_style);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ::setenv("TENSOR_NCCL", "/nowhere/libnccl.so.2", 1);
        std::cerr << error_of([&] { mlp({"cuda:2", "cuda:0"}); });
        std::exit(0);
      },
      testing::ExitedWithCode(0),
      "NCCL: cannot be opened .*/nowhere/libnccl.so.2: cannot open shared object file: No such "
      "file or directory.: install it .NVIDIA's packages libnccl2, or nvidia-nccl-cu12 from "
      "PyPI., or name the file in TENSOR_NCCL; one device works without it, and so do several "
      "that divide a batch");
  GTEST_FLAG_SET(death_test_style, style);
}

// One GPU has no memory for a call, while the other waits for its summand.
TEST_F(FailingNccl, LetsNobodyWaitForEver) {
  const Executable f = mlp({"cuda:0", "cuda:2"});
  cuda::Device& second = cuda::Device::get(0);
  error_of([&] { empty({second.info().memory_bytes}, u8, "cuda:0"); });  // gives back what is kept
  std::string cause;
  {
    Tensors full;
    for (const std::int64_t unit : {1 << 20, 512})  // of blocks that are large, or small
      if (const std::int64_t units = second.free_bytes() / unit; units > 0)
        full.push_back(empty({units * unit}, u8, "cuda:0"));
    cause = error_of([&] { f({x_}); });
    EXPECT_TRUE(cause.starts_with("cuda:0: cannot allocate ")) << cause;
  }
  const std::string later =
      "run: cuda:0 and cuda:2 no longer add up products since a call ended "
      "with \"" +
      cause + "\": compile the function again";
  for (int call = 0; call < 2; ++call) EXPECT_EQ(error_of([&] { f({x_}); }), later);
  const Executable again = mlp({"cuda:0", "cuda:2"});
  for (int call = 0; call < 3; ++call)
    expect_near(again({x_})[0], matmul(relu(matmul(x_, first_)), second_), 0x1p-24 * 64);
}

}  // namespace
}  // namespace tensor
