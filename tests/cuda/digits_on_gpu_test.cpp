// The digits that ship, classified on a GPU in 16 bits.
#include "tests/device/gpu.h"
#include "tests/models/digits.h"

namespace tensor {
namespace {

class DigitsOnGpu : public OnGpu {};

TEST_F(DigitsOnGpu, HaveTheSameTopClassInSixteenBits) {
  for (const DType dtype : {f16, bf16}) {
    SCOPED_TRACE(name(dtype));
    digits::expect_same_classes({.device = "cuda", .dtype = dtype});
  }
}

}  // namespace
}  // namespace tensor
