#include <dlpack/dlpack.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "tensor/creation.h"
#include "tensor/io.h"
#include "tensor/ops.h"
#include "tests/io/io_testing.h"

namespace tensor {
namespace {

using check::error_of;

using Capsule = std::unique_ptr<DLManagedTensor, void (*)(DLManagedTensor*)>;
Capsule capsule(const Tensor& x) {
  return {to_dlpack(x), [](DLManagedTensor* managed) { managed->deleter(managed); }};
}

// A foreign tensor (2, 3) of f32 that counts how often it is deleted.
struct Foreign {
  std::array<float, 6> values = {0, 1, 2, 3, 4, 5};
  std::array<std::int64_t, 17> shape = {2, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  std::array<std::int64_t, 17> strides = {3, 1};
  int deleted = 0;
  DLManagedTensor managed{};

  Foreign() {
    managed.dl_tensor = {values.data(), {kDLCPU, 0}, 2, {kDLFloat, 32, 1},
                         shape.data(),  nullptr,     0};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensor* self) {
      ++static_cast<Foreign*>(self->manager_ctx)->deleted;
    };
  }
  DLTensor& view() { return managed.dl_tensor; }
};

TEST(DLPack, ExportsEveryElementType) {
  const std::tuple<DType, int, int> cases[] = {
      {boolean, 6, 8},     {u8, kDLUInt, 8},   {i8, kDLInt, 8},     {i16, kDLInt, 16},
      {i32, kDLInt, 32},   {i64, kDLInt, 64},  {f16, kDLFloat, 16}, {bf16, kDLBfloat, 16},
      {f32, kDLFloat, 32}, {f64, kDLFloat, 64}};
  for (const auto& [dtype, code, bits] : cases) {
    const Tensor x = ones({2, 3}, dtype);
    const Capsule exported = capsule(x);
    const DLTensor& view = exported->dl_tensor;
    EXPECT_EQ(view.dtype.code, code) << dtype;
    EXPECT_EQ(view.dtype.bits, bits) << dtype;
    EXPECT_EQ(view.dtype.lanes, 1) << dtype;
    EXPECT_EQ(view.device.device_type, kDLCPU);
  }
}

TEST(DLPack, ExportsViewsWithoutCopying) {
  Tensor x = arange(24).reshape({4, 6});
  const Tensor view = x["::-1, 1::2"].transpose();
  Capsule exported = capsule(view);
  EXPECT_EQ(exported->dl_tensor.ndim, 2);
  EXPECT_EQ(exported->dl_tensor.shape[0], 3);
  EXPECT_EQ(exported->dl_tensor.strides[0], 2);
  EXPECT_EQ(exported->dl_tensor.strides[1], -6);
  EXPECT_EQ(exported->dl_tensor.byte_offset, 0u);
  EXPECT_EQ(*static_cast<std::int64_t*>(exported->dl_tensor.data), 19);
  const Tensor back = from_dlpack(exported.release());
  EXPECT_EQ(back.to_vector<int>(), view.to_vector<int>());
  x.at<std::int64_t>(3, 1) = -7;
  EXPECT_EQ(back.item<int>(0, 0), -7);
}

TEST(DLPack, ACapsuleKeepsTheMemory) {
  Capsule exported = capsule(full({1000}, 2.5));
  const Tensor back = from_dlpack(exported.release());
  EXPECT_EQ(back.to_vector<double>(), std::vector<double>(1000, 2.5));
  const Capsule unused = capsule(zeros({0, 3}));
  EXPECT_EQ(unused->dl_tensor.shape[1], 3);
}

TEST(DLPack, RefusesToExportReadOnlyMemory) {
  const std::string text =
      "to_dlpack: this tensor must not be written (a mapped file, a broadcast): pass a copy()";
  const std::vector<float> values(3);
  EXPECT_EQ(error_of([&] {
              to_dlpack(from_memory(static_cast<const void*>(values.data()), {3}, f32, nullptr));
            }),
            text);
  EXPECT_EQ(error_of([&] { to_dlpack(broadcast_to(ones({1}), {3})); }), text);
  EXPECT_EQ(error_of([&] { to_dlpack(Tensor()); }),
            "tensor: this tensor is undefined (default constructed): give it a value first");
}

TEST(DLPack, ImportsAndDeletesOnce) {
  Foreign foreign;
  {
    Tensor x = from_dlpack(&foreign.managed);
    EXPECT_EQ(x.type(), (TensorType{{2, 3}, f32}));
    EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{0, 1, 2, 3, 4, 5}));
    const Tensor column = x(all_of_axis, 1);
    x.at<float>(1, 1) = 9;
    EXPECT_EQ(foreign.values[4], 9);
    x = Tensor();
    EXPECT_EQ(foreign.deleted, 0);
    EXPECT_EQ(column.to_vector<float>(), (std::vector<float>{1, 9}));
  }
  EXPECT_EQ(foreign.deleted, 1);
}

TEST(DLPack, ImportsStridesAndOffsets) {
  Foreign foreign;
  foreign.strides = {1, 2};
  foreign.view().strides = foreign.strides.data();
  EXPECT_EQ(from_dlpack(&foreign.managed).to_vector<float>(),
            (std::vector<float>{0, 2, 4, 1, 3, 5}));
  foreign.strides = {-3, -1};
  foreign.view().byte_offset = 5 * sizeof(float);
  EXPECT_EQ(from_dlpack(&foreign.managed).to_vector<float>(),
            (std::vector<float>{5, 4, 3, 2, 1, 0}));
  foreign.view().ndim = 0;
  foreign.view().shape = nullptr;
  EXPECT_EQ(from_dlpack(&foreign.managed).item(), 5.0);
  EXPECT_EQ(foreign.deleted, 3);
}

TEST(DLPack, ImportsEmptyTensorsAndThoseWithoutADeleter) {
  Foreign foreign;
  foreign.shape[0] = 0;
  foreign.view().data = nullptr;
  EXPECT_EQ(from_dlpack(&foreign.managed).shape(), (Shape{0, 3}));
  EXPECT_EQ(foreign.deleted, 1);
  Foreign kept;
  kept.managed.deleter = nullptr;
  EXPECT_EQ(from_dlpack(&kept.managed).item<float>(1, 2), 5.f);
}

// Changes a sound capsule, imports it, and requires that it was deleted.
template <class Change>
std::string import_message(Change&& change) {
  Foreign foreign;
  change(foreign);
  const std::string text = error_of([&] { from_dlpack(&foreign.managed); });
  EXPECT_EQ(foreign.deleted, 1);
  return text;
}

// DLPack 0.8 and later have bool as code 6 of 8 bits.
TEST(DLPack, BoolsTravelAsBools) {
  const Tensor x = array({true, false, true, true});
  const Tensor back = from_dlpack(capsule(x["::2"]).release());
  EXPECT_EQ(back.type(), (TensorType{{2}, boolean}));
  EXPECT_TRUE(back.shares_storage(back));
  EXPECT_EQ(back.to_vector<bool>(), (std::vector<bool>{true, true}));
  EXPECT_EQ((!back).to_vector<bool>(), (std::vector<bool>{false, false}));
}

TEST(DLPack, RefusesBoolsOtherThan0And1) {
  const auto import = [](std::array<std::uint8_t, 6> bytes, std::int64_t stride) {
    Foreign f;
    f.view().dtype = {6, 8, 1};
    f.view().data = bytes.data();
    f.shape[0] = 1, f.strides = {0, stride};
    f.view().strides = f.strides.data();
    return error_of([&] { EXPECT_EQ(from_dlpack(&f.managed).size(), 3); });
  };
  EXPECT_EQ(import({1, 0, 1, 9, 9, 9}, 1), "no error");
  EXPECT_EQ(import({1, 9, 1, 9, 0, 9}, 2), "no error");
  EXPECT_EQ(
      import({1, 0, 2, 0, 0, 0}, 1),
      "from_dlpack: got the bool 2, 2 elements from the first, need 0 or 1: take the memory as "
      "u8 and compare it with 0");
  EXPECT_EQ(
      import({1, 0, 0, 0, 255, 0}, 2),
      "from_dlpack: got the bool 255, 4 elements from the first, need 0 or 1: take the memory "
      "as u8 and compare it with 0");
}

TEST(DLPack, RefusesWhatItCannotHold) {
  EXPECT_EQ(error_of([] { from_dlpack(nullptr); }), "from_dlpack: got a null pointer");
  EXPECT_EQ(
      import_message([](Foreign& f) { f.view().device.device_type = kDLOpenCL; }),
      "from_dlpack: got a tensor on the device type 4, need the CPU (1) or a GPU of NVIDIA (2)");
  EXPECT_EQ(import_message([](Foreign& f) { f.view().dtype.lanes = 4; }),
            "from_dlpack: got elements of 4 lanes, need 1");
  EXPECT_EQ(import_message([](Foreign& f) {
              f.view().dtype = {kDLUInt, 16, 1};
            }),
            "from_dlpack: got elements of code 1 and 16 bits, which this library does not hold");
  EXPECT_EQ(import_message([](Foreign& f) {
              f.view().dtype = {kDLComplex, 64, 1};
            }),
            "from_dlpack: got elements of code 5 and 64 bits, which this library does not hold");
  EXPECT_EQ(import_message([](Foreign& f) { f.view().ndim = 17; }),
            "from_dlpack: got 17 axes, need 0 to 16");
  EXPECT_EQ(import_message([](Foreign& f) { f.view().ndim = -1; }),
            "from_dlpack: got -1 axes, need 0 to 16");
  EXPECT_EQ(import_message([](Foreign& f) { f.view().shape = nullptr; }),
            "from_dlpack: got no shape for 2 axes");
  EXPECT_EQ(import_message([](Foreign& f) { f.shape[1] = -3; }),
            "from_dlpack: got the shape (2, -3), need extents of at least 0");
  EXPECT_EQ(import_message([](Foreign& f) { f.shape[0] = f.shape[1] = std::int64_t{1} << 32; }),
            "from_dlpack: the shape (4294967296, 4294967296) takes more than 2^63 bytes");
  EXPECT_EQ(import_message([](Foreign& f) { f.view().data = nullptr; }),
            "from_dlpack: got no memory for the shape (2, 3)");
  EXPECT_EQ(import_message([](Foreign& f) { f.view().byte_offset = 2; }),
            "from_dlpack: the elements of f32 are not aligned to their size");
  for (const std::int64_t stride : {INT64_MIN, INT64_MAX, std::int64_t{1} << 61})
    EXPECT_EQ(import_message([&](Foreign& f) {
                f.strides[0] = stride;
                f.view().strides = f.strides.data();
              }),
              "from_dlpack: the shape (2, 3) with strides (" + std::to_string(stride) +
                  ", 1) takes more than 2^63 bytes");
}

}  // namespace
}  // namespace tensor
