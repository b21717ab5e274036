// matmul, dot and linear against plain float64 loops.
#include "src/core/view.h"
#include "src/ops/gemm.h"
#include "tests/ops/check.h"

namespace tensor {
namespace {

using check::error_of;
using check::expect_near;
using check::expect_rounded;
using check::kAllTypes;
using check::kInfinity;
using check::kNan;
using check::layouts;
using check::random_tensor;

// The elements of x stretched to `shape`, as doubles.
std::vector<double> stretched(const Tensor& x, const Shape& shape) {
  return broadcast_to(x, shape).to_vector<double>();
}

struct ProductReference {
  std::vector<double> product;
  double scale = 0;  // the largest sum of |a * b|
};

// Stacks of matrices, extents and batches broadcast by hand.
ProductReference reference_matmul(const Tensor& a, const Tensor& b) {
  Shape batch, a_batch = a.shape(), b_batch = b.shape();
  for (Shape* shape : {&a_batch, &b_batch}) {
    shape->erase(shape->rank() - 1);
    shape->erase(shape->rank() - 1);
  }
  batch = broadcast_shapes(a_batch, b_batch);
  const std::int64_t m = a.shape(-2), k = a.shape(-1), n = b.shape(-1);
  Shape a_shape = batch, b_shape = batch;
  a_shape.push_back(m), a_shape.push_back(k), b_shape.push_back(k), b_shape.push_back(n);
  const auto left = stretched(a, a_shape), right = stretched(b, b_shape);
  ProductReference result;
  for (std::int64_t p = 0; p < num_elements(batch); ++p)
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0, size = 0;
        for (std::int64_t l = 0; l < k; ++l) {
          const double term = left[static_cast<std::size_t>((p * m + i) * k + l)] *
                              right[static_cast<std::size_t>((p * k + l) * n + j)];
          sum += term;
          size += std::fabs(term);
        }
        result.product.push_back(sum);
        result.scale = std::max(result.scale, size);
      }
  return result;
}

// Sums of k terms in f32 (f64 for f64).
double error(DType dtype, std::int64_t depth, double scale) {
  return static_cast<double>(depth + 1) * check::epsilon(dtype == f64 ? f64 : f32) * scale;
}

void check_matmul(const Tensor& a, const Tensor& b) {
  const ProductReference expected = reference_matmul(a, b);
  for (const Tensor& left : layouts(a))
    for (const Tensor& right : layouts(b))
      expect_rounded(matmul(left, right), expected.product,
                     error(a.dtype(), a.shape(-1), expected.scale));
}

TEST(Matmul, AgreesWithLoopsInEveryLayout) {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    check_matmul(random_tensor({7, 5}, dtype), random_tensor({5, 9}, dtype));
    check_matmul(random_tensor({33, 70}, dtype), random_tensor({70, 41}, dtype));
    check_matmul(random_tensor({3, 7, 5}, dtype), random_tensor({5, 9}, dtype));
    check_matmul(random_tensor({2, 1, 4, 6}, dtype), random_tensor({3, 6, 5}, dtype));
    check_matmul(random_tensor({1, 1, 1}, dtype), random_tensor({1, 1, 1}, dtype));
    check_matmul(random_tensor({1, 8}, dtype), random_tensor({4, 8, 1}, dtype));
  }
}

TEST(Matmul, IntegersWrapAroundAndBoolIsLogical) {
  for (const DType dtype : {u8, i8, i16, i32, i64}) {
    const Tensor a = random_tensor({2, 6, 300}, dtype), b = random_tensor({300, 5}, dtype);
    std::vector<std::int64_t> wrapped;
    for (const double value : reference_matmul(a, b).product) {
      const auto exact = static_cast<std::int64_t>(value);
      wrapped.push_back(dtype == u8   ? std::uint8_t(exact)
                        : dtype == i8 ? std::int8_t(exact)
                                      : exact);
    }
    for (const Tensor& left : layouts(a))
      for (const Tensor& right : layouts(b)) {
        const Tensor product = matmul(left, right);
        EXPECT_EQ(product.dtype(), dtype);
        EXPECT_EQ(product.to_vector<std::int64_t>(), wrapped) << dtype;
      }
  }
  const std::int64_t huge = std::int64_t(1) << 62;
  EXPECT_EQ(matmul(array({huge, huge}), array({3L, 2L})).item<std::int64_t>(),
            huge);  // 5 * 2^62 modulo 2^64
  const Tensor yes = array({true, false, false, false}).reshape({2, 2});
  EXPECT_EQ(matmul(yes, ones({2, 2}, boolean)).to_vector<int>(), (std::vector<int>{1, 1, 0, 0}));
  EXPECT_EQ(matmul(ones({2, 256}, boolean), ones({256, 1}, boolean)).dtype(), boolean);
  EXPECT_EQ(matmul(ones({1, 256}, boolean), ones({256, 1}, boolean)).item<int>(0, 0), 1);
}

TEST(Matmul, WholeNumbersAreExactInEveryFloatingType) {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    // |values| <= 2 and 30 terms: sums up to 120, exact even in bf16.
    const Tensor a = check::random().randint(-2, 3, {19, 30}).astype(dtype);
    const Tensor b = check::random().randint(-2, 3, {30, 17}).astype(dtype);
    expect_near(matmul(a, b), reference_matmul(a, b).product, 0);
  }
}

TEST(Matmul, BroadcastOperandsAreReadInPlace) {
  const Tensor row = random_tensor({1, 24}), column = random_tensor({24, 1});
  const Tensor a = broadcast_to(row, {16, 24}), b = broadcast_to(column, {24, 18});
  const ProductReference expected = reference_matmul(a, b);
  expect_rounded(matmul(a, b), expected.product, error(f32, 24, expected.scale));
  const Tensor same = broadcast_to(random_tensor({}), {16, 24});
  const ProductReference constant = reference_matmul(same, b);
  expect_rounded(matmul(same, b), constant.product, error(f32, 24, constant.scale));
  const Tensor stack = broadcast_to(random_tensor({5, 6}), {3, 5, 6}),
               right = random_tensor({3, 6, 4});
  const ProductReference batched = reference_matmul(stack, right);
  expect_rounded(matmul(stack, right), batched.product, error(f32, 6, batched.scale));
}

TEST(Matmul, OneAxis) {
  const Tensor v = random_tensor({6}, f64), w = random_tensor({6}, f64),
               m = random_tensor({4, 6}, f64);
  const Tensor stack = random_tensor({2, 6, 3}, f64);
  EXPECT_EQ(matmul(v, w).shape(), Shape{});
  EXPECT_EQ(matmul(m, v).shape(), (Shape{4}));
  EXPECT_EQ(matmul(v, m.transpose()).shape(), (Shape{4}));
  EXPECT_EQ(matmul(v, stack).shape(), (Shape{2, 3}));
  const auto row = v.reshape({1, 6}), column = v.reshape({6, 1});
  expect_near(matmul(v, w), reference_matmul(row, w.reshape({6, 1})).product, 1e-14, 1);
  expect_near(matmul(m, v), reference_matmul(m, column).product, 1e-14, 1);
  expect_near(matmul(v, stack), reference_matmul(row, stack).product, 1e-14, 1);
  expect_near(matmul(flip(v), flip(w)), reference_matmul(row, w.reshape({6, 1})).product, 1e-14, 1);
}

TEST(Matmul, EmptyAxes) {
  EXPECT_EQ(matmul(zeros({2, 0, 3}), zeros({3, 4})).shape(), (Shape{2, 0, 4}));
  EXPECT_EQ(matmul(zeros({0, 3, 2}), zeros({2, 4})).shape(), (Shape{0, 3, 4}));
  for (const DType dtype : kAllTypes)  // a sum of nothing
    expect_near(matmul(ones({2, 5, 0}, dtype), ones({0, 4}, dtype)), std::vector<double>(40, 0.0),
                0);
  EXPECT_EQ(matmul(zeros({0}), zeros({0})).item(), 0);
}

TEST(Matmul, NanAndInfinitySpread) {
  const Tensor a = array({1.0, kNan, kInfinity, 0.0}).reshape({2, 2});
  expect_near(matmul(a, eye(2)), {kNan, kNan, kInfinity, kNan}, 0);
}

TEST(Matmul, Promotes) {
  EXPECT_EQ(matmul(ones({2, 2}, i32), ones({2, 2}, f32)).dtype(), f64);
  EXPECT_EQ(matmul(ones({2, 2}, f16), ones({2, 2}, bf16)).dtype(), f32);
  EXPECT_EQ(matmul(ones({2, 2}, u8), ones({2, 2}, boolean)).dtype(), u8);
}

TEST(Matmul, Errors) {
  EXPECT_EQ(error_of([] {
              matmul(zeros({2, 3}), zeros({4, 5}));
            }),
            "matmul: cannot multiply the shapes (2, 3) and (4, 5): the 3 columns of the first must "
            "be as many as the 4 "
            "rows of the second");
  EXPECT_EQ(
      error_of([] {
        matmul(zeros({2, 3}), 2.0);
      }),
      "matmul: got a 0-d tensor, need at least 1 axis: use multiply for a product with a number");
  EXPECT_NE(error_of([] {
              matmul(zeros({2, 3, 4}), zeros({3, 4, 5}));
            }).find("matmul: "),
            std::string::npos);
  EXPECT_EQ(error_of([] {
              matmul(Tensor(), zeros({4, 5}));
            }),
            "tensor: this tensor is undefined (default constructed): give it a value first");
}

TEST(Gemm, ReadsAndWritesAnyLayout) {
  for (const DType dtype : {i32, f16, f32, f64}) {
    // |values| <= 2 and 11 terms: exact in every type.
    const Tensor a = check::random().randint(-2, 3, {6, 11}).astype(dtype);
    const Tensor b = check::random().randint(-2, 3, {11, 4}).astype(dtype);
    const std::vector<double> expected = reference_matmul(a, b).product;
    for (const Tensor& left : layouts(a))
      for (const Tensor& right : layouts(b))
        for (const Tensor& out : layouts(full({6, 4}, -77, dtype))) {
          gemm(const_view(left), const_view(right), mutable_view(out));
          expect_near(out, expected, 0);
        }
  }
  const Tensor a = zeros({6, 11}), b = zeros({11, 4});
  const auto misfit = [](const Tensor& x, const Tensor& y, const Tensor& z) {
    EXPECT_THROW(gemm(const_view(x), const_view(y), mutable_view(z)), InternalError);
  };
  misfit(a, a, zeros({6, 4}));
  misfit(a, b, zeros({4, 6}));
  misfit(a, b, zeros({6, 4}, f64));
  misfit(a.reshape({1, 6, 11}), b, zeros({6, 4}));
}

// ---- dot, linear

TEST(Dot, FollowsNumpy) {
  EXPECT_EQ(dot(array({1, 2, 3}), 2).to_vector<int>(), (std::vector<int>{2, 4, 6}));
  EXPECT_EQ(dot(array({1, 2, 3}), array({4, 5, 6})).item<int>(), 32);
  const Tensor a = random_tensor({2, 3, 4}, f64), b = random_tensor({5, 4, 6}, f64);
  const Tensor product = dot(a, b);
  ASSERT_EQ(product.shape(), (Shape{2, 3, 5, 6}));
  std::vector<double> expected;
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j)
      for (int p = 0; p < 5; ++p)
        for (int q = 0; q < 6; ++q) {
          double sum = 0;
          for (int k = 0; k < 4; ++k) sum += a.item(i, j, k) * b.item(p, k, q);
          expected.push_back(sum);
        }
  expect_near(product, expected, 1e-14, 10);
  EXPECT_EQ(dot(a, random_tensor({4}, f64)).shape(), (Shape{2, 3}));
  EXPECT_EQ(dot(random_tensor({4}, f64), b).shape(), (Shape{5, 6}));
  expect_near(dot(zeros({2, 0}), zeros({3, 0, 2})), std::vector<double>(12, 0.0), 0);
  EXPECT_EQ(error_of([&] {
              dot(a, zeros({5, 3, 6}));
            }),
            "dot: cannot multiply the shapes (2, 3, 4) and (5, 3, 6): the last axis of the first "
            "must be as long as the "
            "second to last of the second");
}

TEST(Linear, IsAProductWithTheTransposedWeightPlusBias) {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    const Tensor x = random_tensor({2, 5, 8}, dtype), weight = random_tensor({3, 8}, dtype),
                 bias = random_tensor({3}, dtype);
    ProductReference expected = reference_matmul(x, weight.transpose());
    expect_rounded(linear(x, weight), expected.product, error(dtype, 8, expected.scale));
    for (std::size_t i = 0; i < expected.product.size(); ++i)
      expected.product[i] += bias.item(static_cast<int>(i % 3));
    // The product is rounded to the type before the bias is added.
    expect_rounded(linear(x, weight, bias), expected.product,
                   error(dtype, 8, expected.scale) + check::epsilon(dtype) / 2 * expected.scale);
  }
  EXPECT_EQ(linear(ones({8}), ones({3, 8})).shape(), (Shape{3}));
}

TEST(Linear, Errors) {
  EXPECT_EQ(
      error_of([] {
        linear(zeros({2, 5}), zeros({3, 4}));
      }),
      "linear: got the shape (2, 5) for a weight of (3, 4), need 4 elements along the last axis");
  EXPECT_EQ(error_of([] {
              linear(zeros({2, 5}), zeros({5}));
            }),
            "linear: got a weight of the shape (5,), need (outputs, inputs)");
  EXPECT_EQ(error_of([] {
              linear(zeros({2, 5}), zeros({3, 5}), zeros({5}));
            }),
            "linear: got a bias of the shape (5,), need (3,)");
}

}  // namespace
}  // namespace tensor
