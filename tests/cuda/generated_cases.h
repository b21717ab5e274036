// Functions of tensors, each of which one family of generated kernels runs as one group.
#pragma once

#include <string>
#include <vector>

#include "src/ops/gather.h"
#include "src/ops/op.h"
#include "tensor/compile.h"
#include "tensor/tensor.h"

namespace tensor::testing {

struct GeneratedCase {
  std::string name, family;
  TensorFunction function;
  std::vector<TensorType> inputs;
  /// Of the machine that it is lowered for: with few, small problems have enough for each.
  int multiprocessors = 132;
};

namespace generated {
using Tensors = std::vector<Tensor>;
inline TensorType type(const Shape& shape, DType dtype = f32) { return {shape, dtype}; }
}  // namespace generated

inline std::vector<GeneratedCase> pointwise_cases() {
  using namespace generated;
  std::vector<GeneratedCase> cases;
  const auto add = [&](const std::string& name, const TensorFunction& f,
                       const std::vector<TensorType>& inputs) {
    cases.push_back({name, "pointwise", f, inputs});
  };
  const auto sum = [](const Tensors& in) -> Tensors { return {in[0] + in[1]}; };
  for (const std::int64_t n : {1, 7, 63, 65, 197, 257, 4096})
    add("sum of " + std::to_string(n), sum, {type({n}), type({n})});
  add("odd rows", sum, {type({5, 197}), type({5, 197})});
  add("a bias for every row", sum, {type({65, 64}), type({64})});
  add("a bias for every row of halves", sum, {type({65, 64}, f16), type({64}, f16)});
  add("a number for every row", sum, {type({7, 1}), type({7, 63})});
  add("outer sum", sum, {type({63, 1}, bf16), type({1, 64}, bf16)});
  add("several results",
      [](const Tensors& in) -> Tensors {
        const Tensor x = in[0] * in[1];
        return {x, gelu(x) + in[2], (x > 0).astype(u8)};
      },
      {type({3, 65, 32}), type({32}), type({65, 32}, f32)});
  add("mixed types",
      [](const Tensors& in) -> Tensors {
        return {where(in[0] > 1, in[1].astype(f32), in[2].astype(f32) * 2).astype(bf16)};
      },
      {type({257, 8}), type({257, 8}, f16), type({8}, i32)});
  add("transposed operand",
      [](const Tensors& in) -> Tensors {
        return {in[0] + in[1].transpose({1, 0})};
      },
      {type({33, 48}), type({48, 33})});
  add("images whose channels come last",
      [](const Tensors& in) -> Tensors {
        return {copy(in[0].transpose({0, 2, 3, 1}))};
      },
      {type({2, 3, 17, 19})});
  add("reshaped inside",
      [](const Tensors& in) -> Tensors {
        return {(in[0] * 2).reshape({4, 6, 10}) + in[1]};
      },
      {type({24, 10}), type({6, 10})});
  add("smaller values broadcast inside",
      [](const Tensors& in) -> Tensors { return {in[0] * (in[1] + 1) + exp(in[2])}; },
      {type({9, 12, 16}), type({16}), type({12, 1})});
  add("whole numbers",
      [](const Tensors& in) -> Tensors {
        return {floor_divide(in[0], in[1]) + remainder(in[0], in[1])};
      },
      {type({100}, i64), type({100}, i64)});
  add("doubles", [](const Tensors& in) -> Tensors { return {exp(in[0]) * in[1]}; },
      {type({63}, f64), type({63}, f64)});
  add("many", [](const Tensors& in) -> Tensors { return {relu(in[0] + in[1])}; },
      {type({3, 1 << 18}, f16), type({3, 1 << 18}, f16)});
  return cases;
}

inline std::vector<GeneratedCase> copy_cases() {
  using namespace generated;
  std::vector<GeneratedCase> cases;
  const auto add = [&](const std::string& name, const TensorFunction& f,
                       const std::vector<TensorType>& inputs) {
    cases.push_back({name, "copy", f, inputs});
  };
  for (const std::int64_t n : {1, 7, 63, 65, 197, 257}) {
    const std::string size = std::to_string(n);
    add("a part of " + size,
        [](const Tensors& in) -> Tensors {
          return {concatenate({in[0], in[1]}, -1)};
        },
        {type({3, n}), type({3, 4})});
    add("a border of " + size,
        [](const Tensors& in) -> Tensors {
          return {pad(in[0], {{0, 0}, {1, 2}})};
        },
        {type({3, n}, f16)});
    add("rows of " + size,
        [](const Tensors& in) -> Tensors {
          return {take(in[0], array(std::vector<std::int64_t>{3, -1, 0}), 0)};
        },
        {type({4, n})});
  }
  add(
      "as many parts as DenseNet has",
      [](const Tensors& in) -> Tensors { return {concatenate(in, 1)}; },
      std::vector<TensorType>(25, type({2, 5, 7}, f16)));
  add("class token, then positions",
      [](const Tensors& in) -> Tensors {
        return {concatenate({in[0], in[1]}, 1) + in[2]};
      },
      {type({2, 1, 64}), type({2, 196, 64}), type({1, 197, 64})});
  add("odd parts of a row",
      [](const Tensors& in) -> Tensors {
        return {concatenate({in[0], in[1], in[2]}, -1)};
      },
      {type({7, 3}, f16), type({7, 8}, f16), type({7, 5}, f16)});
  add("even parts of a row",
      [](const Tensors& in) -> Tensors {
        return {concatenate({in[0], in[1]}, -1)};
      },
      {type({65, 16}), type({65, 32})});
  add("channels",
      [](const Tensors& in) -> Tensors {
        return {concatenate({in[0].transpose({0, 3, 1, 2}), in[1].transpose({0, 3, 1, 2})}, 1)};
      },
      {type({2, 7, 9, 16}), type({2, 7, 9, 8})});
  add("a border",
      [](const Tensors& in) -> Tensors {
        return {pad(in[0], {{0, 0}, {1, 2}, {3, 0}, {0, 0}}, Tensor(2.5))};
      },
      {type({2, 5, 7, 8})});
  add("a border of a row",
      [](const Tensors& in) -> Tensors {
        return {relu(pad(in[0], {{0, 0}, {3, 5}}, Tensor(-1)))};
      },
      {type({9, 24}, f16)});
  add("rows by number",
      [](const Tensors& in) -> Tensors {
        return {take(in[0], array(std::vector<std::int64_t>{3, -1, 0, 3, 7, 7}), 0)};
      },
      {type({8, 33})});
  add("rows by any number",
      [](const Tensors& in) -> Tensors { return {take_clipped(in[0], in[1], 0)}; },
      {type({4, 33}), type({9}, i64)});
  add("columns by number",
      [](const Tensors& in) -> Tensors {
        return {take(in[0], array(std::vector<std::int64_t>{3, -1, 0, 3}, {2, 2}), 1)};
      },
      {type({8, 5, 3}, i32)});
  add("every row's own",
      [](const Tensors& in) -> Tensors {
        return {
            take_along_axis(in[0], array(std::vector<std::int64_t>{3, -1, 0, 3, 1, 2}, {3, 2}), 1)};
      },
      {type({3, 5})});
  return cases;
}

inline std::vector<GeneratedCase> image_cases() {
  using namespace generated;
  std::vector<GeneratedCase> cases;
  const auto add = [&](const std::string& name, const TensorFunction& f,
                       const std::vector<TensorType>& inputs) {
    cases.push_back({name, "image", f, inputs});
  };
  const auto resized = [&](const std::string& name, Shape in, Pair size,
                           const InterpolateOptions& options, DType dtype = f32) {
    add(name, [=](const Tensors& x) -> Tensors { return {interpolate(x[0], size, options)}; },
        {type(in, dtype)});
  };
  add("largest of 3 x 3", [](const Tensors& x) -> Tensors { return {max_pool2d(x[0], 3, 2, 1)}; },
      {type({2, 16, 15, 18}, f16)});
  add("largest, then relu",
      [](const Tensors& x) -> Tensors { return {relu(max_pool2d(x[0], 2) + 1)}; },
      {type({1, 5, 9, 7})});
  add("largest of whole numbers",
      [](const Tensors& x) -> Tensors { return {max_pool2d(x[0], 3, 1, 1)}; },
      {type({1, 3, 6, 7}, i32)});
  add("mean of a window",
      [](const Tensors& x) -> Tensors {
        return {avg_pool2d(x[0], {5, 7}, 2, {2, 3})};
      },
      {type({2, 8, 13, 17})});
  add("largest, rounded up",
      [](const Tensors& x) -> Tensors { return {max_pool2d(x[0], 3, 2, 0, true)}; },
      {type({2, 16, 8, 10}, f16)});
  add("mean of what lies on the image",
      [](const Tensors& x) -> Tensors {
        return {avg_pool2d(x[0], {3, 4}, 2, {1, 2}, false, false)};
      },
      {type({2, 8, 13, 17})});
  add("mean, rounded up, with the padding",
      [](const Tensors& x) -> Tensors {
        return {avg_pool2d(x[0], {3, 2}, {2, 3}, 1, true, true)};
      },
      {type({1, 3, 8, 9})});
  add("mean, rounded up, without the padding",
      [](const Tensors& x) -> Tensors { return {avg_pool2d(x[0], 3, 2, 1, true, false)}; },
      {type({1, 4, 8, 9}, f16)});
  const auto linear = Interpolation::bilinear, cubic = Interpolation::bicubic;
  resized("nearest, twice", {2, 8, 7, 9}, {14, 18}, {});
  resized("nearest, to any size", {1, 3, 13, 17}, {30, 9}, {}, i32);
  resized("linear, twice", {2, 8, 7, 9}, {14, 18}, {linear}, f16);
  resized("linear, corners", {1, 4, 12, 13}, {25, 49}, {linear, true});
  resized("linear, smaller", {1, 4, 33, 31}, {14, 11}, {linear});
  resized("linear, one pixel", {1, 4, 1, 5}, {6, 1}, {linear, true});
  resized("linear along one axis", {1, 6, 8, 5}, {8, 13}, {linear});
  resized("cubic", {1, 4, 9, 11}, {21, 8}, {cubic});
  resized("cubic, corners", {1, 3, 9, 11}, {21, 8}, {cubic, true});
  resized("smooth, smaller", {1, 3, 65, 63}, {14, 23}, {linear, false, true});
  resized("smooth cubic", {1, 8, 37, 20}, {14, 33}, {cubic, false, true});
  // Enough for two multiprocessors, so that threads write several neighbours, which share what they
  // load. `last`: the result has its channels last, as images between kernels have.
  const auto enlarged = [&](const std::string& name, Shape in, Pair size, bool corners, bool last,
                            DType dtype) {
    add(name,
        [=](const Tensors& x) -> Tensors {
          const Tensor image = interpolate(x[0].transpose({0, 3, 1, 2}), size, {linear, corners});
          return {last ? image.transpose({0, 2, 3, 1}) : image};
        },
        {type(in, dtype)});
    cases.back().multiprocessors = 2;
  };
  enlarged("linear, channels last, twice", {1, 32, 35, 64}, {64, 70}, false, true, f16);
  enlarged("linear, channels last, four times", {1, 13, 12, 32}, {52, 48}, false, true, f32);
  enlarged("linear, channels last to first, twice", {1, 18, 18, 19}, {36, 40}, false, false, f32);
  enlarged("linear, channels last to first, corners", {1, 15, 17, 7}, {51, 48}, true, false, f16);
  enlarged("linear, channels last to first, sixteen times", {2, 3, 4, 5}, {48, 64}, false, false,
           f32);
  resized("linear, channels first, 3 by 5", {1, 13, 8, 6}, {24, 30}, {linear});
  cases.back().multiprocessors = 1;
  // Of two images; boxes that reach out of them, and that end before they begin.
  const Tensor boxes =
      array(std::vector<float>{0,     1.3F, 2.1F, 14.2F, 11.7F, 1,    -6.2F, -3.3F, 40.1F,
                               30.6F, 1,    8.7F, 9.1F,  8.9F,  9.4F, 0,     30.2F, 3.3F,
                               50.4F, 8.8F, 5,    9.3F,  8.2F,  2.6F, 1.9F},
            {5, 5});
  for (const std::int64_t ratio : {0, 1, 2, 3})
    add("cells of boxes, " + std::to_string(ratio) + " samples",
        [=](const Tensors& x) -> Tensors {
          return {
              roi_align(x[0].transpose({0, 3, 1, 2}), boxes, {3, 2}, {0.5, ratio, ratio % 2 == 0})};
        },
        {type({2, 9, 11, 16}, ratio == 2 ? f16 : f32)});
  add("cells of boxes, then relu",
      [=](const Tensors& x) -> Tensors {
        return {relu(roi_align(x[0], boxes, 2, {1, 2}))};
      },
      {type({2, 3, 9, 11})});
  add("linear, then relu and a sum",
      [](const Tensors& x) -> Tensors {
        return {relu(interpolate(x[0], {16, 20}, {Interpolation::bilinear})) + x[1]};
      },
      {type({2, 16, 8, 10}), type({2, 16, 16, 20})});
  return cases;
}

/// Images of each size along an axis.
inline std::vector<GeneratedCase> pooling_cases() {
  using namespace generated;
  std::vector<GeneratedCase> cases;
  for (const std::int64_t n : {1, 7, 63, 65, 197, 257}) {
    const std::string size = std::to_string(n);
    cases.push_back({"largest of 3 x 3, a width of " + size,
                     "image",
                     [](const Tensors& x) -> Tensors { return {max_pool2d(x[0], 3, 2, 1)}; },
                     {type({1, 8, 3, n}, f16)}});
    cases.push_back({"mean of 3 x 3, channels: " + size,
                     "image",
                     [](const Tensors& x) -> Tensors { return {avg_pool2d(x[0], 3, 1, 1)}; },
                     {type({1, n, 4, 3})}});
  }
  return cases;
}

inline std::vector<GeneratedCase> row_cases() {
  using namespace generated;
  std::vector<GeneratedCase> cases;
  const auto add = [&](const std::string& name, const TensorFunction& f,
                       const std::vector<TensorType>& inputs) {
    cases.push_back({name, "row", f, inputs});
  };
  const auto normalised = [](const Tensors& in) -> Tensors {
    return {layer_norm(in[0], in[1], in[2], 1e-6)};
  };
  for (const std::int64_t n : {7, 63, 65, 197, 257, 768, 1280, 5000})
    for (const std::int64_t rows : {1, 7, 197})
      if (n * rows < 200000)
        add("layer_norm " + std::to_string(rows) + " x " + std::to_string(n), normalised,
            {type({rows, n}), type({n}), type({n})});
  add("layer_norm of many rows", normalised, {type({3000, 64}), type({64}), type({64})});
  // The squares of 1e3 are 1e6: a variance of 1 is lost in their difference.
  add("layer_norm far from zero",
      [](const Tensors& in) -> Tensors { return {layer_norm(in[0] + 1000, in[1], in[2], 1e-6)}; },
      {type({65, 768}), type({768}), type({768})});
  add("residual sum and its layer_norm",
      [](const Tensors& in) -> Tensors {
        const Tensor sum = in[0] + in[1].astype(f32) + in[2];
        return {sum, layer_norm(sum, in[3], in[4], 1e-5).astype(f16)};
      },
      {type({197, 768}), type({197, 768}, f16), type({768}), type({768}), type({768})});
  add("residual sum and its layer_norm, many rows",
      [](const Tensors& in) -> Tensors {
        const Tensor sum = in[0] + in[1].astype(f32) + in[2];
        return {sum, layer_norm(sum, in[3], in[4], 1e-5).astype(bf16)};
      },
      {type({2100, 256}), type({2100, 256}, bf16), type({256}), type({256}), type({256})});
  // A row of one number is none for this family: RunOnDevice.SoftmaxOfOneNumberIsOne.
  for (const std::int64_t n : {2, 7, 63, 65, 197, 257, 1050, 4096})
    add("softmax of " + std::to_string(n),
        [](const Tensors& in) -> Tensors { return {softmax(in[0] * 0.125, -1)}; },
        {type({3, 7, n})});
  add("softmax over channels", [](const Tensors& in) -> Tensors { return {softmax(in[0], 1)}; },
      {type({2, 19, 5, 33})});
  add("log_softmax", [](const Tensors& in) -> Tensors { return {log_softmax(in[0] + in[1], -1)}; },
      {type({100, 92}, f16), type({92}, f16)});
  add("sums, means and extremes",
      [](const Tensors& in) -> Tensors {
        const Tensor x = in[0] * 2;
        return {sum(x, {-1}), mean(x, {-1}), max(x, {-1}), min(x, {-1}), var(x, {-1})};
      },
      {type({65, 197})});
  add("what is left of the mean",
      [](const Tensors& in) -> Tensors {
        const Tensor centred = in[0] - mean(in[0], {-1}, true);
        return {centred / sqrt(mean(square(centred), {-1}, true) + 1e-5)};
      },
      {type({5, 9, 257})});
  add("mean of images whose channels come last",
      [](const Tensors& in) -> Tensors {
        return {mean(in[0].transpose({0, 3, 1, 2}), {2, 3})};
      },
      {type({2, 13, 14, 48})});
  add("mean of an image",
      [](const Tensors& in) -> Tensors {
        return {mean(in[0], {2, 3})};
      },
      {type({2, 16, 7, 7})});
  return cases;
}

inline std::vector<GeneratedCase> reduce_cases() {
  using namespace generated;
  std::vector<GeneratedCase> cases;
  const auto add = [&](const std::string& name, const TensorFunction& f,
                       const std::vector<TensorType>& inputs) {
    cases.push_back({name, "reduce", f, inputs});
  };
  add("sum of everything", [](const Tensors& in) -> Tensors { return {sum(in[0])}; },
      {type({7, 63, 197})});
  add("sum of much", [](const Tensors& in) -> Tensors { return {sum(square(in[0]), {0})}; },
      {type({20000, 3})});
  add("sums of columns, then a root",
      [](const Tensors& in) -> Tensors { return {sqrt(sum(square(in[0]), {0}) + in[1])}; },
      {type({65, 257}), type({257})});
  add("mean over the inner axes of some",
      [](const Tensors& in) -> Tensors {
        return {mean(in[0], {1, 3}, true)};
      },
      {type({3, 7, 5, 9}, f16)});
  add("mean of images whose channels come last",
      [](const Tensors& in) -> Tensors {
        return {mean(in[0].transpose({0, 3, 1, 2}), {2, 3})};
      },
      {type({2, 13, 14, 48})});
  add("largest and its double", [](const Tensors& in) -> Tensors { return {max(in[0], {0}) * 2}; },
      {type({65, 7}, i32)});
  add("smallest", [](const Tensors& in) -> Tensors { return {min(in[0], {-1})}; },
      {type({9, 63}, f64)});
  add("product", [](const Tensors& in) -> Tensors { return {prod(in[0] * 0.5 + 1, {-1})}; },
      {type({19, 7})});
  add("whole numbers", [](const Tensors& in) -> Tensors { return {sum(in[0], {-1})}; },
      {type({19, 300}, u8)});
  add("mean of whole numbers", [](const Tensors& in) -> Tensors { return {mean(in[0], {0})}; },
      {type({65, 9}, i16)});
  add("variance", [](const Tensors& in) -> Tensors { return {var(in[0] + 100, {0})}; },
      {type({1000, 5}, f64)});
  add("any", [](const Tensors& in) -> Tensors { return {any(in[0] > 2, {-1})}; },
      {type({100, 65})});
  add("all", [](const Tensors& in) -> Tensors { return {all(in[0] > -2, {-1})}; },
      {type({100, 65})});
  add("place of the largest", [](const Tensors& in) -> Tensors { return {argmax(in[0], -1)}; },
      {type({65, 1000})});
  add("place of the largest, of few kinds",
      [](const Tensors& in) -> Tensors { return {argmax(in[0], 1)}; }, {type({7, 300, 5}, u8)});
  add("place of the smallest", [](const Tensors& in) -> Tensors { return {argmin(in[0], 1)}; },
      {type({2, 19, 33}, f16)});
  return cases;
}

inline std::vector<GeneratedCase> scan_cases() {
  using namespace generated;
  std::vector<GeneratedCase> cases;
  const auto add = [&](const std::string& name, int axis, const std::vector<TensorType>& inputs) {
    cases.push_back({name, "scan",
                     [axis](const Tensors& in) -> Tensors { return {cumsum(in[0], axis)}; },
                     inputs});
  };
  for (const std::int64_t n : {1, 7, 32, 63, 65, 197, 257})
    add("running sums of " + std::to_string(n), -1, {type({5, n})});
  add("running sums down", 1, {type({2, 33, 19}, f16)});
  add("running sums of whole numbers", 0, {type({100, 3}, i32)});
  for (const std::int64_t n : {1, 31, 65})
    cases.push_back({"running products of " + std::to_string(n),
                     "scan",
                     [](const Tensors& in) -> Tensors { return {cumprod(in[0], -1)}; },
                     {type({5, n})}});
  cases.push_back({"running products of whole numbers",
                   "scan",
                   [](const Tensors& in) -> Tensors { return {cumprod(in[0], 0)}; },
                   {type({40, 3}, i32)}});
  add("running counts", 1, {type({3, 40, 2}, boolean)});
  return cases;
}

inline std::vector<GeneratedCase> sort_cases() {
  using namespace generated;
  std::vector<GeneratedCase> cases;
  const auto add = [&](const std::string& name, const TensorFunction& f, const TensorType& input) {
    cases.push_back({name, "sort", f, {input}});
  };
  // Whole numbers below 100: many are equal.
  const auto sorted = [](int axis) {
    return [axis](const Tensors& in) -> Tensors { return {sort(in[0], axis)}; };
  };
  const auto order = [](int axis) {
    return [axis](const Tensors& in) -> Tensors { return {argsort(in[0], axis)}; };
  };
  for (const std::int64_t n : {1, 2, 7, 63, 65, 257})
    add("order of " + std::to_string(n), order(-1), type({3, n}, u8));
  add("sorted down", sorted(0), type({130, 3}));
  add("sorted in the middle", sorted(1), type({2, 70, 3}, bf16));
  add("sorted doubles", sorted(-1), type({2, 300}, f64));
  add("sorted truth", sorted(-1), type({2, 100}, boolean));
  add("sorted in two runs", sorted(-1), type({2, 2500}));
  add("order of five runs", order(-1), type({2, 9001}, i64));
  add("order of runs down", order(0), type({4097, 2}, f16));
  add(
      "the largest first",
      [](const Tensors& in) -> Tensors {
        return {apply_op(Op::argsort, in, {{"axis", 1}, {"descending", true}})};
      },
      type({2, 4500}, u8));
  for (const std::int64_t n : {200, 4500})
    add(
        "the ten largest of " + std::to_string(n),
        [](const Tensors& in) -> Tensors {
          return {apply_op(Op::argsort, in, {{"axis", 1}, {"descending", true}, {"count", 10}})};
        },
        type({3, n}, u8));
  return cases;
}

inline std::vector<GeneratedCase> generated_cases() {
  std::vector<GeneratedCase> all;
  for (auto family : {pointwise_cases, copy_cases, image_cases, pooling_cases, row_cases,
                      reduce_cases, scan_cases, sort_cases})
    for (GeneratedCase& c : family()) all.push_back(std::move(c));
  return all;
}

/// Normal numbers, and whole ones below 100.
inline std::vector<Tensor> inputs_of(const GeneratedCase& c) {
  std::vector<Tensor> inputs;
  Generator generator(7);
  for (const TensorType& type : c.inputs)
    inputs.push_back(
        is_floating(type.dtype)
            ? generator.normal(type.shape).astype(type.dtype)
            : generator.randint(0, type.dtype == boolean ? 2 : 100, type.shape).astype(type.dtype));
  return inputs;
}

}  // namespace tensor::testing
