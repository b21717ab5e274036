// DFT, eagerly and compiled, against the sum that defines it, in float64.
#include <complex>
#include <numbers>

#include "tests/error_of.h"
#include "tests/headers.h"
#include "tests/onnx_writer.h"
#include "tests/seed.h"

namespace tensor::testing {
namespace {

using namespace by_hand;

using check::error_of;

struct FourierCase {
  bool is_inverse = false, is_half = false, is_complex = true;
  std::int64_t length = 0;  // 0: that of the input
};

// Along axis 1 of [2, n, 3, parts].
Tensor expected(const Tensor& x, const FourierCase& c) {
  const bool is_real = c.is_inverse && c.is_half;
  const std::int64_t n = x.shape(1);
  const std::int64_t length = c.length > 0 ? c.length : is_real ? 2 * (n - 1) : n;
  const std::int64_t out = c.is_half && !c.is_inverse ? length / 2 + 1 : length;
  Tensor y = zeros({2, out, 3, is_real ? 1 : 2}, f64);
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t f = 0; f < 3; ++f) {
      std::vector<std::complex<double>> line(static_cast<std::size_t>(length));
      const std::int64_t used = is_real ? length / 2 + 1 : length;
      for (std::int64_t i = 0; i < std::min(n, used); ++i) {
        const std::complex<double> z(x.item(b, i, f, 0), c.is_complex ? x.item(b, i, f, 1) : 0);
        line[static_cast<std::size_t>(i)] = z;
        // Half a spectrum goes on with what its first half is the mirror image of.
        if (is_real && i > 0 && 2 * i != length)
          line[static_cast<std::size_t>(length - i)] = std::conj(z);
      }
      for (std::int64_t k = 0; k < out; ++k) {
        std::complex<double> sum;
        for (std::int64_t i = 0; i < length; ++i)
          sum += line[static_cast<std::size_t>(i)] *
                 std::polar(1.0, (c.is_inverse ? 2 : -2) * std::numbers::pi *
                                     static_cast<double>(i * k) / static_cast<double>(length));
        if (c.is_inverse) sum /= static_cast<double>(length);
        y.at<double>(b, k, f, 0) = sum.real();
        if (!is_real) y.at<double>(b, k, f, 1) = sum.imag();
      }
    }
  return y;
}

TEST(OnnxFourier, IsTheSumThatDefinesIt) {
  Generator random(check::seed());
  for (const std::int64_t n : {2, 5, 8})
    for (const std::int64_t opset : {17, 20})
      for (const FourierCase& c :
           {FourierCase{}, FourierCase{.is_complex = false},
            FourierCase{.is_half = true, .is_complex = false}, FourierCase{.is_inverse = true},
            FourierCase{.is_inverse = true, .is_half = true},
            FourierCase{.is_inverse = true, .is_half = true, .length = 7},
            FourierCase{.length = 6}}) {
        SCOPED_TRACE(::testing::Message() << n << ", opset " << opset << ": " << c.is_inverse
                                          << c.is_half << c.is_complex << " " << c.length);
        const Tensor x = random.normal({2, n, 3, c.is_complex ? 2 : 1});
        std::vector<Tensor> slots{x}, given{x};
        std::vector<Message> attributes{attribute("inverse", c.is_inverse ? 1 : 0),
                                        attribute("onesided", c.is_half ? 1 : 0)};
        if (c.length > 0) slots.push_back(full({}, static_cast<double>(c.length), i64));
        if (opset < 20) attributes.push_back(attribute("axis", 1));
        if (opset >= 20 && c.length == 0) slots.push_back({});
        if (opset >= 20) slots.push_back(full({}, 1, i64));
        for (std::size_t i = 1; i < slots.size(); ++i)
          if (slots[i].defined()) given.push_back(slots[i]);
        const OnnxModel model = operator_alone("DFT", slots, f32, attributes, opset);
        const Tensor want = expected(x, c);
        const auto function = [&](const Tensor& signal) {
          std::vector<Tensor> inputs = given;
          inputs[0] = signal;
          return model(inputs)[0];
        };
        const Tensor fast = compile(function, {.threads = 1})(x);
        // Sums of at most 16 products of magnitudes up to 5.
        for (const Tensor& got : {function(x), fast}) {
          ASSERT_EQ(got.shape(), want.shape());
          EXPECT_TRUE(allclose(got.to(f64), want, 0, 2e-5));
        }
      }
}

TEST(OnnxFourier, RefusesWhatDoesNotFit) {
  const auto error_in = [](const std::vector<Tensor>& inputs,
                           const std::vector<Message>& attributes = {}) {
    return error_of([&] { operator_alone("DFT", inputs, f32, attributes, 17)(inputs); });
  };
  const std::string start = "m: node \"make y\" (DFT of opset 17): ";
  EXPECT_EQ(error_in({ones({2, 4, 3})}),
            start + "dft: got the shape (2, 4, 3), need (..., 1) or (..., 2)");
  EXPECT_EQ(error_in({ones({2, 4, 2})}, {attribute("axis", 2)}),
            start + "dft: got the axis 2 of the real and imaginary parts");
  EXPECT_EQ(error_in({ones({2, 4, 2}), full({}, 0, i64)}),
            start + "dft: got a length of 0, need 1 to 8192");
}

}  // namespace
}  // namespace tensor::testing
