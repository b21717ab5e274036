// The vit program end to end: saved inputs, images, pictures, the shipped weights, standard sizes.
#include "models/vit/vit_program.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <sstream>

#include "models/vit/vit_checkpoint.h"
#include "models/vit/vit_preprocess.h"
#include "models/vit/vit_standard.h"
#include "tensor/creation.h"
#include "tensor/io.h"
#include "tensor/json.h"
#include "tensor/nn.h"
#include "tests/error_of.h"
#include "tests/models/cli_testing.h"
#include "tests/models/golden.h"
#include "tests/temporary_folder.h"

namespace {

using cli::Outcome;
using models::Finding;
using models::vit::Vit;
using models::vit::VitConfig;
using tensor::Tensor;
using tensor::check::error_of;
using tensor::check::TemporaryFolder;

Outcome run_vit(const std::vector<std::string>& arguments) {
  std::ostringstream out, err;
  const auto program = models::vit::make_program();
  const int code = models::run_program(*program, arguments, out, err);
  return {code, out.str(), err.str()};
}

/// --input and --output on a golden folder: the names and values that are written.
std::map<std::string, Tensor> saved(const std::string& name, std::vector<std::string> more) {
  const TemporaryFolder home;
  more.insert(more.end(), {"--quiet", "--checkpoint", golden::folder(name), "--output",
                           home / "out.safetensors"});
  const Outcome outcome = run_vit(more);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return tensor::load_safetensors(home / "out.safetensors", tensor::FileAccess::read).tensors;
}

TEST(VitProgram, WritesLogitsAndHiddenStates) {
  const std::string input = golden::folder("vit_hf") + "/io.safetensors";
  const auto io = golden::io("vit_hf");
  const auto logits = saved("vit_hf", {"--input", input});
  ASSERT_EQ(logits.size(), 1u);
  golden::expect_close(logits.at("logits"), io.at("logits"), "logits");
  const auto all = saved("vit_hf", {"--input", input, "--hidden-states"});
  ASSERT_EQ(all.size(), 5u);
  for (const auto& [name, value] : all) golden::expect_close(value, io.at(name), name);
}

TEST(VitProgram, WritesTheFeaturesOfAHeadlessModel) {
  const auto io = golden::io("vit_hf_headless");
  const auto features =
      saved("vit_hf_headless", {"--input", golden::folder("vit_hf_headless") + "/io.safetensors"});
  ASSERT_EQ(features.size(), 2u);
  for (const auto& [name, value] : features) golden::expect_close(value, io.at(name), name);
}

TEST(VitProgram, TakesOtherSizesWhenAsked) {
  const TemporaryFolder home;
  const auto io = golden::io("vit_hf");
  const std::string input = home / "in.safetensors";
  tensor::save_safetensors(input, {{"pixel_values", io.at("interpolated.pixel_values")}});
  const auto got = saved("vit_hf", {"--input", input, "--interpolate-pos-encoding"});
  golden::expect_close(got.at("logits"), io.at("interpolated.logits"), "logits");
  const Outcome refused = run_vit({"--checkpoint", golden::folder("vit_hf"), "--input", input,
                                   "--output", home / "out.safetensors"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_EQ(refused.err,
            "vit: pixel_values: got an image of 40 x 56, the model takes 32 x 32: resize it, or "
            "ask for a "
            "resized position embedding (--interpolate-pos-encoding)\n");
}

TEST(VitProgram, TimmResizesPositionsWithAntialiasing) {
  const models::Checkpoint checkpoint = models::open_checkpoint(golden::folder("vit_timm"));
  const models::vit::LoadedVit vit = models::vit::load_vit(checkpoint, true);
  const Tensor pixels = tensor::Generator(1).normal({1, 3, 40, 24});
  const Tensor got = vit.model.embeddings(pixels);
  // The same by hand: tokens without a position, and the grid of 4 x 4 resized to 5 x 3.
  const Tensor position = checkpoint.tensors.at("pos_embed");
  const Tensor grid = position(tensor::all_of_axis, tensor::slice(1, tensor::none))
                          .swapaxes(1, 2)
                          .reshape({1, -1, 4, 4});
  const Tensor resized = tensor::interpolate(
      grid, {5, 3}, {.mode = tensor::Interpolation::bicubic, .antialias = true});
  const Tensor tokens = vit.model.embeddings.patch(pixels);
  const Tensor want = (tokens + resized).reshape({1, -1, 15}).swapaxes(1, 2);
  golden::expect_close(got(tensor::all_of_axis, tensor::slice(1, tensor::none)), want, "patches");
  golden::expect_close(got(0, 0), checkpoint.tensors.at("cls_token")(0, 0) + position(0, 0), "cls");
}

TEST(VitProgram, RefusesWhatTheModelCannotTake) {
  const TemporaryFolder home;
  const std::string image = home / "image.png";
  tensor::save_png(image, tensor::zeros({8, 8, 3}, tensor::u8));
  const std::string headless = golden::folder("vit_hf_headless");
  const Outcome features = run_vit({"--checkpoint", headless, image});
  EXPECT_EQ(features.code, 1);
  EXPECT_EQ(features.err, "vit: " + headless +
                              ": has no classifier, so it cannot name what an image shows: use "
                              "--output for its features\n");
  const auto complaint = [&](const tensor::Shape& shape) {
    tensor::save_safetensors(home / "in", {{"pixel_values", tensor::zeros(shape)}});
    const Outcome outcome =
        run_vit({"--checkpoint", golden::folder("vit_hf"), "--input", home / "in", "--output",
                 home / "out", "--interpolate-pos-encoding"});
    EXPECT_EQ(outcome.code, 1);
    return outcome.err;
  };
  EXPECT_EQ(complaint({1, 4, 32, 32}),
            "vit: pixel_values: got (1, 4, 32, 32), need (batch, 3, height, width)\n");
  EXPECT_EQ(complaint({1, 3, 7, 32}),
            "vit: pixel_values: got an image of 7 x 32, smaller than a patch of 8 x 8\n");
  for (const char* top : {"0", "-1", "x", "99999999999999999999"})
    EXPECT_EQ(run_vit({"--top", top}).err,
              std::string("vit: --top: got \"") + top +
                  "\", need a whole number of at least 1 (see vit --help)\n");
}

TEST(VitProgram, PositionsThatAreNoSquareCannotBeResized) {
  VitConfig config{
      .width = 4, .layers = 1, .heads = 1, .mlp = 4, .image = {8, 12}, .patch = {4, 4}};
  config.position_resize = models::vit::PositionResize::huggingface;
  const Vit vit = Vit::sized(config);
  EXPECT_EQ(vit(tensor::zeros({1, 3, 8, 12})).logits.shape(), (tensor::Shape{1, 1000}));
  EXPECT_EQ(error_of([&] {
              vit(tensor::zeros({1, 3, 16, 16}));
            }),
            "pixel_values: the position embedding of 6 patches is not a square grid, so it cannot "
            "be resized");
}

TEST(VitProgram, ScoresAreProbabilitiesOrNumbers) {
  using models::vit::Scores;
  const std::vector<std::string> labels = {"a", "b", "c"};
  const Tensor logits = tensor::array<float>({0, 2, 1});
  const auto check = [&](Scores kind, const std::vector<double>& scores) {
    const std::vector<Finding> all =
        models::vit::best_classes(models::vit::scores_of(logits, kind), labels, 9);
    ASSERT_EQ(all.size(), 3u);
    const int order[] = {1, 2, 0};
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(all[i].id, order[i]);
      EXPECT_EQ(all[i].label, labels[std::size_t(order[i])]);
      EXPECT_NEAR(all[i].score, scores[i], 1e-6);  // one f32 rounding or two
    }
  };
  const double e = std::exp(1), total = 1 + e + e * e;
  check(Scores::softmax, {e * e / total, e / total, 1 / total});
  check(Scores::sigmoid, {1 / (1 + std::exp(-2)), 1 / (1 + std::exp(-1)), 0.5});
  check(Scores::numbers, {2, 1, 0});
  EXPECT_EQ(models::vit::best_classes(logits, labels, 1).size(), 1u);
}

TEST(VitProgram, DrawsTheClassesBelowTheImage) {
  const Tensor image = tensor::Generator(2).randint(0, 256, {400, 500, 3}, tensor::u8);
  const std::vector<Finding> classes = {
      {"a label that is far too long to stand on one line", 0, 1, {}}, {"b", 1, 0, {}}};
  const Tensor picture = models::vit::draw_classes(image, classes);
  EXPECT_EQ(picture.shape(1), 500);
  EXPECT_TRUE(tensor::all(picture(tensor::slice(0, 400)) == image).item<bool>());
  // The first bar is full, the second empty.
  const std::string blue = "(42, 157, 235)";
  const auto blue_pixels = [&](const Tensor& part) {
    const Tensor same = part == tensor::array<int>({42, 157, 235});
    return tensor::sum(tensor::all(same, -1)).item<std::int64_t>();
  };
  const std::int64_t middle = 400 + (picture.shape(0) - 400) / 2;
  EXPECT_GT(blue_pixels(picture(tensor::slice(400, middle))), 2000);
  EXPECT_EQ(blue_pixels(picture(tensor::slice(middle, tensor::none))), 0);
  // A small image is enlarged.
  EXPECT_GE(
      models::vit::draw_classes(image(tensor::slice(0, 8), tensor::slice(0, 8)), classes).shape(1),
      320);
}

// ---- Standard sizes

struct Standard {
  const char* name;
  std::int64_t parameters, layer;
  double gmacs, gmacs_without_attention;  // to two decimals
};

TEST(VitStandard, ParametersAndMultiplyAdds) {
  for (const Standard& want :
       {Standard{"vit-base-patch16-224", 86567656, 7087872, 17.56, 16.85},
        Standard{"vit-large-patch16-224", 304326632, 12596224, 61.55, 59.65},
        Standard{"vit-huge-patch14-224", 632045800, 19677440, 167.30, 161.88}}) {
    const VitConfig config = models::vit::standard_config(want.name);
    Vit vit = Vit::sized(config);
    EXPECT_EQ(tensor::nn::parameter_count(vit), want.parameters) << want.name;
    EXPECT_EQ(tensor::nn::parameter_count(vit.layers.front()), want.layer) << want.name;
    const models::Info info = models::vit::describe(want.name, vit, config);
    EXPECT_EQ(info.parameters(), want.parameters) << want.name;
    const auto giga = static_cast<double>(info.macs()) / 1e9;
    EXPECT_NEAR(giga, want.gmacs, 0.005) << want.name;
    const std::int64_t tokens = config.grid().height * config.grid().width + 1;
    const std::int64_t attention =
        config.layers * models::attention_macs(tokens, tokens, config.width);
    EXPECT_NEAR(giga - static_cast<double>(attention) / 1e9, want.gmacs_without_attention, 0.005);
  }
  EXPECT_EQ(models::vit::standard_names().size(), 3u);
}

TEST(VitStandard, HugeWithItsPooler) {
  VitConfig config = models::vit::standard_config("vit-huge-patch14-224");
  config.classes = 0, config.pooler = config.width;  // as google/vit-huge-patch14-224-in21k
  Vit vit = Vit::sized(config);
  EXPECT_EQ(tensor::nn::parameter_count(vit), 632404480);
  EXPECT_EQ(models::vit::describe("huge", vit, config).parameters(), 632404480);
}

TEST(VitStandard, InformationAndNames) {
  const Outcome info = run_vit({"--model", "vit-base-patch16-224", "--info"});
  EXPECT_EQ(info.code, 0);
  EXPECT_NE(info.out.find("86,567,656     17.56"), std::string::npos) << info.out;
  EXPECT_EQ(error_of([] { models::vit::standard_config("vit-tiny"); }),
            "standard_config: there is no standard model \"vit-tiny\"");
}

TEST(VitStandard, BaseRunsWithRandomWeights) {
  const TemporaryFolder home;
  const Tensor image = tensor::Generator(9).randint(0, 256, {100, 150, 3}, tensor::u8);
  tensor::save_png(home / "noise.png", image);
  const Outcome outcome = run_vit({"--model", "vit-base-patch16-224", "--random-weights", "1",
                                   "--json", "--top", "1000", home / "noise.png"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const tensor::Json findings = tensor::Json::parse(outcome.out, "out")[0]["findings"];
  ASSERT_EQ(findings.size(), 1000u);
  double total = 0;
  for (std::size_t i = 0; i < findings.size(); ++i) total += findings[i]["score"].number();
  EXPECT_NEAR(total, 1, 1e-4);  // 1000 roundings of f32
}

// ---- The weights that ship

const std::string kDigitsModel = TENSOR_TEST_DATA "/../../models/vit/pretrained/digits";

TEST(VitDigits, ReachesTheTrainingsAccuracy) {
  const tensor::Json training = tensor::Json::load(kDigitsModel + "/training.json");
  const tensor::Json want = training["result"]["test"];
  const models::vit::LoadedVit vit = models::vit::load_vit(models::open_checkpoint(kDigitsModel));
  const auto test = tensor::load_npz(kDigitsModel + "/test.npz");
  const Tensor &images = test.at("images"), &labels = test.at("labels");
  const std::int64_t count = images.shape(0);
  ASSERT_EQ(count, want["images"].integer());
  ASSERT_GE(count, 300);
  std::vector<Tensor> logits;
  for (std::int64_t i = 0; i < count; ++i) {
    const Tensor rgb = tensor::stack({images(i), images(i), images(i)}, -1);
    const Tensor pixels = models::preprocess(rgb, vit.preprocessing).expand_dims(0);
    logits.push_back(vit.model(pixels).logits(0));
  }
  const Tensor got = tensor::stack(logits);
  golden::expect_close(got, test.at("logits"), "digits");
  const Tensor right = tensor::argmax(got, 1) == labels;
  const double accuracy = tensor::mean(right.astype(tensor::f64)).item();
  EXPECT_EQ(accuracy, want["accuracy"].number());
  EXPECT_GE(accuracy, 0.97);
}

TEST(VitDigits, TheExamplesAreRecognised) {
  const std::string folder = TENSOR_TEST_DATA "/../../examples/images/digits";
  const Outcome outcome = run_vit({"--checkpoint", kDigitsModel, "--json", "--top", "1", folder});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const tensor::Json images = tensor::Json::parse(outcome.out, "out");
  ASSERT_GE(images.size(), 5u);
  for (std::size_t i = 0; i < images.size(); ++i) {
    // "digit-3.png" shows a 3.
    const std::string stem = std::filesystem::path(images[i]["file"].text()).stem().string();
    EXPECT_EQ(images[i]["findings"][0]["label"].text(), stem.substr(stem.find('-') + 1));
    EXPECT_GT(images[i]["findings"][0]["score"].number(), 0.5);
  }
}

}  // namespace
