// Cases of the operators that move elements: views, joins, splits, gathers.
#pragma once

#include "tests/cases/case.h"

namespace tensor::cases {

inline Ints to_ints(const Shape& shape) { return Ints(shape.begin(), shape.end()); }

// Another shape of as many elements: its prime factors dealt out anew, sometimes one as -1.
inline Shape reshaped(Draw& draw, const Shape& shape) {
  std::int64_t left = 1;
  for (const auto extent : shape) left *= extent;
  Shape result = Shape::filled(1 + static_cast<int>(draw.below(4)), 1);
  if (left == 0) result[0] = 0;
  for (std::int64_t factor = 2; left > 1; ++factor)
    for (; left % factor == 0; left /= factor)
      result[static_cast<int>(draw.below(result.rank()))] *= factor;
  if (result[0] != 0 && draw.coin()) result[static_cast<int>(draw.below(result.rank()))] = -1;
  return result;
}

inline Ints permutation(Draw& draw, int rank) {
  Ints axes;
  for (int axis = 0; axis < rank; ++axis) axes.insert(axes.begin() + draw.below(axis + 1), axis);
  return axes;
}

// NumPy's index as text: integers, slices with any bounds and steps, None, an ellipsis.
inline std::string index_text(Draw& draw, const Shape& shape) {
  const auto bound = [&](std::int64_t extent) {
    return draw.coin() ? std::string() : std::to_string(draw.below(2 * extent + 3) - extent - 1);
  };
  std::string text;
  bool ellipsis = false;
  const auto append = [&](const std::string& item) { text += (text.empty() ? "" : ",") + item; };
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const std::int64_t extent = shape[axis], kind = draw.below(8);
    if (kind == 0) append("None");
    if (kind == 1 && !ellipsis) {
      append("...");
      ellipsis = true;
      axis += static_cast<int>(draw.below(shape.rank() - axis));
    } else if (kind == 2 && extent > 0) {
      append(std::to_string(draw.below(2 * extent) - extent));
    } else {
      const std::string begin = bound(extent), end = bound(extent);
      append(begin + ":" + end +
             (draw.coin()
                  ? ":" + std::to_string(draw.coin() ? 1 + draw.below(4) : -1 - draw.below(4))
                  : ""));
    }
  }
  return text;
}

inline void add_views(Cases& cases, DType dtype) {
  Draw draw("views " + std::string(name(dtype)));
  for (std::size_t i = 0; i < 20; ++i) {
    const int rank = 1 + static_cast<int>(i % 4);
    const auto add = [&](const std::string& op, const Shape& shape, const Attrs& attrs) {
      cases.push_back({op, {{shape, dtype, Values::integers, -99, 99, layout_of(i)}}, attrs});
    };
    const Shape shape = i % 10 == 7 ? draw.empty_shape(rank) : draw.shape(rank, 400);
    const auto axis = [&] { return draw.below(2 * rank) - rank; };
    add("slice", shape, {{"index", index_text(draw, shape)}});
    add("reshape", shape, {{"shape", reshaped(draw, shape)}});
    if (i % 4 == 0)
      add("transpose", shape, {});
    else
      add("transpose", shape, {{"axes", permutation(draw, rank)}});
    add("swapaxes", shape, {{"axis1", axis()}, {"axis2", axis()}});
    add("expand_dims", shape, {{"axis", draw.below(2 * rank + 2) - rank - 1}});
    Shape thin = shape, wide = shape;
    thin[static_cast<int>(draw.below(rank))] = 1;
    for (int k = 0; k < rank; ++k)
      if (thin[k] == 1 && i % 2) wide[k] = draw.extent(5);
    if (i % 3 == 0) {
      add("squeeze", thin, {});
    } else {
      const auto one = std::find(thin.begin(), thin.end(), 1) - thin.begin();
      add("squeeze", thin, {{"axis", i % 3 == 1 ? one : one - rank}});
    }
    for (int k = 0; k < rank; ++k)
      if (thin[k] != 1) wide[k] = thin[k];
    if (i % 3 == 0) wide.insert(0, 2);
    add("broadcast_to", thin, {{"shape", wide}});
    if (i % 3 == 0)
      add("flip", shape, {});
    else
      add("flip", shape, {{"axis", i % 3 == 1 || rank == 1 ? Ints{axis()} : Ints{0, rank - 1}}});
    add("tile", draw.shape(rank, 60),
        {{"reps", i % 3 == 0   ? Ints{2}
                  : i % 3 == 1 ? Ints{3, 1, 2}
                               : Ints{0, 2}}});
    add("repeat", draw.shape(rank, 200), {{"repeats", draw.below(4)}, {"axis", axis()}});
    add(i % 2 ? "tril" : "triu", draw.shape(std::max(2, rank), 400), {{"k", draw.below(7) - 3}});
    add("triu", shape.rank() < 2 ? Shape{5, 7} : shape, {});
    Ints width;
    for (int k = 0; k < 2 * rank; ++k) width.push_back(draw.below(4));
    const Shape small = i % 10 == 7 ? shape : draw.shape(rank, 200);
    add("pad", small, {{"pad_width", width}, {"constant_values", i % 2 ? 1.0 : 0.0}});
  }
}

inline void add_joins(Cases& cases, DType dtype) {
  Draw draw("joins " + std::string(name(dtype)));
  for (std::size_t i = 0; i < 20; ++i) {
    const int rank = 1 + static_cast<int>(i % 4);
    const auto input = [&](const Shape& shape, std::size_t k) {
      return Input{shape, dtype, Values::integers, -99, 99, layout_of(i + k)};
    };
    const Shape shape = draw.shape(rank, 300);
    const std::int64_t axis = draw.below(rank), wanted = i % 2 ? axis : axis - rank;
    const auto count = static_cast<std::size_t>(1 + draw.below(4));
    Case joined{"concatenate", {}, {{"axis", wanted}}},
        stacked{"stack", {}, {{"axis", draw.below(2 * rank + 2) - rank - 1}}};
    for (std::size_t k = 0; k < count; ++k) {
      Shape part = shape;
      part[static_cast<int>(axis)] = draw.below(5);
      joined.inputs.push_back(input(part, k));
      stacked.inputs.push_back(input(shape, k));
    }
    cases.push_back(joined);
    cases.push_back(stacked);

    const std::int64_t extent = shape[static_cast<int>(axis)];
    Case split{"split", {input(shape, 0)}, {{"axis", wanted}}};
    if (i % 2) {
      Ints at;
      for (std::int64_t k = draw.below(4); k > 0; --k) at.push_back(draw.below(extent + 3));
      std::sort(at.begin(), at.end());
      split.attrs.set("indices", at);
    } else {
      std::int64_t sections = 1 + draw.below(extent);
      while (extent % sections != 0) --sections;
      split.attrs.set("sections", sections);
    }
    cases.push_back(split);

    const DType position_type = i % 2 ? i64 : i32;
    const auto positions = [&](const Shape& of) {
      return Input{of,
                   position_type,
                   Values::integers,
                   static_cast<double>(-extent),
                   static_cast<double>(extent - 1),
                   layout_of(i / 5)};
    };
    cases.push_back({"take",
                     {input(shape, 1), positions(draw.shape(static_cast<int>(i % 3), 12))},
                     {{"axis", wanted}}});
    Shape along = shape;
    along[static_cast<int>(axis)] = draw.below(6);
    cases.push_back({"take_along_axis", {input(shape, 2), positions(along)}, {{"axis", wanted}}});
    Shape values = along;
    values[static_cast<int>(draw.below(rank))] = 1;
    cases.push_back({"put_along_axis",
                     {input(shape, 2), positions(along), input(i % 3 ? along : values, 3)},
                     {{"axis", wanted}}});
  }
}

inline Cases shape_cases() {
  Cases cases;
  for (const DType dtype : kAllTypes) {
    add_views(cases, dtype);
    add_joins(cases, dtype);
  }
  return cases;
}

}  // namespace tensor::cases
