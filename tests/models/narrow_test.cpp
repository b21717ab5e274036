// The reference checkpoints in bfloat16 on the CPU.
#include "tests/models/narrow.h"

namespace {

TEST(NarrowModels, AreRight) {
  for (const std::string& folder : golden::folders(""))
    golden::expect_right(folder, {.dtype = tensor::bf16});
}

}  // namespace
