// What a folder says of another function is used or refused by name: model types, settings,
// tensors.
#include "models/common/settings.h"

#include "models/common/report.h"
#include "models/common/text.h"
#include "models/detr/detr_checkpoint.h"
#include "models/registry/registry.h"
#include "models/setr/setr_checkpoint.h"
#include "models/vit/vit_checkpoint.h"
#include "tensor/ops.h"
#include "tests/models/malformed.h"
#include "tests/models/programs.h"
#include "tests/models/sine.h"

namespace {

using models::vit::Scores;
using tensor::Json;
using tensor::Tensor;
using tensor::check::error_of;
using tensor::check::TemporaryFolder;

std::string called_dir(std::string text, const std::string& path) {
  for (std::size_t at = 0; (at = text.find(path)) != text.npos;)
    text.replace(at, path.size(), "DIR");
  return text;
}

/// What opening a good folder says when it is given more members in a file.
class More : public tensor::testing::FolderTest {
 protected:
  std::string with(const std::string& base, const std::string& members,
                   const std::string& file = "config.json") {
    const malformed::Folder folder(path("folder"), base);
    folder.add(file, members);
    const std::string text = error_of([&] { golden::program_of(base)->open(folder.path()); });
    std::filesystem::remove_all(folder.path());
    return called_dir(text, folder.path());
  }
};

TEST(Settings, AreUsedHarmlessFixedOrRefused) {
  const models::KnownSettings known{
      .used = {"a"}, .harmless = {"b"}, .fixed = {{"c", {"1", "true"}}, {"d", {R"("x")"}}}};
  const auto message = [&](const std::string& text) {
    return error_of([&] { models::check_settings(Json::parse(text, "config.json"), known); });
  };
  EXPECT_EQ(message(R"({"a": 1, "b": [], "c": 1, "d": "x", "_note": 2, "torch_dtype": "x"})"),
            "no error");
  EXPECT_EQ(message(R"({"c": true, "d": null, "e": null})"), "no error");
  EXPECT_EQ(message(R"({"c": 2})"),
            "config.json: c: is 2, need 1 or true: nothing else is computed");
  EXPECT_EQ(message(R"({"d": "y"})"),
            "config.json: d: is \"y\", need \"x\": nothing else is computed");
  for (const auto& [value, shown] : {std::pair("[]", "[]"),
                                     {"[1]", "a list"},
                                     {"{}", "{}"},
                                     {"{\"a\": 1}", "an object"},
                                     {"0.5", "a number"}})
    EXPECT_EQ(
        message("{\"d\": " + std::string(value) + "}"),
        "config.json: d: is " + std::string(shown) + ", need \"x\": nothing else is computed");
  EXPECT_EQ(message(R"({"e": false})"),
            "config.json: e: is not known here, and may ask for what is not computed: remove it if "
            "the model's results do not depend on it");
}

TEST_F(More, OtherArchitecturesAreCalledByTheirType) {
  const auto list = [](std::string_view program) {
    return models::joined(models::model_types(program), ", ");
  };
  const std::string all = ": vit takes " + list("vit") + "; detr takes " + list("detr") +
                          "; setr takes " + list("setr") + "; depth takes " + list("depth");
  const auto refusal = [&](const std::string& program, const std::string& type) {
    folder::Checkpoint c = folder::small_vit();
    const TemporaryFolder home;
    c.config["model_type"] = "\"" + type + "\"";
    c.write(home);
    return called_dir(error_of([&] { golden::program_of(program)->open(home.path()); }),
                      home.path());
  };
  for (const std::string type : {"yolos", "deit", "swinv2", "vit_mae", "beit"}) {
    const std::string nobodys =
        "DIR/config.json: model_type: is \"" + type + "\", which no program takes" + all;
    EXPECT_EQ(refusal("vit", type), nobodys);
    EXPECT_EQ(refusal("setr", type), nobodys);
  }
  EXPECT_EQ(refusal("vit", "detr"),
            "DIR/config.json: model_type: is \"detr\", which detr takes, not vit" + all);
  EXPECT_EQ(refusal("setr", "vit"),
            "DIR/config.json: model_type: is \"vit\", which vit takes, not setr" + all);
  const TemporaryFolder timm;
  folder::small_timm_vit().write(timm);
  EXPECT_EQ(
      called_dir(error_of([&] { golden::program_of("setr")->open(timm.path()); }), timm.path()),
      "DIR/config.json: is \"timm_wrapper\", which vit takes, not setr" + all);
  const std::string needs = ": nothing else is computed";
  const malformed::Folder detr(path("detr"), "detr_hf_no_timm");
  detr.config("\"model_type\": \"detr\"", "\"model_type\": \"table-transformer\"");
  EXPECT_EQ(called_dir(error_of([&] { models::detr::load_detr(detr.path()); }), detr.path()),
            "DIR/config.json: model_type: is \"table-transformer\", need \"detr\"" + needs);
  folder::Checkpoint swin = folder::small_vit();
  const TemporaryFolder home;
  swin.config["model_type"] = "\"swin\"";
  swin.write(home);
  EXPECT_EQ(
      called_dir(error_of([&] { models::vit::load_vit(models::open_checkpoint(home.path())); }),
                 home.path()),
      "DIR/config.json: model_type: is \"swin\", need \"vit\" or \"vit_msn\" or "
      "\"timm_wrapper\"" +
          needs);
}

TEST_F(More, PublicFoldersSettingsAreTaken) {
  // What the folders of google/vit-*, facebook/detr-* and fine-tuned ones hold besides.
  for (const char* members :
       {R"("_name_or_path": "x", "finetuning_task": "image-classification", "torch_dtype": "f32")",
        R"("problem_type": "single_label_classification", "return_dict": true, "num_labels": 11)",
        R"("use_cache": true, "_num_labels": 5, "max_length": 20, "num_beams": 1, "top_k": 50)",
        R"("head_dim": 16, "pruned_heads": {}, "gradient_checkpointing": false)"})
    EXPECT_EQ(with("vit_hf", members), "no error");
  for (const char* members :
       {R"("scale_embedding": false, "max_position_embeddings": 1024, "classifier_dropout": 0.0)",
        R"("num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_labels": 6)",
        R"("use_pretrained_backbone": true, "_num_labels": 6, "freeze_backbone": true)",
        R"("backbone_kwargs": {"in_chans": 3, "out_indices": [1, 2, 3, 4]})"})
    EXPECT_EQ(with("detr_hf_no_timm", members), "no error");
  for (const char* name : {"resnet50", "resnet101", "tv_resnet50.tv_in1k", "wide_resnet50_2"})
    EXPECT_EQ(
        with("detr_original", R"("backbone_kwargs": {"backbone": ")" + std::string(name) + "\"}"),
        "no error");
  EXPECT_EQ(
      with("setr_mmseg_naive", R"("final_norm": false, "with_cls_token": true, "qkv_bias": true)"),
      "no error");
}

TEST_F(More, WhatIsNotComputedIsRefusedByName) {
  const std::string fixed = ": nothing else is computed";
  const auto refused = [&](const char* base, const std::string& key, const std::string& value,
                           const std::string& needed, const std::string& where = "") {
    const std::string members = "\"" + key + "\": " + value;
    const std::string inside = where.empty() ? members : "\"" + where + "\": {" + members + "}";
    EXPECT_EQ(with(base, inside), "DIR/config.json: " + (where.empty() ? "" : where + ".") + key +
                                      ": is " + value + ", need " + needed + fixed);
  };
  refused("vit_hf", "head_dim", "32", "16");
  for (const auto& [key, value, needed] : {std::tuple("output_cls_token", "true", "false"),
                                           {"patch_norm", "true", "false"},
                                           {"pre_norm", "true", "false"},
                                           {"out_origin", "true", "false"},
                                           {"interpolate_mode", "\"bicubic\"", "\"bilinear\""},
                                           {"qkv_bias", "false", "true"},
                                           {"hidden_act", "\"relu\"", "\"gelu\""}})
    refused("setr_mmseg_naive", key, value, needed);
  refused("detr_original", "model_type", "\"swin\"", "\"resnet\" or \"timm_backbone\"",
          "backbone_kwargs");
  refused("detr_original", "features_only", "false", "true", "backbone_kwargs");
  refused("detr_original", "downsample_in_first_stage", "true", "false", "backbone_kwargs");
  for (const char* base : {"vit_hf", "vit_timm", "detr_hf_hub", "setr_fudan_pup"})
    EXPECT_EQ(with(base, R"("window_size": 7)"),
              "DIR/config.json: window_size: is not known here, and may ask for what is not "
              "computed: remove it if the model's results do not depend on it");
}

TEST_F(More, OtherSettingsThatDisagree) {
  EXPECT_EQ(with("vit_hf", R"("problem_type": "ranking")"),
            "DIR/config.json: problem_type: got \"ranking\", need single_label_classification, "
            "multi_label_classification or regression");
  EXPECT_EQ(with("detr_original", R"("backbone_kwargs": {"out_indices": [1, 2, 3]})"),
            "DIR/config.json: backbone_kwargs.out_indices: need 4 at its end: DETR reads the last "
            "stage");
  EXPECT_EQ(with("detr_original", R"("backbone_kwargs": {"backbone": "resnetaa50"})"),
            "DIR/config.json: backbone_kwargs.backbone: got \"resnetaa50\", need a plain ResNet: "
            "resnet18, resnet34, resnet50, resnet101, resnet152");
  EXPECT_EQ(with("setr_mmseg_naive", R"("final_norm": true)"),
            "DIR/config.json: final_norm: is true, but the tensors \"backbone.ln1\" of such a norm "
            "are not there");
  EXPECT_EQ(with("setr_fudan_mla", R"("with_cls_token": true)"),
            "DIR/config.json: with_cls_token: is true, but it is false for fudan's SETR with this "
            "head");
}

// ---- timm

TEST(TimmSettings, ArgumentsOfOtherModelsAreRefusedByName) {
  const auto message = [](const std::string& argument) {
    folder::Checkpoint c = folder::small_timm_vit();
    c.config["model_args"] = "{\"num_heads\": 2, " + argument + "}";
    const TemporaryFolder home;
    c.write(home);
    return called_dir(
        error_of([&] { models::vit::load_vit(models::open_checkpoint(home.path())); }),
        home.path());
  };
  for (const char* taken :
       {R"("class_token": true)", R"("reg_tokens": 0)", R"("fc_norm": null)", R"("drop_rate": 0.5)",
        R"("dynamic_img_size": true)", R"("mlp_ratio": 1.5)", R"("norm_layer": "layernorm")",
        R"("global_pool": "token")", R"("init_values": null)", R"("qkv_bias": true)"})
    EXPECT_EQ(message(taken), "no error") << taken;
  for (const auto& [key, value, needed] : {std::tuple("class_token", "false", "true"),
                                           {"no_embed_class", "true", "false"},
                                           {"reg_tokens", "4", "0"},
                                           {"pre_norm", "true", "false"},
                                           {"final_norm", "false", "true"},
                                           {"fc_norm", "true", "false"},
                                           {"qk_norm", "true", "false"},
                                           {"scale_attn_norm", "true", "false"},
                                           {"scale_mlp_norm", "true", "false"},
                                           {"proj_bias", "false", "true"},
                                           {"pos_embed", "\"none\"", "\"learn\""},
                                           {"pool_include_prefix", "true", "false"},
                                           {"dynamic_img_pad", "true", "false"},
                                           {"norm_layer", "\"rmsnorm\"", "\"layernorm\""},
                                           {"mlp_layer", "\"swiglu\"", "\"mlp\""}})
    EXPECT_EQ(message("\"" + std::string(key) + "\": " + value),
              "DIR/config.json: model_args." + std::string(key) + ": is " + value + ", need " +
                  needed + ": nothing else is computed");
  EXPECT_EQ(message(R"("init_values": 1e-5)"),
            "DIR/config.json: model_args.init_values: is not known here, and may ask for what is "
            "not computed: remove it if the model's results do not depend on it");
  EXPECT_EQ(message(R"("global_pool": "avg")"),
            "DIR/config.json: model_args.global_pool: got \"avg\", only \"token\" is supported");
  EXPECT_EQ(message(R"("mlp_ratio": 4)"),
            "DIR/config.json: model_args.mlp_ratio: is 4, but the weights of the MLP in DIR are "
            "for 12 features, not 8 times that");
  EXPECT_EQ(message(R"("qkv_bias": false)"),
            "DIR/config.json: model_args.qkv_bias: is false, but the layers in DIR have biases");
}

TEST(TimmSettings, HeadsOfThePlainArchitectures) {
  using models::vit::timm_heads;
  struct Row {
    const char* name;
    std::int64_t width, heads;
  };
  for (const Row& row :
       {Row{"vit_tiny_patch16_224", 192, 3}, Row{"vit_tiny_patch16_384", 192, 3},
        Row{"vit_small_patch32_224", 384, 6}, Row{"vit_small_patch8_224", 384, 6},
        Row{"vit_base_patch16_224", 768, 12},
        Row{"vit_base_patch16_224.augreg2_in21k_ft_in1k", 768, 12},
        Row{"vit_base_patch16_224_in21k", 768, 12}, Row{"vit_base_patch16_224_miil", 768, 12},
        Row{"vit_large_patch14_224", 1024, 16}, Row{"vit_huge_patch14_224", 1280, 16},
        Row{"vit_giant_patch14_224", 1408, 16}, Row{"vit_gigantic_patch14_224", 1664, 16},
        Row{"deit_tiny_patch16_224", 192, 3}, Row{"deit_small_patch16_224", 384, 6},
        Row{"deit_base_patch16_224", 768, 12}, Row{"deit_base_patch16_384", 768, 12},
        Row{"test_vit", 64, 2}})
    EXPECT_EQ(timm_heads(row.name, row.width), row.heads) << row.name;
  // Other architectures, whose heads may be others (16 of a width of 768), and other widths.
  for (const Row& row :
       {Row{"vit_base_patch16_gap_224", 768, 0}, Row{"vit_base_patch32_clip_224", 768, 0},
        Row{"vit_base_patch16_reg4_gap_256", 768, 0}, Row{"vit_small_patch14_dinov2", 384, 0},
        Row{"vit_base_patch16_rpn_224", 768, 0}, Row{"deit3_base_patch16_224", 768, 0},
        Row{"deit_base_distilled_patch16_224", 768, 0}, Row{"flexivit_base", 768, 0},
        Row{"vit_base_patch16_224", 384, 0}, Row{"test_vit", 96, 0},
        Row{"vit_medium_patch16_224", 512, 0}, Row{"", 192, 0}})
    EXPECT_EQ(timm_heads(row.name, row.width), row.heads) << row.name;
}

TEST(TimmSettings, PositionsWithoutARowForTheClassTokenSaySo) {
  folder::Checkpoint c = folder::small_timm_vit();
  c.tensors["pos_embed"] = tensor::zeros({1, 4, 8});
  const TemporaryFolder home;
  c.write(home);
  EXPECT_EQ(
      called_dir(error_of([&] { models::vit::load_vit(models::open_checkpoint(home.path())); }),
                 home.path()),
      "DIR: \"pos_embed\" has 4 rows, one for each patch and none for a class token, which "
      "is not supported: need a plain ViT");
}

// ---- Numbers that the reference implementations give for the same tensors

void expect_near(const Tensor& got, const std::vector<double>& want, double bound) {
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got.reshape({-1}).item(static_cast<std::int64_t>(i)), want[i], bound) << i;
}

TEST(Reference, TimmsPlainArchitectures) {
  const std::vector<double> tiny = {-5.265429, -4.734931, -3.974396, -2.298661, -0.241890};
  const std::vector<double> test = {-2.769531, 4.481362, -0.776357, -3.982074, 3.952262};
  const Tensor pixels = sine::weights("pixels", {1, 3, 32, 32}, 1);
  for (const auto& [name, width, mlp, want] : {std::tuple("vit_tiny_patch16_224", 192, 768, tiny),
                                               std::tuple("deit_tiny_patch16_224", 192, 768, tiny),
                                               std::tuple("test_vit", 64, 192, test)}) {
    SCOPED_TRACE(name);
    const TemporaryFolder home;
    sine::timm_vit(name, width, mlp).write(home);
    const auto vit = models::vit::load_vit(models::open_checkpoint(home.path()));
    // What f32 and another order of the sums made of these sizes: 5.2e-6 at the most.
    expect_near(vit.model(pixels).logits, want, 2e-5);
  }
}

TEST(Reference, SetrsFinalNormAndClassToken) {
  const Tensor pixels = sine::weights("pixels", {1, 3, 16, 16}, 1);
  const auto check = [&](const folder::Checkpoint& c, const std::vector<double>& want) {
    const TemporaryFolder home;
    c.write(home);
    const auto setr = models::setr::load_setr(models::open_checkpoint(home.path()));
    expect_near(setr(pixels), want, 1e-5);
  };
  const folder::Checkpoint plain = sine::mmseg_setr();
  check(plain, {-0.005887, -0.005887, -0.005887, -0.004994, -0.003207, -0.000528});
  folder::Checkpoint c = plain;
  c.config["with_cls_token"] = "false";
  check(c, {-0.008551, -0.008551, -0.008551, -0.007649, -0.005845, -0.003139});
  c = plain;
  c.tensors["backbone.ln1.weight"] = sine::weights("backbone.ln1.weight", {16}, 1.5, 1.6);
  c.tensors["backbone.ln1.bias"] = sine::weights("backbone.ln1.bias", {16}, 1);
  check(c, {0.089624, 0.089624, 0.089624, 0.091233, 0.094450, 0.099276});
}

TEST(Reference, ARegressionGivesItsNumbers) {
  const auto measured = [](const std::vector<float>& bias) {
    const auto classes = static_cast<std::int64_t>(bias.size());
    folder::Checkpoint c = sine::huggingface_vit(16, classes);
    c.tensors["classifier.bias"] = tensor::array(std::span<const float>(bias), {classes});
    c.config["problem_type"] = "\"regression\"";
    const TemporaryFolder home;
    c.write(home);
    Tensor image = tensor::empty({16, 16, 3}, tensor::u8);
    for (std::int64_t y = 0; y < 16; ++y)
      for (std::int64_t i = 0; i < 48; ++i)
        image.at<std::uint8_t>(y, i / 3, i % 3) = static_cast<std::uint8_t>((40 * y + 7 * i) % 256);
    const auto program = models::vit::make_program();
    program->open(home.path());
    const models::ImageResult seen =
        program->look(image, true, [&](const auto& inputs) { return program->run(inputs, {}); });
    EXPECT_TRUE(seen.picture.defined());
    return seen.findings;
  };
  const auto one = measured({37});
  ASSERT_EQ(one.size(), 1u);
  EXPECT_NEAR(one[0].score, 36.276211, 1e-4);  // f32 and another order of the sums
  EXPECT_FALSE(one[0].is_share);
  EXPECT_EQ(models::score_text(one[0]), "36.2762");
  const auto three = measured({37, -2.5f, 100});
  ASSERT_EQ(three.size(), 3u);
  EXPECT_EQ(three[0].id, 2);
  EXPECT_NEAR(three[0].score, 98.806198, 1e-4);
  EXPECT_NEAR(three[1].score, 36.276211, 1e-4);
  EXPECT_NEAR(three[2].score, -0.487067, 1e-4);
}

TEST(Scores, AreToldByTheProblem) {
  const auto of = [](const std::string& text, std::int64_t classes) {
    return models::vit::read_scores(Json::parse(text, "config.json"), classes);
  };
  EXPECT_EQ(of("{}", 3), Scores::softmax);
  EXPECT_EQ(of("{}", 1), Scores::sigmoid);
  EXPECT_EQ(of(R"({"problem_type": null})", 3), Scores::softmax);
  EXPECT_EQ(of(R"({"problem_type": "single_label_classification"})", 3), Scores::softmax);
  EXPECT_EQ(of(R"({"problem_type": "multi_label_classification"})", 3), Scores::sigmoid);
  EXPECT_EQ(of(R"({"problem_type": "regression"})", 1), Scores::numbers);
  EXPECT_EQ(of(R"({"problem_type": "regression"})", 3), Scores::numbers);
}

}  // namespace
