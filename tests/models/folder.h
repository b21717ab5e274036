// A small correct ViT checkpoint to spoil, and to write into a folder made for a test.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "tensor/creation.h"
#include "tensor/io.h"
#include "tensor/nn.h"
#include "tests/temporary_folder.h"

namespace folder {

/// A checkpoint in memory: JSON values by key, and tensors.
struct Checkpoint {
  std::map<std::string, std::string> config, preprocessor;
  tensor::nn::StateDict tensors;
  std::map<std::string, std::string> files;  // written last, by name
  std::map<std::string, std::string> links;  // symbolic links, by name
  bool with_tensors = true;                  // whether there is a model.safetensors

  static std::string json(const std::map<std::string, std::string>& values) {
    std::string text;
    for (const auto& [key, value] : values)
      text += (text.empty() ? "" : ", ") + ("\"" + key + "\": " + value);
    return "{" + text + "}";
  }
  void write(const tensor::check::TemporaryFolder& folder) const {
    folder.write("config.json", json(config));
    if (!preprocessor.empty()) folder.write("preprocessor_config.json", json(preprocessor));
    if (with_tensors) tensor::save_safetensors(folder / "model.safetensors", tensors);
    for (const auto& [name, text] : files) folder.write(name, text);
    for (const auto& [name, target] : links) std::filesystem::create_symlink(target, folder / name);
  }
};

/// Hugging Face's form: width 8, 2 layers, 2 heads, images of 8 x 8 in patches of 4 x 4, 3 classes.
inline Checkpoint small_vit() {
  Checkpoint c;
  c.config = {{"hidden_size", "8"},
              {"num_hidden_layers", "2"},
              {"num_attention_heads", "2"},
              {"intermediate_size", "12"},
              {"image_size", "8"},
              {"patch_size", "4"},
              {"num_channels", "3"},
              {"qkv_bias", "true"},
              {"hidden_act", "\"gelu\""},
              {"layer_norm_eps", "1e-12"},
              {"id2label", "{\"0\": \"cat\", \"1\": \"dog\", \"2\": \"owl\"}"}};
  c.preprocessor = {{"size", "8"},
                    {"do_resize", "true"},
                    {"do_normalize", "true"},
                    {"image_mean", "[0.5, 0.5, 0.5]"},
                    {"image_std", "[0.5, 0.5, 0.5]"}};
  tensor::Generator random(1);
  const auto add = [&](const std::string& name, const tensor::Shape& shape) {
    c.tensors[name] = random.normal(shape, 0, 0.2);
  };
  const auto pair = [&](const std::string& name, const tensor::Shape& weight) {
    add(name + ".weight", weight), add(name + ".bias", {weight[0]});
  };
  add("vit.embeddings.cls_token", {1, 1, 8});
  add("vit.embeddings.position_embeddings", {1, 5, 8});
  pair("vit.embeddings.patch_embeddings.projection", {8, 3, 4, 4});
  for (const char* number : {"0", "1"}) {
    const std::string layer = std::string("vit.encoder.layer.") + number + ".";
    pair(layer + "layernorm_before", {8}), pair(layer + "layernorm_after", {8});
    for (const char* part : {"query", "key", "value"})
      pair(layer + "attention.attention." + part, {8, 8});
    pair(layer + "attention.output.dense", {8, 8});
    pair(layer + "intermediate.dense", {12, 8}), pair(layer + "output.dense", {8, 12});
  }
  pair("vit.layernorm", {8});
  pair("classifier", {3, 8});
  return c;
}

/// timm's form of the same sizes.
inline Checkpoint small_timm_vit() {
  Checkpoint c;
  c.config = {{"architecture", "\"vit_base_patch16_224\""},
              {"num_classes", "3"},
              {"num_features", "8"},
              {"global_pool", "\"token\""},
              {"model_args",
               "{\"img_size\": 8, \"patch_size\": 4, \"embed_dim\": 8, \"depth\": 2, "
               "\"num_heads\": 2}"},
              {"pretrained_cfg", "{\"input_size\": [3, 8, 8], \"crop_pct\": 0.9}"}};
  tensor::Generator random(2);
  const auto add = [&](const std::string& name, const tensor::Shape& shape) {
    c.tensors[name] = random.normal(shape, 0, 0.2);
  };
  const auto pair = [&](const std::string& name, const tensor::Shape& weight) {
    add(name + ".weight", weight), add(name + ".bias", {weight[0]});
  };
  add("cls_token", {1, 1, 8}), add("pos_embed", {1, 5, 8});
  pair("patch_embed.proj", {8, 3, 4, 4});
  for (const char* number : {"0", "1"}) {
    const std::string block = std::string("blocks.") + number + ".";
    pair(block + "norm1", {8}), pair(block + "norm2", {8});
    pair(block + "attn.qkv", {24, 8}), pair(block + "attn.proj", {8, 8});
    pair(block + "mlp.fc1", {12, 8}), pair(block + "mlp.fc2", {8, 12});
  }
  pair("norm", {8});
  pair("head", {3, 8});
  return c;
}

}  // namespace folder
