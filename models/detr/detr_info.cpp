// Parameters and multiply-adds of DETR, part by part.
#include "models/detr/detr_info.h"

#include <algorithm>

namespace models::detr {

namespace nn = tensor::nn;

namespace {

struct Backbone {
  InfoRow row;
  Size grid;
  std::int64_t peak = 0;  // the largest input, inner result and output of a block
};

Backbone describe_backbone(const ResNet& net, Size image) {
  Backbone result{{.part = "backbone"}, {}, 0};
  InfoRow& row = result.row;
  row.layers = 1;
  Size size = add_conv(row, net.stem.conv, image);
  const auto area = [](Size s) { return s.height * s.width; };
  result.peak = 2 * area(size) * net.stem.conv.weight.shape(0);
  size = {(size.height + 1) / 2, (size.width + 1) / 2};  // the pooling
  for (const std::vector<ResNetBlock>& stage : net.stages) {
    for (const ResNetBlock& block : stage) {
      const Size before = size;
      for (const ConvNorm& layer : block.layers) size = add_conv(row, layer.conv, size);
      if (block.shortcut.present()) add_conv(row, block.shortcut.conv, before);
      const std::int64_t in = area(before) * block.layers.front().conv.weight.shape(1);
      const std::int64_t out = area(size) * block.layers.back().conv.weight.shape(0);
      result.peak = std::max(result.peak, in + 2 * out);
      ++row.layers;
    }
  }
  result.grid = size;
  return result;
}

std::int64_t ffn_macs(std::int64_t tokens, const FeedForward& ffn) {
  return 2 * linear_macs(tokens, ffn.fc1.weight.shape(1), ffn.fc1.weight.shape(0));
}

}  // namespace

Info describe(Detr& detr, const std::string& model, Size image) {
  Info info{.model = model, .input = "", .rows = {}};
  const Backbone backbone = describe_backbone(detr.backbone, image);
  const std::int64_t cells = backbone.grid.height * backbone.grid.width;
  const std::int64_t queries = detr.queries.weight.shape(0), width = detr.queries.weight.shape(1);
  info.input = "1 x " + std::to_string(detr.backbone.stem.conv.weight.shape(1)) + " x " +
               std::to_string(image.height) + " x " + std::to_string(image.width);
  info.rows.push_back(backbone.row);

  InfoRow projection{.part = "input projection"};
  add_conv(projection, detr.input_projection, backbone.grid);
  info.rows.push_back(projection);

  // Query, key, value and output; the decoder's keys and values of the image are as many as cells.
  const std::int64_t project = linear_macs(1, width, width);
  InfoRow encoder{.part = "encoder", .layers = std::ssize(detr.encoder)};
  for (EncoderLayer& layer : detr.encoder) {
    encoder.parameters += nn::parameter_count(layer);
    encoder.macs +=
        4 * cells * project + attention_macs(cells, cells, width) + ffn_macs(cells, layer.ffn);
  }
  info.rows.push_back(encoder);

  InfoRow decoder{.part = "decoder", .layers = std::ssize(detr.decoder)};
  decoder.parameters = nn::parameter_count(detr.decoder_norm);
  for (DecoderLayer& layer : detr.decoder) {
    decoder.parameters += nn::parameter_count(layer);
    decoder.macs += 6 * queries * project + 2 * cells * project +
                    attention_macs(queries, queries, width) +
                    attention_macs(queries, cells, width) + ffn_macs(queries, layer.ffn);
  }
  info.rows.push_back(decoder);

  InfoRow heads{.part = "queries and heads", .layers = 1 + std::ssize(detr.box_head)};
  heads.parameters = nn::parameter_count(detr.queries);
  const auto add_linear = [&](nn::Linear& linear) {
    heads.parameters += nn::parameter_count(linear);
    heads.macs += linear_macs(queries, linear.weight.shape(1), linear.weight.shape(0));
  };
  add_linear(detr.class_head);
  for (nn::Linear& linear : detr.box_head) add_linear(linear);
  info.rows.push_back(heads);

  const std::int64_t scores =
      detr.encoder.empty() ? 0 : detr.encoder[0].self_attention.heads * cells * cells;
  info.peak_activations = std::max(backbone.peak, scores + 6 * cells * width);
  return info;
}

}  // namespace models::detr
