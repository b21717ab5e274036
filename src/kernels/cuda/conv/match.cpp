// Which groups are convolutions, and what their epilogues read and write.
#include <algorithm>

#include "src/kernels/cuda/conv/conv.h"
#include "src/ops/pair.h"
#include "tensor/error.h"

namespace tensor::cuda {
namespace {

bool contains(const std::vector<ValueId>& ids, ValueId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// The one convolution of the group; -1 if there is none, or more.
ValueId convolution_in(const Graph& graph, const Group& group) {
  ValueId found = -1;
  for (const ValueId id : group.nodes) {
    if (!graph.is_op(id, Op::conv2d) && !graph.is_op(id, Op::quantized_conv2d)) continue;
    if (found >= 0) return -1;
    found = id;
  }
  return found;
}

// The conversion of the image inside the group, read by the convolution alone; -1 if there is none.
ValueId conversion_of(const Graph& graph, const Group& group, ValueId node) {
  const ValueId input = graph[node].inputs[0];
  if (!contains(group.nodes, input) || !graph.is_op(input, Op::astype) ||
      contains(group.writes, input) || !contains(group.reads, graph[input].inputs[0]))
    return -1;
  for (const ValueId id : group.nodes)
    if (id != node && contains(graph[id].inputs, input)) return -1;
  return is_floating(graph.type(graph[input].inputs[0]).dtype) ? input : -1;
}

void read_window(Convolution& conv, const Graph& graph) {
  const Node& node = graph[conv.node];
  const Shape &x = graph.type(conv.image).shape, &w = graph.type(conv.weight).shape,
              &y = node.type.shape;
  const auto pair = [&](std::string_view name) { return pair_of(node.attrs, name, 0, "conv"); };
  conv.images = x[0], conv.channels = x[1], conv.outputs = y[1];
  conv.size = {x[2], x[3]}, conv.out_size = {y[2], y[3]};
  if (node.op == Op::quantized_conv2d)
    conv.taps = pair("kernel");
  else
    conv.taps = {w[2], w[3]}, conv.groups = node.attrs.integer("groups");
  conv.group_channels = conv.channels / conv.groups;
  conv.group_outputs = conv.outputs / conv.groups;
  conv.stride = pair("stride"), conv.padding = pair("padding"), conv.dilation = pair("dilation");
}

// Offsets inside an image and numbers of pixels are ints in kernels.
bool fits(const Convolution& conv) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  return conv.pixels() > 0 && conv.channels > 0 && conv.outputs > 0 && conv.pixels() < kMost &&
         conv.images * conv.size.h * conv.size.w < kMost && conv.depth() < kMost / 2 &&
         conv.outputs < kMost && conv.padding.h < kMost && conv.padding.w < kMost &&
         conv.dilation.h * conv.taps.h < kMost && conv.dilation.w * conv.taps.w < kMost &&
         conv.stride.h * conv.out_size.h < kMost && conv.stride.w * conv.out_size.w < kMost;
}

}  // namespace

std::optional<Convolution> match_convolution(const Graph& graph, const Group& group) {
  Convolution conv;
  conv.node = convolution_in(graph, group);
  if (conv.node < 0) return std::nullopt;
  const Node& node = graph[conv.node];
  const ValueId conversion = conversion_of(graph, group, conv.node);
  conv.image = conversion >= 0 ? graph[conversion].inputs[0] : node.inputs[0];
  conv.weight = node.inputs[1];
  conv.dtype = node.type.dtype;
  if (node.op == Op::quantized_conv2d) {
    conv.scales = node.inputs[2];
    conv.dtype = i8;
    // Images of other types have a scale for each window.
    if (graph.type(node.inputs[0]).dtype != i8 || conversion >= 0) return std::nullopt;
  } else if (node.inputs.size() > 2) {
    conv.bias = node.inputs[2];
  }
  for (const ValueId id : {conv.image, conv.weight, conv.bias, conv.scales})
    if (id >= 0 && !contains(group.reads, id)) return std::nullopt;
  conv.is_constant = graph.is_constant(conv.weight);
  conv.is_tf32 = node.attrs.flag("tf32", false) && conv.dtype == f32;
  read_window(conv, graph);
  if (!fits(conv)) return std::nullopt;
  for (const ValueId id : group.nodes)
    if (id != conv.node && id != conversion) conv.elementwise.push_back(id);
  auto code = element_code(graph, conv.elementwise, {{conv.node, "sum"}});
  if (!code) return std::nullopt;
  conv.code = std::move(*code);
  // Every element is calculated at a pixel and a channel of the result.
  const Shape& shape = node.type.shape;
  for (const auto& load : conv.code.loads)
    if (!(load.as == shape)) return std::nullopt;
  for (const ValueId id : group.writes)
    if (!(graph.type(id).shape == shape) ||
        (id != conv.node && !(conv.code.shapes.at(id) == shape)))
      return std::nullopt;
  return conv;
}

}  // namespace tensor::cuda
