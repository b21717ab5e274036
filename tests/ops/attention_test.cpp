// scaled_dot_product_attention against float64 loops.
#include "tests/ops/check.h"

namespace tensor {
namespace {

using check::error_of;
using check::expect_near;
using check::kInfinity;
using check::kNan;
using check::layouts;
using check::random_tensor;

using Numbers = std::vector<double>;

// q [n, lq, d], k [n, lk, d], v [n, lk, e]; added [n, lq, lk] to the scores.
Numbers reference(const Tensor& q, const Tensor& k, const Tensor& v, const Numbers& added) {
  Numbers result;
  const int n = int(q.shape(0)), lq = int(q.shape(1)), lk = int(k.shape(1)), d = int(q.shape(2)),
            e = int(v.shape(2));
  for (int b = 0; b < n; ++b)
    for (int i = 0; i < lq; ++i) {
      Numbers scores;
      double top = -kInfinity, sum = 0;
      for (int j = 0; j < lk; ++j) {
        double score = 0;
        for (int c = 0; c < d; ++c) score += q.item(b, i, c) * k.item(b, j, c);
        scores.push_back(score / std::sqrt(d) +
                         added[static_cast<std::size_t>((b * lq + i) * lk + j)]);
        top = std::max(top, scores.back());
      }
      for (double& score : scores) sum += score = std::exp(score - top);
      for (int c = 0; c < e; ++c) {
        double total = 0;
        for (int j = 0; j < lk; ++j)
          total += scores[static_cast<std::size_t>(j)] / sum * v.item(b, j, c);
        result.push_back(total);
      }
    }
  return result;
}

// Three results (q scaled, scores, weights) are rounded to the type on the way. An error in a score
// enters the weights by the factor e^error: eps * |score| (below about 10), then sums of lk weights
// with |v| below about 5.
double tolerance(DType dtype) { return 5 * 10 * 2 * check::epsilon(dtype); }

TEST(Attention, AgreesWithLoopsInEveryLayout) {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    const Tensor q = random_tensor({3, 7, 16}, dtype), k = random_tensor({3, 9, 16}, dtype),
                 v = random_tensor({3, 9, 5}, dtype);
    const Numbers plain = reference(q, k, v, Numbers(3 * 7 * 9, 0.0));
    const Tensor added = random_tensor({7, 9}, dtype), keep = random_tensor({3, 1, 9}) > -0.5;
    const Numbers biased = reference(q, k, v, broadcast_to(added, {3, 7, 9}).to_vector<double>());
    keep(all_of_axis, all_of_axis, 0) = true;
    const Tensor masked = broadcast_to(where(keep, 0.0, -kInfinity), {3, 7, 9});
    const Numbers kept = reference(q, k, v, masked.to_vector<double>());
    for (std::size_t layout = 0; layout < layouts(q).size(); ++layout) {
      const Tensor queries = layouts(q)[layout], keys = layouts(k)[3 - layout],
                   values = layouts(v)[layout];
      EXPECT_EQ(scaled_dot_product_attention(queries, keys, values).dtype(), dtype);
      expect_near(scaled_dot_product_attention(queries, keys, values), plain, tolerance(dtype), 1);
      expect_near(scaled_dot_product_attention(queries, keys, values, added), biased,
                  tolerance(dtype), 1);
      expect_near(scaled_dot_product_attention(queries, keys, values, keep), kept, tolerance(dtype),
                  1);
      expect_near(scaled_dot_product_attention(queries, keys, values, masked.astype(f32)), kept,
                  tolerance(dtype), 1);
    }
  }
}

TEST(Attention, HeadsAndBroadcastMask) {
  const Tensor q = random_tensor({2, 3, 4, 8}), k = random_tensor({2, 3, 6, 8}),
               v = random_tensor({2, 3, 6, 8});
  const Tensor keep = array({true, true, false, true, true, true}).reshape({1, 1, 1, 6});
  const Tensor y = scaled_dot_product_attention(q, k, v, keep);
  ASSERT_EQ(y.shape(), (Shape{2, 3, 4, 8}));
  const Tensor added = broadcast_to(where(keep, 0.0, -kInfinity), {2, 3, 4, 6});
  const auto stack = [](const Tensor& x) { return x.reshape({6, x.shape(2), x.shape(3)}); };
  expect_near(y, reference(stack(q), stack(k), stack(v), added.to_vector<double>()), tolerance(f32),
              1);
}

TEST(Attention, QueriesWithoutKeysAreNan) {
  const Tensor x = random_tensor({2, 3}), v = random_tensor({2, 1});
  const Tensor keep = array({true, true, false, false}).reshape({2, 2});
  for (const Tensor& mask : {keep, where(keep, 0.0, -kInfinity).astype(f32)}) {
    const Tensor y = scaled_dot_product_attention(x, x, v, mask);
    EXPECT_TRUE(std::isfinite(y.item(0, 0)));
    EXPECT_TRUE(std::isnan(y.item(1, 0)));
  }
}

TEST(Attention, LargeScoresOfHalfPrecision) {
  // q · k is 64 * 40 * 40 = 102400, beyond f16; divided by 8 it is not.
  const Tensor q = full({1, 64}, 40, f16);
  expect_near(scaled_dot_product_attention(q, broadcast_to(q, {2, 64}),
                                           array({1.0, 3.0}).reshape({2, 1}).astype(f16)),
              {2}, 0);
}

TEST(Attention, Errors) {
  constexpr auto attention = scaled_dot_product_attention;
  EXPECT_EQ(error_of([] {
              attention(zeros({4}), zeros({4, 4}), zeros({4, 4}), {});
            }),
            "scaled_dot_product_attention: got the shape (4,), need (..., tokens, features)");
  EXPECT_EQ(error_of([] {
              attention(zeros({2, 4}), zeros({2, 5}), zeros({2, 4}), {});
            }),
            "scaled_dot_product_attention: got queries of 4 features and keys of 5, need as many");
  EXPECT_EQ(error_of([] {
              attention(zeros({2, 4}), zeros({2, 4}), zeros({3, 4}), {});
            }),
            "scaled_dot_product_attention: got 2 keys and 3 values, need as many");
  EXPECT_EQ(error_of([] {
              attention(zeros({2, 4}), zeros({2, 4}), zeros({2, 4}), zeros({2, 2}, i32));
            }),
            "scaled_dot_product_attention: got a mask of i32, need bool or a floating type");
  EXPECT_EQ(error_of([] {
              attention(zeros({2, 4}, i32), zeros({2, 4}, i32), zeros({2, 4}, i32), {});
            }),
            "scaled_dot_product_attention: got a tensor of i32, need a floating type: convert it "
            "with astype(f32)");
}

}  // namespace
}  // namespace tensor
