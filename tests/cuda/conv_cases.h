// Convolutions with what models fuse to them, at sizes that fill no tile.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "src/trace/fuse.h"
#include "src/trace/layout.h"
#include "src/trace/trace.h"
#include "tensor/tensor.h"

namespace tensor::testing {

/// A function that runs as one group, of inputs of these types, an image the first. Images come as
/// [N, H, W, C] where they are to lie channels last.
struct ConvCase {
  std::string name;
  TensorFunction f;
  std::vector<TensorType> inputs;
};

/// A convolution of `dtype` operands: bias, residual, what is stored.
struct ConvShape {
  std::string name;
  Shape image;  // [N, C, H, W]
  std::int64_t outputs = 8;
  Pair taps = 1;
  Conv2dOptions options = {};
  bool is_channels_last = true;
};

inline std::vector<ConvShape> conv_shapes() {
  return {
      {"pointwise", {2, 64, 9, 7}, 72, 1, {}},
      {"window", {1, 40, 13, 11}, 24, 3, {.padding = 1}},
      {"stride", {2, 32, 12, 9}, 136, 3, {.stride = 2, .padding = 1}},
      {"dilation", {1, 8, 11, 14}, 20, 3, {.padding = 2, .dilation = 2}},
      {"oblong", {1, 16, 9, 10}, 40, {1, 5}, {.stride = {2, 3}, .padding = {0, 2}}},
      {"pointwise_stride", {1, 128, 9, 11}, 64, 1, {.stride = 2}},
      {"deep", {1, 256, 4, 5}, 64, 3, {.padding = 1}},
      {"wide_window", {2, 64, 13, 11}, 72, 3, {.stride = 2, .padding = 1}},
      {"wide_dilation", {1, 64, 7, 12}, 136, 3, {.padding = 2, .dilation = 2}},
      {"half_steps", {2, 96, 7, 6}, 72, 3, {.padding = 1}},
      {"narrow", {1, 24, 9, 8}, 80, 3, {.stride = 2, .padding = 1}},
      {"ragged_pointwise", {2, 200, 5, 7}, 40, 1, {}},
      {"packed_channels", {1, 52, 8, 7}, 52, 3, {.padding = 1}, false},
      {"stem", {1, 3, 23, 18}, 40, 7, {.stride = 2, .padding = 3}, false},
      {"patches", {2, 3, 28, 42}, 72, 14, {.stride = 14}, false},
      {"whole_patches", {3, 3, 32, 48}, 72, 16, {.stride = 16}, false},
      {"odd_channels", {1, 5, 9, 8}, 16, 3, {.padding = 1}},
      {"many_odd_channels", {1, 19, 6, 7}, 19, 3, {.padding = 1}, false},
      {"one_output", {1, 24, 6, 7}, 1, 1, {}},
      {"groups", {1, 24, 7, 6}, 12, 3, {.padding = 1, .groups = 3}},
  };
}

/// Groups of channels, for which Tensor Cores need several as one, or all.
inline std::vector<ConvShape> group_shapes() {
  return {
      {"groups_of_16", {2, 128, 7, 9}, 128, 3, {.padding = 1, .groups = 8}},
      {"groups_of_4", {1, 64, 6, 5}, 64, 3, {.stride = 2, .padding = 1, .groups = 16}},
      {"groups_of_24", {1, 192, 5, 6}, 192, 3, {.padding = 1, .groups = 8}},
      {"groups_of_64", {1, 128, 6, 7}, 256, 3, {.padding = 2, .dilation = 2, .groups = 2}},
      {"groups_pointwise", {1, 256, 5, 7}, 128, 1, {.groups = 4}},
      {"groups_of_few", {1, 192, 5, 6}, 64, 3, {.padding = 1, .groups = 32}},
      {"groups_of_8_ragged", {1, 88, 7, 6}, 88, 3, {.padding = 1, .groups = 11}},
      {"groups_of_24_ragged", {2, 264, 5, 4}, 264, 3, {.stride = 2, .padding = 1, .groups = 11}},
      {"groups_first", {2, 64, 9, 4}, 64, 2, {.stride = 2, .groups = 4}, false},
  };
}

/// A filter for every channel.
inline std::vector<ConvShape> depthwise_shapes() {
  return {
      {"depthwise", {2, 40, 9, 13}, 40, 3, {.padding = 1, .groups = 40}},
      {"depthwise_7x7", {1, 72, 11, 9}, 72, 7, {.padding = 3, .groups = 72}},
      {"depthwise_stride", {2, 16, 12, 15}, 16, 5, {.stride = 2, .padding = 2, .groups = 16}},
      {"depthwise_dilation", {1, 8, 14, 11}, 8, 3, {.padding = 3, .dilation = 3, .groups = 8}},
      {"depthwise_oblong",
       {1, 24, 9, 10},
       24,
       {1, 4},
       {.stride = {2, 3}, .padding = {0, 5}, .dilation = {1, 2}, .groups = 24}},
      {"depthwise_odd", {1, 13, 6, 7}, 13, 3, {.padding = 1, .groups = 13}},
      {"depthwise_first", {2, 19, 8, 5}, 19, 5, {.padding = 2, .groups = 19}, false},
  };
}

/// Images and channels of sizes around those of tiles.
inline std::vector<ConvShape> odd_shapes() {
  std::vector<ConvShape> shapes;
  for (const std::int64_t n : {1, 7, 63, 65, 197, 257}) {
    const std::string size = std::to_string(n);
    shapes.push_back({"width_" + size, {1, 16, 2, n}, 24, 3, {.padding = 1}});
    shapes.push_back({"channels_" + size, {1, n, 3, 4}, 16, 3, {.padding = 1}});
    shapes.push_back({"outputs_" + size, {1, 16, 4, 5}, n, 1, {}});
  }
  return shapes;
}

/// Convolutions of ResNet-50 on an image of 800 x 1333 and of SETR-PUP's head.
inline std::vector<ConvShape> model_shapes() {
  std::vector<ConvShape> shapes = {
      {"stem", {1, 3, 800, 1333}, 64, 7, {.stride = 2, .padding = 3}, false},
      {"patches", {1, 3, 224, 224}, 768, 16, {.stride = 16}, false}};
  Pair size{200, 334};
  std::int64_t channels = 64;
  for (const std::int64_t planes : {64, 128, 256, 512}) {
    const std::string stage = "stage" + std::to_string(planes);
    const std::int64_t stride = planes == 64 ? 1 : 2;
    const Pair half{(size.h - 1) / stride + 1, (size.w - 1) / stride + 1};
    shapes.push_back({stage + "_first", {1, channels, size.h, size.w}, planes, 1, {}});
    shapes.push_back({stage + "_3x3_stride",
                      {1, planes, size.h, size.w},
                      planes,
                      3,
                      {.stride = stride, .padding = 1}});
    shapes.push_back(
        {stage + "_shortcut", {1, channels, size.h, size.w}, 4 * planes, 1, {.stride = stride}});
    size = half;
    channels = 4 * planes;
    shapes.push_back({stage + "_in", {1, channels, size.h, size.w}, planes, 1, {}});
    shapes.push_back({stage + "_3x3", {1, planes, size.h, size.w}, planes, 3, {.padding = 1}});
    shapes.push_back({stage + "_out", {1, planes, size.h, size.w}, channels, 1, {}});
  }
  for (const std::int64_t side : {24, 48, 96, 192})
    shapes.push_back({"pup" + std::to_string(side),
                      {1, side == 24 ? 1024 : 256, side, side},
                      256,
                      3,
                      {.padding = 1}});
  return shapes;
}

inline Tensor constant_of(const Shape& shape, double deviation, DType dtype) {
  static Generator numbers(2026);
  return numbers.normal(shape, 0, deviation).astype(dtype);
}

/// Bias, ReLU, residual and one value stored twice, each with every shape.
inline std::vector<ConvCase> conv_cases(const ConvShape& shape, DType dtype) {
  const std::int64_t channels = shape.image[1] / shape.options.groups;
  const double taps = static_cast<double>(channels * shape.taps.h * shape.taps.w);
  const Tensor w = constant_of({shape.outputs, channels, shape.taps.h, shape.taps.w},
                               1 / std::sqrt(taps), dtype);
  const Tensor bias = constant_of({shape.outputs, 1, 1}, 1, f32);
  const auto options = shape.options;
  const auto turned = [](const Tensor& x) { return transpose(x, {0, 3, 1, 2}); };
  const bool turns = shape.is_channels_last;
  const auto image_of = [=](const Tensor& x) { return turns ? turned(x) : x; };
  const auto sum = [=](const Tensor& x) { return conv2d(x, w, {}, options).astype(f32) + bias; };
  const auto lying = [=](const Shape& s, DType type) -> TensorType {
    return {turns ? Shape{s[0], s[2], s[3], s[1]} : s, type};
  };
  const Graph alone =
      trace([&](const std::vector<Tensor>& in) -> std::vector<Tensor> { return {sum(in[0])}; },
            std::vector<TensorType>{{shape.image, dtype}});
  const Shape y = alone.type(alone.outputs()[0]).shape;
  using Tensors = std::vector<Tensor>;
  const TensorType image = lying(shape.image, dtype);
  std::vector<ConvCase> cases = {
      {"plain",
       [=](const Tensors& in) -> Tensors { return {conv2d(image_of(in[0]), w, {}, options)}; },
       {image}},
      {"bias_relu",
       [=](const Tensors& in) -> Tensors { return {relu(sum(image_of(in[0]))).astype(dtype)}; },
       {image}},
      {"residual",
       [=](const Tensors& in) -> Tensors {
         return {relu(sum(image_of(in[0])) + turned(in[1]).astype(f32)).astype(dtype)};
       },
       {image, {{y[0], y[2], y[3], y[1]}, dtype}}},
      {"both",
       [=](const Tensors& in) -> Tensors {
         const Tensor value = gelu(sum(image_of(in[0])) * 0.5);
         return {value, value.astype(dtype)};
       },
       {image}}};
  if (dtype != f32)
    cases.push_back(
        {"converted",
         [=](const Tensors& in) -> Tensors { return {sum(image_of(in[0]).astype(dtype))}; },
         {lying(shape.image, f32)}});
  for (ConvCase& c : cases) c.name = shape.name + "_" + c.name;
  return cases;
}

/// Inputs of a case.
inline std::vector<Tensor> inputs_of(const ConvCase& c) {
  std::vector<Tensor> inputs;
  for (const TensorType& type : c.inputs) inputs.push_back(constant_of(type.shape, 1, type.dtype));
  return inputs;
}

struct TracedGroup {
  LaidOutGraph laid;
  Group group;
};

inline TracedGroup traced_group(const ConvCase& c) {
  TracedGroup t{lay_out(trace(c.f, c.inputs)), {}};
  std::vector<ValueId> nodes;
  for (ValueId id = 0; id < t.laid.graph.size(); ++id)
    if (is_compute(t.laid.graph, id)) nodes.push_back(id);
  t.group = make_group(t.laid.graph, wiring(t.laid.graph), nodes);
  return t;
}

}  // namespace tensor::testing
