// RT-DETR's forward pass: pure functions of tensors, so that it can be traced.
#include "models/rt_detr/rt_detr.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tensor/creation.h"

namespace models::rt_detr {

namespace nn = tensor::nn;
using tensor::Tensor;

namespace {

Mlp mlp(std::vector<std::int64_t> widths) {
  Mlp made;
  for (std::size_t i = 1; i < widths.size(); ++i)
    made.layers.push_back(nn::Linear::sized(widths[i - 1], widths[i]));
  return made;
}

/// A box around every cell of every map, as logits [cells, 4]; the logit of 1 where it is too near
/// the edge. `inside` [cells, 1] is 0 there, and 1 elsewhere.
struct Anchors {
  Tensor boxes, inside;
};

Anchors anchors_of(const std::vector<Size>& grids) {
  constexpr double kSmallest = 0.05, kMargin = 0.01;
  constexpr float kLogitOfOne = 1e4f;  // whatever is added to it
  std::vector<float> boxes, inside;
  double side = kSmallest;
  for (const Size& grid : grids) {
    for (std::int64_t i = 0; i < grid.height * grid.width; ++i) {
      const auto centre = [](std::int64_t at, std::int64_t extent) {
        return (static_cast<double>(at) + 0.5) / static_cast<double>(extent);
      };
      const std::array<double, 4> box{centre(i % grid.width, grid.width),
                                      centre(i / grid.width, grid.height), side, side};
      const bool is_inside =
          std::ranges::all_of(box, [](double at) { return at > kMargin && at < 1 - kMargin; });
      inside.push_back(is_inside);
      for (const double at : box)
        boxes.push_back(is_inside ? static_cast<float>(std::log(at / (1 - at))) : kLogitOfOne);
    }
    side *= 2;
  }
  const std::int64_t cells = std::ssize(inside);
  return {tensor::array(boxes, {cells, 4}), tensor::array(inside, {cells, 1})};
}

Tensor logit(const Tensor& x) {
  constexpr double kLeast = 1e-5;
  return tensor::log(tensor::maximum(x, kLeast) / tensor::maximum(1 - x, kLeast));
}

void check_size(const Tensor& pixels, std::int64_t channels, std::size_t stages) {
  check_pixels(pixels, channels, {1, 1});
  const std::int64_t multiple = std::int64_t{2} << stages;
  if (pixels.shape(2) % multiple != 0 || pixels.shape(3) % multiple != 0)
    tensor::fail("pixel_values", "got an image of ", pixels.shape(2), " x ", pixels.shape(3),
                 ", need multiples of ", multiple, ": the maps would not be halves of each other");
}

}  // namespace

Tensor Mlp::operator()(const Tensor& x) const {
  Tensor y = x;
  for (std::size_t i = 0; i < layers.size(); ++i) y = layers[i](i == 0 ? y : tensor::relu(y));
  return y;
}

DeformableAttention DeformableAttention::sized(const RtDetrConfig& c) {
  const std::int64_t samples = c.heads * std::ssize(c.stages) * c.points;
  return {nn::Linear::sized(c.width, 2 * samples),
          nn::Linear::sized(c.width, samples),
          nn::Linear::sized(c.width, c.width),
          nn::Linear::sized(c.width, c.width),
          c.heads,
          c.points,
          c.offset_scale};
}

Tensor DeformableAttention::operator()(const Tensor& x, const Tensor& boxes, const Tensor& tokens,
                                       const std::vector<Size>& grids) const {
  const std::int64_t batch = x.shape(0), queries = x.shape(1), width = x.shape(2);
  const std::int64_t samples = std::ssize(grids) * points, features = width / heads;
  // [B, queries, heads, samples, 2]: offsets are shares of the box.
  const auto of_box = [&](std::int64_t first) -> Tensor {
    return boxes(tensor::ellipsis, tensor::slice(first, first + 2))
        .reshape({batch, queries, 1, 1, 2});
  };
  const Tensor places = of_box(0) + offsets(x).reshape({batch, queries, heads, samples, 2}) *
                                        (of_box(2) * (offset_scale / static_cast<double>(points)));
  const Tensor grid =
      (2 * places - 1).transpose({0, 2, 1, 3, 4}).reshape({batch * heads, queries, samples, 2});
  const Tensor shares = tensor::softmax(weights(x).reshape({batch, queries, heads, samples}))
                            .transpose({0, 2, 1, 3})
                            .reshape({batch * heads, 1, queries, samples});
  const Tensor values = value(tokens);
  std::vector<Tensor> seen;
  std::int64_t cell = 0, sample = 0;
  for (const Size& size : grids) {
    const std::int64_t cells = size.height * size.width;
    const Tensor map = as_map(values(tensor::all_of_axis, tensor::slice(cell, cell + cells)), size)
                           .reshape({batch * heads, features, size.height, size.width});
    seen.push_back(tensor::grid_sample(map, grid(tensor::all_of_axis, tensor::all_of_axis,
                                                 tensor::slice(sample, sample + points))));
    cell += cells, sample += points;
  }
  const Tensor sum = tensor::sum(tensor::concatenate(seen, 3) * shares, 3);
  return output(sum.reshape({batch, width, queries}).swapaxes(1, 2));
}

DecoderLayer DecoderLayer::sized(const RtDetrConfig& c) {
  const nn::LayerNorm norm = nn::LayerNorm::sized(c.width, c.encoder.layer_norm_eps);
  return {nn::MultiheadAttention::sized(c.width, c.heads),
          norm,
          DeformableAttention::sized(c),
          norm,
          {nn::Linear::sized(c.width, c.ffn), nn::Linear::sized(c.ffn, c.width), c.ffn_activation},
          norm};
}

Tensor DecoderLayer::operator()(const Tensor& x, const Tensor& position, const Tensor& boxes,
                                const Tensor& tokens, const std::vector<Size>& grids) const {
  const Tensor placed = x + position;
  const Tensor y = self_attention_norm(x + self_attention(placed, placed, x));
  const Tensor z = cross_attention_norm(y + cross_attention(y + position, boxes, tokens, grids));
  return ffn_norm(z + ffn(z));
}

RtDetr RtDetr::sized(const RtDetrConfig& c) {
  RtDetr net{.backbone = ResNetVd::sized(c.backbone),
             .stages = c.stages,
             .encoder_input = {},
             .decoder_input = {},
             .encoder = HybridEncoder::sized(c.encoder),
             .memory = nn::Linear::sized(c.width, c.width),
             .memory_norm = nn::LayerNorm::sized(c.width, c.encoder.layer_norm_eps),
             .proposed_class = nn::Linear::sized(c.width, c.classes),
             .proposed_box = mlp({c.width, c.width, c.width, 4}),
             .decoder = {},
             .position = mlp({4, 2 * c.width, c.width}),
             .box_heads = {},
             .class_head = nn::Linear::sized(c.width, c.classes),
             .queries = c.queries};
  for (const std::int64_t stage : c.stages) {
    const std::int64_t in = c.backbone.widths[static_cast<std::size_t>(stage)];
    net.encoder_input.push_back(ConvNorm::sized(in, c.encoder.width, 1));
    net.decoder_input.push_back(ConvNorm::sized(c.encoder.width, c.width, 1));
    net.decoder_input.back().norm.eps = c.encoder.batch_norm_eps;
  }
  for (std::int64_t i = 0; i < c.layers; ++i) {
    net.decoder.push_back(DecoderLayer::sized(c));
    net.box_heads.push_back(mlp({c.width, c.width, c.width, 4}));
  }
  return net;
}

// transformers makes a box of every place and then chooses; which are chosen depends on their
// classes alone.
RtDetr::Proposals RtDetr::propose(const Tensor& tokens, const std::vector<Size>& grids) const {
  if (tokens.shape(1) < queries)
    tensor::fail("pixel_values", "is so small that its maps have only ", tokens.shape(1),
                 " cells, less than the ", queries, " queries");
  const Anchors anchors = anchors_of(grids);
  const Tensor features = memory_norm(memory(tokens * anchors.inside));
  const Tensor best = tensor::max(proposed_class(features), -1);
  const Tensor places = tensor::topk(best, queries).second;
  const Tensor chosen = tensor::gather_nd(features, places.expand_dims(-1), 1);
  return {chosen, proposed_box(chosen) + tensor::take(anchors.boxes, places, 0)};
}

nn::StateDict RtDetr::operator()(const Tensor& pixels, const Observer& observe) const {
  check_size(pixels, backbone.stem[0].conv.weight.shape(1), backbone.stages.size());
  const std::vector<Tensor> found = backbone(pixels, observe);
  std::vector<Tensor> maps;
  for (std::size_t i = 0; i < stages.size(); ++i)
    maps.push_back(encoder_input[i](found[static_cast<std::size_t>(stages[i])]));
  maps = encoder(maps, observe);
  std::vector<Tensor> rows;
  std::vector<Size> grids;
  for (std::size_t i = 0; i < maps.size(); ++i) {
    rows.push_back(as_tokens(decoder_input[i](maps[i])));
    grids.push_back({maps[i].shape(2), maps[i].shape(3)});
  }
  const Tensor tokens = tensor::concatenate(rows, 1);
  const Proposals proposals = propose(tokens, grids);
  Tensor state = proposals.features, boxes = tensor::sigmoid(proposals.boxes);
  for (std::size_t i = 0; i < decoder.size(); ++i) {
    state = decoder[i](state, position(boxes), boxes, tokens, grids);
    boxes = tensor::sigmoid(box_heads[i](state) + logit(boxes));
    observed(observe, "decoder_hidden_states." + std::to_string(i + 1), state);
  }
  return {{"logits", class_head(state)}, {"pred_boxes", boxes}, {"last_hidden_state", state}};
}

}  // namespace models::rt_detr
