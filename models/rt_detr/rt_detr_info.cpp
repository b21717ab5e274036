// Parameters and multiply-adds of RT-DETR, part by part.
#include <algorithm>

#include "models/rt_detr/rt_detr.h"

namespace models::rt_detr {

namespace nn = tensor::nn;

namespace {

std::int64_t area(Size size) { return size.height * size.width; }

std::int64_t macs_of(std::int64_t tokens, const nn::Linear& linear) {
  return tokens * linear.weight.size();
}

std::int64_t macs_of(std::int64_t tokens, const Mlp& mlp) {
  std::int64_t macs = 0;
  for (const nn::Linear& layer : mlp.layers) macs += macs_of(tokens, layer);
  return macs;
}

/// Adds the blocks; returns the sizes of the stages' outputs. The frozen batch normalisations count
/// neither as parameters nor as work: they fold into the convolutions.
std::vector<Size> add_backbone(Info& info, const ResNetVd& net, Size image) {
  InfoRow row{.part = "backbone", .layers = 3};
  Size size = image;
  for (const ConvNorm& layer : net.stem) size = add_conv(row, layer.conv, size);
  info.peak_activations = 2 * area(size) * net.stem.back().conv.weight.shape(0);
  size = {(size.height + 1) / 2, (size.width + 1) / 2};  // the pooling
  std::vector<Size> sizes;
  for (const VdStage& stage : net.stages) {
    for (const VdBlock& block : stage.layers) {
      const Size before = size;
      for (const ConvNorm& layer : block.layers) size = add_conv(row, layer.conv, size);
      if (block.shortcut.present())
        add_conv(row, block.shortcut.conv, block.is_pooled ? size : before);
      ++row.layers;
      info.peak_activations = std::max(
          info.peak_activations, area(before) * block.layers.front().conv.weight.shape(1) +
                                     2 * area(size) * block.layers.back().conv.weight.shape(0));
    }
    sizes.push_back(size);
  }
  info.rows.push_back(row);
  return sizes;
}

/// With its norm, which was trained, but for the running statistics.
void add(InfoRow& row, const ConvNorm& layer, Size size) {
  add_conv(row, layer.conv, size);
  row.parameters += layer.norm.weight.size() + layer.norm.bias.size();
}

void add(InfoRow& row, const CspLayer& layer, Size size) {
  for (const ConvNorm* each : {&layer.conv1, &layer.conv2, &layer.conv3})
    if (each->present()) add(row, *each, size);
  for (const RepBlock& block : layer.bottlenecks)
    add(row, block.conv1, size), add(row, block.conv2, size);
}

void add_encoder(Info& info, RtDetr& net, const std::vector<Size>& maps) {
  InfoRow row{.part = "encoder", .layers = std::ssize(maps)};
  HybridEncoder& encoder = net.encoder;
  for (std::size_t i = 0; i < maps.size(); ++i) add(row, net.encoder_input[i], maps[i]);
  for (std::size_t i = 0; i < encoder.attention.size(); ++i) {
    const std::int64_t cells = area(maps[static_cast<std::size_t>(encoder.attended[i])]);
    for (detr::EncoderLayer& layer : encoder.attention[i].layers) {
      const std::int64_t width = layer.ffn.fc1.weight.shape(1);
      row.parameters += nn::parameter_count(layer);
      row.macs += transformer_macs(cells, width, 2 * layer.ffn.fc1.weight.size());
    }
  }
  for (std::size_t i = 0; i < encoder.lateral.size(); ++i) {
    const std::size_t small = maps.size() - 1 - i;
    add(row, encoder.lateral[i], maps[small]);
    add(row, encoder.down[i], maps[small - 1]);
    add(row, encoder.downsample[i], maps[i]);
    add(row, encoder.up[i], maps[i + 1]);
  }
  for (std::size_t i = 0; i < maps.size(); ++i) add(row, net.decoder_input[i], maps[i]);
  info.rows.push_back(row);
}

}  // namespace

Info describe(RtDetr& net, const std::string& model, Size image) {
  Info info{.model = model,
            .input = shape_text(net.backbone.stem[0].conv.weight.shape(1), image),
            .rows = {},
            .peak_activations = 0};
  const std::vector<Size> sizes = add_backbone(info, net.backbone, image);
  std::vector<Size> maps;
  std::int64_t cells = 0;
  for (const std::int64_t stage : net.stages) {
    maps.push_back(sizes[static_cast<std::size_t>(stage)]);
    cells += area(maps.back());
  }
  add_encoder(info, net, maps);

  const std::int64_t queries = net.queries, width = net.memory.weight.shape(0);
  InfoRow proposals{.part = "proposals", .layers = 2 + std::ssize(net.proposed_box.layers)};
  proposals.parameters = nn::parameter_count(net.memory) + nn::parameter_count(net.memory_norm) +
                         nn::parameter_count(net.proposed_class) +
                         nn::parameter_count(net.proposed_box);
  proposals.macs = macs_of(cells, net.memory) + macs_of(cells, net.proposed_class) +
                   macs_of(queries, net.proposed_box);
  info.rows.push_back(proposals);

  InfoRow decoder{.part = "decoder", .layers = std::ssize(net.decoder)};
  decoder.parameters = nn::parameter_count(net.position);
  for (std::size_t i = 0; i < net.decoder.size(); ++i) {
    DecoderLayer& layer = net.decoder[i];
    const DeformableAttention& attention = layer.cross_attention;
    decoder.parameters += nn::parameter_count(layer) + nn::parameter_count(net.box_heads[i]);
    decoder.macs += transformer_macs(queries, width, 2 * layer.ffn.fc1.weight.size()) +
                    macs_of(queries, attention.offsets) + macs_of(queries, attention.weights) +
                    macs_of(cells, attention.value) + macs_of(queries, attention.output) +
                    queries * attention.weights.weight.shape(0) / attention.heads * width +
                    macs_of(queries, net.position) + macs_of(queries, net.box_heads[i]);
  }
  info.rows.push_back(decoder);
  info.rows.push_back(
      {"classifier", 1, nn::parameter_count(net.class_head), macs_of(queries, net.class_head)});
  info.peak_activations = std::max(info.peak_activations, 4 * cells * width);
  return info;
}

}  // namespace models::rt_detr
