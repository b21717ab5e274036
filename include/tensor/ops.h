// The operators: NumPy's names and argument order, PyTorch's for the neural ones.
//
// Every function broadcasts and promotes as NumPy does, takes any strides, leaves its inputs alone
// and throws UserError on shapes, types or attributes that do not fit. Sums, means, softmax,
// layer_norm and products of f16 and bf16 tensors accumulate in float32 or better.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/attrs.h"
#include "tensor/handle.h"
#include "tensor/index.h"

namespace tensor {

// ---- Elementwise, one input. Integers promote to a floating type where NumPy's function does.
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
TENSOR_API Tensor relu(const Tensor& x);
TENSOR_API Tensor gelu(const Tensor& x);       ///< x/2 (1 + erf(x / sqrt 2))
TENSOR_API Tensor gelu_tanh(const Tensor& x);  ///< the tanh approximation
TENSOR_API Tensor silu(const Tensor& x);
TENSOR_API Tensor hardswish(const Tensor& x);
TENSOR_API Tensor floor(const Tensor& x);
TENSOR_API Tensor ceil(const Tensor& x);
TENSOR_API Tensor round(const Tensor& x);  ///< halves to even
TENSOR_API Tensor isnan(const Tensor& x);
TENSOR_API Tensor isfinite(const Tensor& x);
TENSOR_API Tensor logical_not(const Tensor& x);
/// Converts the element type; floating to integer truncates, out-of-range values saturate, NaN
/// becomes 0.
TENSOR_API Tensor astype(const Tensor& x, DType dtype);
/// A contiguous copy.
TENSOR_API Tensor copy(const Tensor& x);

// ---- Elementwise, two inputs.
TENSOR_API Tensor add(const Tensor& a, const Tensor& b);
TENSOR_API Tensor subtract(const Tensor& a, const Tensor& b);
TENSOR_API Tensor multiply(const Tensor& a, const Tensor& b);
TENSOR_API Tensor divide(const Tensor& a, const Tensor& b);  ///< integers give f64
TENSOR_API Tensor floor_divide(const Tensor& a,
                               const Tensor& b);                ///< integer division by 0 gives 0
TENSOR_API Tensor remainder(const Tensor& a, const Tensor& b);  ///< the sign of b
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

TENSOR_API Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
/// minimum(maximum(x, low), high); NaN stays.
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
/// Rebinds the handle to a new tensor; use x(...) += y to write into shared elements.
inline Tensor& operator+=(Tensor& a, const Tensor& b) { return a = add(a, b); }
inline Tensor& operator-=(Tensor& a, const Tensor& b) { return a = subtract(a, b); }
inline Tensor& operator*=(Tensor& a, const Tensor& b) { return a = multiply(a, b); }
inline Tensor& operator/=(Tensor& a, const Tensor& b) { return a = divide(a, b); }

// ---- Reductions.
/// The axes of a reduction: none at all (every axis), one, or a list.
class Axes {
 public:
  Axes() = default;
  Axes(None) {}
  Axes(int axis) : all_(false), axes_{axis} {}
  Axes(std::initializer_list<std::int64_t> axes) : all_(false), axes_(axes) {}
  Axes(const Dims& axes) : all_(false), axes_(axes) {}
  bool every() const { return all_; }  ///< no axis was named
  /// Sorted, each in [0, rank). Throws UserError on a repeated or impossible axis.
  TENSOR_API Dims resolve(int rank, std::string_view where) const;

 private:
  bool all_ = true;
  Dims axes_;
};

/// Integers sum to i64; bool counts.
TENSOR_API Tensor sum(const Tensor& x, const Axes& axis = {}, bool keepdims = false);
TENSOR_API Tensor mean(const Tensor& x, const Axes& axis = {}, bool keepdims = false);
TENSOR_API Tensor prod(const Tensor& x, const Axes& axis = {}, bool keepdims = false);
/// NaN wins; UserError when there is nothing to take the maximum of.
TENSOR_API Tensor max(const Tensor& x, const Axes& axis = {}, bool keepdims = false);
TENSOR_API Tensor min(const Tensor& x, const Axes& axis = {}, bool keepdims = false);
/// Divided by n - ddof.
TENSOR_API Tensor var(const Tensor& x, const Axes& axis = {}, bool keepdims = false,
                      double ddof = 0);
TENSOR_API Tensor std(const Tensor& x, const Axes& axis = {}, bool keepdims = false,
                      double ddof = 0);
TENSOR_API Tensor any(const Tensor& x, const Axes& axis = {}, bool keepdims = false);
TENSOR_API Tensor all(const Tensor& x, const Axes& axis = {}, bool keepdims = false);
/// The first index of the extreme (of the first NaN, if any), i64. Without an axis: into the
/// flattened tensor.
TENSOR_API Tensor argmax(const Tensor& x, const Axes& axis = {}, bool keepdims = false);
TENSOR_API Tensor argmin(const Tensor& x, const Axes& axis = {}, bool keepdims = false);

// ---- Scans and sorting (stable; NaN sorts last, as in NumPy).
TENSOR_API Tensor cumsum(const Tensor& x, int axis);
TENSOR_API Tensor sort(const Tensor& x, int axis = -1);
TENSOR_API Tensor argsort(const Tensor& x, int axis = -1);
/// The k largest, in descending order: {values, indices}. NaN counts as the largest (PyTorch's
/// rule).
TENSOR_API std::pair<Tensor, Tensor> topk(const Tensor& x, std::int64_t k, int axis = -1);

// ---- Products.
/// NumPy's matmul: 1-d operands, broadcast batch axes.
TENSOR_API Tensor matmul(const Tensor& a, const Tensor& b);
/// numpy.dot.
TENSOR_API Tensor dot(const Tensor& a, const Tensor& b);
/// numpy.einsum, with repeated subscripts and an implicit or explicit output, without "...".
TENSOR_API Tensor einsum(std::string_view equation, const std::vector<Tensor>& operands);

// ---- Neural.
TENSOR_API Tensor softmax(const Tensor& x, int axis = -1);
TENSOR_API Tensor log_softmax(const Tensor& x, int axis = -1);
/// Over the last axis with the biased variance; weight and bias may be undefined.
TENSOR_API Tensor layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                             double eps = 1e-5);
/// Inference form over axis 1: (x - mean) / sqrt(variance + eps) * weight + bias.
TENSOR_API Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                             const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5);
/// [N, C, ...] in `num_groups` groups of channels.
TENSOR_API Tensor group_norm(const Tensor& x, std::int64_t num_groups, const Tensor& weight = {},
                             const Tensor& bias = {}, double eps = 1e-5);
/// x · weightᵀ + bias; weight [out, in], bias [out] or undefined.
TENSOR_API Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
/// softmax(q · kᵀ / sqrt(d) + mask) · v over [..., tokens, d]. A boolean mask keeps where true, a
/// floating one is added.
TENSOR_API Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                               const Tensor& mask = {});

/// Height and width; one number means both.
struct Pair {
  std::int64_t h = 0, w = 0;
  Pair(std::int64_t both) : h(both), w(both) {}
  Pair(std::int64_t height, std::int64_t width) : h(height), w(width) {}
};
struct Conv2dOptions {
  Pair stride = 1, padding = 0, dilation = 1;
  std::int64_t groups = 1;
};
/// Cross-correlation of x [N, C, H, W] with weight [O, C / groups, kh, kw], zero padding; bias [O]
/// or undefined.
TENSOR_API Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                         const Conv2dOptions& options = {});
struct ConvTranspose2dOptions {
  Pair stride = 1, padding = 0, output_padding = 0, dilation = 1;
  std::int64_t groups = 1;
};
/// The gradient of conv2d: x [N, C, H, W], weight [C, O / groups, kh, kw]; bias [O] or undefined.
TENSOR_API Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                                   const ConvTranspose2dOptions& options = {});
/// stride 0 means the kernel's size. Padding counts as minus infinity.
TENSOR_API Tensor max_pool2d(const Tensor& x, Pair kernel_size, Pair stride = 0, Pair padding = 0);
/// Padding counts as zeros that are averaged in (PyTorch's count_include_pad).
TENSOR_API Tensor avg_pool2d(const Tensor& x, Pair kernel_size, Pair stride = 0, Pair padding = 0);

enum class Interpolation { nearest, bilinear, bicubic };
struct InterpolateOptions {
  Interpolation mode = Interpolation::nearest;
  bool align_corners = false;  ///< bilinear and bicubic
  bool antialias = false;      ///< bilinear and bicubic without align_corners; Pillow's kernels
};
/// Resizes the last two axes of [N, C, H, W] as torch.nn.functional.interpolate(size=...) does.
TENSOR_API Tensor interpolate(const Tensor& x, Pair size, const InterpolateOptions& options = {});

// ---- Shapes. These are views wherever the strides allow it.
/// One extent may be -1. A view if the layout allows it, otherwise a copy.
TENSOR_API Tensor reshape(const Tensor& x, const Shape& shape);
TENSOR_API Tensor transpose(const Tensor& x);  ///< axes reversed
TENSOR_API Tensor transpose(const Tensor& x, const Dims& axes);
TENSOR_API Tensor swapaxes(const Tensor& x, int a, int b);
TENSOR_API Tensor expand_dims(const Tensor& x, int axis);
/// Without an axis: every axis of extent 1.
TENSOR_API Tensor squeeze(const Tensor& x, const Axes& axis = {});
TENSOR_API Tensor broadcast_to(const Tensor& x, const Shape& shape);
TENSOR_API Tensor flip(const Tensor& x, const Axes& axis = {});
/// The parts one after the other, in their common type; their shapes may differ along `axis` only.
TENSOR_API Tensor concatenate(const std::vector<Tensor>& parts, int axis = 0);
/// The parts, of one shape, along a new axis.
TENSOR_API Tensor stack(const std::vector<Tensor>& parts, int axis = 0);
/// numpy.split at the given positions.
TENSOR_API std::vector<Tensor> split(const Tensor& x, const Ints& indices, int axis = 0);
/// numpy.split into equal sections.
TENSOR_API std::vector<Tensor> split(const Tensor& x, std::int64_t sections, int axis = 0);
/// Adds {before, after} places to every axis (a single pair serves all axes), filled with the value
/// as x's type.
TENSOR_API Tensor pad(const Tensor& x,
                      const std::vector<std::pair<std::int64_t, std::int64_t>>& pad_width,
                      const Tensor& constant_value = 0);
/// x beside itself reps[i] times along every axis; axes that x or reps lack count as 1.
TENSOR_API Tensor tile(const Tensor& x, const Dims& reps);
/// Every element `repeats` times along the axis.
TENSOR_API Tensor repeat(const Tensor& x, std::int64_t repeats, int axis);
/// The last two axes with zeros above (tril) or below (triu) the diagonal `k`.
TENSOR_API Tensor tril(const Tensor& x, std::int64_t k = 0);
TENSOR_API Tensor triu(const Tensor& x, std::int64_t k = 0);
/// x[..., indices, ...] along an axis, for indices of any shape; negative ones count from the end,
/// those out of bounds throw UserError.
TENSOR_API Tensor take(const Tensor& x, const Tensor& indices, int axis);
/// x[..., indices[..., i, ...], ...]: one index an element. Both are broadcast but for `axis`.
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
