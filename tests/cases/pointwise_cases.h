// Cases of the elementwise operators.
#pragma once

#include <span>

#include "tests/cases/case.h"

namespace tensor::cases {

struct UnaryRow {
  std::string_view op;
  std::span<const DType> types;
  double low, high;
};

inline constexpr UnaryRow kUnaryRows[] = {
    {"negative", kNumberTypes, -100, 100},
    {"abs", kAllTypes, -100, 100},
    {"sign", kNumberTypes, -100, 100},
    {"square", kAllTypes, -100, 100},
    {"sqrt", kAllTypes, 0, 100},
    {"rsqrt", kAllTypes, 0.01, 100},
    {"reciprocal", kAllTypes, -50, 50},
    {"exp", kAllTypes, -10, 10},
    {"exp2", kAllTypes, -10, 10},
    {"expm1", kAllTypes, -10, 10},
    {"log", kAllTypes, 0.001, 100},
    {"log2", kAllTypes, 0.001, 100},
    {"log10", kAllTypes, 0.001, 100},
    {"log1p", kAllTypes, -0.9, 100},
    {"sin", kAllTypes, -20, 20},
    {"cos", kAllTypes, -20, 20},
    {"tan", kAllTypes, -20, 20},
    {"arcsin", kAllTypes, -1, 1},
    {"arccos", kAllTypes, -1, 1},
    {"arctan", kAllTypes, -20, 20},
    {"sinh", kAllTypes, -8, 8},
    {"cosh", kAllTypes, -8, 8},
    {"tanh", kAllTypes, -5, 5},
    {"arcsinh", kAllTypes, -20, 20},
    {"arccosh", kAllTypes, 1, 20},
    {"arctanh", kAllTypes, -0.99, 0.99},
    {"erf", kAllTypes, -4, 4},
    {"sigmoid", kAllTypes, -20, 20},
    {"relu", kNumberTypes, -50, 50},
    {"gelu", kAllTypes, -6, 6},
    {"gelu_tanh", kAllTypes, -6, 6},
    {"silu", kAllTypes, -20, 20},
    {"hardswish", kAllTypes, -6, 6},
    {"softplus", kAllTypes, -20, 20},
    {"mish", kAllTypes, -20, 20},
    {"selu", kAllTypes, -20, 20},
    {"hardsigmoid", kAllTypes, -5, 5},
    {"leaky_relu", kAllTypes, -20, 20},
    {"elu", kAllTypes, -20, 20},
    {"floor", kAllTypes, -20, 20},
    {"ceil", kAllTypes, -20, 20},
    {"round", kAllTypes, -20, 20},
    {"trunc", kAllTypes, -20, 20},
    {"isnan", kAllTypes, -2, 2},
    {"isinf", kAllTypes, -2, 2},
    {"isfinite", kAllTypes, -2, 2},
    {"logical_not", kAllTypes, -1, 1},
    {"invert", kWholeTypes, -100, 100},
    {"copy", kAllTypes, -100, 100},
};

struct BinaryRow {
  std::string_view op;
  std::span<const DType> types;
  double low, high;  // of the first input
  double second_low, second_high;
  bool whole = false;  // whole numbers in every type, so that equal elements meet
};

inline constexpr BinaryRow kBinaryRows[] = {
    {"add", kAllTypes, -100, 100, -100, 100},
    {"subtract", kNumberTypes, -100, 100, -100, 100},
    {"multiply", kAllTypes, -100, 100, -100, 100},
    {"divide", kAllTypes, -50, 50, -20, 20},
    {"floor_divide", kAllTypes, -100, 100, -9, 9},
    {"remainder", kAllTypes, -100, 100, -9, 9},
    {"fmod", kAllTypes, -100, 100, -9, 9},
    {"arctan2", kAllTypes, -9, 9, -9, 9},
    {"hypot", kAllTypes, -99, 99, -99, 99},
    {"power", kAllTypes, 0.1, 8, 0, 5},
    {"maximum", kAllTypes, -20, 20, -20, 20},
    {"minimum", kAllTypes, -20, 20, -20, 20},
    {"equal", kAllTypes, -2, 2, -2, 2, true},
    {"not_equal", kAllTypes, -2, 2, -2, 2, true},
    {"less", kAllTypes, -2, 2, -2, 2, true},
    {"less_equal", kAllTypes, -2, 2, -2, 2, true},
    {"greater", kAllTypes, -2, 2, -2, 2, true},
    {"greater_equal", kAllTypes, -2, 2, -2, 2, true},
    {"isclose", kAllTypes, -2, 2, -2, 2, true},
    {"logical_and", kAllTypes, -1, 1, -1, 1, true},
    {"logical_or", kAllTypes, -1, 1, -1, 1, true},
    {"logical_xor", kAllTypes, -1, 1, -1, 1, true},
    {"bitwise_and", kWholeTypes, -100, 100, -100, 100},
    {"bitwise_or", kWholeTypes, -100, 100, -100, 100},
    {"bitwise_xor", kWholeTypes, -100, 100, -100, 100},
    {"left_shift", kWholeTypes, -100, 100, -9, 70},
    {"right_shift", kWholeTypes, -100, 100, -9, 70},
};

inline void add_unary(Cases& cases, const UnaryRow& row, const Attrs& attrs = {}) {
  const std::string op(row.op);
  Draw draw(op);
  for (const DType dtype : row.types) {
    const auto add = [&](const Shape& shape, Values values, Layout layout) {
      cases.push_back({op, {{shape, dtype, values, row.low, row.high, layout}}, attrs});
    };
    add({}, Values::reals, Layout::contiguous);
    for (int rank = 1; rank <= 4; ++rank)
      for (const Layout layout : kLayouts)
        if ((rank + static_cast<int>(layout)) % 4 != 0)
          add(draw.shape(rank), Values::reals, layout);
    add(draw.empty_shape(2), Values::reals, Layout::transposed);
    add({61}, Values::specials, Layout::contiguous);
    add({8, 9}, Values::specials, Layout::negative);
  }
}

/// Two shapes that broadcast: equal ones, a stretched second one, or both stretched.
inline std::pair<Shape, Shape> broadcasting_shapes(Draw& draw, int kind, int rank) {
  Shape a = draw.shape(rank), b = a;
  if (kind > 0) {
    for (int axis = 0; axis < rank; ++axis) {
      if (draw.coin())
        b[axis] = 1;
      else if (kind > 1 && draw.coin())
        a[axis] = 1;
    }
    if (draw.coin() && rank > 1) b.erase(0);
  }
  return {a, b};
}

inline void add_binary(Cases& cases, const BinaryRow& row) {
  const std::string op(row.op);
  Draw draw(op);
  for (const DType dtype : row.types) {
    const auto add = [&](const Shape& a, const Shape& b, Layout layout_a, Layout layout_b,
                         Values values) {
      cases.push_back({op,
                       {{a, dtype, values, row.low, row.high, layout_a},
                        {b, dtype, values, row.second_low, row.second_high, layout_b}},
                       {}});
    };
    const Values values = row.whole ? Values::integers : Values::reals;
    std::size_t i = 0;
    for (const Layout layout : kLayouts)
      for (int kind = 0; kind < 3; ++kind, ++i) {
        const auto [a, b] = broadcasting_shapes(draw, kind, 1 + static_cast<int>(i % 4));
        add(a, b, layout, layout_of(i), values);
        if (kind == 1) add(b, a, layout_of(i + 1), layout, values);
      }
    add({}, {}, Layout::contiguous, Layout::contiguous, values);
    add({}, draw.shape(2), Layout::contiguous, Layout::sliced, values);
    add({0, 3}, {3}, Layout::contiguous, Layout::negative, values);
    // Integers have no negative powers, and the specials hold some.
    if (op == "power" && !is_floating(dtype)) continue;
    add({40, 1}, {40}, Layout::contiguous, Layout::contiguous, Values::specials);
    add({23, 40}, {23, 40}, Layout::transposed, Layout::contiguous, Values::specials);
  }
}

// Two types at once: the common type of every pair.
inline void add_mixed_types(Cases& cases) {
  for (const std::string op : {"add", "maximum", "less", "divide", "where", "clip"}) {
    Draw draw("mixed " + op);
    for (const DType a : kAllTypes)
      for (const DType b : kAllTypes) {
        if (a == b) continue;
        std::vector<Input> inputs = {
            {draw.shape(2), a, Values::integers, -20, 20, layout_of(cases.size())}};
        inputs.push_back(
            {inputs[0].shape, b, Values::integers, 1, 20, layout_of(cases.size() + 2)});
        if (op == "where") inputs.insert(inputs.begin(), {inputs[0].shape, boolean});
        if (op == "clip") inputs.push_back({{}, b, Values::integers, 3, 9});
        cases.push_back({op, inputs, {}});
      }
  }
}

inline void add_casts(Cases& cases) {
  Draw draw("astype");
  for (const DType from : kAllTypes)
    for (const DType to : kAllTypes) {
      const Attrs attrs{{"dtype", to}};
      cases.push_back({"astype",
                       {{draw.shape(2), from, Values::reals, -300, 300, layout_of(cases.size())}},
                       attrs});
      cases.push_back({"astype",
                       {{draw.shape(3), from, Values::integers, -9, 9, layout_of(cases.size())}},
                       attrs});
      cases.push_back(
          {"astype", {{{41}, from, Values::specials, -9, 9, Layout::contiguous}}, attrs});
      cases.push_back({"astype",
                       {{draw.shape(2), from, Values::reals, -1e20, 1e20, layout_of(cases.size())}},
                       attrs});
    }
}

inline void add_choices(Cases& cases) {
  Draw draw("where");
  for (const DType dtype : kAllTypes)
    for (std::size_t i = 0; i < 15; ++i) {
      const auto [a, b] =
          broadcasting_shapes(draw, static_cast<int>(i % 3), 1 + static_cast<int>(i % 4));
      const Values values = i < 12 ? Values::integers : Values::specials;
      cases.push_back({"where",
                       {{b, boolean, Values::integers, 0, 1, layout_of(i / 5)},
                        {a, dtype, values, -9, 9, layout_of(i)},
                        {b, dtype, values, -9, 9, layout_of(i + 1)}},
                       {}});
      cases.push_back({"clip",
                       {{a, dtype, values, -20, 20, layout_of(i)},
                        {b, dtype, Values::integers, -8, 2, layout_of(i + 3)},
                        {{}, dtype, Values::integers, 3, 9}},
                       {}});
    }
}

inline Cases pointwise_cases() {
  Cases cases;
  for (const UnaryRow& row : kUnaryRows) add_unary(cases, row);
  for (const BinaryRow& row : kBinaryRows) add_binary(cases, row);
  add_unary(cases, {"gelu", kFloatingTypes, -6, 6}, {{"approximate", "tanh"}});
  add_mixed_types(cases);
  add_casts(cases);
  add_choices(cases);
  return cases;
}

}  // namespace tensor::cases
