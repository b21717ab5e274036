// The operators: NumPy's names and argument order, PyTorch's for the neural ones.
//
// Every function broadcasts and promotes as NumPy does, takes any strides, leaves its inputs alone
// and throws UserError on shapes, types or attributes that do not fit. Sums, means, softmax,
// layer_norm and products of f16 and bf16 tensors accumulate in float32 or better. A negative axis
// counts from the end. The tensors of a call lie on one device, and so does the result; 0-d tensors
// of the CPU go along with any.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/attrs.h"
#include "tensor/axes.h"
#include "tensor/handle.h"
#include "tensor/index.h"

namespace tensor {

// ---- Elementwise, one input. Integers promote to a floating type where NumPy's function does:
// bool, u8, i8 -> f16; i16 -> f32; i32, i64 -> f64. negative, sign and relu refuse bool; isnan,
// isfinite and logical_not give bool; floor, ceil and round copy integers.
TENSOR_API Tensor negative(const Tensor& x);
TENSOR_API Tensor abs(const Tensor& x);
TENSOR_API Tensor sign(const Tensor& x);
TENSOR_API Tensor square(const Tensor& x);
TENSOR_API Tensor sqrt(const Tensor& x);
TENSOR_API Tensor rsqrt(const Tensor& x);
TENSOR_API Tensor reciprocal(const Tensor& x);
TENSOR_API Tensor exp(const Tensor& x);
TENSOR_API Tensor expm1(const Tensor& x);
TENSOR_API Tensor log(const Tensor& x);
TENSOR_API Tensor log1p(const Tensor& x);
TENSOR_API Tensor sin(const Tensor& x);
TENSOR_API Tensor cos(const Tensor& x);
TENSOR_API Tensor tanh(const Tensor& x);
TENSOR_API Tensor erf(const Tensor& x);
TENSOR_API Tensor sigmoid(const Tensor& x);
/// NaN stays, with one exception: compiled for the CPU, right behind a product or convolution, relu
/// may make 0 of it.
TENSOR_API Tensor relu(const Tensor& x);
TENSOR_API Tensor gelu(const Tensor& x);       ///< x/2 (1 + erf(x / sqrt 2))
TENSOR_API Tensor gelu_tanh(const Tensor& x);  ///< the tanh approximation
TENSOR_API Tensor silu(const Tensor& x);
TENSOR_API Tensor hardswish(const Tensor& x);
TENSOR_API Tensor softplus(const Tensor& x);  ///< log(1 + exp(x)), without overflow
TENSOR_API Tensor floor(const Tensor& x);
TENSOR_API Tensor ceil(const Tensor& x);
TENSOR_API Tensor round(const Tensor& x);  ///< halves to even
TENSOR_API Tensor isnan(const Tensor& x);
TENSOR_API Tensor isfinite(const Tensor& x);
TENSOR_API Tensor logical_not(const Tensor& x);
/// Converts the element type, always into a copy; floating to integer truncates, out-of-range
/// values saturate, NaN becomes 0.
TENSOR_API Tensor astype(const Tensor& x, DType dtype);
/// A contiguous copy on x's device.
TENSOR_API Tensor copy(const Tensor& x);

// ---- Elementwise, two inputs, in their common type; comparisons, which are exact with any C++
// integer, and logical_* give bool. Integers wrap around; subtract refuses two bool tensors.
TENSOR_API Tensor add(const Tensor& a, const Tensor& b);
TENSOR_API Tensor subtract(const Tensor& a, const Tensor& b);
TENSOR_API Tensor multiply(const Tensor& a, const Tensor& b);
TENSOR_API Tensor divide(const Tensor& a, const Tensor& b);  ///< integers give f64
TENSOR_API Tensor floor_divide(const Tensor& a,
                               const Tensor& b);                ///< integer division by 0 gives 0
TENSOR_API Tensor remainder(const Tensor& a, const Tensor& b);  ///< the sign of b
/// UserError on an integer to a negative integer power.
TENSOR_API Tensor power(const Tensor& a, const Tensor& b);
TENSOR_API Tensor maximum(const Tensor& a, const Tensor& b);  ///< NaN wins
TENSOR_API Tensor minimum(const Tensor& a, const Tensor& b);
TENSOR_API Tensor equal(const Tensor& a, const Tensor& b);
TENSOR_API Tensor not_equal(const Tensor& a, const Tensor& b);
TENSOR_API Tensor less(const Tensor& a, const Tensor& b);
TENSOR_API Tensor less_equal(const Tensor& a, const Tensor& b);
TENSOR_API Tensor greater(const Tensor& a, const Tensor& b);
TENSOR_API Tensor greater_equal(const Tensor& a, const Tensor& b);
TENSOR_API Tensor logical_and(const Tensor& a, const Tensor& b);
TENSOR_API Tensor logical_or(const Tensor& a, const Tensor& b);
TENSOR_API Tensor logical_xor(const Tensor& a, const Tensor& b);

// ---- Comparing up to rounding, and whole tensors.
/// bool: |a - b| <= atol + rtol |b|, in f32 or f64. Infinities are close to themselves alone, NaN
/// only to NaN, and that with `equal_nan`.
TENSOR_API Tensor isclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
                          bool equal_nan = false);
/// Whether all of isclose(...) is true; of no elements it is. The shapes broadcast. UserError where
/// a tensor is traced and so has no values yet: use all(isclose(a, b)) there.
TENSOR_API bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
                         bool equal_nan = false);
/// Whether a and b have the same shape and equal elements, of whatever types; with `equal_nan` NaN
/// equals NaN. UserError on traced tensors of one shape: use all(a == b).
TENSOR_API bool array_equal(const Tensor& a, const Tensor& b, bool equal_nan = false);

/// a where `condition` is true (a number: not 0), b elsewhere, in the common type of a and b.
TENSOR_API Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
/// minimum(maximum(x, low), high); NaN stays. An integer below (low) or above (high) all that x's
/// integer type holds bounds nothing.
TENSOR_API Tensor clip(const Tensor& x, const Tensor& low, const Tensor& high);

inline Tensor operator-(const Tensor& x) { return negative(x); }
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return subtract(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return multiply(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return divide(a, b); }
inline Tensor operator%(const Tensor& a, const Tensor& b) { return remainder(a, b); }
inline Tensor operator==(const Tensor& a, const Tensor& b) { return equal(a, b); }
inline Tensor operator!=(const Tensor& a, const Tensor& b) { return not_equal(a, b); }
inline Tensor operator<(const Tensor& a, const Tensor& b) { return less(a, b); }
inline Tensor operator<=(const Tensor& a, const Tensor& b) { return less_equal(a, b); }
inline Tensor operator>(const Tensor& a, const Tensor& b) { return greater(a, b); }
inline Tensor operator>=(const Tensor& a, const Tensor& b) { return greater_equal(a, b); }
inline Tensor operator&(const Tensor& a, const Tensor& b) { return logical_and(a, b); }
inline Tensor operator|(const Tensor& a, const Tensor& b) { return logical_or(a, b); }
inline Tensor operator!(const Tensor& x) { return logical_not(x); }
/// Rebinds the handle to a new tensor; x(...) += y and `auto row = x(0); row += y` write into x.
inline Tensor& operator+=(Tensor& a, const Tensor& b) { return a = add(a, b); }
inline Tensor& operator-=(Tensor& a, const Tensor& b) { return a = subtract(a, b); }
inline Tensor& operator*=(Tensor& a, const Tensor& b) { return a = multiply(a, b); }
inline Tensor& operator/=(Tensor& a, const Tensor& b) { return a = divide(a, b); }

// ---- Reductions. `keepdims` leaves the reduced axes in the result, with extent 1.
/// In sum and prod integers and bool give i64, which wraps around.
TENSOR_API Tensor sum(const Tensor& x, const Axes& axis = {}, bool keepdims = false);
/// Integers and bool give f64, as in var and std; NaN over no elements.
TENSOR_API Tensor mean(const Tensor& x, const Axes& axis = {}, bool keepdims = false);
TENSOR_API Tensor prod(const Tensor& x, const Axes& axis = {}, bool keepdims = false);
/// In x's type. NaN wins; UserError when there is nothing to take the maximum (minimum) of.
TENSOR_API Tensor max(const Tensor& x, const Axes& axis = {}, bool keepdims = false);
TENSOR_API Tensor min(const Tensor& x, const Axes& axis = {}, bool keepdims = false);
/// Divided by n - ddof.
TENSOR_API Tensor var(const Tensor& x, const Axes& axis = {}, bool keepdims = false,
                      double ddof = 0);
/// With `using namespace tensor`, `std` alone would mean two things: write x.std() there.
TENSOR_API Tensor std(const Tensor& x, const Axes& axis = {}, bool keepdims = false,
                      double ddof = 0);
/// bool: whether any element, or every one, is nonzero, as NaN is. Of none: false, true.
TENSOR_API Tensor any(const Tensor& x, const Axes& axis = {}, bool keepdims = false);
TENSOR_API Tensor all(const Tensor& x, const Axes& axis = {}, bool keepdims = false);
/// The first index of the extreme (of the first NaN, if any), i64. Without an axis: into the
/// flattened tensor; with several: into these, flattened. UserError where there are no elements.
TENSOR_API Tensor argmax(const Tensor& x, const Axes& axis = {}, bool keepdims = false);
TENSOR_API Tensor argmin(const Tensor& x, const Axes& axis = {}, bool keepdims = false);

// ---- Scans and sorting (stable; NaN sorts last, as in NumPy). All but topk keep the shape of x.
/// Integers and bool give i64, which wraps around.
TENSOR_API Tensor cumsum(const Tensor& x, int axis);
/// Ascending; sort gives x's type, argsort i64.
TENSOR_API Tensor sort(const Tensor& x, int axis = -1);
TENSOR_API Tensor argsort(const Tensor& x, int axis = -1);
/// The k largest along the axis, in descending order: {values, indices (i64)}, whose extent there
/// is k. NaN counts as the largest (PyTorch's rule). UserError unless 0 <= k <= the axis's extent.
TENSOR_API std::pair<Tensor, Tensor> topk(const Tensor& x, std::int64_t k, int axis = -1);

// ---- Products.
/// NumPy's matmul: [..., m, k] by [..., k, n] gives [..., m, n]; batch axes broadcast; a 1-d
/// operand is a row on the left and a column on the right. UserError on 0-d.
TENSOR_API Tensor matmul(const Tensor& a, const Tensor& b);
/// numpy.dot: matmul up to 2-d, multiply with a 0-d tensor; else a's last axis by b's second to
/// last, every pair of the others.
TENSOR_API Tensor dot(const Tensor& a, const Tensor& b);
/// numpy.einsum, with repeated subscripts and an implicit or explicit output, without "..."
/// (UserError). Labels are letters: "bij,bjk->bik".
TENSOR_API Tensor einsum(std::string_view equation, const std::vector<Tensor>& operands);

// ---- Neural. Floating types only (UserError otherwise: use astype(f32)), but for linear,
// max_pool2d and the interpolation `nearest`. The result has the common type of the tensors.
/// Of x's shape. A line of -inf alone, or with NaN or +inf, becomes NaN as in PyTorch.
TENSOR_API Tensor softmax(const Tensor& x, int axis = -1);
TENSOR_API Tensor log_softmax(const Tensor& x, int axis = -1);
/// Over the last axis of [..., features] with the biased variance; weight and bias [features] or
/// undefined.
TENSOR_API Tensor layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                             double eps = 1e-5);
/// Inference form over axis 1 of [N, C, ...]: (x - mean) / sqrt(variance + eps) * weight + bias.
/// All four [C]; weight and bias may be undefined.
TENSOR_API Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                             const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5);
/// [N, C, ...] in `num_groups` groups of channels; weight and bias [C] or undefined. UserError
/// unless num_groups divides C.
TENSOR_API Tensor group_norm(const Tensor& x, std::int64_t num_groups, const Tensor& weight = {},
                             const Tensor& bias = {}, double eps = 1e-5);
/// x · weightᵀ + bias: x [..., in] gives [..., out]; weight [out, in], bias [out] or undefined.
TENSOR_API Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
/// softmax(q · kᵀ / sqrt(d) + mask) · v: q [..., queries, d], k [..., keys, d] and v [..., keys, n]
/// give [..., queries, n]. The mask broadcasts to [..., queries, keys]: a boolean one keeps where
/// true (a query that keeps none gets NaN), a floating one is added; UserError on other types.
TENSOR_API Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                               const Tensor& mask = {});

/// Height and width; one number means both.
struct Pair {
  std::int64_t h = 0, w = 0;
  Pair(std::int64_t both) : h(both), w(both) {}
  Pair(std::int64_t height, std::int64_t width) : h(height), w(width) {}
};
/// `groups` must divide the input and the output channels (UserError).
struct Conv2dOptions {
  Pair stride = 1, padding = 0, dilation = 1;
  std::int64_t groups = 1;
};
/// Cross-correlation of x [N, C, H, W] with weight [O, C / groups, kh, kw], zero padding; bias [O]
/// or undefined. Gives [N, O, H', W'], rounded down, where
/// H' = (H + 2 padding - dilation (kh - 1) - 1) / stride + 1. UserError where the kernel is larger
/// than the padded image.
TENSOR_API Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                         const Conv2dOptions& options = {});
/// output_padding must be less than the stride or the dilation (UserError).
struct ConvTranspose2dOptions {
  Pair stride = 1, padding = 0, output_padding = 0, dilation = 1;
  std::int64_t groups = 1;
};
/// The gradient of conv2d: x [N, C, H, W], weight [C, O / groups, kh, kw]; bias [O] or undefined.
/// Gives [N, O, H', W'] where
/// H' = (H - 1) stride - 2 padding + dilation (kh - 1) + output_padding + 1.
TENSOR_API Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                                   const ConvTranspose2dOptions& options = {});
/// Pools of x [N, C, H, W] give [N, C, H', W'] with H' = (H + 2 padding - kernel) / stride + 1,
/// rounded down; stride 0 means the kernel's size. UserError where the padding is more than half
/// the kernel, or the kernel larger than the padded image. Here padding counts as minus infinity.
TENSOR_API Tensor max_pool2d(const Tensor& x, Pair kernel_size, Pair stride = 0, Pair padding = 0);
/// Padding counts as zeros that are averaged in (PyTorch's count_include_pad).
TENSOR_API Tensor avg_pool2d(const Tensor& x, Pair kernel_size, Pair stride = 0, Pair padding = 0);

enum class Interpolation { nearest, bilinear, bicubic };
struct InterpolateOptions {
  Interpolation mode = Interpolation::nearest;
  bool align_corners = false;  ///< bilinear and bicubic (UserError otherwise)
  bool antialias = false;      ///< bilinear and bicubic without align_corners; Pillow's kernels
};
/// Resizes x [N, C, H, W] to [N, C, size.h, size.w] as torch.nn.functional.interpolate(size=...)
/// does. UserError on empty images and sizes.
TENSOR_API Tensor interpolate(const Tensor& x, Pair size, const InterpolateOptions& options = {});

// ---- Shapes. These are views wherever the strides allow it.
/// One extent may be -1. A view if the layout allows it, otherwise a copy.
TENSOR_API Tensor reshape(const Tensor& x, const Shape& shape);
TENSOR_API Tensor transpose(const Tensor& x);  ///< axes reversed
/// Axis i of the result is axes[i] of x; each axis once.
TENSOR_API Tensor transpose(const Tensor& x, const Dims& axes);
TENSOR_API Tensor swapaxes(const Tensor& x, int a, int b);
/// A new axis of extent 1, which is `axis` in the result.
TENSOR_API Tensor expand_dims(const Tensor& x, int axis);
/// Without an axis: every axis of extent 1. UserError where a named one has another extent.
TENSOR_API Tensor squeeze(const Tensor& x, const Axes& axis = {});
/// A view; read-only where an axis is stretched.
TENSOR_API Tensor broadcast_to(const Tensor& x, const Shape& shape);
TENSOR_API Tensor flip(const Tensor& x, const Axes& axis = {});
/// The parts one after the other, in their common type; their shapes may differ along `axis` only.
TENSOR_API Tensor concatenate(const std::vector<Tensor>& parts, int axis = 0);
/// The parts, of one shape, along a new axis.
TENSOR_API Tensor stack(const std::vector<Tensor>& parts, int axis = 0);
/// numpy.split at the given positions, clamped to the axis: one part more than positions.
TENSOR_API std::vector<Tensor> split(const Tensor& x, const Ints& indices, int axis = 0);
/// numpy.split into equal sections. UserError where the extent is no multiple of them.
TENSOR_API std::vector<Tensor> split(const Tensor& x, std::int64_t sections, int axis = 0);
/// Adds {before, after} places to every axis (a single pair serves all axes), filled with the 0-d
/// value as x's type. UserError on negative widths.
TENSOR_API Tensor pad(const Tensor& x,
                      const std::vector<std::pair<std::int64_t, std::int64_t>>& pad_width,
                      const Tensor& constant_value = 0);
/// x beside itself reps[i] times along every axis; axes that x or reps lack count as 1.
TENSOR_API Tensor tile(const Tensor& x, const Dims& reps);
/// Every element `repeats` times along the axis.
TENSOR_API Tensor repeat(const Tensor& x, std::int64_t repeats, int axis);
/// x [..., rows, columns] with zeros above (tril) or below (triu) the diagonal `k` (0: the main
/// one, above 0: to the right).
TENSOR_API Tensor tril(const Tensor& x, std::int64_t k = 0);
TENSOR_API Tensor triu(const Tensor& x, std::int64_t k = 0);
/// x[..., indices, ...] along an axis, which the shape of the indices replaces. Negative indices
/// count from the end; those out of bounds, and types but integers, throw UserError.
TENSOR_API Tensor take(const Tensor& x, const Tensor& indices, int axis);
/// x[..., indices[..., i, ...], ...]: one index an element, of as many axes as x. Both are
/// broadcast but for `axis`, which has the indices' extent. Errors as in take.
TENSOR_API Tensor take_along_axis(const Tensor& x, const Tensor& indices, int axis);

// ---- By name.
/// Calls an operator by its name above with named attributes, as a file of test cases or another
/// language would. Attributes are NumPy's and PyTorch's. Throws UserError on an unknown name (with
/// the closest one) or attribute.
TENSOR_API std::vector<Tensor> call(std::string_view name, const std::vector<Tensor>& inputs,
                                    const Attrs& attrs = {});
/// Every name that `call` takes, sorted.
TENSOR_API std::vector<std::string_view> operator_names();

}  // namespace tensor
