// Memory and streams of a GPU that others use, too: DLPack, foreign memory, runs on given streams.
#include <dlpack/dlpack.h>

#include <limits>
#include <thread>

#include "src/kernels/cuda/driver/device.h"
#include "tensor/compile.h"
#include "tensor/interop.h"
#include "tensor/io.h"
#include "tests/device/gpu.h"
#include "tests/error_of.h"

namespace tensor {
namespace {

using check::error_of;

// A stream as a program of the user's has it.
class UsersStream {
 public:
  UsersStream() {
    device_.enter();
    device_.check(cuda::driver().create_stream(&handle_, cuda::kStreamOfItsOwn), "a stream");
  }
  ~UsersStream() {
    synchronize("cuda", handle_);
    cuda::driver().destroy_stream(handle_);
  }
  UsersStream(const UsersStream&) = delete;
  UsersStream& operator=(const UsersStream&) = delete;
  operator CudaStream() const { return handle_; }
  void wait() const { synchronize("cuda", handle_); }

 private:
  cuda::Device& device_ = cuda::Device::get();
  cuda::StreamHandle* handle_ = nullptr;
};

class Interop : public OnGpu {
 protected:
  Tensor net(const Tensor& x) const { return softmax(relu(matmul(x, first_)) - 1, -1); }
  Executable compiled(CompileOptions options = {}) const {
    options.device = gpu_;
    return compile([this](const Tensors& in) { return Tensors{net(in[0])}; }, Tensors{x_}, options);
  }
  // Sums of 8 terms and a softmax of 16.
  void expect_result(const Tensor& got, const Tensor& x) const {
    expect_near(got.to("cpu"), net(x), 64 * 0x1p-23);
  }
  Tensor poison() const {
    return full({4, 16}, std::numeric_limits<double>::quiet_NaN(), f32).to(gpu_);
  }

  Tensor first_ = random_.normal({8, 16}), x_ = random_.normal({4, 8});
};

TEST_F(Interop, TensorsTravelAsCapsules) {
  const Tensor there = x_.to(gpu_);
  DLManagedTensor* capsule = to_dlpack(there.transpose());
  EXPECT_EQ(capsule->dl_tensor.device.device_type, kDLCUDA);
  EXPECT_EQ(capsule->dl_tensor.device.device_id, 0);
  EXPECT_EQ(capsule->dl_tensor.data, device_pointer(there));
  const Tensor back = from_dlpack(capsule);
  EXPECT_EQ(back.device(), gpu_);
  expect_same(back.to("cpu"), x_.transpose());
  back(0) = 7;  // it is the same memory
  EXPECT_EQ(there.item<float>(3, 0), 7);
  expect_same(from_dlpack(to_dlpack(empty({0, 3}, f32, gpu_))).to("cpu"), empty({0, 3}));
}

TEST_F(Interop, ForeignMemoryIsRead) {
  const Tensor block = concatenate({zeros({4}), x_.flatten()}).to(gpu_);
  auto* const data = static_cast<float*>(device_pointer(block)) + 4;
  bool is_gone = false;
  {
    const std::shared_ptr<const void> owner(data, [&](const void*) { is_gone = true; });
    const Tensor view = from_memory(data, {8, 4}, f32, owner, gpu_, Strides{1, 8});
    expect_same(view.to("cpu"), x_.transpose());
    EXPECT_EQ(device_pointer(view), data);
    expect_result(compiled()({view.transpose()})[0], x_);
  }
  EXPECT_TRUE(is_gone);
  auto* const odd = reinterpret_cast<std::byte*>(data) + 1;
  EXPECT_NE(error_of([&] { from_memory(odd, {2}, f32, nullptr, gpu_); }).find("aligned"),
            std::string::npos);
  EXPECT_NE(error_of([&] { from_memory(nullptr, {2}, f32, nullptr, gpu_); }).find("the address"),
            std::string::npos);
  EXPECT_EQ(error_of([&] { from_memory(data, {2}, f32, nullptr, Device("cpu")); }),
            "from_memory: got the device cpu, need a GPU: leave the device out");
  EXPECT_FALSE(error_of([&] { from_memory(data, {2}, f32, nullptr, "cuda:99"); }).empty());
}

TEST_F(Interop, AStreamHoldsRunsThatNobodyWaitsFor) {
  const Executable f = compiled();
  const auto next = compile([](const Tensors& in) { return Tensors{in[0] * 2 + 1}; },
                            Tensors{poison()}, {.device = gpu_});
  const UsersStream stream;
  Tensor x = x_.to(gpu_);
  for (int call = 0; call < 5; ++call) {  // the second makes a graph of the same memory
    Tensors y{poison()};
    enqueue(f, {x}, y, stream);
    if (is_pretended()) {  // what is queued there runs when somebody waits
      EXPECT_TRUE(all(isnan(y[0].to("cpu"))));
    }
    const Tensor z = enqueue(next, y, stream)[0];
    EXPECT_EQ(z.device(), gpu_);
    stream.wait();
    expect_result(y[0], x_);
    expect_result((z - 1) / 2, x_);
  }
}

// More kernels than are started one by one: of operands that lie elsewhere in each call a graph is
// started over copies of them, and over the operands themselves once they come again.
TEST_F(Interop, DeepModelsAreStartedAsGraphs) {
  const Tensor square = random_.normal({16, 16}) / 4;
  const auto deep = [&](const Tensor& x) {
    Tensor y = net(x);
    for (int layer = 0; layer < 4; ++layer) y = softmax(matmul(y, square), -1);
    return Tensors{y, y.transpose().copy()};
  };
  const Executable f =
      compile([&](const Tensors& in) { return deep(in[0]); }, Tensors{x_}, {.device = gpu_});
  const UsersStream stream;
  Tensors kept;
  Tensor there;
  for (int call = 0; call < 8; ++call) {
    if (call < 6) there = (x_ + call).to(gpu_);  // new places, then one that comes again
    Tensors y{full({4, 16}, -1.0, f32).to(gpu_), full({16, 4}, -1.0, f32).to(gpu_)};
    kept.insert(kept.end(), {there, y[0], y[1]});
    enqueue(f, {there}, y, stream);
    stream.wait();
    const Tensors want = deep(there.to("cpu"));
    for (std::size_t i = 0; i < 2; ++i)
      expect_near(y[i].to("cpu"), want[i], 256 * 0x1p-23, "call " + std::to_string(call));
  }
}

TEST_F(Interop, WhatARunNeedsIsKeptUntilItIsOver) {
  const UsersStream stream;
  Tensors results;
  {
    const Executable f = compiled();
    for (int call = 0; call < 6; ++call) {
      Tensor y = enqueue(f, {(x_ + call).to(gpu_)}, stream)[0];
      if (call % 2 == 0) results.push_back(y);
      const Tensor other = poison();  // takes memory that is free
    }
  }
  stream.wait();
  for (int i = 0; i < 3; ++i) expect_result(results[static_cast<std::size_t>(i)], x_ + 2 * i);
}

TEST_F(Interop, ManyThreadsHaveStreamsOfTheirOwn) {
  const Executable f = compiled();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const UsersStream stream;
      for (int call = 0; call < 10; ++call) {
        const Tensor x = x_ + (10 * t + call);
        const Tensor y = enqueue(f, {x.to(gpu_)}, stream)[0];
        stream.wait();
        expect_result(y, x);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Interop, WhatIsMoreThanKernelsIsWaitedFor) {
  const UsersStream stream;
  const Executable f = compiled(), limited = compiled({.memory_limit = 1 << 30});
  const Tensor there = x_.to(gpu_);
  const Tensor unaligned = concatenate({zeros({1}), x_.flatten()}).to(gpu_)["1:"].reshape({4, 8});
  const Tensor turned = x_.transpose().to(gpu_).transpose();
  for (const Tensor& x : {x_, unaligned, turned}) expect_result(enqueue(f, {x}, stream)[0], x_);
  Tensors here{empty({4, 16})};
  enqueue(f, {there}, here, stream);
  EXPECT_EQ(here[0].device(), Device());
  expect_result(here[0], x_);
  expect_result(enqueue(limited, {there}, stream)[0], x_);
  const Executable copies = compile(
      [this](const Tensors& in) {
        return Tensors{net(in[0]), in[0], in[0](slice(1, 3))};
      },
      Tensors{x_}, {.device = gpu_});
  const Tensors got = enqueue(copies, {there}, stream);
  expect_result(got[0], x_);
  expect_same(got[1].to("cpu"), x_);
  expect_same(got[2].to("cpu"), x_(slice(1, 3)));
}

TEST_F(Interop, WhatHasNoStreamIsRefused) {
  const Executable here = compile([this](const Tensors& in) { return Tensors{net(in[0])}; },
                                  Tensors{x_}, CompileOptions{});
  EXPECT_EQ(error_of([&] { enqueue(here, {x_}, nullptr); }),
            "enqueue: this executable is for the CPU, need one for a GPU: call it, or compile with "
            "{.device = \"cuda\"}");
  const UsersStream stream;
  EXPECT_NE(error_of([&] { enqueue(compiled(), {x_.to(f64)}, stream); }), "");
  Tensors y{x_.to(gpu_)};
  EXPECT_NE(error_of([&] { enqueue(compiled(), {x_}, y, stream); }), "");
}

}  // namespace
}  // namespace tensor
