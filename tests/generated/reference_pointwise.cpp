// References of the elementwise operators. Sums, products, quotients and square roots of one
// rounding are exact (a result computed in float or double and rounded to a narrower type of at
// most half its digits is rounded correctly); the other functions are allowed the documented error
// of the C library (2 units in the last place) and what their formulas add to it. The 16-bit types,
// computed in float, stay within 1 unit.
#include <cmath>
#include <limits>
#include <numbers>

#include "tests/generated/reference.h"

namespace tensor::generated {
namespace {

constexpr Exact kNaN = std::numeric_limits<Exact>::quiet_NaN();

// The element types an operator works in and returns.
enum class Rule {
  same,       // the common type
  whole,      // floating types; integers are returned as they are
  small,      // the common type, bool counts as i8
  floating,   // integers become a floating type
  quotient,   // integers become f64
  predicate,  // works in the common type, returns bool
  logical,    // works on bool, returns bool
};

DType working_type(Rule rule, DType dtype) {
  if (rule == Rule::small) return dtype == boolean ? i8 : dtype;
  if (rule == Rule::logical) return boolean;
  if (is_floating(dtype)) return dtype;
  if (rule == Rule::quotient) return f64;
  if (rule == Rule::floating)
    return item_size(dtype) == 1 ? f16 : item_size(dtype) == 2 ? f32 : f64;
  return dtype;
}

using One = Exact (*)(Exact);
using Two = Exact (*)(Exact, Exact);
using WholeTwo = std::uint64_t (*)(std::int64_t, std::int64_t);

// `ulps` counts from the rounded result, as the C library's manual does: half a unit more from the
// exact one.
double allowed_ulps(DType dtype, int ulps) {
  if (!is_floating(dtype) || ulps == 0) return 0;
  return compute_type(dtype) == dtype ? ulps + 0.5 : 1;
}

// slack(x, u): the absolute error that a formula adds, u being one rounding of the type it is
// computed in.
Reference unary(Rule rule, One function, int ulps = 0, Exact (*slack)(Exact, Exact) = nullptr,
                bool signed_zero = true) {
  return [=](const Arrays& in, const Attrs&) -> Results {
    const DType dtype = working_type(rule, in[0].dtype);
    Expected result(in[0].shape,
                    rule == Rule::predicate || rule == Rule::logical ? boolean : dtype);
    for (std::size_t i = 0; i < result.size(); ++i) {
      const Exact x = round_to(dtype, in[0].values[i]);
      result.values[i] = rule == Rule::whole && !is_floating(dtype) ? x : function(x);
      if (slack && is_floating(dtype))
        result.slack.push_back(slack(x, unit_roundoff(compute_type(dtype))));
    }
    result.ulps = allowed_ulps(result.dtype, ulps);
    result.signed_zero = signed_zero && is_floating(result.dtype);
    return {result};
  };
}

Reference binary(Rule rule, Two function, int ulps = 0, WholeTwo whole = nullptr) {
  return [=](const Arrays& in, const Attrs&) -> Results {
    const DType dtype = working_type(rule, common_type(in));
    const Array a = as_type(in[0], dtype), b = as_type(in[1], dtype);
    Expected result(common_shape(in),
                    rule == Rule::predicate || rule == Rule::logical ? boolean : dtype);
    for (std::size_t i = 0; i < result.size(); ++i) {
      const Index index = unravel(i, result.shape);
      const Exact x = a.at(index), y = b.at(index);
      // Integers modulo 2^64, which long double cannot multiply exactly.
      const bool modular = whole && !is_floating(dtype);
      result.values[i] =
          modular ? Exact(whole(static_cast<std::int64_t>(x), static_cast<std::int64_t>(y)))
                  : function(x, y);
      if (modular) result.values[i] = round_to(result.dtype, result.values[i]);
    }
    result.ulps = allowed_ulps(result.dtype, ulps);
    return {result};
  };
}

std::uint64_t bits(std::int64_t value) { return static_cast<std::uint64_t>(value); }

std::uint64_t whole_power(std::int64_t base, std::int64_t exponent) {
  std::uint64_t result = 1;
  for (std::int64_t i = 0; i < exponent; ++i) result *= bits(base);
  return result;
}

std::uint64_t whole_floor_divide(std::int64_t a, std::int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return 0 - bits(a);
  const bool inexact = a % b != 0, opposite = (a < 0) != (b < 0);
  return bits(a / b) - (inexact && opposite ? 1 : 0);
}

std::uint64_t whole_remainder(std::int64_t a, std::int64_t b) {
  return b == 0 ? 0 : bits(a) - whole_floor_divide(a, b) * bits(b);
}

// Python's floor division: the floor of the exact quotient, with its limits.
Exact floor_divide(Exact a, Exact b) {
  if (std::isnan(a) || std::isnan(b)) return kNaN;
  if (b == 0) return a / b;
  if (std::isinf(a)) return kNaN;
  if (std::isinf(b)) return a != 0 && (a < 0) != (b < 0) ? -1 : 0;
  const Exact rest = std::fmod(a, b);
  return (a - rest) / b - (rest != 0 && (rest < 0) != (b < 0) ? 1 : 0);
}

Exact remainder_of(Exact a, Exact b) {
  const Exact rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Exact larger(Exact a, Exact b) { return std::isnan(a) || std::isnan(b) ? kNaN : a > b ? a : b; }
Exact smaller(Exact a, Exact b) { return std::isnan(a) || std::isnan(b) ? kNaN : a < b ? a : b; }

Exact logistic(Exact x) { return 1 / (1 + std::exp(-x)); }
Exact gelu(Exact x) { return x / 2 * (1 + std::erf(x / std::numbers::sqrt2_v<Exact>)); }
Exact gelu_tanh(Exact x) {
  // tanh of more than 2^13 is 1 long before the cube overflows.
  const Exact inner = std::sqrt(2 / std::numbers::pi_v<Exact>) * (x + 0.044715L * x * x * x);
  return x / 2 * (1 + std::tanh(inner));
}
Exact softplus(Exact x) { return larger(x, 0) + std::log1p(std::exp(-std::fabs(x))); }
Exact hardswish(Exact x) { return x * smaller(larger(x + 3, 0), 6) / 6; }

// 1 + erf (1 + tanh) is up to 2, off by the rounding of the sum (2 u), of erf itself (2 ulp = 4 u)
// and of its argument (2 u times z erf'(z) <= 0.5): at most 8 u, times x / 2; tanh's argument has
// five roundings, times z tanh'(z) < 0.5.
Exact gelu_slack(Exact x, Exact u) { return std::isfinite(x) ? 5 * u * std::fabs(x) : 0; }

// Where exp(-x) overflows the result is 0, the true one below the smallest normal number.
Exact sigmoid_slack(Exact x, Exact u) {
  return x < -80 ? (u == unit_roundoff(f64) ? 0x1p-1022L : 0x1p-126L) * (1 - x) : 0;
}

Exact mish(Exact x) { return x * std::tanh(softplus(x)); }
Exact elu(Exact x) { return x > 0 ? x : std::expm1(x); }
Exact selu(Exact x) {
  return 1.0507009873554804934193349852946L *
         (x > 0 ? x : 1.6732632423543772848170429916717L * std::expm1(x));
}
Exact hardsigmoid(Exact x) { return smaller(larger(x + 3, 0), 6) / 6; }
Exact leaky_relu(Exact x) { return x > 0 ? x : 0.01L * x; }

Results cast(const Arrays& in, const Attrs& attrs) {
  Expected result(in[0].shape, attrs.dtype("dtype"));
  for (std::size_t i = 0; i < result.size(); ++i) {
    Exact x = in[0].values[i];
    if (kind_of(result.dtype) == Kind::integer && is_floating(in[0].dtype))
      x = std::isnan(x)
              ? 0
              : std::trunc(smaller(larger(x, lowest(result.dtype)), highest(result.dtype)));
    result.values[i] = round_to(result.dtype, x);
  }
  return {result};
}

Results choose(const Arrays& in, const Attrs&) {
  const DType dtype = promote(in[1].dtype, in[2].dtype);
  const Array a = as_type(in[1], dtype), b = as_type(in[2], dtype);
  Expected result(common_shape(in), dtype);
  for (std::size_t i = 0; i < result.size(); ++i) {
    const Index index = unravel(i, result.shape);
    result.values[i] = in[0].at(index) != 0 ? a.at(index) : b.at(index);
  }
  return {result};
}

Results clip(const Arrays& in, const Attrs&) {
  const DType dtype = common_type(in);
  const Array x = as_type(in[0], dtype), low = as_type(in[1], dtype), high = as_type(in[2], dtype);
  Expected result(common_shape(in), dtype);
  for (std::size_t i = 0; i < result.size(); ++i) {
    const Index index = unravel(i, result.shape);
    result.values[i] = smaller(larger(x.at(index), low.at(index)), high.at(index));
  }
  return {result};
}

// A shift as a product or the floor of a quotient.
std::uint64_t shifted_left(std::int64_t a, std::int64_t b) {
  return b < 0 || b > 63 ? 0 : bits(a) * (std::uint64_t{1} << b);
}
std::uint64_t shifted_right(std::int64_t a, std::int64_t b) {
  return b < 0 || b > 63 ? bits(a < 0 ? -1 : 0)
                         : bits(static_cast<std::int64_t>(std::floor(
                               static_cast<Exact>(a) / std::exp2(static_cast<Exact>(b)))));
}

void add_unary_references(References& table) {
  table["negative"] = unary(Rule::same, [](Exact x) { return -x; });
  table["abs"] = unary(Rule::same, [](Exact x) { return std::fabs(x); });
  table["sign"] = unary(
      Rule::same, [](Exact x) { return std::isnan(x) ? x : Exact((x > 0) - (x < 0)); }, 0, nullptr,
      false);
  const auto square = binary(
      Rule::small, [](Exact x, Exact y) { return x * y; }, 0,
      [](std::int64_t x, std::int64_t y) { return bits(x) * bits(y); });
  table["square"] = [square](const Arrays& in, const Attrs& attrs) {
    return square({in[0], in[0]}, attrs);
  };
  table["sqrt"] = unary(Rule::floating, [](Exact x) { return std::sqrt(x); });
  table["reciprocal"] = unary(Rule::floating, [](Exact x) { return 1 / x; });
  table["rsqrt"] = unary(
      Rule::floating, [](Exact x) { return 1 / std::sqrt(x); }, 2);  // two roundings
  table["exp"] = unary(
      Rule::floating, [](Exact x) { return std::exp(x); }, 2);
  table["expm1"] = unary(
      Rule::floating, [](Exact x) { return std::expm1(x); }, 2);
  table["log"] = unary(
      Rule::floating, [](Exact x) { return std::log(x); }, 2);
  table["exp2"] = unary(
      Rule::floating, [](Exact x) { return std::exp2(x); }, 2);
  table["log2"] = unary(
      Rule::floating, [](Exact x) { return std::log2(x); }, 2);
  table["log10"] = unary(
      Rule::floating, [](Exact x) { return std::log10(x); }, 2);
  table["tan"] = unary(
      Rule::floating, [](Exact x) { return std::tan(x); }, 2);
  table["arcsin"] = unary(
      Rule::floating, [](Exact x) { return std::asin(x); }, 2);
  table["arccos"] = unary(
      Rule::floating, [](Exact x) { return std::acos(x); }, 2);
  table["arctan"] = unary(
      Rule::floating, [](Exact x) { return std::atan(x); }, 2);
  table["sinh"] = unary(
      Rule::floating, [](Exact x) { return std::sinh(x); }, 2);
  table["cosh"] = unary(
      Rule::floating, [](Exact x) { return std::cosh(x); }, 2);
  table["arcsinh"] = unary(
      Rule::floating, [](Exact x) { return std::asinh(x); }, 2);
  table["arccosh"] = unary(
      Rule::floating, [](Exact x) { return std::acosh(x); }, 2);
  table["arctanh"] = unary(
      Rule::floating, [](Exact x) { return std::atanh(x); }, 2);
  table["log1p"] = unary(
      Rule::floating, [](Exact x) { return std::log1p(x); }, 2);
  table["sin"] = unary(
      Rule::floating, [](Exact x) { return std::sin(x); }, 2);
  table["cos"] = unary(
      Rule::floating, [](Exact x) { return std::cos(x); }, 2);
  table["tanh"] = unary(
      Rule::floating, [](Exact x) { return std::tanh(x); }, 2);
  table["erf"] = unary(
      Rule::floating, [](Exact x) { return std::erf(x); }, 2);
  // exp within 1 unit, the sum and the quotient within half a unit each, doubled by a change of
  // binade; one more product for silu; three roundings for hardswish.
  table["sigmoid"] = unary(Rule::floating, logistic, 4, sigmoid_slack);
  table["silu"] = unary(
      Rule::floating, [](Exact x) { return x * logistic(x); }, 5, sigmoid_slack);
  table["hardswish"] = unary(Rule::floating, hardswish, 3);
  // log1p(exp(-|x|)) within 1 unit of each function's result, and the sum within half a unit; of
  // negative numbers the exponential's error is the result's. Doubled by a change of binade.
  table["softplus"] = unary(Rule::floating, softplus, 5);
  // softplus, tanh (which halves the relative error at most) and the product.
  table["mish"] = unary(Rule::floating, mish, 8);
  // expm1 and one or two products.
  table["elu"] = unary(Rule::floating, elu, 3);
  table["selu"] = unary(Rule::floating, selu, 6);
  table["hardsigmoid"] = unary(Rule::floating, hardsigmoid, 2);
  table["leaky_relu"] = unary(Rule::floating, leaky_relu, 2);
  table["relu"] = unary(
      Rule::same, [](Exact x) { return larger(x, 0); }, 0, nullptr, false);
  table["gelu"] = [](const Arrays& in, const Attrs& attrs) {
    return unary(Rule::floating, attrs.text("approximate", "none") == "tanh" ? gelu_tanh : gelu, 3,
                 gelu_slack)(in, {});
  };
  table["gelu_tanh"] = unary(Rule::floating, gelu_tanh, 3, gelu_slack);
  table["floor"] = unary(Rule::whole, [](Exact x) { return std::floor(x); });
  table["ceil"] = unary(Rule::whole, [](Exact x) { return std::ceil(x); });
  table["round"] = unary(Rule::whole, [](Exact x) { return std::nearbyint(x); });
  table["trunc"] = unary(Rule::whole, [](Exact x) { return std::trunc(x); });
  table["isinf"] = unary(Rule::predicate, [](Exact x) { return Exact(std::isinf(x)); });
  table["isnan"] = unary(Rule::predicate, [](Exact x) { return Exact(std::isnan(x)); });
  table["isfinite"] = unary(Rule::predicate, [](Exact x) { return Exact(std::isfinite(x)); });
  table["logical_not"] = unary(Rule::predicate, [](Exact x) { return Exact(x == 0); });
  table["invert"] = [](const Arrays& in, const Attrs& attrs) {
    const auto flipped = in[0].dtype == boolean
                             ? unary(Rule::same, [](Exact x) { return Exact(x == 0); })
                             : unary(Rule::same, [](Exact x) { return -x - 1; });
    Results results = flipped(in, attrs);
    for (Exact& x : results[0].values) x = round_to(in[0].dtype, x);
    return results;
  };
  table["copy"] = unary(Rule::same, [](Exact x) { return x; });
  table["astype"] = cast;
}

}  // namespace

void add_pointwise_references(References& table) {
  add_unary_references(table);
  table["add"] = binary(
      Rule::same, [](Exact a, Exact b) { return a + b; }, 0,
      [](std::int64_t a, std::int64_t b) { return bits(a) + bits(b); });
  table["subtract"] = binary(
      Rule::same, [](Exact a, Exact b) { return a - b; }, 0,
      [](std::int64_t a, std::int64_t b) { return bits(a) - bits(b); });
  table["multiply"] = binary(
      Rule::same, [](Exact a, Exact b) { return a * b; }, 0,
      [](std::int64_t a, std::int64_t b) { return bits(a) * bits(b); });
  table["divide"] = binary(Rule::quotient, [](Exact a, Exact b) { return a / b; });
  // The library divides a - fmod(a, b) by b: two roundings of a number that is whole when it is
  // small.
  table["floor_divide"] = binary(Rule::small, floor_divide, 2, whole_floor_divide);
  table["remainder"] = binary(Rule::small, remainder_of, 1, whole_remainder);
  table["fmod"] = binary(
      Rule::small, [](Exact a, Exact b) { return std::fmod(a, b); }, 0,
      [](std::int64_t a, std::int64_t b) { return bits(b == 0 || b == -1 ? 0 : a % b); });
  table["arctan2"] = binary(
      Rule::floating, [](Exact a, Exact b) { return std::atan2(a, b); }, 2);
  table["hypot"] = binary(
      Rule::floating, [](Exact a, Exact b) { return std::hypot(a, b); }, 2);
  const auto no_floats = [](Exact, Exact) { return kNaN; };
  table["bitwise_and"] = binary(Rule::same, no_floats, 0,
                                [](std::int64_t a, std::int64_t b) { return bits(a) & bits(b); });
  table["bitwise_or"] = binary(Rule::same, no_floats, 0,
                               [](std::int64_t a, std::int64_t b) { return bits(a) | bits(b); });
  table["bitwise_xor"] = binary(Rule::same, no_floats, 0,
                                [](std::int64_t a, std::int64_t b) { return bits(a) ^ bits(b); });
  table["left_shift"] = binary(Rule::small, no_floats, 0, shifted_left);
  table["right_shift"] = binary(Rule::small, no_floats, 0, shifted_right);
  table["power"] = binary(
      Rule::small, [](Exact a, Exact b) { return std::pow(a, b); }, 2, whole_power);
  table["maximum"] = binary(Rule::same, larger);
  table["minimum"] = binary(Rule::same, smaller);
  table["equal"] = binary(Rule::predicate, [](Exact a, Exact b) { return Exact(a == b); });
  table["not_equal"] = binary(Rule::predicate, [](Exact a, Exact b) { return Exact(a != b); });
  table["less"] = binary(Rule::predicate, [](Exact a, Exact b) { return Exact(a < b); });
  table["less_equal"] = binary(Rule::predicate, [](Exact a, Exact b) { return Exact(a <= b); });
  table["greater"] = binary(Rule::predicate, [](Exact a, Exact b) { return Exact(a > b); });
  table["greater_equal"] = binary(Rule::predicate, [](Exact a, Exact b) { return Exact(a >= b); });
  table["isclose"] = binary(Rule::predicate, [](Exact a, Exact b) {
    return Exact(a == b || (std::isfinite(b) && std::fabs(a - b) <= 1e-8L + 1e-5L * std::fabs(b)));
  });
  table["logical_and"] =
      binary(Rule::logical, [](Exact a, Exact b) { return Exact(a != 0 && b != 0); });
  table["logical_or"] =
      binary(Rule::logical, [](Exact a, Exact b) { return Exact(a != 0 || b != 0); });
  table["logical_xor"] =
      binary(Rule::logical, [](Exact a, Exact b) { return Exact((a != 0) != (b != 0)); });
  table["where"] = choose;
  table["clip"] = clip;
}

}  // namespace tensor::generated
