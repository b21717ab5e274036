// Kernels write their results and nothing beyond them.
#include <gtest/gtest.h>

#include "tensor/compile.h"
#include "tensor/tensor.h"

namespace tn = tensor;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

// Found on a processor with AMX, where oneDNN 2.6.3 wrote 48 rows of a result of 36.
TEST(Bounds, ProductsOfAnyNumberOfRowsStayInTheirResult) {
  tn::Generator random(81);
  constexpr std::int64_t kDepth = 64, kColumns = 32, kAround = 32;
  const Tensor weight = random.normal({kColumns, kDepth});
  for (const tn::DType dtype : {tn::f32, tn::bf16})
    for (std::int64_t rows = 1; rows < 50; ++rows) {
      const Tensor x = random.normal({rows, kDepth});
      const auto f = [&](const Tensors& in) -> Tensors { return {tn::linear(in[0], weight)}; };
      const tn::Executable fast = tn::compile(f, {x}, {.dtype = dtype});
      const Tensor memory = tn::full({rows + 2 * kAround, kColumns}, 7.0, tn::f32);
      Tensors outputs = {memory(tn::slice(kAround, kAround + rows))};
      fast.run({x}, outputs);
      const Tensor around = tn::concatenate(
          {memory(tn::slice(0, kAround)), memory(tn::slice(kAround + rows, tn::none))}, 0);
      ASSERT_TRUE(tn::all(around == 7).item<bool>()) << rows << " rows in " << dtype;
    }
}

}  // namespace
