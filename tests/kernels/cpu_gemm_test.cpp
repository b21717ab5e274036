// The gemm family against the reference, on layouts that have misled oneDNN.
#include "tests/kernels/group_testing.h"

namespace tn = tensor;
using tn::Shape;
using tn::Tensor;
using namespace tensor::testing;

namespace {

// Products of one row or one column each, whose axes of extent 1 lie anywhere: the address of an
// epilogue's operand is computed from the strides of the result.
TEST(Gemm, RowsOfOneElementWithAnEpilogue) {
  if (tn::cpu::cpu_families().front().name != "gemm") GTEST_SKIP() << "built without oneDNN";
  tn::Generator random(random_engine()());
  for (int round = 0; round < 60; ++round) {
    const Shape batch{1 + pick(15), 1 + pick(17)};
    const std::int64_t rows = pick(2) ? 1 : 3, depth = pick(2) ? 1 : 4, columns = pick(2) ? 64 : 1;
    const tn::DType narrow = pick(2) ? tn::bf16 : tn::f32;
    const Tensors inputs{random.normal({batch[1], batch[0], rows, depth}).astype(narrow),
                         random.normal({1, 1, depth, columns}).astype(narrow),
                         random.normal({columns})};
    // Whole sums in float32, against the reference's rounded to the narrow type once.
    const double bound = narrow == tn::bf16 ? 0x1p-8 : 1e-5;
    const auto f = [](const Tensors& in) -> Tensors {
      const Tensor product = tn::matmul(in[0].transpose({1, 0, 2, 3}), in[1]);
      return {product.astype(tn::f32) + in[2]};
    };
    expect_close(run_group("gemm", f, inputs, pick(3) ? &random_engine() : nullptr), bound, 8);
    if (HasFailure()) FAIL() << "round " << round << ' ' << batch << rows << ' ' << columns;
  }
}

// Found by random graphs: oneDNN has no such product, and says so when it is built.
TEST(Gemm, DeclinesResultsNarrowerThanTheFactors) {
  if (tn::cpu::cpu_families().front().name != "gemm") GTEST_SKIP() << "built without oneDNN";
  const auto rounded = [](const Tensors& in) -> Tensors {
    return {tn::matmul(in[0], in[1]).astype(tn::bf16)};
  };
  tn::Generator random(random_engine()());
  const Tensor a = random.normal({3, 4}), b = random.normal({4, 5});
  EXPECT_FALSE(accepts("gemm", rounded, {a, b}));
}

}  // namespace
