// Elementwise operators. Adding one: its function in ops.h, its enumerator in opcode.h, and here
// its row and its function. All kernels follow from the row.
#include <cmath>
#include <vector>

#include "src/core/storage.h"
#include "src/ops/op.h"
#include "src/ops/pointwise_kernels.h"
#include "src/ops/promote.h"
#include "src/ops/scalar.h"
#include "tensor/creation.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

using namespace scalar;
using namespace pointwise;

// ---- Type rules.

TensorType infer_unary(std::span<const TensorType> in, const Attrs&) { return in[0]; }
TensorType infer_unary_bool(std::span<const TensorType> in, const Attrs&) {
  return {in[0].shape, boolean};
}
TensorType infer_astype(std::span<const TensorType> in, const Attrs& attrs) {
  return {in[0].shape, attrs.dtype("dtype")};
}

TensorType infer_binary(std::span<const TensorType> in, const Attrs&) {
  return {broadcast_shapes(in[0].shape, in[1].shape, "broadcast"), in[0].dtype};
}
TensorType infer_binary_bool(std::span<const TensorType> in, const Attrs& attrs) {
  return {infer_binary(in, attrs).shape, boolean};
}
TensorType infer_where(std::span<const TensorType> in, const Attrs&) {
  if (in[0].dtype != boolean)
    fail("where", "got a condition of ", in[0].dtype, ", need bool: compare it with something");
  if (in[1].dtype != in[2].dtype)
    fail("where", "got ", in[1], " and ", in[2], ", need equal types");
  const Shape choices = broadcast_shapes(in[1].shape, in[2].shape, "broadcast");
  return {broadcast_shapes(in[0].shape, choices, "where"), in[1].dtype};
}

// ---- Operators that are composed of others.

template <auto f>
inline constexpr bool kIsUnary = std::is_invocable_v<decltype(f), const Tensor&>;

template <auto f>
Tensor call_formula(std::span<const Tensor> x) {
  if constexpr (kIsUnary<f>)
    return f(x[0]);
  else
    return f(x[0], x[1]);
}

// Like all kernels, this rounds to 16 bits only the result.
template <auto f>
void eval_formula(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  std::vector<Tensor> operands;
  for (const ConstView& x : in) {
    operands.push_back(empty(x.shape, x.dtype == f64 ? f64 : f32));
    eval_cast(std::span(&x, 1), attrs, mutable_view(operands.back()));
  }
  const Tensor result = call_formula<f>(operands);
  const ConstView view = const_view(result);
  eval_cast(std::span(&view, 1), attrs, out);
}

// ---- The table.

struct Cost {
  int instructions = 2;  // on a GPU
  int series = 0;        // on a CPU
};

// `device`: the operator's function on a GPU where it has not the operator's name.
constexpr OpInfo row(Op op, std::string_view name, int inputs, decltype(OpInfo::infer) infer,
                     decltype(OpInfo::eval) eval, Promotion promotion, std::string_view device = {},
                     Cost cost = {}) {
  OpInfo info{op, name, inputs, inputs, Pattern::elementwise, infer, eval, nullptr, promotion, {}};
  info.elementwise.device = device.empty() ? name : device;
  info.elementwise.instructions = cost.instructions;
  info.elementwise.series = cost.series;
  return info;
}
constexpr OpInfo with(OpInfo info, FloatLoop floats) {
  info.elementwise.floats = floats;
  return info;
}
constexpr OpInfo exact(OpInfo info) {
  info.elementwise.is_exact = true;
  return info;
}
constexpr OpInfo exact_on_integers(OpInfo info) {
  info.elementwise.on_integers = true;
  return exact(info);
}

// Without a cost it is that of a library's function, which a CPU calls for each lane.
template <auto f>
constexpr OpInfo floating(Op op, std::string_view name, Cost cost = {20, 10},
                          std::string_view device = {}) {
  return with(row(op, name, 1, infer_unary, eval_unary<Domain::floating, false, f>,
                  Promotion::floating, device, cost),
              float_loop<f, 1>);
}
template <auto f>
constexpr OpInfo composed(Op op, std::string_view name) {
  OpInfo info = kIsUnary<f> ? row(op, name, 1, infer_unary, eval_formula<f>, Promotion::floating)
                            : row(op, name, 2, infer_binary, eval_formula<f>, Promotion::floating);
  info.elementwise = {.formula = call_formula<f>};
  return info;
}
template <auto f>
constexpr OpInfo rounding(Op op, std::string_view name, std::string_view device) {
  return exact(with(row(op, name, 1, infer_unary, eval_unary<Domain::floating, false, f>,
                        Promotion::whole, device),
                    float_loop<f, 1>));
}
template <auto f, Domain domain = Domain::number>
constexpr OpInfo unary(Op op, std::string_view name, Promotion promotion = Promotion::numbers,
                       std::string_view device = {}) {
  return with(row(op, name, 1, infer_unary, eval_unary<domain, false, f>, promotion, device),
              float_loop<f, 1>);
}
template <auto f>
constexpr OpInfo predicate(Op op, std::string_view name, std::string_view device = {}) {
  return exact_on_integers(with(
      row(op, name, 1, infer_unary_bool, eval_unary<Domain::any, true, f>, Promotion::same, device),
      float_loop<f, 1>));
}
template <auto f, Domain domain = Domain::any>
constexpr OpInfo binary(Op op, std::string_view name, Promotion promotion = Promotion::common,
                        std::string_view device = {}, Cost cost = {}) {
  return with(
      row(op, name, 2, infer_binary, eval_binary<domain, false, f>, promotion, device, cost),
      float_loop<f, 2>);
}
template <auto f>
constexpr OpInfo compare(Op op, std::string_view name,
                         Promotion promotion = Promotion::comparison) {
  return exact_on_integers(
      with(row(op, name, 2, infer_binary_bool, eval_binary<Domain::any, true, f>, promotion),
           float_loop<f, 2>));
}

// An operator of bits; those that 32 bits compute right for narrower types have a loop of floats.
template <auto f>
constexpr OpInfo of_bits(Op op, std::string_view name, std::string_view device = {},
                         Promotion promotion = Promotion::bits) {
  return exact_on_integers(
      with(row(op, name, 2, infer_binary, eval_binary<Domain::whole, false, f>, promotion, device),
           whole_loop<f>));
}

constexpr auto kAdd = [](auto a, auto b) { return a + b; };
constexpr auto kSubtract = [](auto a, auto b) { return a - b; };
constexpr auto kMultiply = [](auto a, auto b) { return a * b; };

// PyTorch's constants (Klambauer et al., "Self-Normalizing Neural Networks", 2017).
constexpr double kSeluAlpha = 1.6732632423543772848170429916717;
constexpr double kSeluScale = 1.0507009873554804934193349852946;

constexpr OpInfo kPointwiseRows[] = {
    exact(unary<[](auto x) { return negated(x); }>(Op::negative, "negative")),
    exact(unary<[](auto x) { return magnitude(x); }, Domain::any>(Op::abs, "abs", Promotion::same,
                                                                  "absolute")),
    exact(unary<[](auto x) { return sign_of(x); }>(Op::sign, "sign")),
    unary<[](auto x) { return wrap(x, x, kMultiply); }>(Op::square, "square", Promotion::small),
    floating<[](auto x) { return std::sqrt(x); }>(Op::sqrt, "sqrt", {10, 0}, "square_root"),
    floating<[](auto x) { return 1 / std::sqrt(x); }>(Op::rsqrt, "rsqrt", {10, 0},
                                                      "reciprocal_square_root"),
    floating<[](auto x) { return 1 / x; }>(Op::reciprocal, "reciprocal", {10, 0}),
    floating<[](auto x) { return std::exp(x); }>(Op::exp, "exp", {10, 1}, "exponential"),
    floating<[](auto x) { return std::exp2(x); }>(Op::exp2, "exp2"),
    floating<[](auto x) { return std::expm1(x); }>(Op::expm1, "expm1", {20, 10},
                                                   "exponential_less_1"),
    floating<[](auto x) { return std::log(x); }>(Op::log, "log", {10, 1}, "logarithm"),
    floating<[](auto x) { return std::log2(x); }>(Op::log2, "log2"),
    floating<[](auto x) { return std::log10(x); }>(Op::log10, "log10"),
    floating<[](auto x) { return std::log1p(x); }>(Op::log1p, "log1p", {20, 10},
                                                   "logarithm_of_1_plus"),
    floating<[](auto x) { return std::sin(x); }>(Op::sin, "sin", {60, 1}, "sine"),
    floating<[](auto x) { return std::cos(x); }>(Op::cos, "cos", {60, 1}, "cosine"),
    floating<[](auto x) { return std::tan(x); }>(Op::tan, "tan", {60, 10}),
    floating<[](auto x) { return std::asin(x); }>(Op::arcsin, "arcsin", {20, 10}, "asin"),
    floating<[](auto x) { return std::acos(x); }>(Op::arccos, "arccos", {20, 10}, "acos"),
    floating<[](auto x) { return std::atan(x); }>(Op::arctan, "arctan", {20, 10}, "atan"),
    floating<[](auto x) { return std::sinh(x); }>(Op::sinh, "sinh"),
    floating<[](auto x) { return std::cosh(x); }>(Op::cosh, "cosh"),
    floating<[](auto x) { return std::tanh(x); }>(Op::tanh, "tanh", {20, 1}, "hyperbolic_tangent"),
    floating<[](auto x) { return std::asinh(x); }>(Op::arcsinh, "arcsinh", {30, 10}, "asinh"),
    floating<[](auto x) { return std::acosh(x); }>(Op::arccosh, "arccosh", {30, 10}, "acosh"),
    floating<[](auto x) { return std::atanh(x); }>(Op::arctanh, "arctanh", {30, 10}, "atanh"),
    floating<[](auto x) { return std::erf(x); }>(Op::erf, "erf", {20, 1}, "error_function"),
    floating<[](auto x) { return logistic(x); }>(Op::sigmoid, "sigmoid", {10, 1}),
    exact(unary<[](auto x) { return greater_or_nan(x, decltype(x)(0)); }>(Op::relu, "relu")),
    floating<[](auto x) { return gelu_by_erf(x); }>(Op::gelu, "gelu", {20, 1}),
    floating<[](auto x) { return gelu_by_tanh(x); }>(Op::gelu_tanh, "gelu_tanh", {20, 1}),
    floating<[](auto x) { return x * logistic(x); }>(Op::silu, "silu", {10, 1}),
    floating<[](auto x) { return x * relu6(x + 3) / 6; }>(Op::hardswish, "hardswish", {2, 0}),
    composed<[](const Tensor& x) { return maximum(x, 0) + log1p(exp(-abs(x))); }>(Op::softplus,
                                                                                  "softplus"),
    composed<[](const Tensor& x) { return x * tanh(softplus(x)); }>(Op::mish, "mish"),
    composed<[](const Tensor& x) { return kSeluScale * where(x > 0, x, kSeluAlpha * expm1(x)); }>(
        Op::selu, "selu"),
    composed<[](const Tensor& x) { return minimum(maximum(x + 3, 0), 6) / 6; }>(Op::hardsigmoid,
                                                                                "hardsigmoid"),
    rounding<[](auto x) { return std::floor(x); }>(Op::floor, "floor", "round_down"),
    rounding<[](auto x) { return std::ceil(x); }>(Op::ceil, "ceil", "round_up"),
    rounding<[](auto x) { return std::nearbyint(x); }>(Op::round, "round", "round_to_even"),
    rounding<[](auto x) { return std::trunc(x); }>(Op::trunc, "trunc", "trunc"),
    predicate<[](auto x) { return x != x; }>(Op::isnan, "isnan", "is_nan"),
    predicate<[](auto x) { return std::isfinite(static_cast<double>(x)); }>(
        Op::isfinite, "isfinite", "is_finite"),
    predicate<[](auto x) { return std::isinf(static_cast<double>(x)); }>(Op::isinf, "isinf",
                                                                         "is_infinite"),
    predicate<[](auto x) { return !x; }>(Op::logical_not, "logical_not"),
    row(Op::invert, "invert", 1, infer_unary,
        eval_unary<Domain::whole, false, [](auto x) { return inverted(x); }>, Promotion::bits),
    exact_on_integers(
        row(Op::astype, "astype", 1, infer_astype, eval_cast, Promotion::none, "convert")),
    exact_on_integers(row(Op::copy, "copy", 1, infer_unary, eval_cast, Promotion::same, "convert")),

    binary<[](auto a, auto b) { return wrap(a, b, kAdd); }>(Op::add, "add", Promotion::common,
                                                            "plus"),
    binary<[](auto a, auto b) { return wrap(a, b, kSubtract); }, Domain::number>(
        Op::subtract, "subtract", Promotion::arithmetic, "minus"),
    binary<[](auto a, auto b) { return wrap(a, b, kMultiply); }>(Op::multiply, "multiply",
                                                                 Promotion::common, "times"),
    binary<[](auto a, auto b) { return a / b; }, Domain::floating>(
        Op::divide, "divide", Promotion::quotient, "divided", {10, 0}),
    binary<[](auto a, auto b) { return floor_div(a, b); }, Domain::number>(
        Op::floor_divide, "floor_divide", Promotion::counting, "", {60, 10}),
    binary<[](auto a, auto b) { return modulo(a, b); }, Domain::number>(
        Op::remainder, "remainder", Promotion::counting, "remainder_of", {60, 10}),
    binary<[](auto a, auto b) { return truncated_rest(a, b); }>(
        Op::fmod, "fmod", Promotion::counting, "truncated_rest_of", {60, 10}),
    binary<[](auto a, auto b) { return raised(a, b); }, Domain::number>(
        Op::power, "power", Promotion::counting, "raised", {60, 10}),
    binary<[](auto a, auto b) { return std::atan2(a, b); }, Domain::floating>(
        Op::arctan2, "arctan2", Promotion::floating, "atan2", {40, 10}),
    binary<[](auto a, auto b) { return std::hypot(a, b); }, Domain::floating>(
        Op::hypot, "hypot", Promotion::floating, "hypot", {30, 10}),
    composed<[](const Tensor& x, const Tensor& slope) { return where(x > 0, x, slope * x); }>(
        Op::leaky_relu, "leaky_relu"),
    composed<[](const Tensor& x, const Tensor& alpha) {
      return where(x > 0, x, alpha * expm1(x));
    }>(Op::elu, "elu"),
    exact_on_integers(
        binary<[](auto a, auto b) { return greater_or_nan(a, b); }>(Op::maximum, "maximum")),
    exact_on_integers(
        binary<[](auto a, auto b) { return less_or_nan(a, b); }>(Op::minimum, "minimum")),
    compare<[](auto a, auto b) { return a == b; }>(Op::equal, "equal"),
    compare<[](auto a, auto b) { return a != b; }>(Op::not_equal, "not_equal"),
    compare<[](auto a, auto b) { return a < b; }>(Op::less, "less"),
    compare<[](auto a, auto b) { return a <= b; }>(Op::less_equal, "less_equal"),
    compare<[](auto a, auto b) { return (a > b); }>(Op::greater, "greater"),
    compare<[](auto a, auto b) { return a >= b; }>(Op::greater_equal, "greater_equal"),
    compare<[](auto a, auto b) { return a && b; }>(Op::logical_and, "logical_and",
                                                   Promotion::logical),
    compare<[](auto a, auto b) { return a || b; }>(Op::logical_or, "logical_or",
                                                   Promotion::logical),
    compare<[](auto a, auto b) { return bool(a) != bool(b); }>(Op::logical_xor, "logical_xor",
                                                               Promotion::logical),
    of_bits<[](auto a, auto b) { return a & b; }>(Op::bitwise_and, "bitwise_and"),
    of_bits<[](auto a, auto b) { return a | b; }>(Op::bitwise_or, "bitwise_or"),
    of_bits<[](auto a, auto b) { return a ^ b; }>(Op::bitwise_xor, "bitwise_xor"),
    row(Op::left_shift, "left_shift", 2, infer_binary,
        eval_binary<Domain::whole, false, [](auto a, auto b) { return shifted_left(a, b); }>,
        Promotion::shifts),
    of_bits<[](auto a, auto b) { return shifted_right(a, b); }>(Op::right_shift, "right_shift", {},
                                                                Promotion::shifts),
    exact_on_integers(
        row(Op::where, "where", 3, infer_where, eval_where, Promotion::none, "choose")),
};

// The type that an operator's inputs are brought to; nullopt when the result is as the input.
std::optional<DType> working_type(const OpInfo& row, std::span<const Tensor> inputs) {
  const DType dtype = row.promotion == Promotion::comparison ? comparison_type(inputs)
                                                             : result_type(inputs, row.name);
  const bool flags = dtype == boolean;
  switch (row.promotion) {
    case Promotion::numbers:
      if (flags)
        fail(row.name, "is not defined on bool: convert it with astype, or use a logical operator");
      return dtype;
    case Promotion::arithmetic:
      if (flags)
        fail(row.name,
             "is not defined on two bool tensors: use logical_xor, or convert them with astype");
      return dtype;
    case Promotion::whole:
      return is_floating(dtype) ? std::optional(dtype) : std::nullopt;
    case Promotion::small:
    case Promotion::counting:
      return flags ? i8 : dtype;
    case Promotion::bits:
    case Promotion::shifts:
      if (is_floating(dtype))
        fail(row.name, "is not defined on ", dtype, ": it has no bits that count, use astype(i64)");
      return flags && row.promotion == Promotion::shifts ? i8 : dtype;
    case Promotion::floating:
      // Each tensor becomes floating by itself: u8 and i8, whose common type is i16, are f16 both.
      if (inputs.size() == 2 && !inputs[0].is_weak() && !inputs[1].is_weak())
        return promote(floating_type(inputs[0].dtype()), floating_type(inputs[1].dtype()));
      return floating_type(dtype);
    case Promotion::quotient:
      return is_floating(dtype) ? dtype : f64;
    case Promotion::logical:
      return boolean;
    default:
      return dtype;
  }
}

}  // namespace

std::span<const OpInfo> pointwise_ops() { return kPointwiseRows; }

Tensor elementwise(Op op, std::span<const Tensor> inputs) {
  const OpInfo& row = info(op);
  const auto dtype = working_type(row, inputs);
  if (!dtype) return apart(inputs[0], inputs[0]);
  std::vector<Tensor> promoted;
  for (const Tensor& x : inputs) promoted.push_back(cast(x, *dtype));
  return apply_op(op, promoted);
}

Tensor negative(const Tensor& x) { return elementwise(Op::negative, {x}); }
Tensor abs(const Tensor& x) { return elementwise(Op::abs, {x}); }
Tensor sign(const Tensor& x) { return elementwise(Op::sign, {x}); }
Tensor square(const Tensor& x) { return elementwise(Op::square, {x}); }
Tensor sqrt(const Tensor& x) { return elementwise(Op::sqrt, {x}); }
Tensor rsqrt(const Tensor& x) { return elementwise(Op::rsqrt, {x}); }
Tensor reciprocal(const Tensor& x) { return elementwise(Op::reciprocal, {x}); }
Tensor exp(const Tensor& x) { return elementwise(Op::exp, {x}); }
Tensor exp2(const Tensor& x) { return elementwise(Op::exp2, {x}); }
Tensor expm1(const Tensor& x) { return elementwise(Op::expm1, {x}); }
Tensor log(const Tensor& x) { return elementwise(Op::log, {x}); }
Tensor log2(const Tensor& x) { return elementwise(Op::log2, {x}); }
Tensor log10(const Tensor& x) { return elementwise(Op::log10, {x}); }
Tensor log1p(const Tensor& x) { return elementwise(Op::log1p, {x}); }
Tensor sin(const Tensor& x) { return elementwise(Op::sin, {x}); }
Tensor cos(const Tensor& x) { return elementwise(Op::cos, {x}); }
Tensor tan(const Tensor& x) { return elementwise(Op::tan, {x}); }
Tensor arcsin(const Tensor& x) { return elementwise(Op::arcsin, {x}); }
Tensor arccos(const Tensor& x) { return elementwise(Op::arccos, {x}); }
Tensor arctan(const Tensor& x) { return elementwise(Op::arctan, {x}); }
Tensor sinh(const Tensor& x) { return elementwise(Op::sinh, {x}); }
Tensor cosh(const Tensor& x) { return elementwise(Op::cosh, {x}); }
Tensor tanh(const Tensor& x) { return elementwise(Op::tanh, {x}); }
Tensor arcsinh(const Tensor& x) { return elementwise(Op::arcsinh, {x}); }
Tensor arccosh(const Tensor& x) { return elementwise(Op::arccosh, {x}); }
Tensor arctanh(const Tensor& x) { return elementwise(Op::arctanh, {x}); }
Tensor erf(const Tensor& x) { return elementwise(Op::erf, {x}); }
Tensor sigmoid(const Tensor& x) { return elementwise(Op::sigmoid, {x}); }
Tensor relu(const Tensor& x) { return elementwise(Op::relu, {x}); }
Tensor gelu(const Tensor& x) { return elementwise(Op::gelu, {x}); }
Tensor gelu_tanh(const Tensor& x) { return elementwise(Op::gelu_tanh, {x}); }
Tensor silu(const Tensor& x) { return elementwise(Op::silu, {x}); }
Tensor hardswish(const Tensor& x) { return elementwise(Op::hardswish, {x}); }
Tensor softplus(const Tensor& x) { return elementwise(Op::softplus, {x}); }
Tensor mish(const Tensor& x) { return elementwise(Op::mish, {x}); }
Tensor selu(const Tensor& x) { return elementwise(Op::selu, {x}); }
Tensor hardsigmoid(const Tensor& x) { return elementwise(Op::hardsigmoid, {x}); }
Tensor floor(const Tensor& x) { return elementwise(Op::floor, {x}); }
Tensor ceil(const Tensor& x) { return elementwise(Op::ceil, {x}); }
Tensor round(const Tensor& x) { return elementwise(Op::round, {x}); }
Tensor trunc(const Tensor& x) { return elementwise(Op::trunc, {x}); }
Tensor isnan(const Tensor& x) { return elementwise(Op::isnan, {x}); }
Tensor isinf(const Tensor& x) { return elementwise(Op::isinf, {x}); }
Tensor isfinite(const Tensor& x) { return elementwise(Op::isfinite, {x}); }
Tensor logical_not(const Tensor& x) { return elementwise(Op::logical_not, {x}); }
Tensor invert(const Tensor& x) { return elementwise(Op::invert, {x}); }
Tensor copy(const Tensor& x) { return elementwise(Op::copy, {x}); }

Tensor add(const Tensor& a, const Tensor& b) { return elementwise(Op::add, {a, b}); }
Tensor subtract(const Tensor& a, const Tensor& b) { return elementwise(Op::subtract, {a, b}); }
Tensor multiply(const Tensor& a, const Tensor& b) { return elementwise(Op::multiply, {a, b}); }
Tensor divide(const Tensor& a, const Tensor& b) { return elementwise(Op::divide, {a, b}); }
Tensor floor_divide(const Tensor& a, const Tensor& b) {
  return elementwise(Op::floor_divide, {a, b});
}
Tensor remainder(const Tensor& a, const Tensor& b) { return elementwise(Op::remainder, {a, b}); }
Tensor fmod(const Tensor& a, const Tensor& b) { return elementwise(Op::fmod, {a, b}); }
Tensor power(const Tensor& a, const Tensor& b) { return elementwise(Op::power, {a, b}); }
Tensor arctan2(const Tensor& a, const Tensor& b) { return elementwise(Op::arctan2, {a, b}); }
Tensor hypot(const Tensor& a, const Tensor& b) { return elementwise(Op::hypot, {a, b}); }
Tensor maximum(const Tensor& a, const Tensor& b) { return elementwise(Op::maximum, {a, b}); }
Tensor minimum(const Tensor& a, const Tensor& b) { return elementwise(Op::minimum, {a, b}); }
Tensor equal(const Tensor& a, const Tensor& b) { return elementwise(Op::equal, {a, b}); }
Tensor not_equal(const Tensor& a, const Tensor& b) { return elementwise(Op::not_equal, {a, b}); }
Tensor less(const Tensor& a, const Tensor& b) { return elementwise(Op::less, {a, b}); }
Tensor less_equal(const Tensor& a, const Tensor& b) { return elementwise(Op::less_equal, {a, b}); }
Tensor greater(const Tensor& a, const Tensor& b) { return elementwise(Op::greater, {a, b}); }
Tensor greater_equal(const Tensor& a, const Tensor& b) {
  return elementwise(Op::greater_equal, {a, b});
}
Tensor logical_and(const Tensor& a, const Tensor& b) {
  return elementwise(Op::logical_and, {a, b});
}
Tensor logical_or(const Tensor& a, const Tensor& b) { return elementwise(Op::logical_or, {a, b}); }
Tensor logical_xor(const Tensor& a, const Tensor& b) {
  return elementwise(Op::logical_xor, {a, b});
}

Tensor bitwise_and(const Tensor& a, const Tensor& b) {
  return elementwise(Op::bitwise_and, {a, b});
}
Tensor bitwise_or(const Tensor& a, const Tensor& b) { return elementwise(Op::bitwise_or, {a, b}); }
Tensor bitwise_xor(const Tensor& a, const Tensor& b) {
  return elementwise(Op::bitwise_xor, {a, b});
}
Tensor left_shift(const Tensor& a, const Tensor& b) { return elementwise(Op::left_shift, {a, b}); }
Tensor right_shift(const Tensor& a, const Tensor& b) {
  return elementwise(Op::right_shift, {a, b});
}

Tensor leaky_relu(const Tensor& x, double negative_slope) {
  return elementwise(Op::leaky_relu, {cast(x, floating_type(x.dtype())), negative_slope});
}
Tensor elu(const Tensor& x, double alpha) {
  return elementwise(Op::elu, {cast(x, floating_type(x.dtype())), alpha});
}

Tensor astype(const Tensor& x, DType dtype) { return apart(cast(x, dtype), x); }

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  const Tensor choices[] = {a, b};
  const DType dtype = result_type(choices, "where");
  return apply_op(Op::where, {cast(condition, boolean), cast(a, dtype), cast(b, dtype)});
}

Tensor clip(const Tensor& x, const Tensor& low, const Tensor& high) {
  // As in NumPy, an integer beyond the type's range bounds nothing; on the wrong side it throws.
  Tensor result = out_of_range(low, x.dtype()) < 0 ? x : maximum(x, low);
  if (out_of_range(high, x.dtype()) <= 0) result = minimum(result, high);
  return apart(result, x);
}

}  // namespace tensor
