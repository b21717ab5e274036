// Kernels in the cache on disk that the driver refuses: another one has put them there, say.
#include "src/core/cache_folder.h"
#include "src/kernels/cuda/driver/kernel_cache.h"
#include "src/kernels/cuda/driver/load.h"
#include "src/kernels/cuda/templates.h"
#include "tests/device/gpu.h"
#include "tests/error_of.h"

namespace tensor::cuda {
namespace {

class RefusedKernel : public OnGpu {
 protected:
  static Call writes(int number) {
    Call call;
    call.source = {"number.cu",
                   R"(#include "ptx.h"
extern "C" __global__ void number(int* out) {
  tensor::device::wait_for_previous();
  *out = )" + std::to_string(number) +
                       ";\n}\n",
                   device_headers()};
    call.entry = "number";
    call.launch.block = {1};
    call.arguments = {Pointer{}};
    return call;
  }

  int run(const Call& call) {
    const Call* const calls[] = {&call};
    const auto kernels = load_kernels(device_, calls);
    Buffer out(device_, 4);
    Stream stream(device_);
    start(
        stream, *kernels[0], call, [&](const Pointer&) { return out.address(); }, false);
    stream.synchronize();
    int got = 0;
    out.download(std::as_writable_bytes(std::span(&got, 1)));
    return got;
  }

  // What is no machine code at all.
  static Cubin rubbish() {
    Cubin cubin;
    for (const char c : "rubbish") cubin.code.push_back(static_cast<std::byte>(c));
    return cubin;
  }

  cuda::Device& device_ = cuda::Device::get();
  const Compiler& compiler_ = Compiler::get();
  const std::string architecture_ = device_.info().architecture();
};

TEST_F(RefusedKernel, IsCompiledOnceMore) {
  const Call call = writes(42);
  const Cubin good = compiler_.compile(call.source, architecture_);
  Call of_another_name = call;
  const std::size_t at = of_another_name.source.text.find("number");
  of_another_name.source.text.replace(at, 6, "digits");
  const Cubin refused[] = {rubbish(), compiler_.compile(call.source, "sm_80"),
                           compiler_.compile(of_another_name.source, architecture_)};
  KernelCache cache(cache_folder());
  const std::string key = compiler_.key(call.source, architecture_);
  for (const Cubin& bad : refused) {
    const auto give_bad = [&] { return bad; };
    ASSERT_EQ(cache.get(key, give_bad, &good).code, bad.code);
    EXPECT_EQ(run(call), 42);
    EXPECT_EQ(cache.get(key, give_bad).code, good.code);
  }
}

TEST_F(RefusedKernel, IsReportedWhereThatDoesNotHelp) {
  int renewed = 0;
  EXPECT_EQ(check::error_of<InternalError>([&] {
              Kernel(device_, rubbish(), "number", [&] { return ++renewed, rubbish(); });
            }),
            "cuda:0: number: device kernel image is invalid (CUDA_ERROR_INVALID_IMAGE) (a fault in "
            "tensor itself: please report it)");
  EXPECT_EQ(renewed, 1);
}

}  // namespace
}  // namespace tensor::cuda
