// Functions of one tensor for random programs: operators with attributes, and compositions.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "tensor/tensor.h"

namespace random_program {

namespace tn = tensor;

struct Function {
  bool (*fits)(const tn::Shape& shape);
  tn::Tensor (*apply)(const tn::Tensor& x);
};

// The same numbers whenever they are asked for.
inline tn::Tensor numbers(const tn::Shape& shape) { return tn::Generator(3).normal(shape); }

inline bool any_shape_fits(const tn::Shape& s) { return s.rank() > 0 && tn::num_elements(s) > 0; }
inline bool is_matrix(const tn::Shape& s) { return any_shape_fits(s) && s.rank() >= 2; }
inline bool is_flat(const tn::Shape& s) { return any_shape_fits(s) && s.rank() == 2; }
// A few small images, several channels.
inline bool are_images(const tn::Shape& s) {
  return any_shape_fits(s) && s.rank() == 4 && s[1] % 2 == 0 && s[2] * s[3] <= 400;
}
inline bool is_image(const tn::Shape& s) { return are_images(s) && s[0] * s[1] <= 16; }

// Continuous functions of real numbers that amplify errors moderately.
inline const std::vector<Function>& smooth_functions() {
  using tn::Tensor;
  static const std::vector<Function> table = {
      {any_shape_fits, [](const Tensor& x) { return tn::power(tn::abs(x) + 0.5, 1.5); }},
      {any_shape_fits, [](const Tensor& x) { return tn::power(tn::abs(x) + 1.0, -0.5); }},
      {any_shape_fits, [](const Tensor& x) { return tn::log_softmax(x * 0.25, -1); }},
      {any_shape_fits, [](const Tensor& x) { return tn::log_softmax(x * 0.25, 0); }},
      {any_shape_fits, [](const Tensor& x) { return tn::var(x * 0.25, -1, true); }},
      {any_shape_fits, [](const Tensor& x) { return x / (tn::std(x, 0, true) + 0.5); }},
      {any_shape_fits, [](const Tensor& x) { return tn::prod(tn::cos(x * 0.1), -1, true); }},
      {any_shape_fits, [](const Tensor& x) { return tn::sort(x, 0); }},
      {any_shape_fits, [](const Tensor& x) { return tn::topk(x, (x.shape(-1) + 1) / 2).first; }},
      {any_shape_fits, [](const Tensor& x) { return tn::cumsum(x, -1) * 0.25; }},
      {any_shape_fits,
       [](const Tensor& x) {
         return tn::take_along_axis(x, tn::argsort(numbers(x.shape()), -1), -1);
       }},
      {any_shape_fits,
       [](const Tensor& x) {
         return tn::stack({x, tn::sigmoid(x)}, -1);
       }},
      {is_flat, [](const Tensor& x) { return tn::dot(x, tn::tanh(x).swapaxes(0, 1)) * 0.1; }},
      {is_matrix, [](const Tensor& x) { return tn::tril(x) - tn::triu(x, 1); }},
      {is_flat,
       [](const Tensor& x) {
         return tn::einsum("ij,kj->ki", {x, tn::tanh(x)}) * 0.1;
       }},
      {is_matrix,
       [](const Tensor& x) {
         return tn::group_norm(x, x.shape(1) % 2 == 0 ? 2 : 1, numbers({x.shape(1)}),
                               numbers({x.shape(1)}), 1e-2);
       }},
      {is_matrix,
       [](const Tensor& x) {
         const tn::Shape channels{x.shape(1)};
         return tn::batch_norm(x, numbers(channels), tn::abs(numbers(channels)) + 0.5,
                               numbers(channels) + 1.0, numbers(channels));
       }},
      {are_images,
       [](const Tensor& x) {
         return tn::conv2d(x, numbers({x.shape(1), x.shape(1) / 2, 3, 3}) * 0.2, {},
                           {.padding = 2, .dilation = 2, .groups = 2});
       }},
      {are_images,
       [](const Tensor& x) {
         return tn::conv_transpose2d(x, numbers({x.shape(1), 2, 3, 3}) * 0.2, {},
                                     {.stride = 2, .padding = 1, .output_padding = 1, .groups = 2});
       }},
      {is_image,
       [](const Tensor& x) {
         return tn::interpolate(x, {9, 5},
                                {.mode = tn::Interpolation::bilinear, .align_corners = true});
       }},
      {is_image,
       [](const Tensor& x) {
         return tn::interpolate(x, {5, 11}, {.mode = tn::Interpolation::bicubic});
       }},
      {is_image,
       [](const Tensor& x) {
         return tn::interpolate(x, {3, 4},
                                {.mode = tn::Interpolation::bilinear, .antialias = true});
       }},
      // Conditions that rounding does not change.
      {any_shape_fits,
       [](const Tensor& x) {
         return tn::cond(
             tn::max(tn::abs(x)) < 1e30, [&] { return tn::softmax(x, -1) + tn::cos(x); },
             [&] { return tn::exp(tn::cumsum(x, -1)); });
       }},
      {is_flat,
       [](const Tensor& x) {
         return tn::cond(
             tn::any(tn::isnan(x)), [&] { return tn::sin(x); },
             [&] {
               const Tensor y = tn::dot(x, tn::tanh(x).swapaxes(0, 1)) * 0.1;
               return tn::cond(
                   tn::min(x) > 1e30, [&] { return tn::dot(y, x); },
                   [&] { return tn::tanh(tn::dot(y, x) * 0.1); });
             });
       }},
      {any_shape_fits,
       [](const Tensor& x) {
         return tn::loop(3, x, [](const Tensor& y) {
           return std::pair(tn::max(tn::abs(y)) > 1e30, tn::sin(y) * 0.5);
         });
       }},
      {any_shape_fits, [](const Tensor& x) { return tn::mish(x); }},
      {any_shape_fits, [](const Tensor& x) { return tn::selu(x) * 0.5; }},
      {any_shape_fits, [](const Tensor& x) { return tn::hardsigmoid(x); }},
      {any_shape_fits, [](const Tensor& x) { return tn::leaky_relu(x, 0.1); }},
      {any_shape_fits, [](const Tensor& x) { return tn::elu(x); }},
      {any_shape_fits, [](const Tensor& x) { return tn::arctan(x); }},
      {any_shape_fits, [](const Tensor& x) { return tn::sinh(x * 0.1); }},
      {any_shape_fits, [](const Tensor& x) { return tn::arcsinh(x); }},
      {any_shape_fits, [](const Tensor& x) { return tn::exp2(tn::tanh(x)); }},
      {any_shape_fits, [](const Tensor& x) { return tn::log2(tn::abs(x) + 1.0); }},
      {any_shape_fits, [](const Tensor& x) { return tn::log10(tn::abs(x) + 1.0); }},
      {any_shape_fits, [](const Tensor& x) { return tn::tan(tn::sin(x)); }},
      {any_shape_fits, [](const Tensor& x) { return tn::arcsin(tn::tanh(x) * 0.9); }},
      {any_shape_fits, [](const Tensor& x) { return tn::arccos(tn::tanh(x) * 0.9); }},
      {any_shape_fits, [](const Tensor& x) { return tn::cosh(tn::tanh(x)); }},
      {any_shape_fits, [](const Tensor& x) { return tn::arccosh(tn::abs(x) + 1.5); }},
      {any_shape_fits, [](const Tensor& x) { return tn::arctanh(tn::tanh(x) * 0.9); }},
      {any_shape_fits, [](const Tensor& x) { return tn::hypot(x, 1.0); }},
      {any_shape_fits, [](const Tensor& x) { return tn::arctan2(x, tn::abs(x) + 1.0); }},
      {any_shape_fits, [](const Tensor& x) { return tn::logsumexp(x, -1, true); }},
      {any_shape_fits, [](const Tensor& x) { return tn::rms_norm(x, {}, 0.1); }},
      {any_shape_fits, [](const Tensor& x) { return tn::cumprod(tn::cos(x * 0.1), -1); }},
      {any_shape_fits, [](const Tensor& x) { return tn::roll(x, 2, -1); }},
      {is_image,
       [](const Tensor& x) {
         return tn::adaptive_avg_pool2d(x, {2, 3});
       }},
      {is_image, [](const Tensor& x) { return tn::avg_pool2d(x, 2, 2, 1, true, false); }},
      {is_image, [](const Tensor& x) { return tn::max_pool2d(x, 2, 2, 0, true); }},
      {is_image,
       [](const Tensor& x) {
         return tn::pad(x, {{0, 0}, {0, 0}, {1, 2}, {0, 1}}, tn::PadMode::reflect);
       }},
      {is_image,
       [](const Tensor& x) {
         const Tensor grid = numbers({x.shape(0), 4, 5, 2}) * 0.5;
         return tn::grid_sample(x, grid, {.padding = tn::SamplePadding::border});
       }},
      {is_image,
       [](const Tensor& x) {
         const Tensor corners = numbers({3, 5}) * 4,
                      sizes = tn::array({0.0F, 0.0F, 0.0F, 5.0F, 5.0F});
         return tn::roi_align(x, tn::abs(corners) + sizes, {2, 3}, {.sampling_ratio = 2});
       }},
      // A residual block.
      {are_images,
       [](const Tensor& x) {
         const Tensor weight = numbers({x.shape(1), x.shape(1), 3, 3}) * 0.2;
         return tn::relu(tn::conv2d(tn::relu(tn::conv2d(x, weight, {}, {.padding = 1})), weight, {},
                                    {.padding = 1}) +
                         x);
       }},
  };
  return table;
}

// What keeps whole numbers whole, of any type, and nothing but moves or counts them.
inline const std::vector<Function>& exact_functions() {
  using tn::Tensor;
  static const std::vector<Function> table = {
      {any_shape_fits,
       [](const Tensor& x) {
         return tn::stack({x, x}, 0);
       }},
      {any_shape_fits,
       [](const Tensor& x) {
         return tn::tile(x, {1, 2});
       }},
      {any_shape_fits, [](const Tensor& x) { return tn::repeat(x, 2, -1); }},
      {any_shape_fits, [](const Tensor& x) { return tn::flip(x, 0); }},
      {any_shape_fits, [](const Tensor& x) { return tn::squeeze(x.expand_dims(0)); }},
      {any_shape_fits, [](const Tensor& x) { return tn::split(x, {1}, 0).front(); }},
      {any_shape_fits,
       [](const Tensor& x) {
         return tn::pad(x, {{1, 2}}, 1);
       }},
      {any_shape_fits, [](const Tensor& x) { return tn::sort(x, 0); }},
      {any_shape_fits, [](const Tensor& x) { return tn::argsort(x, -1); }},
      {any_shape_fits, [](const Tensor& x) { return tn::topk(x, x.shape(0), 0).second; }},
      {any_shape_fits, [](const Tensor& x) { return tn::topk(x, x.shape(0), 0).first; }},
      {any_shape_fits,
       [](const Tensor& x) { return tn::take_along_axis(x, tn::argsort(x, 0), 0); }},
      {any_shape_fits,
       [](const Tensor& x) { return tn::take(x, tn::argmax(x.reshape({-1}), 0) % x.shape(0), 0); }},
      {any_shape_fits, [](const Tensor& x) { return tn::argmax(x, -1); }},
      {any_shape_fits, [](const Tensor& x) { return tn::argmin(x, 0, true); }},
      {any_shape_fits, [](const Tensor& x) { return tn::max(x, 0); }},
      {any_shape_fits, [](const Tensor& x) { return tn::min(x, -1, true); }},
      {any_shape_fits, [](const Tensor& x) { return tn::any(x, -1); }},
      {any_shape_fits, [](const Tensor& x) { return tn::all(x, 0); }},
      {any_shape_fits, [](const Tensor& x) { return tn::isnan(x); }},
      {any_shape_fits, [](const Tensor& x) { return tn::isfinite(x); }},
      {any_shape_fits, [](const Tensor& x) { return tn::isinf(x); }},
      {any_shape_fits, [](const Tensor& x) { return tn::trunc(x); }},
      {any_shape_fits, [](const Tensor& x) { return tn::invert(x.astype(tn::u8)); }},
      {any_shape_fits, [](const Tensor& x) { return tn::roll(x, -1, 0); }},
      {any_shape_fits,
       [](const Tensor& x) {
         return tn::pad(x, {{2, 1}}, tn::PadMode::edge);
       }},
      {any_shape_fits, [](const Tensor& x) { return tn::count_nonzero(x, -1); }},
      {any_shape_fits,
       [](const Tensor& x) { return tn::put_along_axis(x, tn::argsort(x, 0), x, 0); }},
      {any_shape_fits, [](const Tensor& x) { return tn::one_hot(tn::argmax(x, 0), x.shape(0)); }},
      {is_matrix, [](const Tensor& x) { return tn::diagonal(x, 0, -2, -1); }},
      {any_shape_fits, [](const Tensor& x) { return tn::sign(x.astype(tn::i16)); }},
      {is_matrix, [](const Tensor& x) { return tn::tril(x, 1); }},
      {is_matrix, [](const Tensor& x) { return tn::triu(x); }},
      {is_matrix, [](const Tensor& x) { return x.swapaxes(0, -1); }},
  };
  return table;
}

}  // namespace random_program
