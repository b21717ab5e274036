// DETR's parts against independent loops, its processing by hand-made numbers, and its program.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <sstream>

#include "models/common/draw.h"
#include "models/detr/detr_info.h"
#include "models/detr/detr_processing.h"
#include "models/detr/detr_program.h"
#include "tensor/io.h"
#include "tests/io/io_testing.h"
#include "tests/models/checkpoint_testing.h"
#include "tests/models/golden.h"
#include "tests/ops/check.h"

namespace models::detr {
namespace {

using tensor::Tensor;
using tensor::check::error_of;
using tensor::check::random;
using tensor::check::random_tensor;
using tensor::nn::StateDict;

// ---- The sine position

/// models.md's formula in f64: cells counted along both axes, normalised, 10000^(2 floor(i/2)/n).
double sine_reference(const Tensor& mask, std::int64_t b, std::int64_t y, std::int64_t x,
                      std::int64_t channel, std::int64_t width) {
  const std::int64_t half = width / 2;
  const bool vertical = channel < half;
  const std::int64_t i = vertical ? channel : channel - half;
  const std::int64_t extent = vertical ? mask.shape(1) : mask.shape(2);
  const std::int64_t here = vertical ? y : x;
  double upto = 0, total = 0;
  for (std::int64_t k = 0; k < extent; ++k) {
    const double cell = vertical ? mask.item(b, k, x) : mask.item(b, y, k);
    total += cell;
    if (k <= here) upto += cell;
  }
  const double place = upto / (total + 1e-6) * 2 * std::numbers::pi;
  const double angle = place / std::pow(10000.0, double(2 * (i / 2)) / double(half));
  return i % 2 == 0 ? std::sin(angle) : std::cos(angle);
}

TEST(DetrPosition, IsTheFormulaOnAnyMask) {
  for (const bool holes : {false, true}) {
    Tensor mask = tensor::ones({2, 5, 7});
    if (holes)
      mask = random().randint(0, 2, {2, 5, 7}).astype(tensor::f32);
    else
      mask(1, tensor::slice(3, tensor::none)) = 0,
                               mask(1, tensor::all_of_axis, tensor::slice(4, tensor::none)) = 0;
    const std::int64_t width = 24;
    const Tensor got = sine_position(mask, width);
    ASSERT_EQ(got.shape(), (tensor::Shape{2, 35, width}));
    // The angle is at most 2 pi, rounded a few times in f32; sin and cos do not enlarge the error.
    const double tolerance = 8 * 2 * std::numbers::pi * 0x1p-24;
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t y = 0; y < 5; ++y)
        for (std::int64_t x = 0; x < 7; ++x)
          for (std::int64_t c = 0; c < width; ++c)
            ASSERT_NEAR(got.item(b, y * 7 + x, c), sine_reference(mask, b, y, x, c, width),
                        tolerance)
                << b << " " << y << " " << x << " " << c;
  }
}

TEST(DetrPosition, OfWholeImagesHasTheBitsOfAMaskOfOnes) {
  for (const auto& [rows, columns] : {std::pair(25, 42), std::pair(1, 9), std::pair(7, 1)}) {
    const auto whole = sine_position(rows, columns, 256).to_vector<float>(),
               masked = sine_position(tensor::ones({1, rows, columns}), 256).to_vector<float>();
    EXPECT_EQ(whole, masked) << rows << " x " << columns;
  }
}

// ---- The body

ResNet random_resnet(ResNetConfig config) {
  ResNet net = ResNet::sized(config);
  tensor::nn::randomize(net, 11);
  return net;
}

TEST(DetrBackbone, EveryHalvingRoundsUp) {
  const ResNetConfig config{.stem = 4, .stages = {{1, 2, 8}, {1, 2, 8}, {1, 2, 8}, {1, 2, 8}}};
  for (const auto& [h, w] : {std::pair(97, 130), std::pair(1, 33), std::pair(64, 65)}) {
    const auto up = [](std::int64_t x) { return (x + 31) / 32; };
    EXPECT_EQ(random_resnet(config)(random_tensor({1, 3, h, w})).shape(),
              (tensor::Shape{1, 8, up(h), up(w)}));
  }
}

/// A convolution with stride 2, and those after it, see every second cell; dilated ones at stride 1
/// see the same cells and those between. So every second cell of DC5 is the plain network's cell.
TEST(DetrBackbone, EverySecondCellOfDC5IsThePlainNetworks) {
  for (const bool basic : {false, true}) {
    ResNetConfig config{.stem = 6, .stages = {{1, 4, 8}, {2, 4, 12}, {3, 6, 16}}, .basic = basic};
    const ResNet plain = random_resnet(config);
    config.dilated = true;
    const ResNet dilated = random_resnet(config);
    const Tensor pixels = random_tensor({2, 3, 75, 52});
    const Tensor cells = plain(pixels), all = dilated(pixels);
    EXPECT_EQ(all.shape(), (tensor::Shape{2, 16, 10, 7}));
    const Tensor every_second = all["..., ::2, ::2"].copy();
    ASSERT_EQ(every_second.shape(), cells.shape());
    tensor::check::expect_near(every_second, cells.to_vector<double>(), 1e-5,
                               tensor::max(tensor::abs(cells)).item());
  }
}

// ---- Images in

TEST(DetrSize, IsTheReferencesToThePixel) {
  const SizeRule rule = default_preprocessing().size;
  const auto size = [&](std::int64_t h, std::int64_t w) { return rule.of({h, w}); };
  EXPECT_EQ(size(480, 640), (Size{800, 1066}));
  EXPECT_EQ(size(640, 480), (Size{1066, 800}));
  EXPECT_EQ(size(1080, 1920), (Size{750, 1333}));
  EXPECT_EQ(size(375, 1242), (Size{402, 1333}));
  EXPECT_EQ(size(212, 550), (Size{514, 1332}));   // truncated just below 1333
  EXPECT_EQ(size(800, 1000), (Size{800, 1000}));  // the short side fits already
  EXPECT_EQ(size(800, 1333), (Size{800, 1333}));
  EXPECT_EQ(size(600, 600), (Size{800, 800}));
}

Tensor random_image(std::int64_t h, std::int64_t w) {
  return random().randint(0, 256, {h, w, 3}).astype(tensor::u8);
}

Preprocessing unresized() {
  Preprocessing rule = default_preprocessing();
  rule.resize = false;
  return rule;
}

TEST(DetrBatch, OneImageIsNotPadded) {
  const Batch batch = make_batch({random_image(5, 9)}, unresized());
  EXPECT_EQ(batch.pixel_values.shape(), (tensor::Shape{1, 3, 5, 9}));
  EXPECT_FALSE(batch.pixel_mask.defined());
}

TEST(DetrBatch, SmallerImagesGetZerosBelowAndRightAfterNormalising) {
  const std::vector<Tensor> images = {random_image(5, 9), random_image(7, 4)};
  const Batch batch = make_batch(images, unresized());
  ASSERT_EQ(batch.pixel_values.shape(), (tensor::Shape{2, 3, 7, 9}));
  ASSERT_EQ(batch.pixel_mask.shape(), (tensor::Shape{2, 7, 9}));
  const double mean[] = {0.485, 0.456, 0.406}, std[] = {0.229, 0.224, 0.225};
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t y = 0; y < 7; ++y)
      for (std::int64_t x = 0; x < 9; ++x) {
        const Tensor& image = images[static_cast<std::size_t>(b)];
        const bool inside = y < image.shape(0) && x < image.shape(1);
        ASSERT_EQ(batch.pixel_mask.item<int>(b, y, x), inside ? 1 : 0);
        for (std::int64_t c = 0; c < 3; ++c) {
          const double level = inside ? image.item(y, x, c) / 255 : 0;
          const double want = inside ? (level - mean[c]) / std[c] : 0;
          // Four roundings in f32 of numbers below 4.
          ASSERT_NEAR(batch.pixel_values.item(b, c, y, x), want, 4 * 4 * 0x1p-24);
        }
      }
}

TEST(DetrBatch, PadsToAGivenSizeThatMustHoldTheImage) {
  Preprocessing rule = unresized();
  rule.pad_size = Size{8, 10};
  const Batch batch = make_batch({random_image(5, 9)}, rule);
  EXPECT_EQ(batch.pixel_values.shape(), (tensor::Shape{1, 3, 8, 10}));
  EXPECT_EQ(tensor::sum(batch.pixel_mask).item<int>(), 5 * 9);
  EXPECT_EQ(error_of([&] { make_batch({random_image(9, 9)}, rule); }),
            "the image: is 9 x 9 pixels after resizing, more than the 10 x 8 of pad_size in "
            "preprocessor_config.json");
}

/// What a GPU makes of the padded levels, in a graph: the same bits.
TEST(DetrBatch, IsTheSameOfLevels) {
  const Tensor image = random_image(5, 9);
  Preprocessing rule = unresized();
  for (const std::optional<Size> size : {std::optional<Size>(), {Size{8, 10}}}) {
    rule.pad_size = size;
    const Batch want = make_batch({image}, rule);
    const Levels levels = make_levels(image, rule);
    EXPECT_EQ(levels.pixel_mask.defined(), size.has_value());
    if (size) testing::expect_same(levels.pixel_mask, want.pixel_mask);
    testing::expect_same(normalize_levels(levels, rule), want.pixel_values);
  }
}

TEST(DetrBatch, PadsToNoMoreThanAnImageMayHave) {
  Preprocessing rule = unresized();
  rule.pad_size = Size{std::int64_t{1} << 40, std::int64_t{1} << 40};
  EXPECT_EQ(error_of([&] { make_batch({random_image(5, 9)}, rule); }),
            "pad_size: got 1099511627776 x 1099511627776, need at most 67108864 pixels");
}

/// The mask keeps what is in the padding from mattering, but for the convolutions' reach.
TEST(DetrBatch, TheLargestImageOfABatchSeesNoneOfTheOthers) {
  DetrConfig config{.backbone = {.stem = 4, .stages = {{1, 2, 8}, {1, 2, 8}}},
                    .width = 8,
                    .queries = 3,
                    .classes = 2,
                    .encoder_layers = 2,
                    .encoder_heads = 2,
                    .encoder_ffn = 6,
                    .decoder_layers = 2,
                    .decoder_heads = 2,
                    .decoder_ffn = 6};
  Detr detr = Detr::sized(config);
  tensor::nn::randomize(detr, 3);
  const std::vector<Tensor> images = {random_image(40, 60), random_image(30, 50)};
  const Batch batch = make_batch(images, unresized());
  const Tensor alone = detr(make_batch({images[0]}, unresized()).pixel_values).logits(0);
  const Tensor together = detr(batch.pixel_values, batch.pixel_mask).logits(0);
  // The same sums in another order at most.
  tensor::check::expect_near(together, alone.to_vector<double>(), 1e-5,
                             tensor::max(tensor::abs(alone)).item());
}

// ---- Objects out

TEST(DetrObjects, BestClassAboveTheThresholdInOriginalPixels) {
  // Three classes and "no object". Softmax of log p is p.
  const Tensor probabilities =
      tensor::array({{0.10f, 0.60f, 0.10f, 0.20f},    // 1 at 0.6
                     {0.20f, 0.10f, 0.15f, 0.55f},    // mostly nothing: 0 at 0.2
                     {0.05f, 0.05f, 0.80f, 0.10f},    // 2 at 0.8
                     {0.30f, 0.30f, 0.20f, 0.20f}});  // a tie: the first
  const Tensor boxes = tensor::array({{0.5f, 0.5f, 1.0f, 0.5f},
                                      {0.1f, 0.2f, 0.3f, 0.4f},
                                      {0.1f, 0.9f, 0.4f, 0.4f},
                                      {0.25f, 0.25f, 0.5f, 0.25f}});
  const auto objects = find_objects(tensor::log(probabilities), boxes, {200, 400}, 0.25);
  ASSERT_EQ(objects.size(), 3u);
  const std::int64_t labels[] = {2, 1, 0};
  const double scores[] = {0.8, 0.6, 0.3};
  const double corners[3][4] = {{-40, 140, 120, 220}, {0, 50, 400, 150}, {0, 25, 200, 75}};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(objects[i].label, labels[i]);
    EXPECT_NEAR(objects[i].score, scores[i], 1e-6);
    for (std::size_t k = 0; k < 4; ++k) EXPECT_NEAR(objects[i].box[k], corners[i][k], 1e-4);
  }
}

TEST(DetrObjects, TheThresholdItselfIsNotAbove) {
  const Tensor logits = tensor::array({{0.0f, 0.0f}});  // exactly one half each
  const Tensor boxes = tensor::array({{0.5f, 0.5f, 0.1f, 0.1f}});
  EXPECT_TRUE(find_objects(logits, boxes, {10, 10}, 0.5).empty());
  EXPECT_EQ(find_objects(logits, boxes, {10, 10}, 0.49).size(), 1u);
}

// ---- Standard sizes: models.md section 6

struct StandardSize {
  const char* model;
  int encoder_layers;
  std::int64_t parameters;
  double gmacs;
};

// What a case is called.
void PrintTo(const StandardSize& size, std::ostream* out) {
  *out << size.model << "_e" << size.encoder_layers;
}

class DetrStandard : public ::testing::TestWithParam<StandardSize> {};

TEST_P(DetrStandard, HasThePublishedSize) {
  const StandardSize& want = GetParam();
  DetrConfig config;
  config.encoder_layers = want.encoder_layers;
  const std::string model = want.model;
  if (model.starts_with("detr-resnet-101")) config.backbone = ResNetConfig::resnet101();
  config.backbone.dilated = model.ends_with("-dc5");
  Detr detr = Detr::sized(config);
  const Info info = describe(detr, model, {800, 1333});
  EXPECT_EQ(info.parameters(), want.parameters);
  EXPECT_NEAR(double(info.macs()) / 1e9, want.gmacs, want.gmacs > 150 ? 0.05 : 0.005);
}

INSTANTIATE_TEST_SUITE_P(All, DetrStandard,
                         ::testing::Values(StandardSize{"detr-resnet-50", 3, 37'579'552, 95.77},
                                           StandardSize{"detr-resnet-50", 6, 41'524'768, 101.59},
                                           StandardSize{"detr-resnet-50", 12, 49'415'200, 113.23},
                                           StandardSize{"detr-resnet-101", 6, 60'464'672, 181.1},
                                           StandardSize{"detr-resnet-50-dc5", 6, 41'524'768, 227.7},
                                           StandardSize{"detr-resnet-101-dc5", 6, 60'464'672,
                                                        307.2}));

TEST(DetrStandardSize, TensorsAndFloatsOfTheFiles) {
  const auto count = [](DetrConfig config) {
    Detr detr = Detr::sized(config);
    return std::pair(tensor::nn::parameters(detr).size(), tensor::nn::parameter_count(detr));
  };
  EXPECT_EQ(count({}), std::pair(std::size_t{530}, std::int64_t{41'631'008}));
  EXPECT_EQ(count({.encoder_layers = 3}).first, 482u);
  EXPECT_EQ(count({.encoder_layers = 12}).first, 626u);
  EXPECT_EQ(count({.backbone = ResNetConfig::resnet101()}),
            std::pair(std::size_t{785}, std::int64_t{60'675'360}));
}

// ---- The program

class DetrCommand : public tensor::testing::FolderTest {
 protected:
  /// Runs the program; returns its exit code.
  int detr(const std::vector<std::string>& arguments) {
    DetrProgram program;
    out_.str(""), err_.str("");
    return run_program(program, arguments, out_, err_);
  }
  std::string write_image(std::int64_t h, std::int64_t w) {
    const std::string file = path("image.png");
    tensor::save_png(file, random_image(h, w));
    return file;
  }

  const std::string hub_ = golden::folder("detr_hf_hub");
  std::ostringstream out_, err_;
};

TEST_F(DetrCommand, SavedInputsGiveSavedOutputs) {
  const std::string input = hub_ + "/io.safetensors", output = path("out.safetensors");
  ASSERT_EQ(detr({"--checkpoint", hub_, "--input", input, "--output", output, "--hidden-states"}),
            0)
      << err_.str();
  const StateDict got = tensor::load_safetensors(output).tensors;
  const StateDict want = tensor::load_safetensors(input).tensors;
  golden::expect_close(got.at("pred_boxes"), want.at("pred_boxes"), "pred_boxes");
  // Two layers each: what goes in, and what comes out of every layer.
  testing::expect_same(got.at("encoder_hidden_states.2"), got.at("encoder_last_hidden_state"));
  testing::expect_same(got.at("decoder_hidden_states.2"), got.at("last_hidden_state"));
  EXPECT_EQ(tensor::sum(tensor::abs(got.at("decoder_hidden_states.0"))).item(), 0);
  EXPECT_EQ(got.at("encoder_hidden_states.0").shape(), got.at("encoder_hidden_states.2").shape());
  EXPECT_TRUE(got.contains("backbone.3"));
  EXPECT_EQ(got.size(), 4u + 3u + 3u + 4u);
}

TEST_F(DetrCommand, DrawsWhatItFinds) {
  const std::string image = write_image(60, 90), picture = path("out.png");
  ASSERT_EQ(detr({"--checkpoint", hub_, "--threshold", "0", "--json", "--out", picture, image}), 0)
      << err_.str();
  const tensor::Json found = tensor::Json::parse(out_.str(), "out")[0]["findings"];
  ASSERT_EQ(found.size(), 9u);  // every query
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i]["box"].size(), 4u);
    EXPECT_TRUE(found[i]["label"].text().starts_with("LABEL_"));
    EXPECT_LE(found[i]["score"].number(), i > 0 ? found[i - 1]["score"].number() : 1);
  }
  const Tensor drawn = tensor::load_image(picture), plain = tensor::load_image(image);
  ASSERT_EQ(drawn.shape(), plain.shape());
  EXPECT_TRUE(tensor::any(drawn != plain).item<bool>());
}

TEST_F(DetrCommand, DrawsBoxesWithTheirColours) {
  const Finding finding{"cat", 1, 0.75, std::array<double, 4>{10.2, 20.4, 40.6, 50}};
  const Tensor picture = draw_findings(tensor::zeros({64, 64, 3}, tensor::u8), {finding});
  const Color color = palette(1);
  for (const auto& [y, x] :
       {std::pair(20, 12), std::pair(49, 40), std::pair(35, 10), std::pair(35, 40)})
    for (std::int64_t c = 0; c < 3; ++c)
      EXPECT_EQ(picture.item<int>(y, x, c), color[static_cast<std::size_t>(c)]) << y << " " << x;
  EXPECT_EQ(picture.item<int>(35, 25, 0), 0);
}

TEST_F(DetrCommand, OutlinesDoNotCrossTags) {
  // The box of the second, better finding runs through the place of the first one's tag.
  const Finding low{"dog", 2, 0.5, std::array<double, 4>{10, 30, 100, 90}};
  const Finding high{"cat", 1, 0.9, std::array<double, 4>{20, 5, 60, 80}};
  const Tensor black = tensor::zeros({100, 120, 3}, tensor::u8);
  const Tensor alone = draw_findings(black, {low}), both = draw_findings(black, {high, low});
  const auto tag = [](const Tensor& picture) {
    return picture(tensor::slice(19, 30), tensor::slice(10, 50));
  };
  EXPECT_TRUE(tensor::all(tag(alone) == tag(both)).item<bool>());
}

TEST_F(DetrCommand, TellsTheSizeOfAStandardModel) {
  ASSERT_EQ(detr({"--model", "detr-resnet-50", "--encoder-layers", "3", "--info"}), 0);
  EXPECT_NE(out_.str().find("37,579,552"), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find("95.77"), std::string::npos) << out_.str();
}

TEST_F(DetrCommand, BadInputIsOneLine) {
  const auto error = [&](const std::vector<std::string>& arguments) {
    EXPECT_EQ(detr(arguments), 1);
    return err_.str();
  };
  EXPECT_EQ(error({"--checkpoint", hub_, "--encoder-layers", "3", "--info"}),
            "detr: --encoder-layers: a checkpoint has the layers it has; give it with --model "
            "only\n");
  EXPECT_NE(error({"--checkpoint", hub_, "--threshold", "1.5", "x.png"}).find("--threshold"),
            std::string::npos);
  EXPECT_EQ(error({"--checkpoint", hub_, path("absent.png")}).find("detr: "), 0u);
}

TEST_F(DetrCommand, SavedInputsMustFit) {
  const auto error = [&](const StateDict& inputs) {
    tensor::save_safetensors(path("in.safetensors"), inputs);
    EXPECT_EQ(detr({"--checkpoint", hub_, "--input", path("in.safetensors"), "--output",
                    path("out.safetensors")}),
              1);
    return err_.str();
  };
  const Tensor pixels = tensor::zeros({1, 3, 40, 50}),
               mask = tensor::ones({1, 40, 50}, tensor::i64);
  EXPECT_EQ(error({{"pixel_values", tensor::zeros({1, 1, 40, 50})}}),
            "detr: pixel_values: got the shape (1, 1, 40, 50), need [batch, 3, height, width]\n");
  EXPECT_EQ(error({{"pixel_values", pixels}, {"pixel_mask", tensor::ones({1, 40, 51})}}),
            "detr: pixel_mask: got the shape (1, 40, 51), need (1, 40, 50) to go with "
            "pixel_values (1, 3, 40, 50)\n");
  EXPECT_EQ(error({{"pixel_values", pixels}, {"pixel_mask", tensor::zeros_like(mask)}}),
            "detr: pixel_mask: the upper left pixel of an image is 0, need 1: only the bottom and "
            "the right can be padding\n");
}

}  // namespace
}  // namespace models::detr
