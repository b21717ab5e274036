// Small checkpoints of sines, so that other programs can make the same: what these gave is what the
// tests that use them expect.
#pragma once

#include <cmath>
#include <string>

#include "tests/models/folder.h"

namespace sine {

/// zlib's checksum of a text.
inline std::uint32_t crc32(const std::string& text) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const char letter : text) {
    crc ^= static_cast<unsigned char>(letter);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320 : 0);
  }
  return ~crc;
}

/// around + scale * sin(1.7 i + a number made of the name).
inline tensor::Tensor weights(const std::string& name, const tensor::Shape& shape,
                              double scale = 0.25, double around = 0) {
  const double seed = crc32(name) % 9973;
  tensor::Tensor result = tensor::empty(shape, tensor::f32);
  float* target = result.mutable_data<float>();
  for (std::int64_t i = 0; i < result.size(); ++i)
    target[i] = static_cast<float>(around + scale * std::sin(1.7 * static_cast<double>(i) + seed));
  return result;
}

/// Puts sines into tensors by their names.
struct Maker {
  tensor::nn::StateDict tensors;
  double of_weights = 0.25;

  void add(const std::string& name, const tensor::Shape& shape, double scale = 0.25,
           double around = 0) {
    tensors[name] = weights(name, shape, scale, around);
  }
  void linear(const std::string& name, std::int64_t out, std::int64_t in) {
    add(name + ".weight", {out, in}, of_weights), add(name + ".bias", {out});
  }
  void norm(const std::string& name, std::int64_t width) {
    add(name + ".weight", {width}, 0.25, 1), add(name + ".bias", {width});
  }
};

/// Hugging Face's names: width 16, 1 layer, 2 heads, patches of 8 x 8.
inline folder::Checkpoint huggingface_vit(std::int64_t image, std::int64_t classes) {
  Maker m;
  m.add("vit.embeddings.cls_token", {1, 1, 16});
  m.add("vit.embeddings.position_embeddings", {1, (image / 8) * (image / 8) + 1, 16});
  m.add("vit.embeddings.patch_embeddings.projection.weight", {16, 3, 8, 8}, 0.1);
  m.add("vit.embeddings.patch_embeddings.projection.bias", {16});
  const std::string layer = "vit.encoder.layer.0.";
  for (const char* part : {"query", "key", "value"})
    m.linear(layer + "attention.attention." + part, 16, 16);
  m.linear(layer + "attention.output.dense", 16, 16);
  m.linear(layer + "intermediate.dense", 32, 16), m.linear(layer + "output.dense", 16, 32);
  m.norm(layer + "layernorm_before", 16), m.norm(layer + "layernorm_after", 16);
  m.norm("vit.layernorm", 16);
  m.linear("classifier", classes, 16);
  folder::Checkpoint c;
  c.config = {{"model_type", "\"vit\""},
              {"num_attention_heads", "2"},
              {"image_size", std::to_string(image)}};
  c.tensors = m.tensors;
  return c;
}

/// timm's names: 1 block, images of 32 x 32 in patches of 16 x 16, 5 classes.
inline folder::Checkpoint timm_vit(const std::string& architecture, std::int64_t width,
                                   std::int64_t mlp) {
  Maker m;
  m.of_weights = 0.1;
  m.add("cls_token", {1, 1, width}), m.add("pos_embed", {1, 5, width});
  m.add("patch_embed.proj.weight", {width, 3, 16, 16}, 0.05);
  m.add("patch_embed.proj.bias", {width});
  m.linear("blocks.0.attn.qkv", 3 * width, width), m.linear("blocks.0.attn.proj", width, width);
  m.linear("blocks.0.mlp.fc1", mlp, width), m.linear("blocks.0.mlp.fc2", width, mlp);
  m.norm("blocks.0.norm1", width), m.norm("blocks.0.norm2", width), m.norm("norm", width);
  m.of_weights = 0.25;
  m.linear("head", 5, width);
  folder::Checkpoint c;
  c.config = {{"architecture", "\"" + architecture + "\""},
              {"num_classes", "5"},
              {"global_pool", "\"token\""},
              {"model_args", "{\"img_size\": [32, 32], \"depth\": 1}"},
              {"pretrained_cfg", "{\"input_size\": [3, 32, 32], \"crop_pct\": 0.9}"}};
  c.tensors = m.tensors;
  return c;
}

/// mmsegmentation's names, a Naive head: width 16, 2 layers, 2 heads, patches of 8 x 8, 3 classes.
inline folder::Checkpoint mmseg_setr() {
  Maker m;
  m.add("backbone.cls_token", {1, 1, 16}), m.add("backbone.pos_embed", {1, 5, 16});
  m.add("backbone.patch_embed.projection.weight", {16, 3, 8, 8}, 0.1);
  m.add("backbone.patch_embed.projection.bias", {16});
  for (const char* number : {"0", "1"}) {
    const std::string layer = std::string("backbone.layers.") + number + ".";
    m.add(layer + "attn.attn.in_proj_weight", {48, 16});
    m.add(layer + "attn.attn.in_proj_bias", {48});
    m.linear(layer + "attn.attn.out_proj", 16, 16);
    m.linear(layer + "ffn.layers.0.0", 32, 16), m.linear(layer + "ffn.layers.1", 16, 32);
    m.norm(layer + "ln1", 16), m.norm(layer + "ln2", 16);
  }
  m.norm("decode_head.norm", 16);
  m.add("decode_head.up_convs.0.0.conv.weight", {16, 16, 1, 1});
  m.norm("decode_head.up_convs.0.0.bn", 16);
  m.add("decode_head.up_convs.0.0.bn.running_mean", {16});
  m.add("decode_head.up_convs.0.0.bn.running_var", {16}, 0.25, 1);
  m.add("decode_head.conv_seg.weight", {3, 16, 1, 1}), m.add("decode_head.conv_seg.bias", {3});
  folder::Checkpoint c;
  c.config = {{"num_attention_heads", "2"}};
  c.tensors = m.tensors;
  return c;
}

}  // namespace sine
