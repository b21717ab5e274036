// Printing, against texts that NumPy wrote (tests/data/make_print_cases.py).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "src/core/view.h"
#include "src/trace/trace.h"
#include "tensor/tensor.h"
#include "tests/error_of.h"

namespace tensor {
namespace {

std::string printed(const Tensor& x) {
  std::ostringstream out;
  out << x;
  return out.str();
}

Shape parse_shape(const std::string& text) {
  Shape shape;
  std::istringstream in(text == "-" ? "" : text);
  for (std::string extent; std::getline(in, extent, ',');) shape.push_back(std::stoll(extent));
  return shape;
}

// The elements whose memory is given in hexadecimal, repeated to fill the shape.
Tensor parse_elements(const std::string& digits, DType dtype, std::int64_t count,
                      const Shape& shape) {
  const Tensor values = empty({count}, dtype);
  std::byte* bytes = mutable_view(values).data;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes[i / 2] = static_cast<std::byte>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return take(values, arange(num_elements(shape)) % count, 0).reshape(shape);
}

TEST(Print, AsNumpyDoes) {
  std::ifstream file(TENSOR_TEST_DATA "/print_cases.txt");
  int cases = 0;
  for (std::string dtype, shape_text; file >> dtype >> shape_text; ++cases) {
    std::int64_t count = 0, lines = 0;
    std::string digits, text;
    file >> count >> lines >> digits >> std::ws;
    for (std::string line; lines > 0 && std::getline(file, line); --lines)
      text += (text.empty() ? "" : "\n") + line;
    const Shape shape = parse_shape(shape_text);
    const Tensor x =
        parse_elements(digits, parse_dtype(dtype == "bool" ? "bool_" : dtype), count, shape);
    const std::string where = dtype + ' ' + shape_text + ' ' + digits;
    EXPECT_EQ(printed(x), text) << where;
    EXPECT_EQ(printed(copy(transpose(x)).transpose()), text) << where;
    EXPECT_EQ(printed(flip(copy(flip(x)))), text) << where;
  }
  EXPECT_GT(cases, 400);
}

template <class T>
void expect_all_lead_back() {
  for (int bits = 0; bits < 0x10000; ++bits) {
    Tensor x = empty({}, dtype_of<T>());
    T& number = *x.mutable_data<T>();
    number.bits = static_cast<std::uint16_t>(bits);
    if (!std::isfinite(static_cast<float>(number))) continue;
    ASSERT_EQ(T(std::strtof(printed(x).c_str(), nullptr)).bits, number.bits) << printed(x);
  }
}

TEST(Print, EveryNumberOf16BitsLeadsBackToItself) {
  expect_all_lead_back<Float16>();
  expect_all_lead_back<BFloat16>();
}

TEST(Print, BFloat16WithItsOwnDigits) {
  EXPECT_EQ(printed(array({0.1f, -2.5f, 100.f}).astype(bf16)), "[  0.1  -2.5 100. ]");
  EXPECT_EQ(printed(array({0.1f, 1250.f}).astype(bf16)), "[1.00e-01 1.25e+03]");
  EXPECT_EQ(printed(Tensor(3e38).astype(bf16)), "3e+38");
}

TEST(Print, Views) {
  EXPECT_EQ(printed(broadcast_to(array({1.f, 2.f}), {2, 2})), "[[1. 2.]\n [1. 2.]]");
  EXPECT_EQ(printed(arange(6).reshape({2, 3})["::-1, 1:"]), "[[4 5]\n [1 2]]");
  EXPECT_EQ(printed(broadcast_to(Tensor(1), {1 << 20, 1 << 20})),
            "[[1 1 1 ... 1 1 1]\n [1 1 1 ... 1 1 1]\n [1 1 1 ... 1 1 1]\n ...\n [1 1 1 ... 1 1 1]\n"
            " [1 1 1 ... 1 1 1]\n [1 1 1 ... 1 1 1]]");
}

TEST(Print, NumbersAndWhatHasNoValues) {
  EXPECT_EQ(printed(Tensor(1.5)), "1.5");
  EXPECT_EQ(printed(Tensor(-3)), "-3");
  EXPECT_EQ(printed(Tensor(true)), "True");
  EXPECT_EQ(printed(Tensor()), "undefined");
  std::string text;
  trace(
      [&](const std::vector<Tensor>& in) {
        text = printed(in[0] + 1);
        return in;
      },
      {{{2, 3}, f32}});
  EXPECT_EQ(text, "f32(2, 3)");
}

// Texts of numpy.printoptions.
TEST(Print, Options) {
  const Tensor x = array({{1.5, -2.0, 0.25}, {4.0, 1 / 3.0, -1.0}}), n = arange(12);
  const auto with = [](const PrintOptions& options, const Tensor& what) {
    set_print_options(options);
    const std::string text = printed(what);
    set_print_options({});
    return text;
  };
  EXPECT_EQ(with({.precision = 3}, x), "[[ 1.5   -2.     0.25 ]\n [ 4.     0.333 -1.   ]]");
  EXPECT_EQ(with({.precision = 3}, array({1e10 / 3, 1e-5})), "[3.333e+09 1.000e-05]");
  EXPECT_EQ(with({.precision = 3}, Tensor(1 / 3.0)), "0.3333333333333333");
  EXPECT_EQ(with({.precision = 0}, x), "[[ 2. -2.  0.]\n [ 4.  0. -1.]]");
  EXPECT_EQ(with({.precision = 0}, array({0.4, 0.6, -0.3})), "[ 0.  1. -0.]");
  EXPECT_EQ(with({.precision = 0}, array({1.0, 2.5, 1e9 / 3, std::nan("")})),
            "[1.e+00 2.e+00 3.e+08    nan]");
  EXPECT_EQ(with({.precision = 12}, x(1)), "[ 4.              0.333333333333 -1.            ]");
  EXPECT_EQ(with({.precision = 2, .line_width = 20}, x),
            "[[ 1.5  -2.\n   0.25]\n [ 4.    0.33\n  -1.  ]]");
  EXPECT_EQ(with({.line_width = 20}, n), "[ 0  1  2  3  4  5\n  6  7  8  9 10 11]");
  EXPECT_EQ(with({.threshold = 5, .edge_items = 1}, n), "[ 0 ... 11]");
  EXPECT_EQ(with({.threshold = 5, .edge_items = 1}, n.reshape({3, 4}) * 0.5),
            "[[0.  ... 1.5]\n ...\n [4.  ... 5.5]]");
  EXPECT_EQ(with({.threshold = 12, .edge_items = 1}, n), "[ 0  1  2  3  4  5  6  7  8  9 10 11]");
  EXPECT_EQ(print_options().precision, 8);
  EXPECT_EQ(check::error_of([] { set_print_options({.precision = -1}); }),
            "set_print_options: got the precision -1, need at least 0");
  EXPECT_EQ(check::error_of([] { set_print_options({.line_width = 0}); }),
            "set_print_options: got the line_width 0, need at least 1");
  EXPECT_EQ(check::error_of([] { set_print_options({.threshold = -1}); }),
            "set_print_options: got the threshold -1, need at least 0");
  EXPECT_EQ(check::error_of([] { set_print_options({.edge_items = 0}); }),
            "set_print_options: got the edge_items 0, need at least 1");
}

// The state of the stream (width, base, precision) is its owner's.
TEST(Print, LeavesTheStreamAlone) {
  std::ostringstream out;
  out << std::hex << array({255, 16}) << ' ' << 255;
  EXPECT_EQ(out.str(), "[255  16] ff");
}

}  // namespace
}  // namespace tensor
