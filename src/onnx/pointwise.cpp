// Operators of one element at a time, and those that leave elements as they are.
#include <cmath>
#include <limits>

#include "src/onnx/elements.h"
#include "src/onnx/operators.h"

namespace tensor::onnx {
namespace {

// ---- One input

template <Tensor (*F)(const Tensor&)>
Results unary(const Call& c) {
  return {F(c[0]).to(c[0].dtype())};
}
template <Tensor (*F)(const Tensor&)>
Results test(const Call& c) {
  return {F(c[0])};
}

Tensor softsign_of(const Tensor& x) { return x / (abs(x) + 1); }
Tensor mish_of(const Tensor& x) { return x * tanh(softplus(x)); }

Results leaky_relu(const Call& c) { return {tensor::leaky_relu(c[0], c.number("alpha", 0.01F))}; }
Results elu(const Call& c) { return {where(c[0] < 0, expm1(c[0]) * c.number("alpha", 1), c[0])}; }
Results swish(const Call& c) {
  const double alpha = c.number("alpha", 1);
  return {alpha == 1 ? silu(c[0]) : c[0] * sigmoid(c[0] * alpha)};
}

Results celu(const Call& c) {
  const double alpha = c.number("alpha", 1);
  return {where(c[0] < 0, expm1(c[0] / alpha) * alpha, c[0])};
}
Results selu(const Call& c) {
  const double alpha = c.number("alpha", 1.67326319217681884765625);
  const double gamma = c.number("gamma", 1.05070102214813232421875);
  return {where(c[0] <= 0, expm1(c[0]) * alpha, c[0]) * gamma};
}
Results thresholded_relu(const Call& c) { return {where(c[0] > c.number("alpha", 1), c[0], 0)}; }
Results hard_sigmoid(const Call& c) {
  return {clip(c[0] * c.number("alpha", 0.2F) + c.number("beta", 0.5), 0, 1)};
}
Results shrink(const Call& c) {
  const double lambda = c.number("lambd", 0.5), bias = c.number("bias", 0);
  const Tensor& x = c[0];
  return {where(x < -lambda, x + bias, where(x > lambda, x - bias, 0)).to(x.dtype())};
}
Results gelu_of(const Call& c) {
  return {c.text("approximate", "none") == "tanh" ? gelu_tanh(c[0]) : gelu(c[0])};
}
Results is_inf(const Call& c) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Tensor up = c[0] == kInfinity, down = c[0] == -kInfinity;
  const bool counts_up = c.integer("detect_positive", 1) != 0;
  if (c.integer("detect_negative", 1) == 0) return {counts_up ? up : up & down};
  return {counts_up ? up | down : down};
}

Results identity(const Call& c) { return {c[0]}; }
Results dropout(const Call& c) {
  if (c.has(2) && c.host(2).item<bool>()) fail("training_mode", "is true, need false");
  return {c[0], c.gives(1) ? full(c[0].shape(), true) : Tensor()};
}

Results cast_to(const Call& c) { return {c[0].to(*dtype_of_onnx(c.attribute("to").integer))}; }
std::string refuse_cast(const Node& node) {
  const Attribute* to = node.find("to");
  if (to && dtype_of_onnx(to->integer)) return {};
  return to ? "to=" + type_name(to->integer) : "no type";
}
Results cast_like(const Call& c) { return {c[0].to(c[1].dtype())}; }

// ---- Two inputs

// The second input. Before opset 7 it is broadcast only where `broadcast` says so, from `axis` on.
Tensor second(const Call& c) {
  if (c.opset() >= 7 || !c.has("axis")) return c[1];
  const int axis = normalize_axis(c.integer("axis", 0), c[0].rank(), "axis");
  Shape shape = c[1].shape();
  while (axis + shape.rank() < c[0].rank()) shape.push_back(1);
  return c[1].reshape(shape);
}

template <Tensor (*F)(const Tensor&, const Tensor&)>
Results binary(const Call& c) {
  return {F(c[0], second(c))};
}

Results bit_shift(const Call& c) {
  return {c.text("direction", "LEFT") == "LEFT" ? left_shift(c[0], c[1]) : right_shift(c[0], c[1])};
}

// Integers are divided towards 0.
Results divide_of(const Call& c) {
  const Tensor a = c[0], b = second(c);
  if (is_floating(a.dtype())) return {a / b};
  if (a.dtype() == u8) return {floor_divide(a, b)};
  return {floor_divide(abs(a), abs(b)) * sign(a) * sign(b)};
}

// fmod: the sign is that of the dividend.
Results modulo(const Call& c) {
  const Tensor &a = c[0], &b = c[1];
  if (c.integer("fmod", 0) == 0 || a.dtype() == u8) return {remainder(a, b)};
  return {remainder(abs(a), abs(b)) * sign(a)};
}

Results power_of(const Call& c) {
  const Tensor a = c[0], b = second(c);
  if (is_floating(a.dtype())) {
    if (b.size() == 1 && b.rank() <= a.rank() && !is_traced(b)) {
      const double exponent = b.item();
      if (exponent == 2) return {square(a)};
      if (exponent == 0.5) return {sqrt(a)};
    }
    return {power(a, b.to(a.dtype()))};
  }
  if (is_floating(b.dtype())) return {power(a.to(f64), b.to(f64)).to(a.dtype())};
  return {power(a, b.to(a.dtype()))};
}

Results prelu(const Call& c) {
  Tensor slope = c[1];
  if (c.opset() < 7 && slope.rank() == 1 && slope.size() > 1)  // one a channel
    for (int axis = 2; axis < c[0].rank(); ++axis) slope = slope.expand_dims(-1);
  return {where(c[0] < 0, slope * c[0], c[0])};
}

// ---- Any number of inputs

template <Tensor (*F)(const Tensor&, const Tensor&)>
Results all_of(const Call& c) {
  Tensor result = c[0];
  for (int i = 1; i < c.count(); ++i) result = F(result, c[i]);
  return {result};
}
Results mean_of(const Call& c) {
  return {(all_of<add>(c)[0] / static_cast<double>(c.count())).to(c[0].dtype())};
}

// Bounds are inputs from opset 11 on, attributes before.
Results clip_of(const Call& c) {
  Tensor x = c[0];
  const auto bound = [&](int input, std::string_view name) {
    if (c.has(name)) return full({}, c.number(name, 0), x.dtype());
    return c.optional(input);
  };
  const Tensor low = bound(1, "min"), high = bound(2, "max");
  if (low.defined() && high.defined()) return {minimum(maximum(x, low), high)};
  if (low.defined()) x = maximum(x, low);
  return {high.defined() ? minimum(x, high) : x};
}

Results where_of(const Call& c) { return {where(c[0], c[1], c[2])}; }

constexpr std::string_view kOld = "broadcast:i axis:i consumed_inputs:I";

constexpr Operator kPointwiseRows[] = {
    {"Abs", 1, 1, 1, 1, kOld, unary<abs>},
    {"Neg", 1, 1, 1, 1, kOld, unary<negative>},
    {"Sign", 9, 1, 1, 1, "", unary<sign>},
    {"Sqrt", 1, 1, 1, 1, kOld, unary<sqrt>},
    {"Reciprocal", 1, 1, 1, 1, kOld, unary<reciprocal>},
    {"Exp", 1, 1, 1, 1, kOld, unary<exp>},
    {"Log", 1, 1, 1, 1, kOld, unary<log>},
    {"Sin", 7, 1, 1, 1, "", unary<sin>},
    {"Cos", 7, 1, 1, 1, "", unary<cos>},
    {"Tan", 7, 1, 1, 1, "", unary<tan>},
    {"Asin", 7, 1, 1, 1, "", unary<arcsin>},
    {"Acos", 7, 1, 1, 1, "", unary<arccos>},
    {"Atan", 7, 1, 1, 1, "", unary<arctan>},
    {"Sinh", 9, 1, 1, 1, "", unary<sinh>},
    {"Cosh", 9, 1, 1, 1, "", unary<cosh>},
    {"Tanh", 1, 1, 1, 1, kOld, unary<tanh>},
    {"Asinh", 9, 1, 1, 1, "", unary<arcsinh>},
    {"Acosh", 9, 1, 1, 1, "", unary<arccosh>},
    {"Atanh", 9, 1, 1, 1, "", unary<arctanh>},
    {"Erf", 9, 1, 1, 1, "", unary<erf>},
    {"Sigmoid", 1, 1, 1, 1, kOld, unary<sigmoid>},
    {"Relu", 1, 1, 1, 1, kOld, unary<relu>},
    {"Softplus", 1, 1, 1, 1, "", unary<softplus>},
    {"Softsign", 1, 1, 1, 1, "", unary<softsign_of>},
    {"HardSwish", 14, 1, 1, 1, "", unary<hardswish>},
    {"Mish", 18, 1, 1, 1, "", unary<mish_of>},
    {"Swish", 24, 1, 1, 1, "alpha:f", swish},
    {"Ceil", 1, 1, 1, 1, kOld, unary<ceil>},
    {"Floor", 1, 1, 1, 1, kOld, unary<floor>},
    {"Round", 11, 1, 1, 1, "", unary<round>},
    {"IsNaN", 9, 1, 1, 1, "", test<isnan>},
    {"IsInf", 10, 1, 1, 1, "detect_negative:i detect_positive:i", is_inf},
    {"Not", 1, 1, 1, 1, "", test<logical_not>},
    {"LeakyRelu", 1, 1, 1, 1, "alpha:f consumed_inputs:I", leaky_relu},
    {"Elu", 1, 1, 1, 1, "alpha:f consumed_inputs:I", elu},
    {"Celu", 12, 1, 1, 1, "alpha:f", celu},
    {"Selu", 6, 1, 1, 1, "alpha:f gamma:f", selu},
    {"Gelu", 20, 1, 1, 1, "approximate:s", gelu_of,
     [](const Node& n) {
       return refuse_unless(n, "approximate", {"none", "tanh"});
     }},
    {"ThresholdedRelu", 1, 1, 1, 1, "alpha:f", thresholded_relu},
    {"HardSigmoid", 1, 1, 1, 1, "alpha:f beta:f consumed_inputs:I", hard_sigmoid},
    {"Shrink", 9, 1, 1, 1, "lambd:f bias:f", shrink},
    {"Identity", 1, 1, 1, 1, "", identity},
    {"Dropout", 1, 1, 3, 2, "ratio:f seed:i is_test:i consumed_inputs:I", dropout},
    {"Cast", 6, 1, 1, 1, "to:i saturate:i", cast_to, refuse_cast},
    {"CastLike", 15, 2, 2, 1, "saturate:i", cast_like},
    {"Add", 1, 2, 2, 1, kOld, binary<add>},
    {"Sub", 1, 2, 2, 1, kOld, binary<subtract>},
    {"Mul", 1, 2, 2, 1, kOld, binary<multiply>},
    {"Div", 1, 2, 2, 1, kOld, divide_of},
    {"Mod", 10, 2, 2, 1, "fmod:i", modulo},
    {"Pow", 1, 2, 2, 1, kOld, power_of},
    {"PRelu", 1, 2, 2, 1, "consumed_inputs:I", prelu},
    {"Equal", 1, 2, 2, 1, kOld, binary<equal>},
    {"Less", 1, 2, 2, 1, kOld, binary<less>},
    {"LessOrEqual", 12, 2, 2, 1, "", binary<less_equal>},
    {"Greater", 1, 2, 2, 1, kOld, binary<greater>},
    {"GreaterOrEqual", 12, 2, 2, 1, "", binary<greater_equal>},
    {"And", 1, 2, 2, 1, kOld, binary<logical_and>},
    {"Or", 1, 2, 2, 1, kOld, binary<logical_or>},
    {"Xor", 1, 2, 2, 1, kOld, binary<logical_xor>},
    {"BitwiseAnd", 18, 2, 2, 1, "", binary<bitwise_and>},
    {"BitwiseOr", 18, 2, 2, 1, "", binary<bitwise_or>},
    {"BitwiseXor", 18, 2, 2, 1, "", binary<bitwise_xor>},
    {"BitwiseNot", 18, 1, 1, 1, "", test<invert>},
    {"BitShift", 11, 2, 2, 1, "direction:s", bit_shift,
     [](const Node& n) {
       return refuse_unless(n, "direction", {"LEFT", "RIGHT"});
     }},
    {"Min", 1, 1, Operator::kAny, 1, "consumed_inputs:I", all_of<minimum>},
    {"Max", 1, 1, Operator::kAny, 1, "consumed_inputs:I", all_of<maximum>},
    {"Sum", 1, 1, Operator::kAny, 1, "consumed_inputs:I", all_of<add>},
    {"Mean", 1, 1, Operator::kAny, 1, "consumed_inputs:I", mean_of},
    {"Clip", 1, 1, 3, 1, "min:f max:f consumed_inputs:I", clip_of},
    {"Where", 9, 3, 3, 1, "", where_of},
};

}  // namespace

std::span<const Operator> pointwise_operators() { return kPointwiseRows; }

}  // namespace tensor::onnx
