// Cases of reductions, scans and sorting.
#pragma once

#include <span>

#include "tests/cases/case.h"

namespace tensor::cases {

struct ReduceRow {
  std::string_view op;
  std::span<const DType> types;
  double low, high;  // of whole numbers, so that sums and products are exact
  double real_low, real_high;
  bool of_nothing;  // defined when there are no elements
  bool one_axis;    // one axis or none, not a list
};

inline constexpr ReduceRow kReduceRows[] = {
    {"sum", kAllTypes, -8, 8, -10, 10, true, false},
    {"mean", kAllTypes, -8, 8, -10, 10, true, false},
    {"prod", kAllTypes, -2, 2, 0.5, 1.5, true, false},
    {"max", kAllTypes, -99, 99, -10, 10, false, false},
    {"min", kAllTypes, -99, 99, -10, 10, false, false},
    {"var", kAllTypes, -8, 8, -10, 10, false, false},
    {"std", kAllTypes, -8, 8, -10, 10, false, false},
    {"any", kAllTypes, 0, 1, -1, 1, true, false},
    {"all", kAllTypes, 0, 1, -1, 1, true, false},
    {"argmax", kAllTypes, -9, 9, -10, 10, false, true},
    {"argmin", kAllTypes, -9, 9, -10, 10, false, true},
};

/// The axes of the i-th variant: all by leaving them out, then one from either end, then two.
inline Attrs reduce_attrs(Draw& draw, int rank, std::size_t i, bool one_axis) {
  Attrs attrs;
  const std::int64_t axis = draw.below(rank);
  if (i % 4 == 1) attrs.set("axis", axis);
  if (i % 4 == 2 || (i % 4 == 3 && (one_axis || rank < 2))) attrs.set("axis", axis - rank);
  if (i % 4 == 3 && !one_axis && rank >= 2) attrs.set("axis", Ints{axis, (axis + 1) % rank});
  if (draw.coin()) attrs.set("keepdims", draw.coin());
  return attrs;
}

inline void add_reduce(Cases& cases, const ReduceRow& row) {
  const std::string op(row.op);
  Draw draw(op);
  for (const DType dtype : row.types) {
    const auto add = [&](const Shape& shape, const Attrs& attrs, Layout layout, Values values) {
      const bool reals = values == Values::reals;
      cases.push_back({op,
                       {{shape, dtype, values, reals ? row.real_low : row.low,
                         reals ? row.real_high : row.high, layout}},
                       attrs});
    };
    std::size_t i = 0;
    for (const Layout layout : kLayouts)
      for (int variant = 0; variant < 4; ++variant, ++i) {
        const int rank = 1 + static_cast<int>(i % 4);
        add(draw.shape(rank), reduce_attrs(draw, rank, i / 2, row.one_axis), layout,
            Values::integers);
      }
    if (is_floating(dtype))
      for (const Layout layout : kLayouts) {
        add(draw.shape(3), reduce_attrs(draw, 3, i++, row.one_axis), layout, Values::reals);
        add(draw.shape(2), reduce_attrs(draw, 2, i++, row.one_axis), layout, Values::reals);
      }
    add({}, {}, Layout::contiguous, Values::integers);
    add({3, 0, 5}, {{"axis", 0}}, Layout::contiguous, Values::integers);
    if (row.of_nothing) add({4, 0}, {{"axis", -1}}, Layout::contiguous, Values::integers);
    if (row.of_nothing) add({0}, {}, Layout::contiguous, Values::integers);
    if (op == "max" || op == "min" || row.one_axis || op == "any" || op == "all")
      add({6, 20}, {{"axis", 1}}, Layout::transposed, Values::specials);
    if (op == "var" || op == "std")
      add({3, 17}, {{"axis", 1}, {"ddof", 1}}, Layout::contiguous, Values::integers);
  }
}

inline void add_along_axis(Cases& cases, const std::string& op, std::span<const DType> types) {
  Draw draw(op);
  for (const DType dtype : types) {
    const bool distinct = op == "topk";  // equal elements have no order there
    for (std::size_t i = 0; i < 20; ++i) {
      const int rank = 1 + static_cast<int>(i % 4);
      const Shape shape = draw.shape(rank, distinct ? 120 : 900);
      const std::int64_t axis = draw.below(rank);
      Attrs attrs{{"axis", i % 3 == 0 ? axis - rank : axis}};
      if (op == "topk") attrs.set("k", 1 + draw.below(shape[static_cast<int>(axis)]));
      if (op == "topk" && i % 4 == 1) attrs.set("largest", false);
      const bool is_scan = op == "cumsum" || op == "cumprod";
      const bool reals = is_scan && is_floating(dtype) && i % 2 == 1;
      // A broadcast layout would repeat elements that are to be distinct.
      const Layout layout = distinct && i % 5 == 4 ? Layout::contiguous : layout_of(i);
      cases.push_back({op,
                       {{shape, dtype,
                         distinct ? Values::distinct
                         : reals  ? Values::reals
                                  : Values::integers,
                         distinct ? -60.0 : -5.0, 5, layout}},
                       attrs});
    }
    if (op == "topk") continue;
    cases.push_back({op, {{{0, 3}, dtype}}, {{"axis", 0}}});
    cases.push_back({op, {{{3, 0}, dtype}}, {{"axis", 0}}});
    if (op != "cumsum" && op != "cumprod")
      cases.push_back(
          {op, {{{7, 31}, dtype, Values::specials, -3, 3, Layout::sliced}}, {{"axis", 1}}});
  }
}

inline Cases reduce_cases() {
  Cases cases;
  for (const ReduceRow& row : kReduceRows) add_reduce(cases, row);
  for (const std::string op : {"cumsum", "cumprod", "sort", "argsort"})
    add_along_axis(cases, op, kAllTypes);
  add_along_axis(cases, "topk", kNumberTypes);
  return cases;
}

}  // namespace tensor::cases
