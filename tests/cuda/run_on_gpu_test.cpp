// Compiled functions on a GPU: against the eager run, a thousand times over, from several threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <thread>

#include "src/kernels/cuda/driver/device.h"
#include "tensor/compile.h"
#include "tensor/io.h"
#include "tensor/tensor.h"
#include "tests/device/gpu.h"
#include "tests/error_of.h"
#include "tests/temporary_folder.h"

namespace tensor {
namespace {

class RunOnGpu : public OnGpu {
 protected:
  // Attention over an image's patches, with a view, a cumulative sum and an input among the
  // results.
  Tensors block(const Tensors& in) const {
    const Tensor map = relu(conv2d(in[0], patch_, {}, {.stride = 4}));
    const Tensor x = map.reshape({in[0].shape(0), kWidth, -1}).swapaxes(1, 2);
    const Tensor y = layer_norm(x, gain_, gain_, 1e-6);
    const Tensor z = x + scaled_dot_product_attention(linear(y, first_), linear(y, second_), y);
    return {z, z.swapaxes(1, 2), cumsum(z, 1), in[0]};
  }
  static void expect_near(const Tensors& got, const Tensors& want, double eps) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].type(), want[i].type());
      const double scale = max(abs(want[i])).item();
      EXPECT_LE(max(abs(got[i] - want[i])).item(), eps * scale) << "output " << i;
    }
  }
  static bool same_bits(const Tensors& a, const Tensors& b) {
    for (std::size_t i = 0; i < a.size(); ++i)
      if (!all(a[i] == b[i]).item<bool>()) return false;
    return true;
  }

  static constexpr std::int64_t kWidth = 64;
  Generator numbers_{91};
  Tensor patch_ = numbers_.normal({kWidth, 3, 4, 4}, 0, 0.2),
         gain_ = numbers_.normal({kWidth}, 1, 0.1),
         first_ = numbers_.normal({kWidth, kWidth}, 0, 0.1),
         second_ = numbers_.normal({kWidth, kWidth}, 0, 0.1),
         image_ = numbers_.normal({2, 3, 32, 36});
};

TEST_F(RunOnGpu, AgreesWithTheEagerRunInEveryType) {
  const auto f = [this](const Tensors& in) { return block(in); };
  const Tensors want = f({image_});
  // A few roundings of operands and results; cumulative sums add up 72 of them, that are not
  // larger than the sum.
  for (const auto& [dtype, eps] : {std::pair(f32, 0x1p-23), {f16, 0x1p-11}, {bf16, 0x1p-8}}) {
    SCOPED_TRACE(name(dtype));
    const Executable fast = compile(f, Tensors{image_}, {.device = "cuda", .dtype = dtype});
    expect_near(fast({image_}), want, 64 * eps);
    expect_near(fast({image_(ellipsis, slice(none, none, -1))
                          .copy()(ellipsis, slice(none, none, -1))}),  // not contiguous
                want, 64 * eps);
    for (const GroupCheck& check : verify(fast, {image_}))
      EXPECT_TRUE(check.ok()) << check.kernel << ' ' << check.error << " > " << check.bound;
    std::ostringstream report;
    fast.report(report, {image_}, 2);
    EXPECT_NE(report.str().find("softmax"), std::string::npos) << report.str();
  }
}

TEST_F(RunOnGpu, AThousandRunsAndEightThreadsGiveTheSameBits) {
  const auto f = [this](const Tensors& in) { return block(in); };
  const Executable fast = compile(f, Tensors{image_}, {.device = "cuda", .dtype = f16});
  const Tensors first = fast({image_});
  int different = 0;
  for (int i = 0; i < 1000; ++i) different += !same_bits(fast({image_}), first);
  EXPECT_EQ(different, 0);
  std::vector<int> wrong(8);
  std::vector<std::thread> threads;
  for (int& count : wrong)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) count += !same_bits(fast({image_}), first);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(8, 0));
}

TEST_F(RunOnGpu, PlansAreSavedAndLoaded) {
  const auto f = [this](const Tensors& in) { return block(in); };
  const Executable fast = compile(f, Tensors{image_}, {.device = "cuda", .dtype = f16});
  const check::TemporaryFolder folder;
  const std::string path = folder / "plan.safetensors";
  fast.save(path);
  const Executable loaded = load_executable(path, 0, "cuda");
  EXPECT_EQ(loaded.group_count(), fast.group_count());
  EXPECT_TRUE(same_bits(loaded({image_}), fast({image_})));
}

TEST(RunWithoutGpu, SaysWhatIsMissing) {
  const std::string text = check::error_of([] {
    compile([](const Tensors& in) -> Tensors { return {in[0] + 1}; }, {zeros({2})},
            {.device = "cuda:4096"});
  });
  EXPECT_TRUE(text.find("CUDA driver") != std::string::npos ||
              text.find("got cuda:4096") != std::string::npos)
      << text;
  EXPECT_THROW(Device("tpu"), UserError);
  EXPECT_THROW(Device("cuda:"), UserError);
  EXPECT_THROW(Device("cuda:-1"), UserError);
  EXPECT_EQ(Device("cuda:3").index(), 3);
}

}  // namespace
}  // namespace tensor
