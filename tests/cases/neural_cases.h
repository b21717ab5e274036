// Cases of the neural operators: softmax, norms, attention, convolutions, pools, interpolation.
#pragma once

#include "tests/cases/case.h"

namespace tensor::cases {

inline Input reals(const Shape& shape, DType dtype, double low, double high, std::size_t layout) {
  return {shape, dtype, Values::reals, low, high, layout_of(layout)};
}

inline void add_softmax(Cases& cases, const std::string& op) {
  Draw draw(op);
  for (const DType dtype : kFloatingTypes) {
    for (std::size_t i = 0; i < 40; ++i) {
      const int rank = 1 + static_cast<int>(i % 4);
      const std::int64_t axis = draw.below(rank);
      const double spread = i % 3 == 0 ? 60 : 5;
      cases.push_back({op,
                       {reals(draw.shape(rank), dtype, -spread, spread, i)},
                       {{"axis", i % 2 ? axis : axis - rank}}});
    }
    cases.push_back(
        {op, {{{21, 5}, dtype, Values::specials, -5, 5, Layout::contiguous}}, {{"axis", 1}}});
    cases.push_back(
        {op, {{{6, 31}, dtype, Values::mask, 0, 0, Layout::contiguous}}, {{"axis", 1}}});
    cases.push_back({op, {reals({0, 3}, dtype, 0, 1, 0)}, {{"axis", 1}}});
    cases.push_back({op, {reals({3, 0}, dtype, 0, 1, 0)}, {{"axis", 0}}});
  }
}

inline void add_norms(Cases& cases) {
  Draw draw("norms");
  for (const DType dtype : kFloatingTypes)
    for (std::size_t i = 0; i < 60; ++i) {
      const double eps = i % 2 ? 1e-5 : 1e-3;
      Shape shape = draw.shape(1 + static_cast<int>(i % 4));
      const std::int64_t features = shape.back();
      Case layer{"layer_norm", {reals(shape, dtype, -4, 4, i)}, {{"eps", eps}}};
      if (i % 3 > 0) layer.inputs.push_back(reals({features}, dtype, -2, 2, i / 2));
      if (i % 3 > 1) layer.inputs.push_back(reals({features}, dtype, -2, 2, i / 3));
      cases.push_back(layer);

      const std::int64_t channels = draw.extent(17);
      Shape image{1 + draw.below(3), channels};
      for (std::size_t axis = 0; axis < i % 3; ++axis) image.push_back(draw.extent(8));
      Case batch{"batch_norm", {reals(image, dtype, -4, 4, i)}, {{"eps", eps}}};
      for (int k = 0; k < 3; ++k)
        batch.inputs.push_back(reals({channels}, dtype, -2, 2, i + static_cast<std::size_t>(k)));
      batch.inputs.push_back(reals({channels}, dtype, 0.1, 3, i / 2));
      cases.push_back(batch);

      const std::int64_t groups = 1 + draw.below(4);
      image[1] = groups * (1 + draw.below(4));
      image.push_back(2 + draw.below(6));
      Case group{
          "group_norm", {reals(image, dtype, -4, 4, i)}, {{"num_groups", groups}, {"eps", eps}}};
      if (i % 3 > 0) group.inputs.push_back(reals({image[1]}, dtype, -2, 2, i / 2));
      if (i % 3 > 1) group.inputs.push_back(reals({image[1]}, dtype, -2, 2, i / 3));
      cases.push_back(group);
    }
}

inline void add_attention(Cases& cases) {
  Draw draw("attention");
  const std::string op = "scaled_dot_product_attention";
  for (const DType dtype : kFloatingTypes)
    for (std::size_t i = 0; i < 80; ++i) {
      const std::int64_t queries = draw.extent(33), keys = draw.extent(33), depth = draw.extent(16),
                         values = draw.coin() ? depth : draw.extent(17);
      Shape batch;
      if (i % 4 > 0) batch.push_back(1 + draw.below(2));
      if (i % 4 > 1) batch.push_back(1 + draw.below(3));
      const auto with = [&](std::int64_t tokens, std::int64_t features) {
        Shape shape = batch;
        shape.push_back(tokens);
        shape.push_back(features);
        return shape;
      };
      Case c{op,
             {reals(with(queries, depth), dtype, -2, 2, i),
              reals(with(keys, depth), dtype, -2, 2, i / 2),
              reals(with(keys, values), dtype, -2, 2, i / 3)},
             {}};
      if (i % 5 == 1)
        c.inputs.push_back({{queries, keys}, dtype, Values::mask, 0, 0, Layout::contiguous});
      if (i % 5 == 2) c.inputs.push_back(reals(with(queries, keys), dtype, -3, 3, i));
      if (i % 5 == 3)
        c.inputs.push_back({{queries, keys}, boolean, Values::integers, 0, 1, layout_of(i)});
      cases.push_back(c);
    }
}

inline AttrValue one_or_two(Draw& draw, std::int64_t low, std::int64_t high) {
  const std::int64_t a = low + draw.below(high - low + 1), b = low + draw.below(high - low + 1);
  return draw.coin() ? AttrValue(a) : AttrValue(Ints{a, b});
}
inline std::int64_t greatest(const AttrValue& value) {
  if (const auto* one = std::get_if<std::int64_t>(&value.get())) return *one;
  const Ints& both = std::get<Ints>(value.get());
  return std::max(both[0], both[1]);
}

inline void add_convolutions(Cases& cases) {
  Draw draw("conv2d");
  for (const DType dtype : kFloatingTypes)
    for (std::size_t i = 0; i < 120; ++i) {
      const std::int64_t groups = draw.pick<std::int64_t>({1, 1, 2, 3}),
                         in = groups * (1 + draw.below(3)), out = groups * (1 + draw.below(3));
      const std::int64_t kh = draw.pick<std::int64_t>({1, 2, 3, 3, 5}),
                         kw = draw.pick<std::int64_t>({1, 2, 3, 3, 4});
      const AttrValue stride = one_or_two(draw, 1, 3), padding = one_or_two(draw, 0, 2),
                      dilation = one_or_two(draw, 1, 2);
      const std::int64_t span = greatest(dilation) * (std::max(kh, kw) - 1) + 1;
      const Values values = i % 3 == 2 ? Values::reals : Values::integers;
      const auto input = [&](const Shape& shape, std::size_t k) {
        return Input{shape, dtype, values, -3, 3, layout_of(k)};
      };
      const Shape x{1 + draw.below(2), in, span + draw.below(8), span + draw.below(8)};
      Case conv{
          "conv2d",
          {input(x, i), input({out, in / groups, kh, kw}, i / 5)},
          {{"stride", stride}, {"padding", padding}, {"dilation", dilation}, {"groups", groups}}};
      if (i % 2) conv.inputs.push_back(input({out}, i / 2));
      cases.push_back(conv);

      // PyTorch wants the output padding smaller than the stride or the dilation.
      const AttrValue output_padding =
          greatest(stride) == 1 && greatest(dilation) == 1 ? AttrValue(0) : AttrValue(Ints{0, 0});
      const Shape small{1 + draw.below(2), in, 2 + draw.below(5), 2 + draw.below(5)};
      const std::int64_t cut = std::min<std::int64_t>(greatest(padding), std::min(kh, kw) / 2);
      Case transposed{"conv_transpose2d",
                      {input(small, i + 1), input({in, out / groups, kh, kw}, i / 5)},
                      {{"stride", stride},
                       {"padding", cut},
                       {"output_padding", output_padding},
                       {"dilation", dilation},
                       {"groups", groups}}};
      if (std::holds_alternative<std::int64_t>(stride.get()) && greatest(stride) > 1 && i % 4 == 0)
        transposed.attrs.set("output_padding", greatest(stride) - 1);
      if (i % 2 == 0) transposed.inputs.push_back(input({out}, i / 2));
      cases.push_back(transposed);
    }
}

inline void add_pools(Cases& cases) {
  Draw draw("pools");
  for (const std::string op : {"max_pool2d", "avg_pool2d"})
    for (const DType dtype : kFloatingTypes)
      for (std::size_t i = 0; i < 60; ++i) {
        const AttrValue kernel = one_or_two(draw, 2, 4);
        const Shape shape{1 + draw.below(2), 1 + draw.below(3), greatest(kernel) + draw.below(9),
                          greatest(kernel) + draw.below(9)};
        const Values values = i % 10 == 9  ? Values::specials
                              : i % 3 == 2 ? Values::reals
                                           : Values::integers;
        Attrs attrs{{"kernel_size", kernel}, {"padding", draw.below(2)}};
        if (i % 4 > 0) attrs.set("stride", one_or_two(draw, 1, 3));
        if (i % 5 > 2) attrs.set("ceil_mode", true);
        if (i % 3 > 0 && op == "avg_pool2d") attrs.set("count_include_pad", i % 3 == 2);
        cases.push_back({op, {{shape, dtype, values, -9, 9, layout_of(i)}}, attrs});
      }
}

inline void add_interpolations(Cases& cases) {
  Draw draw("interpolate");
  for (const DType dtype : kFloatingTypes)
    for (const std::string mode : {"nearest", "bilinear", "bicubic"})
      for (std::size_t i = 0; i < 36; ++i) {
        const Shape shape{1 + draw.below(2), 1 + draw.below(3), 1 + draw.below(12),
                          1 + draw.below(12)};
        const Ints size{1 + draw.below(20), 1 + draw.below(20)};
        Attrs attrs{{"size", size}, {"mode", mode}};
        if (mode != "nearest") {
          if (i % 3 == 1) attrs.set("align_corners", true);
          if (i % 3 == 2) attrs.set("antialias", true);
        }
        cases.push_back({"interpolate", {reals(shape, dtype, -4, 4, i)}, attrs});
      }
}

// Boxes that begin and end anywhere, in front of their beginnings, too.
inline void add_boxes(Cases& cases) {
  Draw draw("boxes");
  for (const DType dtype : kFloatingTypes)
    for (std::size_t i = 0; i < 40; ++i) {
      const Shape shape{1 + draw.below(3), draw.pick<std::int64_t>({1, 2, 5, 16, 19}),
                        1 + draw.below(12), 1 + draw.below(12)};
      const Shape boxes{i % 10 == 9 ? 0 : 1 + draw.below(4), 5};
      const Attrs attrs{{"output_size", one_or_two(draw, 1, 4)},
                        {"spatial_scale", i % 3 == 0 ? 1.0 : 0.3},
                        {"sampling_ratio", static_cast<std::int64_t>(i % 4) - 1},
                        {"aligned", draw.coin()}};
      cases.push_back(
          {"roi_align",
           {reals(shape, dtype, -4, 4, i), reals(boxes, dtype == f64 ? f64 : f32, -4, 20, i / 2)},
           attrs});
    }
}

inline Cases neural_cases() {
  Cases cases;
  add_softmax(cases, "softmax");
  add_softmax(cases, "log_softmax");
  add_norms(cases);
  add_attention(cases);
  add_convolutions(cases);
  add_pools(cases);
  add_interpolations(cases);
  add_boxes(cases);
  return cases;
}

}  // namespace tensor::cases
