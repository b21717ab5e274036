// The digits that ship, classified on a GPU in 16 bits.
#include "src/kernels/cuda/device.h"
#include "tests/models/digits.h"

namespace tensor {
namespace {

TEST(DigitsOnGpu, HaveTheSameTopClassInSixteenBits) {
  try {
    cuda::Device::get();
    cuda::Compiler::get();
  } catch (const UserError& error) {
    GTEST_SKIP() << error.what();
  }
  for (const DType dtype : {f16, bf16}) {
    SCOPED_TRACE(name(dtype));
    digits::expect_same_classes({.dtype = dtype, .device = "cuda"});
  }
}

}  // namespace
}  // namespace tensor
