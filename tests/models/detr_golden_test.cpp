// The reference DETR checkpoints, and the same network under every other public name.
#include <gtest/gtest.h>

#include <functional>
#include <sstream>

#include "models/detr/detr_checkpoint.h"
#include "models/detr/detr_program.h"
#include "tests/io/io_testing.h"
#include "tests/models/checkpoint_testing.h"
#include "tests/models/golden.h"
#include "tests/ops/check.h"

namespace models::detr {
namespace {

using tensor::Tensor;
using tensor::check::error_of;
using tensor::nn::StateDict;

StateDict run(const std::string& folder, const StateDict& inputs) {
  DetrProgram program;
  program.open(folder);
  return program.run(inputs, {});
}

TEST(DetrGolden, EveryOutputOfEveryFolder) {
  const std::vector<std::string> folders = golden::folders("detr_");
  ASSERT_FALSE(folders.empty());
  for (const std::string& folder : folders) {
    SCOPED_TRACE(folder);
    const StateDict io = tensor::load_safetensors(folder + "/io.safetensors").tensors;
    const StateDict masked = run(folder, io);
    const StateDict unmasked =
        run(folder, {{"pixel_values", io.at("pixel_values")(tensor::slice(0, 1))}});
    int compared = 0;
    for (const auto& [name, expected] : io) {
      if (name == "pixel_values" || name == "pixel_mask") continue;
      const bool plain = !name.starts_with("unmasked.");
      const StateDict& outputs = plain ? masked : unmasked;
      const auto got = outputs.find(plain ? name : name.substr(9));
      ASSERT_NE(got, outputs.end()) << name;
      golden::expect_close(got->second, expected, name);
      ++compared;
    }
    EXPECT_GE(compared, 6);
  }
}

/// The reference checkpoint on the hub under changed names or settings gives the very same logits.
class DetrNames : public tensor::testing::FolderTest {
 protected:
  void expect_same_logits(const std::function<std::string(std::string)>& rename) {
    Checkpoint changed = hub_;
    changed.tensors.clear();
    for (const auto& [name, value] : hub_.tensors) changed.tensors.emplace(rename(name), value);
    testing::expect_same(logits(changed), logits(hub_));
  }

  Tensor logits(const Checkpoint& checkpoint) {
    return load_detr(checkpoint)(io_.at("pixel_values"), io_.at("pixel_mask")).logits;
  }

  Checkpoint hub_ = open_checkpoint(golden::folder("detr_hf_hub"));
  StateDict io_ = tensor::load_safetensors(hub_.folder + "/io.safetensors").tensors;
};

std::string replaced(std::string name, const std::string& from, const std::string& to) {
  const std::size_t at = name.find(from);
  return at == std::string::npos ? name : name.replace(at, from.size(), to);
}

TEST_F(DetrNames, OfTransformers5InMemory) {
  expect_same_logits([](std::string name) {
    name = replaced(name, ".conv_encoder.model.", ".model.");
    name = replaced(name, ".out_proj.", ".o_proj.");
    return replaced(name, ".fc", ".mlp.fc");
  });
}

TEST_F(DetrNames, WithTheBackboneWrappedOnceMore) {
  expect_same_logits([](const std::string& name) {
    return replaced(name, ".conv_encoder.model.", ".conv_encoder.model._backbone.");
  });
}

TEST_F(DetrNames, OfAPanopticModelWhoseMasksAreNotNeeded) {
  expect_same_logits([](const std::string& name) { return "detr." + name; });
  hub_.tensors.emplace("mask_head.lay1.weight", tensor::zeros({2, 2}));
  hub_.tensors.emplace("bbox_attention.q_linear.bias", tensor::zeros({2}));
  expect_same_logits([](const std::string& name) { return name; });
}

TEST_F(DetrNames, TwoForOneTensorAreRefused) {
  hub_.tensors.emplace("model.backbone.model.conv1.weight", tensor::zeros({1}));
  EXPECT_EQ(error_of([&] { load_detr(hub_); }),
            hub_.folder +
                ": \"model.backbone.model.conv1.weight\" and another tensor both stand for "
                "\"model.backbone.conv_encoder.model.conv1.weight\"");
}

TEST_F(DetrNames, MissingUnexpectedAndMisshapenTensorsAreAllReported) {
  hub_.tensors.erase("class_labels_classifier.bias");
  hub_.tensors.emplace("class_labels_classifier.bais", tensor::zeros({7}));
  hub_.tensors["query_scale"] = tensor::zeros({3});
  hub_.tensors["model.encoder.layers.1.fc1.bias"] = tensor::zeros({95});
  const std::string message = error_of([&] { load_detr(hub_); });
  for (const char* part :
       {"4 problems", "missing: \"class_labels_classifier.bias\"",
        "unexpected: \"class_labels_classifier.bais\"", "unexpected: \"query_scale\"",
        "wrong shape: \"model.encoder.layers.1.fc1.bias\" is (95,), need (96,)"})
    EXPECT_NE(message.find(part), std::string::npos) << part << "\n" << message;
}

TEST_F(DetrNames, AnotherModelIsNotTakenForADetr) {
  EXPECT_EQ(error_of([] {
              load_detr(testing::checkpoint_of("{}", {{"pos_embed", tensor::zeros({1, 5, 8})}}));
            }),
            "DIR: does not hold a DETR: there is neither a tensor "
            "\"model.input_projection.weight\" (Hugging Face) nor \"input_proj.weight\" (the "
            "original repository)");
}

/// What config.json may and may not say about the reference checkpoint.
class DetrSettings : public DetrNames {
 protected:
  std::string error(const std::string& config) {
    hub_.config = testing::json(config);
    return error_of([&] { load_detr(hub_); });
  }
  static std::string tensors(const std::string& name) {
    return ", but the tensors \"" + name + "\" in " + golden::folder("detr_hf_hub") + " give ";
  }
};

constexpr const char* kHeads = R"("encoder_attention_heads": 4, "decoder_attention_heads": 4)";

TEST_F(DetrSettings, SizesMayBeLeftOut) {
  hub_.config = testing::json(std::string("{") + kHeads + "}");
  EXPECT_EQ(error_of([&] { load_detr(hub_); }), "no error");
}

TEST_F(DetrSettings, SizesMayNotContradictTheTensors) {
  const std::string heads = kHeads;
  EXPECT_EQ(
      error("{\"encoder_layers\": 6, " + heads + "}"),
      "config.json: encoder_layers: is 6" + tensors("model.encoder.layers.0.fc1.weight") + "2");
  EXPECT_EQ(error("{\"d_model\": 256, " + heads + "}"),
            "config.json: d_model: is 256" + tensors("model.input_projection.weight") + "64");
  EXPECT_EQ(
      error("{\"num_queries\": 100, " + heads + "}"),
      "config.json: num_queries: is 100" + tensors("model.query_position_embeddings.weight") + "9");
  EXPECT_EQ(
      error("{\"decoder_ffn_dim\": 97, " + heads + "}"),
      "config.json: decoder_ffn_dim: is 97" + tensors("model.decoder.layers.0.fc1.weight") + "96");
}

TEST_F(DetrSettings, TheBackboneIsCheckedWhereItIsDescribed) {
  const std::string heads = std::string(kHeads) + ", \"backbone_config\": ";
  EXPECT_EQ(error("{" + heads + "{\"depths\": [2, 1, 2, 2]}}"),
            "config.json: backbone_config.depths: does not agree with the tensors, which say "
            "(2, 1, 2, 1)");
  EXPECT_EQ(error("{" + heads + "{\"hidden_sizes\": [32, 64, 96, 130]}}"),
            "config.json: backbone_config.hidden_sizes: does not agree with the tensors, which "
            "say (32, 64, 96, 128)");
  EXPECT_EQ(error("{" + heads + "{\"embedding_size\": 64}}"),
            "config.json: backbone_config.embedding_size: does not agree with the tensors, which "
            "say 16");
  // A named timm model takes the description's place: the tensors alone say what it is.
  EXPECT_EQ(error("{\"backbone\": \"resnet50\", " + heads + "{\"depths\": [9]}}"), "no error");
}

TEST_F(DetrSettings, HeadsMustDivideTheWidth) {
  EXPECT_EQ(error(R"({"encoder_attention_heads": 5})"),
            "config.json: encoder_attention_heads is 5, need a divisor of the width 64");
  EXPECT_EQ(error(R"({"decoder_attention_heads": 0})"),
            "config.json: decoder_attention_heads is 0, need a divisor of the width 64");
}

TEST_F(DetrSettings, WhatIsNotComputedIsRefused) {
  EXPECT_EQ(error(R"({"auxiliary_loss": true})"),
            "config.json: auxiliary_loss is true: transformers then normalises the state after "
            "every decoder layer, which this DETR does not; set it to false if the model was "
            "trained with the original code");
  EXPECT_EQ(error(R"({"activation_function": "gelu"})"),
            "config.json: activation_function is \"gelu\", need \"relu\": DETR's feed-forward "
            "layers are built with ReLU");
  EXPECT_EQ(error(R"({"position_embedding_type": "learned"})"),
            "config.json: position_embedding_type is \"learned\", need \"sine\": learned positions "
            "are not supported");
  EXPECT_EQ(error(R"({"backbone_config": {"hidden_act": "silu"}})"),
            "config.json: backbone_config: hidden_act is \"silu\", need \"relu\": ResNet is built "
            "with ReLU");
  EXPECT_EQ(error(R"({"backbone_config": {"downsample_in_bottleneck": true}})"),
            "config.json: backbone_config: downsample_in_bottleneck is true: that is ResNet v1, "
            "need v1.5");
}

TEST(DetrCheckpoint, SizesOfNothingAreRefused) {
  const auto error = [](std::int64_t width, std::int64_t queries) {
    DetrConfig config{.backbone = {.stem = 4, .stages = {{1, 4, 8}}},
                      .width = width,
                      .queries = queries,
                      .classes = 2,
                      .encoder_layers = 0,
                      .decoder_layers = 1,
                      .decoder_ffn = 4};
    Detr detr = Detr::sized(config);
    const auto rename = [](const std::string& path) { return checkpoint_name(path, Names::hub); };
    const Checkpoint checkpoint =
        testing::checkpoint_of(R"({"encoder_attention_heads": 2, "decoder_attention_heads": 2})",
                               testing::renamed(tensor::nn::parameters(detr), rename));
    return error_of([&] { load_detr(checkpoint); });
  };
  EXPECT_EQ(error(6, 3),
            "config.json: got a width of 6, 2 classes, 3 queries and 1 decoder layers, need a "
            "width that 4 divides and at least one of the others");
  EXPECT_EQ(error(8, 0),
            "config.json: got a width of 8, 2 classes, 0 queries and 1 decoder layers, need a "
            "width that 4 divides and at least one of the others");
}

TEST_F(DetrSettings, EachWayToSayDC5Dilates) {
  const auto cells = [&](const std::string& config) {
    hub_.config = testing::json(config);
    return load_detr(hub_)(io_.at("pixel_values")).encoder_last_hidden_state.shape(1);
  };
  const auto ceil_div = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  const std::int64_t h = io_.at("pixel_values").shape(2), w = io_.at("pixel_values").shape(3);
  const std::string start = std::string("{") + kHeads;
  EXPECT_EQ(cells(start + "}"), ceil_div(h, 32) * ceil_div(w, 32));
  for (const char* dc5 : {R"("dilation": true)", R"("backbone_config": {"output_stride": 16})",
                          R"("backbone_kwargs": {"output_stride": 16})"})
    EXPECT_EQ(cells(start + ", " + dc5 + "}"), ceil_div(h, 16) * ceil_div(w, 16)) << dc5;
}

TEST_F(DetrSettings, TheNumberOfLabelsMustBeTheClassifiers) {
  EXPECT_EQ(error_of([&] {
              std::filesystem::copy(golden::folder("detr_hf_hub"), folder_.path(),
                                    std::filesystem::copy_options::recursive);
              tensor::testing::write_bytes(
                  path("config.json"),
                  std::string("{\"id2label\": {\"0\": \"cat\"}, ") + kHeads + "}");
              DetrProgram().open(folder_.path());
            }),
            path("config.json") + ": id2label: names 1 classes, but the model has 6");
}

/// Any sizes, any of the names: what is written is what is read.
TEST(DetrCheckpoint, EveryNamingOfEverySizeRoundTrips) {
  DetrConfig wide{.backbone = {.channels = 3, .stem = 8, .stages = {{1, 4, 16}, {2, 8, 24}}},
                  .width = 16,
                  .queries = 5,
                  .classes = 2,
                  .encoder_layers = 1,
                  .encoder_heads = 2,
                  .encoder_ffn = 12,
                  .decoder_layers = 3,
                  .decoder_heads = 4,
                  .decoder_ffn = 20};
  DetrConfig shallow = wide;
  shallow.encoder_layers = 0;
  shallow.backbone = {.channels = 1, .stem = 8, .stages = {{2, 8, 8}, {1, 12, 12}}, .basic = true};
  for (const DetrConfig& config : {wide, shallow}) {
    Detr detr = Detr::sized(config);
    tensor::nn::randomize(detr, 7);
    const Tensor pixels = tensor::check::random_tensor({1, config.backbone.channels, 40, 50});
    for (const Names names : {Names::hub, Names::no_timm, Names::original}) {
      const auto rename = [&](const std::string& path) { return checkpoint_name(path, names); };
      const Checkpoint checkpoint =
          testing::checkpoint_of(R"({"encoder_attention_heads": 2, "decoder_attention_heads": 4})",
                                 testing::renamed(tensor::nn::parameters(detr), rename));
      testing::expect_same(load_detr(checkpoint)(pixels).pred_boxes, detr(pixels).pred_boxes);
    }
  }
}

TEST(DetrCheckpoint, PublicNames) {
  const auto hub = [](const char* path) { return checkpoint_name(path, Names::hub).name; };
  EXPECT_EQ(hub("backbone.stages.1.0.shortcut.norm.running_var"),
            "model.backbone.conv_encoder.model.layer2.0.downsample.1.running_var");
  EXPECT_EQ(hub("decoder.5.cross_attention.output.weight"),
            "model.decoder.layers.5.encoder_attn.out_proj.weight");
  EXPECT_EQ(checkpoint_name("backbone.stages.3.2.layers.1.conv.weight", Names::no_timm).name,
            "model.backbone.conv_encoder.model.encoder.stages.3.layers.2.layer.1.convolution."
            "weight");
  const tensor::nn::Source key =
      checkpoint_name("decoder.0.cross_attention.key.bias", Names::original);
  EXPECT_EQ(key.name, "transformer.decoder.layers.0.multihead_attn.in_proj_bias");
  EXPECT_EQ(key.part, 1);
  EXPECT_EQ(key.parts, 3);
  EXPECT_EQ(checkpoint_name("encoder.0.ffn_norm.bias", Names::original).name,
            "transformer.encoder.layers.0.norm2.bias");
  EXPECT_EQ(checkpoint_name("decoder.0.ffn_norm.bias", Names::original).name,
            "transformer.decoder.layers.0.norm3.bias");
}

}  // namespace
}  // namespace models::detr
