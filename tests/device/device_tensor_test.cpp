// Tensors in the memory of a GPU: there and back, and what can be asked of them.
#include <sstream>
#include <thread>

#include "tensor/io.h"
#include "tests/device/gpu.h"
#include "tests/error_of.h"
#include "tests/temporary_folder.h"

namespace tensor {
namespace {

using check::error_of;

class DeviceTensor : public OnGpu {};

TEST_F(DeviceTensor, GoesThereAndComesBack) {
  for (const DType dtype : {boolean, u8, i8, i16, i32, i64, f16, bf16, f32, f64}) {
    SCOPED_TRACE(name(dtype));
    const Tensor x = random_.randint(0, 100, {3, 5}).astype(dtype);
    const Tensor there = x.to(gpu_);
    EXPECT_EQ(there.device(), gpu_);
    EXPECT_EQ(x.device(), Device());
    EXPECT_EQ(there.type(), x.type());
    EXPECT_TRUE(there.is_contiguous());
    EXPECT_FALSE(there.is_read_only());
    const Tensor back = there.to("cpu");
    EXPECT_EQ(back.device(), Device());
    expect_same(back, x);
    EXPECT_TRUE(there.to("cuda:0").shares_storage(there));  // it is there already
    EXPECT_TRUE(x.to("cpu").shares_storage(x));
    EXPECT_FALSE(back.shares_storage(x));
  }
}

TEST_F(DeviceTensor, LargeOnesGoInPieces) {
  // Over two pieces of staging, and a bit.
  const Tensor x = random_.normal({3, (1 << 19) + 3});
  expect_same(x.to(gpu_).to("cpu"), x);
}

TEST_F(DeviceTensor, ViewsStayViews) {
  const Tensor x = random_.normal({4, 6, 5}), there = x.to(gpu_);
  const auto views = [](const Tensor& t) {
    return Tensors{t.transpose(),
                   t(1),
                   t(all_of_axis, slice(1, none, 2)),
                   t(ellipsis, slice(none, none, -1)),
                   t["::, ::, 2:4"],
                   broadcast_to(t(0, 0), {3, 5}),
                   t.reshape({24, 5}),
                   t.swapaxes(0, 1).expand_dims(0)};
  };
  const Tensors here = views(x), on_gpu = views(there);
  for (std::size_t i = 0; i < here.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(on_gpu[i].device(), gpu_);
    EXPECT_TRUE(on_gpu[i].shares_storage(there));
    expect_same(on_gpu[i].to("cpu"), here[i]);
    EXPECT_TRUE(on_gpu[i].to("cpu").is_contiguous());
  }
  // What no strides can say is copied.
  expect_same(there.transpose().reshape({-1}).to("cpu"), x.transpose().reshape({-1}));
  // From the host, a view arrives contiguous.
  EXPECT_TRUE(x.transpose().to(gpu_).is_contiguous());
  expect_same(x.transpose().to(gpu_).to("cpu"), x.transpose());
}

TEST_F(DeviceTensor, ElementsAreReadThroughACopy) {
  const Tensor x = array({{1.5, 2.5}, {-3.0, 4.0}}), there = x.to(gpu_);
  EXPECT_EQ(there.item(1, 0), -3.0);
  EXPECT_EQ(there.item<int>(-1, -1), 4);
  EXPECT_EQ(there(0, 1).item(), 2.5);
  EXPECT_EQ(there.to_vector<float>(), x.to_vector<float>());
  std::ostringstream here, printed;
  here << x, printed << there;
  EXPECT_EQ(printed.str(), here.str());
}

TEST_F(DeviceTensor, PointersToThemAreRefused) {
  Tensor there = zeros({2, 3}).to(gpu_);
  const std::string text = error_of([&] { there.data<float>(); });
  EXPECT_EQ(text,
            "tensor: the elements of this tensor (f32(2, 3)) lie on cuda:0, where they cannot be "
            "reached from here: bring them with to(\"cpu\")");
  EXPECT_EQ(error_of([&] { there.mutable_data<float>(); }), text);
  EXPECT_EQ(error_of([&] { there.span<float>(); }), text);
  EXPECT_EQ(error_of([&] { there.elements<float>(); }), text);
  EXPECT_EQ(error_of([&] { there.at<float>(0, 0); }), text);
}

TEST_F(DeviceTensor, FilesAreWrittenFromACopy) {
  const Tensor x = random_.normal({3, 4}), turned = x.to(gpu_).transpose();
  const check::TemporaryFolder folder;
  const std::string path = folder / "file";
  save_npy(path, turned);
  expect_same(load_npy(path), x.transpose());
  save_npz(path, {{"x", turned}});
  expect_same(load_npz(path).at("x"), x.transpose());
  save_safetensors(path, {{"x", turned}});
  expect_same(load_safetensors(path).tensors.at("x"), x.transpose());
  const Tensor image = random_.randint(0, 256, {5, 4, 3}, u8);
  save_png(path, image.to(gpu_));
  expect_same(load_image(path), image);
}

TEST_F(DeviceTensor, IsMadeThere) {
  const Tensor x = empty({7, 9}, f16, gpu_);
  EXPECT_EQ(x.device(), gpu_);
  EXPECT_EQ(zeros_like(x).device(), gpu_);
  expect_same(ones_like(x).to("cpu"), ones({7, 9}, f16));
  EXPECT_EQ(empty({0, 3}, f32, gpu_).to("cpu").size(), 0);
  EXPECT_EQ(zeros({0, 3}).to(gpu_).device(), gpu_);
  const std::string text = error_of([] { empty({2}, f32, "cuda:4096"); });
  EXPECT_TRUE(text.starts_with("device: got cuda:4096, this machine has ")) << text;
}

TEST_F(DeviceTensor, TooLargeOnesAreRefusedAndNothingIsLost) {
  const std::int64_t most = cuda::Device::get().info().memory_bytes;
  const std::string text = error_of([&] { empty({2 * most}, u8, gpu_); });
  EXPECT_TRUE(text.starts_with("cuda:0: cannot allocate ")) << text;
  const Tensor x = random_.normal({100});
  expect_same(x.to(gpu_).to("cpu"), x);
}

TEST_F(DeviceTensor, FreedMemoryIsUsedAgainBeforeTheDeviceIsFull) {
  // Ten times half of the memory, of sizes that do not fit into each other.
  const std::int64_t most = cuda::Device::get().free_bytes();
  for (int i = 0; i < 10; ++i) {
    const Tensor x = empty({most / 16 * (8 - i % 4)}, u8, gpu_);
    EXPECT_EQ(x.device(), gpu_);
  }
}

TEST_F(DeviceTensor, SeveralGpus) {
  if (!has_two()) GTEST_SKIP() << "this machine has one GPU, need two";
  const Tensor x = random_.normal({3, 4}), first = x.to("cuda:0"), second = x.to("cuda:1");
  EXPECT_EQ(second.device(), Device("cuda:1"));
  EXPECT_FALSE(first.device() == second.device());
  expect_same(second.to("cpu"), x);
  expect_same(first.to("cuda:1").to("cpu"), x);
  expect_same((second + second).to("cpu"), x + x);
  EXPECT_EQ((second + second).device(), Device("cuda:1"));
  EXPECT_EQ(error_of([&] { add(first, second); }),
            "add: got tensors on cuda:0 and cuda:1, need all on one device: move one of them with "
            "to(\"cuda:0\")");
}

TEST_F(DeviceTensor, AnyThreadMayLetGo) {
  Tensor x = random_.normal({1000}).to(gpu_);
  std::thread([y = std::move(x)] {}).join();
  EXPECT_FALSE(x.defined());
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int& count : wrong)
    threads.emplace_back([&count] {
      Generator random(5);
      for (int i = 0; i < 10; ++i) {
        const Tensor y = random.normal({100 + i});
        count += !all(y.to("cuda").to("cpu") == y).item<bool>();
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace tensor
