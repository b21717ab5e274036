// The models of models/registry in the programs and behind the service's interface: what is not the
// same for all of them.
#include "models/registry/registry.h"
#include "models/service/face.h"
#include "models/service/model.h"
#include "tests/error_of.h"
#include "tests/models/cli_testing.h"
#include "tests/models/malformed.h"

namespace {

using cli::Cli;
using cli::Outcome;
using models::VisionModel;
using tensor::Tensor;
using tensor::check::error_of;
using tensor::nn::StateDict;

class VisionPrograms : public Cli {
 protected:
  static VisionModel load(const std::string& folder, const char* program,
                          const models::LoadSettings& settings = {}) {
    return models::load_model(models::open_checkpoint(golden::folder(folder)), program, settings);
  }
  /// One that is wider than high.
  std::string picture() const {
    const Tensor whole = tensor::load_image(source("examples/images/scenes/scene-1.png"));
    tensor::save_png(path("picture.png"), whole(tensor::slice(0, 180)).copy());
    return path("picture.png");
  }
  /// What a model that takes no such image says.
  static std::string refusal(const VisionModel& model, const tensor::Shape& shape) {
    return error_of([&] { model.run(tensor::zeros(shape), {}); });
  }
  Tensor pixels(const VisionModel& model) const {
    return model.preparation.normalize(model.preparation.fit(tensor::load_image(picture())));
  }
};

/// How many pixels of --labels are not of the class with the largest of the enlarged logits.
double different(const VisionModel& model, const Tensor& pixels, const std::string& file) {
  const Tensor got = tensor::load_image(file)(tensor::ellipsis, 0);
  const Tensor logits =
      tensor::interpolate(model.run(pixels, {}).at("logits"), {got.shape(0), got.shape(1)},
                          {.mode = tensor::Interpolation::bilinear});
  return tensor::mean((tensor::argmax(logits(0), 0) != got).astype(tensor::f32)).item();
}

TEST_F(VisionPrograms, SegformerNamesThePixelsOfAPicture) {
  const std::string labels = path("labels.png"), out = path("out.png");
  const auto run_with = [&](cli::Words more) {
    more.insert(more.end(), {"--checkpoint", golden::folder("segformer"), "--labels", labels,
                             "--out", out, picture()});
    return run("setr", more);
  };
  const Outcome whole = run_with({});
  EXPECT_EQ(whole.code, 0) << whole.err;
  EXPECT_NE(whole.out.find("LABEL_"), std::string::npos) << whole.out;
  // The eager run rounds otherwise: where two classes are as good as each other, either may win.
  constexpr double kMost = 1e-3;
  const VisionModel model = load("segformer", "setr");
  EXPECT_EQ(pixels(model).shape(), (tensor::Shape{1, 3, 64, 64}));
  EXPECT_LE(different(model, pixels(model), labels), kMost);
  EXPECT_GT(tensor::load_image(out).size(), 0);

  const Outcome scaled = run_with({"--scale", "200,50"});
  EXPECT_EQ(scaled.code, 0) << scaled.err;
  using Kind = models::SizeRule::Kind;
  const models::SizeRule scale{Kind::shortest_edge, {}, 50, 200};
  const VisionModel other = load("segformer", "setr", {.scale = scale});
  EXPECT_EQ(pixels(other).shape(2), 50);
  EXPECT_GT(pixels(other).shape(3), 50);
  EXPECT_LE(different(other, pixels(other), labels), kMost);

  expect_refused(run_with({"--slide"}),
                 "setr: --slide: this model takes an image in one piece: leave it out");
}

TEST_F(VisionPrograms, FeaturesOfPicturesAreSaved) {
  const std::string first = picture(), folder = golden::folder("siglip_vision");
  const std::string second = source("examples/images/scenes/scene-2.png");
  const std::string out = path("out.safetensors");
  const Outcome got = run("vit", {"--checkpoint", folder, "--output", out, first, second});
  EXPECT_EQ(got.code, 0) << got.err;
  const std::string shapes = "\n  last_hidden_state (1, 16, 32)\n  pooler_output (1, 32)\n";
  EXPECT_EQ(got.out, first + shapes + second + shapes);
  const StateDict saved = tensor::load_safetensors(out, tensor::FileAccess::read).tensors;
  const VisionModel model = load("siglip_vision", "vit");
  ASSERT_EQ(saved.size(), 2u);
  std::int64_t row = 0;
  for (const std::string& file : {first, second}) {
    const Tensor levels = model.preparation.fit(tensor::load_image(file));
    for (const auto& [name, value] : model.run(model.preparation.normalize(levels), {}))
      golden::expect_close(saved.at(name)(tensor::slice(row, row + 1)), value, name);
    ++row;
  }

  expect_refused(run("vit", {"--checkpoint", golden::folder("swin"), "--output", out, first}),
                 "vit: --output: is for the features of images, but this model names what it sees "
                 "in them: leave it out, or give saved pixel_values by --input");
  expect_refused(run("vit", {"--checkpoint", folder, "--output", first, first}),
                 "vit: --output: would overwrite the input image " + first + ": name another file");
}

// DINOv3 resizes numbers: nothing is rounded to levels. Depth Anything keeps the aspect, SAM pads.
TEST_F(VisionPrograms, PicturesArePreparedAsTransformersDoes) {
  for (const auto& [folder, program] :
       {std::pair("dinov3", "vit"), {"depth_anything", "depth"}, {"sam", "vit"}}) {
    const StateDict made =
        tensor::load_safetensors(golden::folder(folder) + std::string("/picture.safetensors"),
                                 tensor::FileAccess::read)
            .tensors;
    const VisionModel model = load(folder, program);
    const Tensor levels = model.preparation.fit(made.at("levels"));
    golden::expect_close(model.preparation.normalize(levels), made.at("pixel_values"), "host");
    golden::expect_close(model.preparation.normalize_levels(levels.expand_dims(0)),
                         made.at("pixel_values"), "operators");
  }
}

/// Every pixel's depth as the folder's model has it, of a picture.
Tensor depth_by_hand(const VisionModel& model, const std::string& picture) {
  const Tensor image = tensor::load_image(picture);
  const Tensor pixels = model.preparation.normalize(model.preparation.fit(image));
  const Tensor depth = model.run(pixels, {}).at("predicted_depth").expand_dims(1);
  return tensor::interpolate(depth, {image.shape(0), image.shape(1)},
                             {.mode = tensor::Interpolation::bicubic})(0, 0);
}

TEST_F(VisionPrograms, DepthIsToldDrawnAndSaved) {
  for (const std::string name : {"depth_anything", "depth_anything_metric"}) {
    const bool is_nearness = name == "depth_anything";
    const std::string folder = golden::folder(name), out = path("depth.png");
    const Outcome told = run("depth", {"--checkpoint", folder, "--out", out, "--json", picture()});
    EXPECT_EQ(told.code, 0) << told.err;
    const Tensor want = depth_by_hand(load(name, "depth"), picture());
    const double least = tensor::min(want).item(), most = tensor::max(want).item();
    const Json found = Json::parse(told.out, "output")[0]["findings"];
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0]["label"].text(), "nearest");
    EXPECT_EQ(found[1]["label"].text(), "farthest");
    EXPECT_NEAR(found[0]["depth"].number(), is_nearness ? most : least, golden::kRounding * most);
    EXPECT_NEAR(found[1]["depth"].number(), is_nearness ? least : most, golden::kRounding * most);
    // A level that lies between two may be rounded to either.
    const Tensor drawn = tensor::load_image(out);
    const Tensor hand =
        models::depth::draw_depth(models::depth::nearness_levels(want, is_nearness));
    ASSERT_EQ(drawn.shape(), hand.shape());
    constexpr double kMost = 1e-3;
    EXPECT_LE(tensor::mean((drawn != hand).astype(tensor::f32)).item(), kMost);

    const std::string file = path("depth.safetensors");
    const Outcome saved = run("depth", {"--checkpoint", folder, "--output", file, picture()});
    EXPECT_EQ(saved.code, 0) << saved.err;
    const StateDict tensors = tensor::load_safetensors(file, tensor::FileAccess::read).tensors;
    golden::expect_close(tensors.at("predicted_depth")(0), want, name);
  }
}

TEST_F(VisionPrograms, NearIsWhite) {
  const Tensor depth = tensor::array({1.0f, 2.0f, 5.0f}).reshape({1, 3});
  const auto levels = [&](bool is_nearness) {
    return models::depth::nearness_levels(depth, is_nearness).to_vector<std::uint8_t>();
  };
  EXPECT_EQ(levels(true), (std::vector<std::uint8_t>{0, 64, 255}));
  EXPECT_EQ(levels(false), (std::vector<std::uint8_t>{255, 191, 0}));
  const Tensor flat = models::depth::nearness_levels(tensor::ones({2, 2}), true);
  EXPECT_FALSE(tensor::any(flat != 0).item<bool>());
  const Tensor ends = models::depth::draw_depth(tensor::array({0, 255}).reshape({1, 2}));
  EXPECT_EQ(ends.to_vector<std::uint8_t>(),
            (std::vector<std::uint8_t>{13, 8, 135, 240, 249, 33}));  // plasma's
}

TEST_F(VisionPrograms, FeaturesOfPicturesThatDifferInSizeAreRefused) {
  const malformed::Folder folder(path("folder"), "convnext_headless");
  folder.write("preprocessor_config.json", R"({"do_resize": false})");
  std::vector<std::string> files;
  for (const std::int64_t side : {32, 64}) {
    files.push_back(path(std::to_string(side) + ".png"));
    tensor::save_png(files.back(), tensor::zeros({side, side, 3}, tensor::u8));
  }
  const std::string out = path("out.safetensors");
  const Outcome got =
      run("vit", {"--checkpoint", folder.path(), "--output", out, files[0], files[1]});
  EXPECT_EQ(got.code, 1);
  EXPECT_EQ(got.err, "vit: " + files[1] +
                         ": gives last_hidden_state of (1, 24, 4, 4), but images before it (1, 24, "
                         "2, 2): give those of one size alone\n");
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(VisionPrograms, WhatIsTooSmallIsRefused) {
  EXPECT_EQ(refusal(load("convnext", "vit"), {1, 3, 15, 99}),
            "pixel_values: got an image of 15 x 99, smaller than a patch of 16 x 16");
  EXPECT_EQ(refusal(load("dinov2", "vit"), {1, 4, 28, 28}),
            "pixel_values: got (1, 4, 28, 28), need (batch, 3, height, width)");
  EXPECT_EQ(refusal(load("swin", "vit"), {1, 3, 56, 28}),
            "pixel_values: is so small that a stage has only 4 x 2 pixels, less than a window of "
            "4 x 4");
  EXPECT_EQ(refusal(load("sam", "vit"), {1, 3, 32, 40}),
            "pixel_values: got an image of 32 x 40, the model takes 32 x 32: resize and pad it");
  EXPECT_EQ(refusal(load("segformer", "setr"), {1, 3, 64, 12}),
            "pixel_values: is so small that a stage has only 16 x 3 pixels, which cannot be "
            "reduced 4 times");
}

TEST_F(VisionPrograms, TowersTakeOtherSizesWhenAsked) {
  for (const char* name : {"clip_vision", "siglip_vision"}) {
    EXPECT_EQ(refusal(load(name, "vit"), {1, 3, 40, 24}),
              "pixel_values: got an image of 40 x 24, the model takes 32 x 32: resize it, or ask "
              "for a resized position embedding (--interpolate-pos-encoding)");
    // A position embedding that is the same everywhere is so at any size, too.
    models::Checkpoint folder = models::open_checkpoint(golden::folder(name));
    Tensor& position = folder.tensors.at("embeddings.position_embedding.weight");
    position = tensor::ones(position.shape());
    const VisionModel model = models::load_model(folder, "vit", {.any_size = true});
    const Tensor wide = tensor::Generator(1).normal({1, 3, 40, 24});
    Tensor first;
    model.run(wide, [&](const std::string&, const Tensor& value) {
      if (!first.defined()) first = value;
    });
    EXPECT_EQ(first.shape(1), 15 + (std::string(name) == "clip_vision"));
  }
}

TEST_F(VisionPrograms, APlanHoldsThem) {
  for (const auto& [name, program] : {std::pair("swin_headless", "vit"),
                                      {"segformer", "setr"},
                                      {"depth_anything", "depth"},
                                      {"sam", "vit"}}) {
    const StateDict made = saved_run(program, name, {"--plan", path(name)});
    const StateDict read = saved_run(program, name, {"--plan", path(name)});
    ASSERT_EQ(made.size(), read.size());
    for (const auto& [key, value] : made)
      EXPECT_TRUE(tensor::array_equal(value, read.at(key))) << key;
  }
}

TEST_F(VisionPrograms, TheServiceOpensThem) {
  for (const char* name : {"convnext", "segformer"}) {
    const auto model = models::service::Model::open(golden::folder(name));
    const std::string bytes = tensor::testing::read_bytes(picture());
    const models::service::Seen seen = model->look(std::as_bytes(std::span(bytes)));
    ASSERT_EQ(seen.error, nullptr);
    ASSERT_FALSE(seen.result.findings.empty());
    EXPECT_TRUE(seen.result.findings.front().label.starts_with("LABEL_"));
    EXPECT_EQ(seen.result.labels.defined(), std::string(name) == "segformer");
  }
}

TEST_F(VisionPrograms, TheServiceGivesDepthAsAGreyPicture) {
  const auto model = models::service::Model::open(golden::folder("depth_anything"));
  const std::string bytes = tensor::testing::read_bytes(picture());
  const models::service::Seen seen = model->look(std::as_bytes(std::span(bytes)));
  ASSERT_EQ(seen.error, nullptr);
  const std::vector<models::service::Array> face = models::service::face_of(*model->program());
  ASSERT_EQ(face.size(), 5u);
  EXPECT_EQ(face[3].name, "depth");
  const models::service::Array got =
      models::service::face_output(face[3], std::span(&seen.result, 1), *model->program());
  const auto texts = models::service::texts_in(got.bytes, 1, "depth");
  const Tensor grey = tensor::decode_image(std::as_bytes(std::span(texts[0])), "depth");
  EXPECT_TRUE(tensor::array_equal(grey(tensor::ellipsis, 0), seen.result.labels));
}

TEST_F(VisionPrograms, TheServiceNamesWhatItTakes) {
  const malformed::Folder folder(path("folder"), "convnext");
  folder.config("\"model_type\": \"convnext\"", "\"model_type\": \"resnet\"");
  const auto opened = [&](const models::service::OpenOptions& options) {
    return error_of([&] { models::service::Model::open(folder.path(), options); });
  };
  EXPECT_TRUE(opened({}).starts_with(
      folder.at("config.json") +
      ": model_type: is \"resnet\", which no program takes: vit takes vit, vit_msn,"))
      << opened({});
  models::service::OpenOptions options;
  options.set("program", "resnet");
  EXPECT_EQ(opened(options), "program: got \"resnet\", need vit, detr, setr or depth");
  folder.config("\"model_type\": \"resnet\",", "");
  EXPECT_TRUE(
      opened({}).starts_with(folder.at("config.json") + ": has no \"model_type\": vit takes vit,"))
      << opened({});
}

}  // namespace
