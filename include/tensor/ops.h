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
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/attrs.h"
#include "tensor/axes.h"
#include "tensor/handle.h"
#include "tensor/index.h"
#include "tensor/neural.h"

namespace tensor {

// ---- Elementwise, one input. Integers promote to a floating type where NumPy's function does:
// bool, u8, i8 -> f16; i16 -> f32; i32, i64 -> f64. negative, sign and relu refuse bool; isnan,
// isinf, isfinite and logical_not give bool; floor, ceil, round and trunc copy integers.
TENSOR_API Tensor negative(const Tensor& x);
TENSOR_API Tensor abs(const Tensor& x);
TENSOR_API Tensor sign(const Tensor& x);
TENSOR_API Tensor square(const Tensor& x);
TENSOR_API Tensor sqrt(const Tensor& x);
TENSOR_API Tensor rsqrt(const Tensor& x);
TENSOR_API Tensor reciprocal(const Tensor& x);
TENSOR_API Tensor exp(const Tensor& x);
TENSOR_API Tensor exp2(const Tensor& x);
TENSOR_API Tensor expm1(const Tensor& x);
TENSOR_API Tensor log(const Tensor& x);
TENSOR_API Tensor log2(const Tensor& x);
TENSOR_API Tensor log10(const Tensor& x);
TENSOR_API Tensor log1p(const Tensor& x);
TENSOR_API Tensor sin(const Tensor& x);
TENSOR_API Tensor cos(const Tensor& x);
TENSOR_API Tensor tan(const Tensor& x);
TENSOR_API Tensor arcsin(const Tensor& x);
TENSOR_API Tensor arccos(const Tensor& x);
TENSOR_API Tensor arctan(const Tensor& x);
TENSOR_API Tensor sinh(const Tensor& x);
TENSOR_API Tensor cosh(const Tensor& x);
TENSOR_API Tensor tanh(const Tensor& x);
TENSOR_API Tensor arcsinh(const Tensor& x);
TENSOR_API Tensor arccosh(const Tensor& x);
TENSOR_API Tensor arctanh(const Tensor& x);
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
TENSOR_API Tensor mish(const Tensor& x);      ///< x tanh(softplus(x))
TENSOR_API Tensor selu(const Tensor& x);
TENSOR_API Tensor hardsigmoid(const Tensor& x);  ///< clip(x + 3, 0, 6) / 6
TENSOR_API Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
TENSOR_API Tensor elu(const Tensor& x, double alpha = 1);  ///< x, or alpha (exp(x) - 1) below 0
TENSOR_API Tensor floor(const Tensor& x);
TENSOR_API Tensor ceil(const Tensor& x);
TENSOR_API Tensor round(const Tensor& x);  ///< halves to even
TENSOR_API Tensor trunc(const Tensor& x);  ///< towards 0
TENSOR_API Tensor isnan(const Tensor& x);
TENSOR_API Tensor isinf(const Tensor& x);
TENSOR_API Tensor isfinite(const Tensor& x);
TENSOR_API Tensor logical_not(const Tensor& x);
/// Every bit of an integer the other way, ~x; of bool, logical_not. UserError on floating types.
TENSOR_API Tensor invert(const Tensor& x);
/// Numbers in place of NaN and the infinities: by default 0 and the largest and least of x's type.
TENSOR_API Tensor nan_to_num(const Tensor& x, double nan = 0, std::optional<double> posinf = {},
                             std::optional<double> neginf = {});
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
TENSOR_API Tensor fmod(const Tensor& a, const Tensor& b);       ///< the sign of a
/// UserError on an integer to a negative integer power.
TENSOR_API Tensor power(const Tensor& a, const Tensor& b);
TENSOR_API Tensor maximum(const Tensor& a, const Tensor& b);  ///< NaN wins
TENSOR_API Tensor minimum(const Tensor& a, const Tensor& b);
/// The angle of the point (b, a), from -pi to pi.
TENSOR_API Tensor arctan2(const Tensor& a, const Tensor& b);
TENSOR_API Tensor hypot(const Tensor& a, const Tensor& b);  ///< sqrt(a^2 + b^2), without overflow
TENSOR_API Tensor equal(const Tensor& a, const Tensor& b);
TENSOR_API Tensor not_equal(const Tensor& a, const Tensor& b);
TENSOR_API Tensor less(const Tensor& a, const Tensor& b);
TENSOR_API Tensor less_equal(const Tensor& a, const Tensor& b);
TENSOR_API Tensor greater(const Tensor& a, const Tensor& b);
TENSOR_API Tensor greater_equal(const Tensor& a, const Tensor& b);
TENSOR_API Tensor logical_and(const Tensor& a, const Tensor& b);
TENSOR_API Tensor logical_or(const Tensor& a, const Tensor& b);
TENSOR_API Tensor logical_xor(const Tensor& a, const Tensor& b);
/// Integers and bool alone. Shifted by a negative number or by all its bits, nothing is left of an
/// integer (of a negative one to the right, -1).
TENSOR_API Tensor bitwise_and(const Tensor& a, const Tensor& b);
TENSOR_API Tensor bitwise_or(const Tensor& a, const Tensor& b);
TENSOR_API Tensor bitwise_xor(const Tensor& a, const Tensor& b);
TENSOR_API Tensor left_shift(const Tensor& a, const Tensor& b);
TENSOR_API Tensor right_shift(const Tensor& a, const Tensor& b);

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

/// How many elements are not 0, i64.
TENSOR_API Tensor count_nonzero(const Tensor& x, const Axes& axis = {}, bool keepdims = false);
/// log(sum(exp(x))) without overflow.
TENSOR_API Tensor logsumexp(const Tensor& x, const Axes& axis = {}, bool keepdims = false);
/// The norm of order `ord` of vectors: sum(|x|^ord)^(1/ord); the largest (least) |x| for infinity
/// (its negative), how many are not 0 for 0.
TENSOR_API Tensor vector_norm(const Tensor& x, double ord = 2, const Axes& axis = {},
                              bool keepdims = false);
/// NaN where there is one. Integers and bool give f64.
TENSOR_API Tensor median(const Tensor& x, const Axes& axis = {}, bool keepdims = false);
/// Interpolated between the two nearest elements. q of any shape, whose axes come first in the
/// result; NaN where x has one. UserError on a q outside [0, 1] and where there are no elements.
TENSOR_API Tensor quantile(const Tensor& x, const Tensor& q, const Axes& axis = {},
                           bool keepdims = false);

// ---- Scans and sorting (stable; NaN sorts last, as in NumPy). All but topk keep the shape of x.
/// Integers and bool give i64, which wraps around.
TENSOR_API Tensor cumsum(const Tensor& x, int axis);
TENSOR_API Tensor cumprod(const Tensor& x, int axis);
/// What each element has more than the one before it, n times over; of bool, whether they differ.
TENSOR_API Tensor diff(const Tensor& x, std::int64_t n = 1, int axis = -1);
/// Ascending; sort gives x's type, argsort i64.
TENSOR_API Tensor sort(const Tensor& x, int axis = -1);
TENSOR_API Tensor argsort(const Tensor& x, int axis = -1);
/// The k largest along the axis, in descending order, or the smallest in ascending order: {values,
/// indices (i64)}, whose extent there is k. NaN counts as the largest (PyTorch's rule). UserError
/// unless 0 <= k <= the axis's extent.
TENSOR_API std::pair<Tensor, Tensor> topk(const Tensor& x, std::int64_t k, int axis = -1,
                                          bool largest = true);
/// Where the elements of v belong in the ascending a (1-d), i64: before equal ones, or behind them
/// (`right`).
TENSOR_API Tensor searchsorted(const Tensor& a, const Tensor& v, bool right = false);
/// {how many elements lie in each of `bins` equal parts of the range, the bounds of the parts}; the
/// last part has both its bounds. Without a range, from the least to the largest element.
TENSOR_API std::pair<Tensor, Tensor> histogram(
    const Tensor& x, std::int64_t bins = 10,
    const std::optional<std::pair<double, double>>& range = {});

// ---- How many results these have depends on the elements: UserError where x is traced.
/// The positions of the elements that are not 0, one i64 tensor an axis.
TENSOR_API std::vector<Tensor> nonzero(const Tensor& x);
/// The different elements, sorted; all NaN are one.
TENSOR_API Tensor unique(const Tensor& x);
/// Also the position of the first of each in the flattened x, x as positions in the values, and how
/// often each occurs; all i64.
struct Unique {
  Tensor values, indices, inverse_indices, counts;
};
TENSOR_API Unique unique_all(const Tensor& x);

// ---- Products.
/// NumPy's matmul: [..., m, k] by [..., k, n] gives [..., m, n]; batch axes broadcast; a 1-d
/// operand is a row on the left and a column on the right. UserError on 0-d.
TENSOR_API Tensor matmul(const Tensor& a, const Tensor& b);
/// numpy.dot: matmul up to 2-d, multiply with a 0-d tensor; else a's last axis by b's second to
/// last, every pair of the others.
TENSOR_API Tensor dot(const Tensor& a, const Tensor& b);
/// numpy.einsum, with repeated subscripts and an implicit or explicit output. Labels are letters,
/// "..." all axes beside them: "...ij,...jk->...ik".
TENSOR_API Tensor einsum(std::string_view equation, const std::vector<Tensor>& operands);

/// Every element of a by every one of b: [a.size(), b.size()].
TENSOR_API Tensor outer(const Tensor& a, const Tensor& b);
/// The sum of products over the last `axes` axes of a and the first of b, or over the given ones.
TENSOR_API Tensor tensordot(const Tensor& a, const Tensor& b, int axes = 2);
TENSOR_API Tensor tensordot(const Tensor& a, const Tensor& b, const Dims& axes_of_a,
                            const Dims& axes_of_b);
/// Of vectors of 3 elements along the axis.
TENSOR_API Tensor cross(const Tensor& a, const Tensor& b, int axis = -1);

// ---- Shapes. These are views wherever the strides allow it.
/// One extent may be -1. A view if the layout allows it, otherwise a copy.
TENSOR_API Tensor reshape(const Tensor& x, const Shape& shape);
TENSOR_API Tensor transpose(const Tensor& x);  ///< axes reversed
/// Axis i of the result is axes[i] of x; each axis once.
TENSOR_API Tensor transpose(const Tensor& x, const Dims& axes);
/// The axes `source` at the places `destination`; the others stay in order.
TENSOR_API Tensor moveaxis(const Tensor& x, const Dims& source, const Dims& destination);
TENSOR_API Tensor moveaxis(const Tensor& x, int source, int destination);
TENSOR_API Tensor ravel(const Tensor& x);  ///< reshape(x, {-1})
/// The diagonal `offset` of the matrices of two axes, as the last axis of the result.
TENSOR_API Tensor diagonal(const Tensor& x, std::int64_t offset = 0, int axis1 = 0, int axis2 = 1);
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
/// What `pad` puts around x: copies of its outermost elements, or x mirrored at these, or mirrored
/// so that they come twice, or x again and again.
enum class PadMode { edge, reflect, symmetric, wrap };
/// UserError where an axis to be widened is empty.
TENSOR_API Tensor pad(const Tensor& x,
                      const std::vector<std::pair<std::int64_t, std::int64_t>>& pad_width,
                      PadMode mode);
/// x beside itself reps[i] times along every axis; axes that x or reps lack count as 1.
TENSOR_API Tensor tile(const Tensor& x, const Dims& reps);
/// Every element `repeats` times along the axis.
TENSOR_API Tensor repeat(const Tensor& x, std::int64_t repeats, int axis);
/// The elements moved on by so many places, those at the end to the beginning: of the flattened x,
/// or along axes.
TENSOR_API Tensor roll(const Tensor& x, std::int64_t shift);
TENSOR_API Tensor roll(const Tensor& x, std::int64_t shift, int axis);
TENSOR_API Tensor roll(const Tensor& x, const Dims& shift, const Dims& axis);
/// The vectors broadcast against each other, each along an axis of its own: the first along axis 1
/// and the second along axis 0 ("xy"), or each along its number ("ij").
TENSOR_API std::vector<Tensor> meshgrid(const std::vector<Tensor>& x,
                                        std::string_view indexing = "xy");
/// A vector gives the matrix with it on the diagonal k and zeros elsewhere; a matrix gives a copy
/// of that diagonal.
TENSOR_API Tensor diag(const Tensor& x, std::int64_t k = 0);
/// The sum of that diagonal.
TENSOR_API Tensor trace(const Tensor& x, std::int64_t offset = 0, int axis1 = 0, int axis2 = 1);
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
/// A copy of x with values[..., i, ...] at [..., indices[..., i, ...], ...], of several for one
/// place the last one. indices and values are broadcast to x but for `axis`. Errors as in take.
TENSOR_API Tensor put_along_axis(const Tensor& x, const Tensor& indices, const Tensor& values,
                                 int axis);
/// x[i, j, ...] for every index (i, j, ...) of up to x.rank() numbers in the last axis of the
/// indices. The first `batch_dims` axes of both are the same. Errors as in take.
TENSOR_API Tensor gather_nd(const Tensor& x, const Tensor& indices, int batch_dims = 0);
/// A copy of x with updates at such indices; of several for one place the last one.
TENSOR_API Tensor scatter_nd(const Tensor& x, const Tensor& indices, const Tensor& updates);

// ---- By name.
/// Calls an operator by its name above with named attributes, as a file of test cases or another
/// language would. Attributes are NumPy's and PyTorch's. Throws UserError on an unknown name (with
/// the closest one) or attribute.
TENSOR_API std::vector<Tensor> call(std::string_view name, const std::vector<Tensor>& inputs,
                                    const Attrs& attrs = {});
/// Every name that `call` takes, sorted.
TENSOR_API std::vector<std::string_view> operator_names();

}  // namespace tensor
