// What the tensor memory accelerator can describe, checked before the driver is asked.
#include "src/kernels/cuda/tensor_map.h"

#include <gtest/gtest.h>

namespace tensor::cuda {
namespace {

std::string fault_of(const std::function<void(TensorMapOf&)>& change, Address base = 1024) {
  TensorMapOf view = swizzled_boxes(f16, 197, 768, 104);
  change(view);
  return fault(view, base);
}

TEST(TensorMap, FaultsAreNamed) {
  EXPECT_EQ(fault_of([](TensorMapOf&) {}), "");
  EXPECT_EQ(fault_of([](TensorMapOf& v) { v.stride_bytes = {1538}; }),
            "a stride of 1538 bytes: need a multiple of 16, below 2^40");
  EXPECT_EQ(fault_of([](TensorMapOf& v) { v.memory.bytes = 8; }),
            "memory that does not begin at a multiple of 16 bytes");
  EXPECT_EQ(fault_of([](TensorMapOf& v) { v.box = {64, 257}; }), "a box of 257: need 1 to 256");
  EXPECT_EQ(fault_of([](TensorMapOf& v) {
              v.box = {72, 8};
            }),
            "swizzled box rows of 144 bytes: need 128 at most");
  EXPECT_EQ(fault_of([](TensorMapOf& v) {
              v.box = {4, 8};
            }),
            "box rows of 8 bytes: need a multiple of 16");
  EXPECT_EQ(fault_of([](TensorMapOf& v) {
              v.extents = {768, 0};
            }),
            "an extent of 0: need 1 to 2^32");
  EXPECT_EQ(fault_of([](TensorMapOf& v) { v.extents.assign(6, 8); }), "6 axes: need 1 to 5");
}

TEST(TensorMap, FaultsOfImagesAreNamed) {
  const auto image = [](std::vector<int> lower, int channels) {
    TensorMapOf view{
        .dtype = bf16, .extents = {64, 56, 56, 2}, .stride_bytes = {128, 7168, 401408}};
    view.im2col = {std::move(lower), {-1, -1}, channels, 64};
    return fault(view, 0);
  };
  EXPECT_EQ(image({-1, -1}, 64), "");
  EXPECT_EQ(image({-1}, 64), "im2col corners need a number for each of 2 axes");
  EXPECT_EQ(image({-129, 0}, 64), "an im2col corner of -129: need -128 to 127");
  EXPECT_EQ(image({0, 0}, 512), "im2col boxes of up to 256 channels and 1024 pixels");
}

TEST(TensorMap, BoxesCountWhatTheyTake) {
  TensorMapOf view = swizzled_boxes(f16, 197, 768, 104);
  EXPECT_EQ(box_bytes(view), 104 * 128);
  view.steps = {1, 2};
  EXPECT_EQ(box_bytes(view), 52 * 128);
  view.im2col = {{0}, {0}, 64, 100};
  EXPECT_EQ(box_bytes(view), 100 * 128);
}

}  // namespace
}  // namespace tensor::cuda
