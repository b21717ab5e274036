// layer_norm, batch_norm and group_norm against float64 loops, and where the variance is tiny.
#include "src/ops/op.h"
#include "tests/ops/check.h"

namespace tensor {
namespace {

using check::error_of;
using check::expect_near;
using check::expect_rounded;
using check::layouts;
using check::random_tensor;

using Numbers = std::vector<double>;

// Each run of `count` numbers less its mean, divided by its deviation.
Numbers normalised(const Numbers& values, std::size_t count, double eps) {
  Numbers result;
  for (std::size_t begin = 0; begin < values.size(); begin += count) {
    long double mean = 0, variance = 0;
    for (std::size_t i = begin; i < begin + count; ++i)
      mean += values[i] / static_cast<long double>(count);
    for (std::size_t i = begin; i < begin + count; ++i)
      variance += (values[i] - mean) * (values[i] - mean) / static_cast<long double>(count);
    for (std::size_t i = begin; i < begin + count; ++i)
      result.push_back(static_cast<double>((values[i] - mean) / std::sqrt(variance + eps)));
  }
  return result;
}

// values[i] * scale[channel] + shift[channel], a channel being `inner` numbers.
Numbers affine(Numbers values, std::size_t inner, const Tensor& scale, const Tensor& shift) {
  const Numbers s = scale.to_vector<double>(), t = shift.to_vector<double>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t channel = i / inner % s.size();
    values[i] = values[i] * s[channel] + t[channel];
  }
  return values;
}

// Sums of up to 160 terms of size 1 in double.
constexpr double kStatistics = 0x1p-52 * 160 * 2;

// A few roundings of terms below 30 in f32, or in f64 for f64.
double affine_error(DType dtype) { return 8 * 30 * check::epsilon(dtype == f64 ? f64 : f32); }

TEST(LayerNorm, AgreesWithLoopsInEveryLayout) {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    const Tensor x = random_tensor({2, 5, 96}, dtype) * 5 + 3;
    const Tensor weight = random_tensor({96}, dtype), bias = random_tensor({96}, dtype);
    const Numbers plain = normalised(x.to_vector<double>(), 96, 1e-5);
    const Numbers scaled = affine(plain, 1, weight, zeros({96})),
                  full = affine(plain, 1, weight, bias);
    const Numbers shifted = affine(plain, 1, ones({96}), bias);
    for (const Tensor& view : layouts(x)) {
      EXPECT_EQ(layer_norm(view).dtype(), dtype);
      expect_rounded(layer_norm(view), plain, kStatistics);
      expect_rounded(layer_norm(view, layouts(weight)[2]), scaled, 5 * kStatistics);
      expect_rounded(layer_norm(view, weight, layouts(bias)[3]), full, 5 * kStatistics);
      expect_rounded(layer_norm(view, {}, bias), shifted, 5 * kStatistics);
    }
  }
}

TEST(LayerNorm, SmallVarianceFarFromZero) {
  // Steps of 2^-10 around 10^4, exact in f32, with a variance of about 10^-6: E[x^2] - E[x]^2 in
  // f32 is noise there.
  const Tensor steps = check::random().randint(-1, 2, {3, 768}).astype(f64) / 1024;
  const Tensor x = (steps + 10000).astype(f32);
  // In double the mean of about 10^4 is off by 10^-12, which is 10^-9 of the deviation.
  for (const double eps : {1e-12, 1e-6}) {
    const Numbers expected = normalised(steps.to_vector<double>(), 768, eps);
    for (const Tensor& view : layouts(x))
      expect_rounded(layer_norm(view, {}, {}, eps), expected, 1e-8);
  }
  // The same around 3e38 would overflow any sum in f32.
  const Tensor huge = array({3e38, -3e38, 3e38, -3e38}).astype(f32);
  expect_near(layer_norm(huge), {1, -1, 1, -1}, check::epsilon(f32));
}

TEST(LayerNorm, ConstantRowsAndEmptyOnes) {
  expect_near(layer_norm(full({2, 3}, 7.0)), Numbers(6, 0.0), 0);
  EXPECT_EQ(layer_norm(zeros({2, 0})).shape(), (Shape{2, 0}));
  EXPECT_EQ(layer_norm(zeros({0, 4}), ones({4})).shape(), (Shape{0, 4}));
  EXPECT_EQ(layer_norm(ones({4}), ones({4}, f64)).dtype(), f64);
}

TEST(LayerNorm, Errors) {
  EXPECT_EQ(error_of([] {
              layer_norm(zeros({2, 3}), zeros({2}));
            }),
            "layer_norm: got a weight of the shape (2,) for the shape (2, 3), need (3,)");
  EXPECT_EQ(error_of([] {
              layer_norm(zeros({2, 3}), zeros({3}), zeros({1, 3}));
            }),
            "layer_norm: got a bias of the shape (1, 3) for the shape (2, 3), need (3,)");
  EXPECT_EQ(error_of([] { layer_norm(zeros({})); }),
            "layer_norm: got a 0-d tensor, need at least 1 axis");
  EXPECT_EQ(error_of([] {
              layer_norm(array({1, 2}));
            }),
            "layer_norm: got a tensor of i32, need a floating type: convert it with astype(f32)");
}

TEST(BatchNorm, AgreesWithLoopsInEveryLayout) {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    const Tensor x = random_tensor({2, 6, 5, 4}, dtype), mean = random_tensor({6}, dtype);
    const Tensor variance = abs(random_tensor({6}, dtype)) + 0.5;
    const Tensor weight = random_tensor({6}, dtype), bias = random_tensor({6}, dtype);
    Tensor scale = 1 / sqrt(variance.astype(f64) + 1e-5);
    const Tensor shift = -mean.astype(f64) * scale;
    const Numbers plain = affine(x.to_vector<double>(), 20, scale, shift);
    const Numbers full = affine(plain, 20, weight, bias);
    for (const Tensor& view : layouts(x)) {
      EXPECT_EQ(batch_norm(view, mean, variance).dtype(), dtype);
      expect_rounded(batch_norm(view, mean, variance), plain, affine_error(dtype));
      expect_rounded(batch_norm(view, mean, variance, weight, bias), full, affine_error(dtype));
    }
  }
}

TEST(BatchNorm, ByName) {
  // x, weight, bias, mean, variance
  const Tensor x = ones({1, 1, 2});
  const auto one = [](double value) { return full({1}, value, f32); };
  const Tensor y =
      call("batch_norm", {x, one(10), one(0.5), one(-1), one(4)}, {{"eps", 0.0}}).at(0);
  expect_near(y, {10.5, 10.5}, 0);
}

TEST(GroupNorm, AgreesWithLoopsInEveryLayout) {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    const Tensor x = random_tensor({2, 8, 5, 4}, dtype) * 3 - 2;
    const Tensor weight = random_tensor({8}, dtype), bias = random_tensor({8}, dtype);
    for (const std::int64_t groups : {1, 4, 8}) {
      const Numbers plain =
          normalised(x.to_vector<double>(), static_cast<std::size_t>(160 / groups), 1e-5);
      const Numbers full = affine(plain, 20, weight, bias);
      for (const Tensor& view : layouts(x)) {
        EXPECT_EQ(group_norm(view, groups).dtype(), dtype);
        expect_rounded(group_norm(view, groups), plain, affine_error(dtype));
        expect_rounded(group_norm(view, groups, weight, bias), full, affine_error(dtype));
      }
    }
  }
  EXPECT_EQ(group_norm(zeros({0, 4, 3}), 2).shape(), (Shape{0, 4, 3}));
  EXPECT_EQ(group_norm(ones({3, 4}), 2).shape(), (Shape{3, 4}));
}

TEST(BatchNorm, Errors) {
  const Tensor x = zeros({2, 3, 4}), three = ones({3}), four = ones({4});
  EXPECT_EQ(error_of([&] { batch_norm(x, four, three); }),
            "batch_norm: got a mean of the shape (4,) for 3 channels, need (3,)");
  EXPECT_EQ(error_of([&] { batch_norm(x, three, four); }),
            "batch_norm: got a variance of the shape (4,) for 3 channels, need (3,)");
  EXPECT_EQ(error_of([&] { batch_norm(x, three, three, four); }),
            "batch_norm: got a weight of the shape (4,) for 3 channels, need (3,)");
  EXPECT_EQ(error_of([&] { batch_norm(x, three, three, three, four); }),
            "batch_norm: got a bias of the shape (4,) for 3 channels, need (3,)");
  EXPECT_EQ(error_of([&] { batch_norm(three, three, three); }),
            "batch_norm: got the shape (3,), need (batch, channels, ...)");
  EXPECT_EQ(error_of([&] { batch_norm(x.astype(i32), three.astype(i32), three.astype(i32)); }),
            "batch_norm: got a tensor of i32, need a floating type: convert it with astype(f32)");
}

// An operator without a public function: what products hand over to layer_norm_by_sums.
TEST(RowSums, AreThoseOf64Elements) {
  const Tensor x = Generator(5).normal({2, 3, 192}).astype(bf16);
  const Tensor pieces = x.astype(f32).reshape({2, 3, 3, 64});
  const Tensor sums = apply_op(Op::row_sums, {x.swapaxes(0, 1).copy().swapaxes(0, 1)});
  ASSERT_EQ(sums.type(), (TensorType{{3, 2, 3, 2}, f32}));
  const Tensor want = stack({sum(pieces, -1), sum(square(pieces), -1)}, -1).transpose({2, 0, 1, 3});
  EXPECT_LE(max(abs(sums - want)).item<float>(), 64 * 0x1p-24f * max(abs(want)).item<float>());
  EXPECT_EQ(error_of([] {
              apply_op(Op::row_sums, {zeros({2, 65})});
            }),
            "row_sums: got f32(2, 65), need rows of a multiple of 64 elements");
  EXPECT_EQ(error_of([] {
              apply_op(Op::row_sums, {zeros({2, 0})});
            }),
            "row_sums: got f32(2, 0), need rows of a multiple of 64 elements");
}

// Mean and variance are those of the sums, whatever the rows are; of a row's own sums it is
// layer_norm. Sums are rounded to float32, and so is what they give.
TEST(LayerNormBySums, NormalisesByWhatTheSumsSay) {
  Generator random(6);
  const Tensor x = random.normal({2, 3, 192}) * 3.0 + 1.0, gain = random.normal({192}),
               shift = random.normal({192});
  const auto by_sums = [&](const Tensor& rows, const Tensor& sums) {
    return apply_op(Op::layer_norm_by_sums, {rows, gain, shift, sums}, {{"eps", 1e-5}});
  };
  const Tensor sums = apply_op(Op::row_sums, {x}), want = layer_norm(x, gain, shift, 1e-5);
  const auto far = [](const Tensor& a, const Tensor& b) { return max(abs(a - b)).item<float>(); };
  EXPECT_LE(far(by_sums(x, sums), want), 16 * 0x1p-24f * max(abs(want)).item<float>());
  const Tensor across = x.swapaxes(0, 1).copy().swapaxes(0, 1);
  EXPECT_EQ(far(by_sums(across, sums.swapaxes(0, 2).copy().swapaxes(0, 2)), by_sums(x, sums)), 0);
  // Sums of zeros and of squares 4: nothing is taken away, and 1 / sqrt(4) is what remains.
  const Tensor fours = stack({zeros({3, 2, 3}), full({3, 2, 3}, 4.0 * 64, f32)}, -1);
  EXPECT_LE(far(by_sums(x, fours), x * 0.5 * gain + shift), 1e-4f);
  // Rows of one number have no variance, which rounding must not make negative.
  const Tensor same = full({1, 192}, 1000.1, f32);
  EXPECT_LE(far(by_sums(same, apply_op(Op::row_sums, {same})), shift.reshape({1, 192})), 0.1f);
  EXPECT_EQ(error_of([&] { by_sums(x, sums(slice(1, 3))); }),
            "layer_norm_by_sums: got the sums f32(2, 2, 3, 2) for f32(2, 3, 192), need f32(3, 2, "
            "3, 2)");
  EXPECT_EQ(error_of([&] {
              by_sums(zeros({2, 65}), sums);
            }),
            "layer_norm_by_sums: got a weight of the shape (192,) for the shape (2, 65), need "
            "(65,)");
}

TEST(GroupNorm, Errors) {
  EXPECT_EQ(error_of([] {
              group_norm(zeros({2, 3, 4}), 2);
            }),
            "group_norm: cannot put 3 channels into 2 equal groups");
  EXPECT_EQ(error_of([] {
              group_norm(zeros({2, 3, 4}), 0);
            }),
            "group_norm: cannot put 3 channels into 0 equal groups");
  EXPECT_EQ(error_of([] { group_norm(zeros({3}), 1); }),
            "group_norm: got the shape (3,), need (batch, channels, ...)");
  EXPECT_EQ(error_of([] {
              group_norm(zeros({2, 3}), 3, zeros({2}));
            }),
            "group_norm: got a weight of the shape (2,) for 3 channels, need (3,)");
}

}  // namespace
}  // namespace tensor
