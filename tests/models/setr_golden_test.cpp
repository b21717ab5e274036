// The reference SETR checkpoints of both implementations, and what may stand beside them.
#include <gtest/gtest.h>

#include "models/setr/setr_checkpoint.h"
#include "models/setr/setr_program.h"
#include "tests/io/io_testing.h"
#include "tests/models/checkpoint_testing.h"
#include "tests/models/golden.h"
#include "tests/ops/check.h"

namespace models::setr {
namespace {

using tensor::Tensor;
using tensor::check::error_of;
using tensor::nn::StateDict;

TEST(SetrGolden, EveryFolder) {
  const std::vector<std::string> folders = golden::folders("setr_");
  ASSERT_FALSE(folders.empty());
  for (const std::string& folder : folders) {
    SCOPED_TRACE(folder);
    const StateDict io = tensor::load_safetensors(folder + "/io.safetensors").tensors;
    SetrProgram program;
    program.open(folder);
    const StateDict outputs = program.run({{"pixel_values", io.at("pixel_values")}}, {});
    golden::expect_close(outputs.at("logits"), io.at("logits"), "logits");
  }
}

/// Small sizes, none of which is another's multiple by accident.
SetrConfig small_config(Flavour flavour, Head head) {
  SetrConfig config{.flavour = flavour,
                    .head = head,
                    .width = 24,
                    .heads = 3,
                    .ffn = 20,
                    .layers = 4,
                    .image_size = 48,
                    .classes = 5,
                    .decoder_channels = 10,
                    .head_channels = 6};
  config.decoder_layers = head == Head::pup ? 4 : 1;
  config.taps =
      head == Head::mla ? std::vector<std::int64_t>{0, 1, 2, 3} : std::vector<std::int64_t>{3};
  return config;
}

class SetrKinds : public ::testing::TestWithParam<std::pair<Flavour, Head>> {
 protected:
  SetrKinds() { tensor::nn::randomize(net_, 5); }

  StateDict tensors() {
    return testing::renamed(tensor::nn::parameters(net_), [&](const std::string& path) {
      return checkpoint_name(path, config_);
    });
  }

  SetrConfig config_ = small_config(GetParam().first, GetParam().second);
  Setr net_ = Setr::sized(config_);
};

TEST_P(SetrKinds, AreToldApartByTheirNames) {
  StateDict state = tensors();
  state.emplace("auxiliary_head.0.conv_seg.weight", tensor::zeros({1}));
  state.emplace("decode_head.norm.num_batches_tracked", tensor::zeros({}, tensor::i64));
  if (config_.flavour == Flavour::fudan)
    state.emplace("decode_head.conv_seg.weight", tensor::zeros({5, 512, 1, 1}));
  const Setr loaded =
      load_setr(testing::checkpoint_of(R"({"num_attention_heads": 3})", std::move(state)));
  EXPECT_EQ(loaded.config.flavour, config_.flavour);
  EXPECT_EQ(loaded.config.head, config_.head);
  EXPECT_EQ(loaded.config.taps, config_.taps);
  EXPECT_EQ(loaded.config.image_size, config_.image_size);
  const Tensor pixels = tensor::check::random_tensor({1, 3, 48, 48});
  testing::expect_same(loaded(pixels), net_(pixels));
}

TEST_P(SetrKinds, ReportWhatTheClassifierLacks) {
  StateDict state = tensors();
  const std::string name = checkpoint_name("classifier.bias", config_).name;
  state.erase(name);
  const std::string message = error_of([&] {
    load_setr(testing::checkpoint_of(R"({"num_attention_heads": 3})", std::move(state)));
  });
  EXPECT_NE(message.find("1 problem:\n  missing: \"" + name + "\""), std::string::npos) << message;
}

TEST_P(SetrKinds, ObserveEveryLayer) {
  std::vector<std::string> names;
  const Tensor pixels = tensor::check::random_tensor({1, 3, 48, 48});
  net_(pixels, [&](const std::string& name, const Tensor& value) {
    names.push_back(name);
    EXPECT_EQ(value.shape(), (tensor::Shape{1, config_.head == Head::mla ? 9 : 10, 24}));
  });
  EXPECT_EQ(names,
            (std::vector<std::string>{"hidden_states.0", "hidden_states.1", "hidden_states.2",
                                      "hidden_states.3", "hidden_states.4"}));
}

INSTANTIATE_TEST_SUITE_P(
    All, SetrKinds,
    ::testing::Values(std::pair(Flavour::fudan, Head::naive), std::pair(Flavour::fudan, Head::pup),
                      std::pair(Flavour::fudan, Head::mla), std::pair(Flavour::mmseg, Head::naive),
                      std::pair(Flavour::mmseg, Head::pup), std::pair(Flavour::mmseg, Head::mla)));

/// config.json beside the reference mmseg MLA checkpoint.
class SetrSettings : public tensor::testing::FolderTest {
 protected:
  std::string error(const std::string& config) {
    folder_of_mla_.config = testing::json(config);
    return error_of([&] { load_setr(folder_of_mla_); });
  }

  Checkpoint folder_of_mla_ = open_checkpoint(golden::folder("setr_mmseg_mla"));
};

constexpr const char* kEnough = R"("num_attention_heads": 2, "tap_layers": [1, 2, 4, 5])";

TEST_F(SetrSettings, HeadsAndTapsAreEnough) {
  EXPECT_EQ(error(std::string("{") + kEnough + "}"), "no error");
}

TEST_F(SetrSettings, WhatTheTensorsCannotTellIsAskedFor) {
  EXPECT_EQ(error("{}"),
            "config.json: has no \"num_attention_heads\", which the tensors cannot tell: need it "
            "for an encoder of width 32");
  EXPECT_EQ(error(R"({"num_attention_heads": 2})"),
            "config.json: has no \"tap_layers\", which the tensors cannot tell: need the four "
            "encoder layers (from 0) that feed the MLA head");
}

TEST_F(SetrSettings, HeadsAndTapsMustBePossible) {
  EXPECT_EQ(error(R"({"num_attention_heads": 3})"),
            "config.json: num_attention_heads is 3, need a divisor of the width 32");
  const std::string need = "config.json: tap_layers: need 4 ascending layer numbers from 0 to 5";
  for (const char* taps : {"[1, 2, 4]", "[1, 2, 2, 5]", "[1, 2, 4, 6]", "[-1, 2, 4, 5]", "[]"})
    EXPECT_EQ(error(std::string(R"({"num_attention_heads": 2, "tap_layers": )") + taps + "}"), need)
        << taps;
}

TEST_F(SetrSettings, MayNotContradictTheTensors) {
  const std::string start = std::string("{") + kEnough + ", ";
  EXPECT_EQ(error(start + R"("flavour": "fudan"})"),
            "config.json: flavour: is \"fudan\", but the tensors are \"mmseg\"");
  EXPECT_EQ(error(start + R"("head": "pup"})"),
            "config.json: head: is \"pup\", but the tensors are \"mla\"");
  const std::string give = "\" in " + golden::folder("setr_mmseg_mla") + " give ";
  EXPECT_EQ(
      error(start + R"("num_labels": 19})"),
      "config.json: num_labels: is 19, but the tensors \"decode_head.conv_seg.weight" + give + "5");
  EXPECT_EQ(error(start + R"("image_size": 768})"),
            "config.json: image_size: is 768, but the tensors \"backbone.pos_embed" + give + "96");
  EXPECT_EQ(error(start + R"("decoder_channels": 256})"),
            "config.json: decoder_channels: is 256, but the tensors "
            "\"neck.channel_proj.0.conv.weight" +
                give + "32");
}

TEST_F(SetrSettings, PositionsMustBeASquare) {
  folder_of_mla_.tensors["backbone.pos_embed"] = tensor::zeros({1, 36, 32});
  EXPECT_EQ(error(std::string("{") + kEnough + "}"),
            golden::folder("setr_mmseg_mla") +
                ": backbone.pos_embed has 36 rows, need a class token and a square number of "
                "cells");
}

TEST_F(SetrSettings, SizesOfNothingAreRefused) {
  folder_of_mla_.tensors["backbone.patch_embed.projection.weight"] = tensor::zeros({32, 3, 0, 0});
  EXPECT_EQ(error(std::string("{") + kEnough + "}"),
            golden::folder("setr_mmseg_mla") +
                ": got a width of 32, 3 channels, patches of 0 and 5 classes, need at least 1 of "
                "each");
}

TEST_F(SetrSettings, AnotherModelIsNotTakenForASetr) {
  EXPECT_EQ(error_of([] {
              load_setr(testing::checkpoint_of("{}", {{"head.weight", tensor::zeros({2, 2})}}));
            }),
            "DIR: does not hold a SETR: there is neither a tensor "
            "\"backbone.blocks.0.attn.qkv.weight\" (fudan) nor "
            "\"backbone.layers.0.attn.attn.in_proj_weight\" (mmseg)");
}

TEST_F(SetrSettings, AFolderWithoutConfigIsToldWhatToWrite) {
  std::filesystem::copy(golden::folder("setr_fudan_pup/model.safetensors"), folder_.path());
  EXPECT_EQ(error_of([&] { SetrProgram().open(folder_.path()); }),
            folder_.path() +
                ": has no config.json, as no public SETR checkpoint has: write one beside it, {} "
                "for a published model; others need \"num_attention_heads\", and with an MLA head "
                "\"tap_layers\"");
}

/// The sizes of a published model need no settings at all.
TEST(SetrCheckpoint, PublishedModelsNeedNoSettings) {
  SetrConfig config = SetrConfig::standard("setr-mla", 32);
  config.flavour = Flavour::mmseg;
  config.width = 768, config.ffn = 8, config.layers = 8, config.heads = 12;
  config.taps = {1, 3, 5, 7};
  Setr net = Setr::sized(config);
  const Setr loaded = load_setr(testing::checkpoint_of(
      "{}", testing::renamed(tensor::nn::parameters(net), [&](const std::string& path) {
        return checkpoint_name(path, config);
      })));
  EXPECT_EQ(loaded.config.heads, 12);
  EXPECT_EQ(loaded.config.taps, config.taps);
}

TEST(SetrCheckpoint, PublicNames) {
  SetrConfig config{.head = Head::mla};
  const auto name = [&](const char* path) { return checkpoint_name(path, config).name; };
  EXPECT_EQ(name("layers.7.norm_after.weight"), "backbone.blocks.7.norm2.weight");
  EXPECT_EQ(name("layers.7.attention.key.bias"), "backbone.blocks.7.attn.qkv.bias");
  EXPECT_EQ(name("streams.0.lateral.conv.weight"), "backbone.mla.mla_p2_1x1.0.weight");
  EXPECT_EQ(name("streams.3.smooth.norm.bias"), "backbone.mla.mla_p5.1.bias");
  EXPECT_EQ(name("streams.1.refine.norm.running_mean"), "decode_head.mlahead.head3.4.running_mean");
  EXPECT_EQ(name("classifier.weight"), "decode_head.cls.weight");
  config.flavour = Flavour::mmseg;
  EXPECT_EQ(name("layers.7.fc1.weight"), "backbone.layers.7.ffn.layers.0.0.weight");
  EXPECT_EQ(name("layers.7.attention.key.bias"), "backbone.layers.7.attn.attn.in_proj_bias");
  EXPECT_EQ(name("streams.0.norm.weight"), "neck.norm.0.weight");
  EXPECT_EQ(name("streams.0.lateral.norm.bias"), "neck.channel_proj.0.bn.bias");
  EXPECT_EQ(name("streams.0.smooth.conv.weight"), "neck.feat_extract.3.conv.weight");
  EXPECT_EQ(name("streams.3.narrow.conv.weight"), "decode_head.up_convs.0.0.conv.weight");
  config = {.head = Head::pup, .decoder_layers = 4};
  EXPECT_EQ(name("upsample.2.norm.weight"), "decode_head.syncbn_fc_2.weight");
  EXPECT_EQ(name("classifier.weight"), "decode_head.conv_4.weight");
}

TEST(SetrCheckpoint, ColoursComeFromConfigOrFromTheDataSet) {
  EXPECT_EQ(read_palette(testing::json("{}"), 19)[13], (Color{0x00, 0x00, 0x8e}));  // a car
  EXPECT_EQ(read_palette(testing::json("{}"), 60)[2], (Color{0x06, 0xe6, 0xe6}));
  EXPECT_EQ(read_palette(testing::json("{}"), 151)[150], (Color{0x78, 0x78, 0x78}));
  EXPECT_EQ(read_palette(testing::json(R"({"palette": [[1, 2, 3], [4, 5, 255]]})"), 2)[1],
            (Color{4, 5, 255}));
  const auto error = [](const char* config) {
    return error_of([&] { read_palette(testing::json(config), 2); });
  };
  EXPECT_EQ(error(R"({"palette": [[1, 2, 3]]})"),
            "config.json: palette: need a list of 2 colours [red, green, blue]");
  EXPECT_EQ(error(R"({"palette": [[1, 2, 3], [4, 5, 256]]})"),
            "config.json: palette[1]: need [red, green, blue], each from 0 to 255");
}

TEST(SetrCheckpoint, TheColoursThatShipAreApart) {
  const auto config =
      tensor::Json::load(TENSOR_TEST_DATA "/../../models/setr/pretrained/scenes/config.json");
  const auto colours = read_palette(config, 11);
  for (std::size_t i = 0; i < colours.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      int distance = 0;
      for (std::size_t c = 0; c < 3; ++c)
        distance += std::abs(int{colours[i][c]} - int{colours[j][c]});
      EXPECT_GE(distance, 110) << i << " and " << j;  // of which the picture shows half
    }
}

TEST(SetrCheckpoint, NamesComeFromConfigOrFromTheDataSet) {
  EXPECT_EQ(read_class_names(testing::json("{}"), 19).back(), "bicycle");
  EXPECT_EQ(read_class_names(testing::json("{}"), 150)[124], "microwave");
  EXPECT_EQ(read_class_names(testing::json("{}"), 3)[2], "class 2");
  EXPECT_EQ(read_class_names(testing::json(R"({"id2label": {"0": "a", "1": "b"}})"), 2)[1], "b");
}

}  // namespace
}  // namespace models::setr
