// Preprocessing against transformers' processors and timm's transform, and the size rules.
#include "models/common/processors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>

#include "models/vit/vit_preprocess.h"
#include "tensor/creation.h"
#include "tensor/io.h"
#include "tensor/ops.h"
#include "tests/error_of.h"

namespace {

using models::Preprocessing;
using models::read_preprocessing;
using models::Size;
using models::SizeRule;
using tensor::Json;
using tensor::Tensor;
using tensor::check::error_of;

Json parse(const std::string& text) { return Json::parse(text, "config"); }

/// DETR's defaults: the aspect is kept, ImageNet's constants.
Preprocessing detr_defaults() {
  Preprocessing rule;
  rule.size = {.kind = SizeRule::Kind::shortest_edge, .size = {}, .shortest = 800, .longest = 1333};
  return rule;
}

/// A file of a class that does this where the file says nothing.
Preprocessing read(const Json& config, const Preprocessing& defaults = {}) {
  const bool square = defaults.size.kind != SizeRule::Kind::shortest_edge;
  return read_preprocessing(config, {{.name = "Own", .defaults = defaults, .square = square}});
}

Preprocessing rule_for(const std::string& kind, const Json& config) {
  if (kind == "detr") return read(config, detr_defaults());
  if (kind != "timm") return read(config, models::vit::huggingface_preprocessing({224, 224}));
  const tensor::Ints size = config["input_size"].ints();
  return models::vit::timm_preprocessing(config, {size[1], size[2]});
}

// transformers resizes with torchvision unless the processor's name ends in Pil, timm with Pillow.
TEST(Preprocess, OrdersThePassesAsTheProcessorDoes) {
  const auto order = [](const char* config) {
    return read_preprocessing(parse(config), models::vit::huggingface_processors({8, 8})).order;
  };
  EXPECT_EQ(order("{}"), models::PassOrder::pillow_12);
  EXPECT_EQ(order(R"({"image_processor_type": "ViTImageProcessor"})"),
            models::PassOrder::pillow_12);
  EXPECT_EQ(order(R"({"image_processor_type": "ViTImageProcessorPil"})"),
            models::PassOrder::pillow_13);
  EXPECT_EQ(models::vit::timm_preprocessing(parse("{}"), {8, 8}).order,
            models::PassOrder::pillow_13);
}

TEST(Preprocess, EqualsTheReferencesBitForBit) {
  const char* named = std::getenv("TENSOR_PIXELS_CASES");
  const tensor::Safetensors cases =
      tensor::load_safetensors(named ? named : TENSOR_TEST_DATA "/preprocess/pixels.safetensors");
  std::map<std::string, int> seen;
  for (const auto& [id, config] : cases.metadata) {
    const std::string kind = id.substr(id.find('.') + 1);
    const Tensor& image = cases.tensors.at(id + ".in");
    const Tensor& want = cases.tensors.at(id + ".out");
    const Preprocessing rule = rule_for(kind, parse(config));
    const Tensor got = models::preprocess(image, rule);
    ASSERT_EQ(got.shape(), want.shape()) << id << " " << image.shape() << " " << config;
    EXPECT_TRUE(tensor::all(got == want).item<bool>())
        << id << " differs by " << tensor::max(tensor::abs(got - want)).item() << ": " << config;
    const Size size = models::preprocessed_size({image.shape(0), image.shape(1)}, rule);
    EXPECT_EQ(size, (Size{got.shape(1), got.shape(2)})) << id;
    ++seen[kind];
  }
  EXPECT_EQ(seen.size(), 4u);
  for (const auto& [kind, count] : seen) EXPECT_GE(count, 6) << kind;
}

TEST(Preprocess, SizesOfTheShortestEdge) {
  // Sizes that DETR's reference gives.
  const SizeRule rule = detr_defaults().size;
  EXPECT_EQ(rule.of({480, 640}), (Size{800, 1066}));
  EXPECT_EQ(rule.of({1080, 1920}), (Size{750, 1333}));
  EXPECT_EQ(rule.of({375, 1242}), (Size{402, 1333}));
  EXPECT_EQ(rule.of({212, 550}), (Size{514, 1332}));  // the truncation
  EXPECT_EQ(rule.of({800, 1200}), (Size{800, 1200}));
}

TEST(Preprocess, SizesOfMultiples) {
  // What DPT's reference gives.
  const auto rule = [](Size size, bool keeps_aspect, std::int64_t multiple) {
    return SizeRule{SizeRule::Kind::multiples, size, 0, 0, multiple, keeps_aspect};
  };
  const SizeRule kept = rule({518, 518}, true, 14);
  EXPECT_EQ(kept.of({480, 640}), (Size{518, 686}));
  EXPECT_EQ(kept.of({1080, 1920}), (Size{518, 924}));
  EXPECT_EQ(kept.of({375, 1242}), (Size{518, 1722}));
  EXPECT_EQ(rule({384, 384}, true, 32).of({100, 30}), (Size{384, 128}));
  EXPECT_EQ(rule({500, 390}, false, 32).of({480, 640}), (Size{512, 384}));
}

TEST(Preprocess, TheLongestEdgeIsThatOfSam) {
  const SizeRule rule{SizeRule::Kind::longest_edge, {}, 0, 1024};
  EXPECT_EQ(rule.of({480, 640}), (Size{768, 1024}));
  EXPECT_EQ(rule.of({2000, 333}), (Size{1024, 170}));  // 170.496
  EXPECT_EQ(rule.of({512, 513}), (Size{1022, 1024}));  // 1022.004
  EXPECT_EQ(rule.of({1024, 999}), (Size{1024, 999}));
  Preprocessing sam;
  sam.size = rule;
  EXPECT_EQ(read(parse(R"({"size": {"longest_edge": 8}})"), sam).size.of({4, 5}), (Size{6, 8}));
  EXPECT_EQ(error_of([&] { read(parse(R"({"size": {"longest_edge": 8}})")); }),
            "config: size: need a number, {\"height\", \"width\"}, {\"shortest_edge\"} with or "
            "without \"longest_edge\", or {\"max_height\", \"max_width\"}");
}

TEST(Preprocess, ReadsWhatDptAsksFor) {
  using models::ProcessorClass;
  const std::vector<ProcessorClass> dpt = {
      {.name = "DPT", .defaults = {}, .fit = ProcessorClass::Fit::dpt}};
  const SizeRule size =
      read_preprocessing(parse(R"({"size": {"height": 8, "width": 9}, "ensure_multiple_of": 4,
                                   "keep_aspect_ratio": true})"),
                         dpt)
          .size;
  EXPECT_EQ(size.kind, SizeRule::Kind::multiples);
  EXPECT_EQ(size.size, (Size{8, 9}));
  EXPECT_EQ(size.multiple, 4);
  EXPECT_TRUE(size.keeps_aspect);
  EXPECT_EQ(error_of([&] { read_preprocessing(parse(R"({"size": {"shortest_edge": 8}})"), dpt); }),
            "config: size: need {\"height\", \"width\"} for DPTImageProcessor");
}

TEST(Preprocess, NormalizesByItsDefinition) {
  const Tensor image = tensor::Generator(5).randint(0, 256, {4, 5, 3}, tensor::u8);
  models::Normalization rule{.mean = {0.1f, 0.2f, 0.3f}, .std = {0.4f, 0.5f, 0.6f}};
  for (const auto rescale :
       {models::Normalization::Rescale::none, models::Normalization::Rescale::multiply,
        models::Normalization::Rescale::divide_255}) {
    rule.rescale = rescale;
    const Tensor got =
        models::normalize(image(tensor::slice(tensor::none, tensor::none, -1)), rule);
    ASSERT_EQ(got.shape(), (tensor::Shape{3, 4, 5}));
    const double factor = rescale == models::Normalization::Rescale::none ? 1 : 1 / 255.0;
    for (int c = 0; c < 3; ++c) {
      const double want =
          (image.item(3 - 1, 2, c) * factor - rule.mean[std::size_t(c)]) / rule.std[std::size_t(c)];
      // Three roundings in f32.
      EXPECT_NEAR(got.item(c, 1, 2), want, 4e-7 * std::max(1.0, std::abs(want)));
    }
    // The same in operators, bit for bit.
    const Tensor levels = image(tensor::newaxis, tensor::slice(tensor::none, tensor::none, -1));
    EXPECT_TRUE(tensor::all(models::normalize_levels(levels, rule)(0) == got).item<bool>());
  }
}

TEST(Preprocess, ReadsEveryFormOfTheSize) {
  const auto of = [](const std::string& text, const Preprocessing& defaults = {}) {
    return read(parse(text), defaults).size;
  };
  EXPECT_EQ(of(R"({"size": 7})").size, (Size{7, 7}));
  EXPECT_EQ(of(R"({"size": {"height": 7, "width": 9}})").size, (Size{7, 9}));
  EXPECT_EQ(of(R"({"size": {"shortest_edge": 7}})").of({10, 20}), (Size{7, 14}));
  EXPECT_EQ(of(R"({"size": {"shortest_edge": 7, "longest_edge": 10}})").of({10, 20}),
            (Size{5, 10}));
  EXPECT_EQ(of(R"({"size": {"max_height": 7, "max_width": 9}})").of({10, 20}), (Size{4, 9}));
  EXPECT_EQ(of(R"({"size": 600})", detr_defaults()).of({10, 20}), (Size{600, 1200}));
  EXPECT_EQ(of(R"({"size": 600, "max_size": 900})", detr_defaults()).of({10, 20}),
            (Size{450, 900}));
  const Preprocessing padded =
      read(parse(R"({"pad_and_return_pixel_mask": true, "pad_size": {"height": 3, "width": 4}})"));
  EXPECT_TRUE(padded.pad);
  EXPECT_EQ(padded.pad_size, (Size{3, 4}));
}

// ---- Classes of transformers

/// Of a classifier that takes images of 32 x 32.
Preprocessing classified(const std::string& text) {
  return read_preprocessing(parse(text), models::vit::huggingface_processors({32, 32}));
}

TEST(ProcessorClasses, DoWhatTransformersDoesWhereTheFileIsSilent) {
  using models::Filter;
  struct Row {
    const char* name;
    Size of_landscape;  // what becomes of 600 x 800
    Filter filter;
    float mean;
  };
  for (const Row& row : {Row{"ViT", {32, 32}, Filter::bilinear, 0.5f},
                         Row{"DeiT", {224, 224}, Filter::bicubic, 0.5f},
                         Row{"CLIP", {224, 224}, Filter::bicubic, 0.48145466f},
                         Row{"ChineseCLIP", {224, 224}, Filter::bicubic, 0.48145466f},
                         Row{"Bit", {224, 224}, Filter::bicubic, 0.48145466f},
                         Row{"ViTHybrid", {224, 224}, Filter::bicubic, 0.48145466f},
                         Row{"Blip", {384, 384}, Filter::bicubic, 0.48145466f},
                         Row{"Siglip", {224, 224}, Filter::bicubic, 0.5f},
                         Row{"Beit", {224, 224}, Filter::bicubic, 0.5f},
                         Row{"ConvNext", {384, 384}, Filter::bicubic, 0.5f},
                         Row{"PoolFormer", {224, 224}, Filter::bicubic, 0.485f},
                         Row{"Levit", {224, 224}, Filter::bicubic, 0.485f},
                         Row{"Pvt", {224, 224}, Filter::bicubic, 0.485f},
                         Row{"MobileNetV1", {224, 224}, Filter::bilinear, 0.5f},
                         Row{"MobileNetV2", {224, 224}, Filter::bilinear, 0.5f}}) {
    for (const char* ending : {"ImageProcessor", "ImageProcessorFast", "ImageProcessorPil"}) {
      const Preprocessing rule =
          classified("{\"image_processor_type\": \"" + std::string(row.name) + ending + "\"}");
      EXPECT_EQ(preprocessed_size({600, 800}, rule), row.of_landscape) << row.name;
      EXPECT_EQ(rule.filter, row.filter) << row.name;
      EXPECT_EQ(rule.normalization.mean[0], row.mean) << row.name;
    }
    const Preprocessing old = classified("{\"feature_extractor_type\": \"" + std::string(row.name) +
                                         "FeatureExtractor\"}");
    EXPECT_EQ(preprocessed_size({600, 800}, old), row.of_landscape) << row.name;
  }
  const Preprocessing efficient =
      classified(R"({"image_processor_type": "EfficientNetImageProcessor", "include_top": false})");
  EXPECT_EQ(preprocessed_size({600, 800}, efficient), (Size{346, 346}));
}

TEST(ProcessorClasses, ANumberIsASquareOrTheShortSide) {
  const auto resized = [](const std::string& more) {
    return classified("{\"size\": 32, " + more + "}").size.of({64, 128});
  };
  EXPECT_EQ(resized(R"("do_resize": true)"), (Size{32, 32}));
  EXPECT_EQ(resized(R"("default_to_square": false)"), (Size{32, 64}));
  for (const char* name : {"CLIP", "ChineseCLIP", "Bit", "Siglip", "MobileNetV1", "MobileNetV2"})
    EXPECT_EQ(resized("\"image_processor_type\": \"" + std::string(name) + "ImageProcessor\""),
              (Size{32, 64}))
        << name;
  EXPECT_EQ(resized(R"("image_processor_type": "CLIPImageProcessor", "default_to_square": true)"),
            (Size{32, 32}));
  EXPECT_EQ(classified(R"({"size": [7, 9]})").size.of({64, 128}), (Size{7, 9}));
}

TEST(ProcessorClasses, ShareOfTheSideThatIsKept) {
  const auto of = [](const std::string& name, const std::string& more) {
    return classified("{\"image_processor_type\": \"" + name + "ImageProcessor\", " + more + "}");
  };
  Preprocessing rule = of("ConvNext", R"("size": {"shortest_edge": 32}, "crop_pct": 0.5)");
  EXPECT_EQ(rule.size.of({64, 128}), (Size{64, 128}));
  EXPECT_EQ(rule.crop, (Size{32, 32}));
  rule = of("ConvNext", R"("size": 224)");
  EXPECT_EQ(rule.size.of({512, 1024}), (Size{256, 512}));
  EXPECT_EQ(rule.crop, (Size{224, 224}));
  rule = of("ConvNext", R"("size": 384, "crop_pct": 0.5)");  // squeezed, not cropped
  EXPECT_EQ(rule.size.of({64, 128}), (Size{384, 384}));
  EXPECT_FALSE(rule.crop);
  rule = of("PoolFormer", R"("size": {"height": 90, "width": 90})");
  EXPECT_EQ(rule.size.of({64, 128}), (Size{100, 200}));
  rule = of("Levit", R"("size": 112)");
  EXPECT_EQ(rule.size.of({64, 128}), (Size{128, 256}));
  EXPECT_EQ(of("Levit", R"("size": {"height": 7, "width": 9})").size.of({64, 128}), (Size{7, 9}));
}

TEST(ProcessorClasses, WhatIsNotComputedIsRefusedByName) {
  const auto message = [](const std::string& text) { return error_of([&] { classified(text); }); };
  for (const char* name : {"PerceiverImageProcessor", "MobileViTImageProcessor",
                           "LayoutLMv2FeatureExtractor", "DetrImageProcessor"})
    EXPECT_EQ(message("{\"image_processor_type\": \"" + std::string(name) + "\"}"),
              "config: image_processor_type: got \"" + std::string(name) +
                  "\", which prepares images in a way that is not computed here: need "
                  "ViTImageProcessor, DeiTImageProcessor, CLIPImageProcessor, "
                  "ChineseCLIPImageProcessor, BitImageProcessor, ViTHybridImageProcessor, "
                  "BlipImageProcessor, SiglipImageProcessor, BeitImageProcessor, "
                  "ConvNextImageProcessor, PoolFormerImageProcessor, LevitImageProcessor, "
                  "EfficientNetImageProcessor, PvtImageProcessor, MobileNetV1ImageProcessor, "
                  "MobileNetV2ImageProcessor, SegformerImageProcessor");
  for (const auto& [key, value, needed] :
       {std::tuple("rescale_offset", "true", "false"),
        {"include_top", "true", "false"},
        {"do_flip_channel_order", "true", "false"},
        {"do_thumbnail", "true", "false"},
        {"do_align_long_axis", "true", "false"},
        {"do_crop_margin", "true", "false"},
        {"do_grayscale", "true", "false"},
        {"do_color_quantize", "true", "false"},
        {"apply_ocr", "true", "false"},
        {"keep_aspect_ratio", "true", "false"},
        {"use_square_size", "true", "false"},
        {"ensure_multiple_of", "32", "1"},
        {"size_divisor", "32", "1"},
        {"data_format", "\"channels_last\"", "\"channels_first\""}})
    EXPECT_EQ(message("{\"" + std::string(key) + "\": " + value + "}"),
              "config: " + std::string(key) + ": is " + value + ", need " + needed +
                  ": nothing else is computed");
  EXPECT_EQ(message(R"({"gamma": 2})"),
            "config: gamma: is not known here, and may ask for what is not computed: remove it if "
            "the model's results do not depend on it");
  EXPECT_EQ(message(R"({"crop_pct": 0.9})"),
            "config: crop_pct: is nothing that ViTImageProcessor knows: remove it, or name the "
            "class as image_processor_type");
  EXPECT_EQ(message(R"({"image_processor_type": "EfficientNetImageProcessor"})"),
            "config: include_top is true where EfficientNetImageProcessor's settings do not say "
            "false: nothing else is computed");
  const std::string convnext = R"({"image_processor_type": "ConvNextImageProcessor", )";
  EXPECT_EQ(message(convnext + R"("size": {"height": 32, "width": 32}})"),
            "config: size: need {\"shortest_edge\"} for ConvNextImageProcessor");
  EXPECT_EQ(message(convnext + R"("do_center_crop": true, "crop_size": 32})"),
            "config: do_center_crop: is true, but ConvNextImageProcessor crops by crop_pct");
  EXPECT_EQ(message(convnext + R"("crop_pct": 2})"),
            "config: crop_pct: got 2, need a number from 0.01 to 1");
  EXPECT_EQ(message(R"({"size": [1, 2, 3]})"), "config: size: got 3 numbers, need [height, width]");
}

TEST(Preprocess, SaysWhatIsWrong) {
  const auto message = [](const std::string& text) { return error_of([&] { read(parse(text)); }); };
  EXPECT_EQ(message(R"({"size": 0})"), "config: size: got 0, need a whole number from 1 to 65536");
  EXPECT_EQ(message(R"({"size": {"edge": 3}})"),
            "config: size: need a number, {\"height\", \"width\"}, {\"shortest_edge\"} with or "
            "without \"longest_edge\", or {\"max_height\", \"max_width\"}");
  EXPECT_EQ(message(R"({"resample": 6})"),
            "config: resample: got 6, need one of Pillow's filters: 0 nearest, 1 lanczos, 2 "
            "bilinear, 3 bicubic, 4 box, 5 hamming");
  EXPECT_EQ(message(R"({"image_mean": [1, 2]})"),
            "config: image_mean: got 2 numbers, need 3 (red, green, blue)");
  EXPECT_EQ(message(R"({"image_mean": 1e99})"),
            "config: image_mean: got 1e+99, need numbers that fit into f32");
  EXPECT_EQ(message(R"({"image_std": [1, 0, 1]})"),
            "config: image_std: got 0, need numbers above 0");
  EXPECT_EQ(message(R"({"do_center_crop": true})"),
            "config: do_center_crop: is true, but there is no crop_size");
  EXPECT_EQ(error_of([] {
              models::normalize(tensor::zeros({2, 2, 4}, tensor::u8), {});
            }),
            "normalize: got u8(2, 2, 4), need an image u8(height, width, 3)");
  EXPECT_EQ(error_of([] {
              models::normalize_levels(tensor::zeros({2, 2, 3}, tensor::u8), {});
            }),
            "normalize: got u8(2, 2, 3), need images u8(batch, height, width, 3)");
}

TEST(Preprocess, SaysWhatIsWrongWithTimmsSettings) {
  const auto message = [](const std::string& text) {
    return error_of([&] { models::vit::timm_preprocessing(parse(text), {8, 8}); });
  };
  EXPECT_EQ(message(R"({"input_size": [3, 8, 9]})"),
            "config: input_size: need [3, 8, 8], the image that the model takes");
  EXPECT_EQ(message(R"({"interpolation": "random"})"),
            "config: interpolation: got \"random\", need nearest, bilinear, bicubic or lanczos");
  EXPECT_EQ(message(R"({"crop_pct": 0})"), "config: crop_pct: got 0, need a number from 0.01 to 1");
  EXPECT_EQ(message(R"({"crop_mode": "border"})"),
            "config: got the crop_mode \"border\" for an image of 8 x 8, need \"center\" for a "
            "square or \"squash\"");
}

}  // namespace
