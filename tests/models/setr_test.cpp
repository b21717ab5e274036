// SETR's windows, class maps and processing against independent loops, and its sizes.
#include <gtest/gtest.h>

#include <cmath>

#include "models/common/resize.h"
#include "models/setr/setr_inference.h"
#include "models/setr/setr_info.h"
#include "models/setr/setr_processing.h"
#include "tensor/io.h"
#include "tests/models/checkpoint_testing.h"
#include "tests/models/golden.h"
#include "tests/ops/check.h"

namespace models::setr {
namespace {

using tensor::Tensor;
using tensor::check::error_of;
using tensor::check::random;
using tensor::check::random_tensor;
using tensor::nn::StateDict;

/// A network of patches of 4 x 4, for images of 12 x 12, with random parameters.
Setr random_net(Flavour flavour, Head head) {
  SetrConfig config{.flavour = flavour,
                    .head = head,
                    .width = 8,
                    .heads = 2,
                    .ffn = 10,
                    .layers = 4,
                    .image_size = 12,
                    .patch_size = 4,
                    .classes = 3,
                    .decoder_channels = 6,
                    .decoder_layers = head == Head::pup ? 4 : 1,
                    .head_channels = 4,
                    .taps = {3}};
  if (head == Head::mla) config.taps = {0, 1, 2, 3};
  Setr net = Setr::sized(config);
  tensor::nn::randomize(net, 9);
  return net;
}

// ---- Any size

/// torch's bilinear resize without align_corners, in f64.
double bilinear(const std::function<double(std::int64_t, std::int64_t)>& at, std::int64_t in_h,
                std::int64_t in_w, std::int64_t out_h, std::int64_t out_w, std::int64_t y,
                std::int64_t x) {
  const auto place = [](std::int64_t d, std::int64_t in, std::int64_t out) {
    return std::max((double(d) + 0.5) * double(in) / double(out) - 0.5, 0.0);
  };
  const double py = place(y, in_h, out_h), px = place(x, in_w, out_w);
  const auto y0 = static_cast<std::int64_t>(py), x0 = static_cast<std::int64_t>(px);
  const std::int64_t y1 = std::min(y0 + 1, in_h - 1), x1 = std::min(x0 + 1, in_w - 1);
  const double fy = py - double(y0), fx = px - double(x0);
  return (1 - fy) * ((1 - fx) * at(y0, x0) + fx * at(y0, x1)) +
         fy * ((1 - fx) * at(y1, x0) + fx * at(y1, x1));
}

/// The very network, made for another size with positions that these loops resized.
TEST(SetrSize, MmsegResizesThePositionsButNotTheClassTokens) {
  for (const Head head : {Head::naive, Head::mla}) {
    const Setr net = random_net(Flavour::mmseg, head);
    Setr larger = net;
    larger.config.image_size = 20;
    larger.position = tensor::zeros({1, 1 + 5 * 5, 8});
    for (std::int64_t c = 0; c < 8; ++c) {
      larger.position.at<float>(0, 0, c) = net.position.item<float>(0, 0, c);
      const auto at = [&](std::int64_t y, std::int64_t x) {
        return net.position.item(0, 1 + y * 3 + x, c);
      };
      for (std::int64_t y = 0; y < 5; ++y)
        for (std::int64_t x = 0; x < 5; ++x)
          larger.position.at<float>(0, 1 + y * 5 + x, c) =
              static_cast<float>(bilinear(at, 3, 3, 5, 5, y, x));
    }
    const Tensor pixels = random_tensor({1, 3, 20, 20});
    const Tensor want = larger(pixels);
    // f32 positions that differ in the last place, through four layers and a head.
    tensor::check::expect_near(net(pixels), want.to_vector<double>(), 1e-5,
                               tensor::max(tensor::abs(want)).item());
  }
}

TEST(SetrSize, MmsegPadsToWholePatchesWithZeros) {
  const Setr net = random_net(Flavour::mmseg, Head::naive);
  const Tensor pixels = random_tensor({1, 3, 13, 18});
  const Tensor padded = tensor::pad(pixels, {{0, 0}, {0, 0}, {0, 3}, {0, 2}});
  Tensor got, want;
  const auto keep = [](Tensor& last) {
    return [&last](const std::string&, const Tensor& value) { last = value; };
  };
  const Tensor logits = net(pixels, keep(got));
  net(padded, keep(want));
  EXPECT_EQ(logits.shape(), (tensor::Shape{1, 3, 13, 18}));
  EXPECT_EQ(got.shape(), (tensor::Shape{1, 1 + 4 * 5, 8}));
  testing::expect_same(got, want);
}

TEST(SetrSize, EveryKindGivesLogitsOfTheImagesSize) {
  for (const Head head : {Head::naive, Head::pup, Head::mla}) {
    const Setr mmseg = random_net(Flavour::mmseg, head), fudan = random_net(Flavour::fudan, head);
    EXPECT_EQ(mmseg(random_tensor({2, 3, 16, 11})).shape(), (tensor::Shape{2, 3, 16, 11}));
    EXPECT_EQ(fudan(random_tensor({2, 3, 12, 12})).shape(), (tensor::Shape{2, 3, 12, 12}));
  }
}

TEST(SetrSize, FudanTakesItsOwnSizeOnly) {
  const Setr net = random_net(Flavour::fudan, Head::naive);
  EXPECT_EQ(error_of([&] {
              net(tensor::zeros({1, 3, 12, 16}));
            }),
            "pixel_values: got 12 x 16, need 12 x 12: a fudan SETR takes no other size (slide "
            "inference cuts images to it)");
}

// ---- Slide inference

TEST(SetrWindows, TheReleasedConfigurations) {
  // Cityscapes: 1024 x 2048 at the scale 2049, 1025.
  EXPECT_EQ(slide_windows(1025, 2049, 768, 512).size(), 2u * 4u);
  EXPECT_EQ(default_stride(768), 512);
  EXPECT_EQ(default_stride(512), 341);
  EXPECT_EQ(default_stride(480), 320);
  const std::vector<Window> ade = slide_windows(512, 683, 512, 341);
  EXPECT_EQ(ade, (std::vector<Window>{{0, 0, 512, 512}, {0, 171, 512, 512}}));
  EXPECT_EQ(slide_windows(300, 700, 512, 341),
            (std::vector<Window>{{0, 0, 300, 512}, {0, 188, 300, 512}}));
  EXPECT_EQ(slide_windows(5, 4, 16, 8), (std::vector<Window>{{0, 0, 5, 4}}));
}

TEST(SetrWindows, CoverEveryPixelAndStayInside) {
  for (int round = 0; round < 200; ++round) {
    const auto number = [](std::int64_t low, std::int64_t high) {
      return random().randint(low, high, {}).item<std::int64_t>();
    };
    const std::int64_t h = number(1, 60), w = number(1, 60), crop = number(1, 30);
    const std::int64_t stride = number(1, crop + 1);
    const std::vector<Window> windows = slide_windows(h, w, crop, stride);
    std::vector<int> seen(static_cast<std::size_t>(h * w));
    for (const Window& window : windows) {
      ASSERT_GE(window.top, 0);
      ASSERT_GE(window.left, 0);
      ASSERT_LE(window.top + window.height, h);
      ASSERT_LE(window.left + window.width, w);
      ASSERT_EQ(window.height, std::min(crop, h));
      ASSERT_EQ(window.width, std::min(crop, w));
      for (std::int64_t y = window.top; y < window.top + window.height; ++y)
        for (std::int64_t x = window.left; x < window.left + window.width; ++x)
          ++seen[static_cast<std::size_t>(y * w + x)];
    }
    ASSERT_EQ(std::ranges::count(seen, 0), 0) << h << " " << w << " " << crop << " " << stride;
    // models.md 4.6: max(H - c + s - 1, 0) / s + 1 rows, and as many columns.
    const auto count = [&](std::int64_t extent) {
      return extent <= crop ? 1 : (extent - crop + stride - 1) / stride + 1;
    };
    ASSERT_EQ(std::ssize(windows), count(h) * count(w));
  }
}

TEST(SetrWindows, MustMoveOn) {
  EXPECT_EQ(error_of([] { slide_windows(9, 9, 4, 0); }),
            "slide: got a crop of 4 and a stride of 0, need both to be at least 1");
}

TEST(SetrSlide, RefusesMoreScoresThanMemoryHolds) {
  EXPECT_EQ(error_of([] {
              slide_sums({}, 3, {30000, 30000}, {});
            }),
            "the image: is 30000 x 30000 pixels after scaling: of 3 classes these are more than "
            "2147483648 scores: give --scale smaller edges");
}

TEST(SetrSlide, AveragesWhereWindowsOverlap) {
  const Setr net = random_net(Flavour::fudan, Head::pup);
  const Tensor pixels = random_tensor({1, 3, 12, 19});  // windows at 0, 5 and 7
  const std::vector<Window> windows = slide_windows(12, 19, 12, 5);
  ASSERT_EQ(windows.size(), 3u);
  const auto add = [&](const Window& at, const Tensor& sums) {
    return sums + net(pixels(tensor::ellipsis, tensor::slice(at.left, at.left + at.width)));
  };
  const Tensor got = slide_sums(add, 3, {12, 19}, windows) / count_windows({12, 19}, windows);
  std::vector<double> want(3 * 12 * 19);
  std::vector<Tensor> parts;
  for (const std::int64_t left : {0, 5, 7})
    parts.push_back(net(pixels(tensor::ellipsis, tensor::slice(left, left + 12)).copy()));
  for (std::int64_t k = 0; k < 3; ++k)
    for (std::int64_t y = 0; y < 12; ++y)
      for (std::int64_t x = 0; x < 19; ++x) {
        double sum = 0, count = 0;
        std::size_t i = 0;
        for (const std::int64_t left : {0, 5, 7}) {
          if (x >= left && x < left + 12) sum += parts[i].item(0, k, y, x - left), ++count;
          ++i;
        }
        want[static_cast<std::size_t>((k * 12 + y) * 19 + x)] = sum / count;
      }
  // Two additions and a division in f32.
  tensor::check::expect_near(got, want, 4 * 0x1p-23, tensor::max(tensor::abs(got)).item());
}

// ---- The class map

Tensor class_map_of(const Tensor& logits, Size size) {
  return class_map(logits, tensor::ones({1, 1, logits.shape(2), logits.shape(3)}), size);
}

TEST(SetrClassMap, IsTheArgmaxOfTheResizedLogits) {
  const Tensor logits = random_tensor({1, 5, 7, 9});
  const Tensor got = class_map_of(logits, {20, 15});
  ASSERT_EQ(got.shape(), (tensor::Shape{20, 15}));
  for (std::int64_t y = 0; y < 20; ++y)
    for (std::int64_t x = 0; x < 15; ++x) {
      std::vector<double> scores;
      for (std::int64_t k = 0; k < 5; ++k)
        scores.push_back(
            bilinear([&](std::int64_t a, std::int64_t b) { return logits.item(0, k, a, b); }, 7, 9,
                     20, 15, y, x));
      // f32 may decide otherwise only where f64 hardly decides.
      const double best = *std::ranges::max_element(scores);
      ASSERT_NEAR(scores[static_cast<std::size_t>(got.item<int>(y, x))], best, 1e-5);
    }
}

TEST(SetrClassMap, TheFirstOfEqualClassesWins) {
  Tensor logits = tensor::zeros({1, 4, 2, 2});
  logits(0, 2) = 1, logits(0, 3) = 1;
  const Tensor map = class_map_of(logits, {2, 2});
  EXPECT_EQ(map.to_vector<int>(), (std::vector<int>{2, 2, 2, 2}));
}

/// Compiled as eager, however many classes are enlarged at a time; of equal classes in different
/// groups the first wins, too.
TEST(SetrClassMap, DoesNotDependOnTheGroupsOfClasses) {
  Tensor sums = random_tensor({1, 7, 6, 9});
  sums(0, 5) = sums(0, 2).copy();
  const Tensor counts = random().randint(1, 5, {1, 1, 6, 9}).astype(tensor::f32);
  const Tensor want = tensor::argmax(
      tensor::interpolate(sums / counts, {13, 8}, {.mode = tensor::Interpolation::bilinear})(0), 0);
  CompiledForward compiled([](const StateDict& inputs, const tensor::Sharing& sharing) {
    return compile_named(better_classes, inputs, {.sharing = sharing});
  });
  const Forward fast = [&](const StateDict& in) { return compiled.executable(in)(in); };
  for (const std::int64_t classes : {1, 2, 3, 7, 100})
    for (const Forward& step : {Forward(better_classes), fast}) {
      const Tensor got = class_map(sums, counts, {13, 8}, step, classes * 13 * 8);
      testing::expect_same(got, want.astype(tensor::i32));
    }
}

// ---- Images in

TEST(SetrScale, IsMmcvsToThePixel) {
  EXPECT_EQ(default_scale(768), (Scale{2049, 1025}));
  EXPECT_EQ(default_scale(512), (Scale{2048, 512}));
  EXPECT_EQ(default_scale(480), (Scale{520, 520}));
  EXPECT_EQ(rescaled_size({1024, 2048}, {2049, 1025}), (Size{1025, 2049}));
  EXPECT_EQ(rescaled_size({480, 640}, {2048, 512}), (Size{512, 683}));
  EXPECT_EQ(rescaled_size({683, 512}, {2048, 512}), (Size{683, 512}));
  EXPECT_EQ(rescaled_size({375, 500}, {520, 520}), (Size{390, 520}));
  EXPECT_EQ(rescaled_size({100, 1000}, {2048, 512}), (Size{205, 2048}));  // 204.8 and 2048
  EXPECT_EQ(rescaled_size({1, 9000}, {520, 520}), (Size{1, 520}));
}

Tensor random_image(std::int64_t h, std::int64_t w) {
  return random().randint(0, 256, {h, w, 3}).astype(tensor::u8);
}

TEST(SetrPixels, AreNormalisedAsEachGenerationDoes) {
  const Tensor image = random_image(6, 5);
  SetrPreprocessing rule = default_preprocessing(512);
  rule.resize = false;
  const float mean[] = {123.675f, 116.28f, 103.53f}, std[] = {58.395f, 57.12f, 57.375f};
  const Tensor fudan = preprocess(image, rule, Flavour::fudan);
  const Tensor mmseg = preprocess(image, rule, Flavour::mmseg);
  ASSERT_EQ(fudan.shape(), (tensor::Shape{1, 3, 6, 5}));
  for (std::int64_t c = 0; c < 3; ++c)
    for (std::int64_t y = 0; y < 6; ++y)
      for (std::int64_t x = 0; x < 5; ++x) {
        const float centred = image.item<float>(y, x, c) - mean[c];
        ASSERT_EQ(fudan.item<float>(0, c, y, x),
                  static_cast<float>(centred * (1 / double(std[c]))));
        ASSERT_EQ(mmseg.item<float>(0, c, y, x), centred / std[c]);
      }
}

/// What a GPU normalizes, in a graph: to the same bits.
TEST(SetrPixels, AreTheSameOfLevels) {
  const Tensor image = random_image(16, 17);  // all levels, about thrice
  SetrPreprocessing rule = default_preprocessing(512);
  rule.resize = false;
  for (const Flavour flavour : {Flavour::fudan, Flavour::mmseg}) {
    const Tensor want = preprocess(image, rule, flavour), levels = image.expand_dims(0);
    const auto f = [&](const Tensor& in) { return normalize_levels(in, rule, flavour); };
    testing::expect_same(f(levels), want);
    testing::expect_same(tensor::compile(f)(levels), want);
  }
}

TEST(SetrPixels, FollowPreprocessorConfig) {
  const auto rule = [](const std::string& text) {
    return read_preprocessing(tensor::Json::parse(text, "preprocessor_config.json"), 160);
  };
  EXPECT_EQ(rule("{}").scale, (Scale{640, 160}));
  EXPECT_EQ(rule(R"({"size": {"shortest_edge": 90, "longest_edge": 200}})").scale,
            (Scale{200, 90}));
  EXPECT_EQ(rule(R"({"size": {"height": 90, "width": 200}})").exact, (Size{90, 200}));
  EXPECT_FALSE(rule(R"({"do_resize": false})").resize);
  EXPECT_EQ(rule(R"({"image_mean": [1, 2, 3]})").normalization.mean[2], 3.0f);
  EXPECT_EQ(rule("{}").normalization.rescale, Normalization::Rescale::none);
  EXPECT_EQ(error_of([&] { rule(R"({"size": {"max_height": 9, "max_width": 9}})"); }),
            "preprocessor_config.json: size has max_height and max_width, need shortest_edge and "
            "longest_edge, or height and width");
}

TEST(SetrPixels, AreResizedByOpenCVsRule) {
  const Tensor image = random_image(10, 14);
  SetrPreprocessing rule = default_preprocessing(512);
  rule.scale = {28, 20};
  const Tensor got = preprocess(image, rule, Flavour::mmseg);
  const Tensor resized = resize_opencv(image, 20, 28);
  rule.resize = false;
  testing::expect_same(got, preprocess(resized, rule, Flavour::mmseg));
}

// ---- Standard sizes: models.md section 6

struct StandardSize {
  const char* model;
  std::int64_t image_size, parameters;
  // Half of the last digit that the table gives; its rows for PUP are 0.06 and 0.05 too high, by
  // the additions of the biases.
  double gmacs, digits;
};

// What a case is called.
void PrintTo(const StandardSize& size, std::ostream* out) {
  *out << size.model << '_' << size.image_size;
}

class SetrStandard : public ::testing::TestWithParam<StandardSize> {};

TEST_P(SetrStandard, HasThePublishedSize) {
  const auto& [model, image_size, parameters, gmacs, digits] = GetParam();
  Setr net = Setr::sized(SetrConfig::standard(model, image_size));
  const Info info = describe(net, model, {image_size, image_size});
  EXPECT_EQ(info.parameters(), parameters);
  EXPECT_NEAR(double(info.macs()) / 1e9, gmacs, digits);
}

INSTANTIATE_TEST_SUITE_P(
    All, SetrStandard,
    ::testing::Values(StandardSize{"setr-naive-base", 384, 86'292'755, 55.60, 0.005},
                      StandardSize{"setr-naive-base", 768, 87'619'859, 295.5, 0.05},
                      StandardSize{"setr-naive", 384, 303'958'547, 191.2, 0.05},
                      StandardSize{"setr-naive", 768, 305'728'019, 959.7, 0.05},
                      StandardSize{"setr-pup", 384, 307'827'475, 221.2, 0.06},
                      StandardSize{"setr-pup", 768, 309'596'947, 1079.4, 0.06},
                      StandardSize{"setr-mla", 384, 308'967'955, 194.5, 0.05},
                      StandardSize{"setr-mla", 768, 310'737'427, 973.7, 0.05}));

TEST(SetrStandardSize, OfMmseg) {
  const auto parameters = [](const char* model) {
    SetrConfig config = SetrConfig::standard(model, 768);
    config.flavour = Flavour::mmseg;
    Setr net = Setr::sized(config);
    return describe(net, model, {768, 768}).parameters();
  };
  EXPECT_EQ(parameters("setr-naive"), 305'727'763);
  EXPECT_EQ(parameters("setr-pup"), 309'595'923);
  EXPECT_EQ(parameters("setr-mla"), 310'659'603);
}

TEST(SetrStandardSize, OtherNamesAreRefused) {
  EXPECT_EQ(error_of([] { SetrConfig::standard("setr-giant"); }),
            "SetrConfig: got the model setr-giant, need setr-naive-base, setr-naive, setr-pup or "
            "setr-mla");
}

}  // namespace
}  // namespace models::setr
