// DFT, as products with matrices of sines and cosines, which are made on the host.
#include <cmath>
#include <numbers>

#include "src/onnx/operators.h"
#include "tensor/creation.h"

namespace tensor::onnx {
namespace {

// weight of a row * function(2 pi row column / length), [rows, columns].
template <class Function, class Weight>
Tensor waves(std::int64_t rows, std::int64_t columns, std::int64_t length, Function function,
             Weight weight) {
  std::vector<float> matrix;
  matrix.reserve(static_cast<std::size_t>(rows * columns));
  const double turn = 2 * std::numbers::pi / static_cast<double>(length);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      matrix.push_back(
          static_cast<float>(weight(i) * function(turn * static_cast<double>(i * j % length))));
  return array(matrix, {rows, columns});
}

// As many elements along the last axis, of which those that are missing are zero.
Tensor with_extent(const Tensor& x, std::int64_t extent) {
  const int last = x.rank() - 1;
  if (x.shape(last) >= extent) return sliced(x, last, 0, extent);
  std::vector<std::pair<std::int64_t, std::int64_t>> width(static_cast<std::size_t>(x.rank()));
  width.back().second = extent - x.shape(last);
  return pad(x, width);
}

Results dft(const Call& c) {
  const Tensor& x = c[0];
  const bool is_inverse = c.integer("inverse", 0) != 0, is_half = c.integer("onesided", 0) != 0;
  if (x.rank() < 2 || x.shape(-1) < 1 || x.shape(-1) > 2)
    fail("dft", "got the shape ", x.shape(), ", need (..., 1) or (..., 2)");
  const std::int64_t named = c.opset() < 20 ? c.integer("axis", 1)
                             : c.has(2)     ? c.host(2).item<std::int64_t>()
                                            : -2;
  const int axis = normalize_axis(named, x.rank(), "dft"), last = x.rank() - 1;
  if (axis == last) fail("dft", "got the axis ", named, " of the real and imaginary parts");
  const bool is_real = is_inverse && is_half;  // of half a spectrum
  const std::int64_t given = x.shape(axis), whole = is_real ? 2 * (given - 1) : given;
  const std::int64_t length = c.has(1) ? c.host(1).item<std::int64_t>() : whole;
  constexpr std::int64_t kMost = 1 << 13;
  if (length < 1 || length > kMost) fail("dft", "got a length of ", length, ", need 1 to ", kMost);
  const std::int64_t in = is_real ? length / 2 + 1 : length;
  const std::int64_t out = is_half && !is_inverse ? length / 2 + 1 : length;
  const auto part = [&](std::int64_t i) {
    return with_extent(squeeze(sliced(x, last, i, 1), last).swapaxes(axis, -1), in);
  };
  const auto weight = [&](std::int64_t row) {
    // Rows of half a spectrum stand for their mirror images, too.
    const bool is_twice = is_real && row != 0 && 2 * row != length;
    return (is_twice ? 2.0 : 1.0) / (is_inverse ? static_cast<double>(length) : 1.0);
  };
  const auto cos = [](double at) { return std::cos(at); };
  // e to the power of -i at, or of i at.
  const auto sin = [&](double at) { return is_inverse ? std::sin(at) : -std::sin(at); };
  const auto moved = [&](const Tensor& m) { return m.to(x.dtype()).to(x.device()); };
  const Tensor even = moved(waves(in, out, length, cos, weight)),
               odd = moved(waves(in, out, length, sin, weight));
  const Tensor real = part(0);
  Tensor re = matmul(real, even), im = is_real ? Tensor() : matmul(real, odd);
  if (x.shape(last) == 2) {
    const Tensor imaginary = part(1);
    re = re - matmul(imaginary, odd);
    if (!is_real) im = im + matmul(imaginary, even);
  }
  const auto placed = [&](const Tensor& y) { return y.swapaxes(axis, -1); };
  return {is_real ? placed(re).expand_dims(last) : stack({placed(re), placed(im)}, last)};
}

constexpr Operator kFourierRows[] = {
    {"DFT", 17, 1, 3, 1, "axis:i inverse:i onesided:i", dft},
};

}  // namespace

std::span<const Operator> fourier_operators() { return kFourierRows; }

}  // namespace tensor::onnx
