// Image resizing against Pillow and OpenCV, bit for bit (scripts/make_preprocess_cases.py).
#include "models/common/resize.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <vector>

#include "tensor/creation.h"
#include "tensor/index.h"
#include "tensor/io.h"
#include "tensor/ops.h"
#include "tests/error_of.h"

namespace {

using models::CropRounding;
using models::Filter;
using tensor::Tensor;
using tensor::check::error_of;

/// Another file of cases can be named by TENSOR_PREPROCESS_CASES.
std::string cases_file() {
  const char* named = std::getenv("TENSOR_PREPROCESS_CASES");
  return named ? named : TENSOR_TEST_DATA "/preprocess/resize.safetensors";
}

Tensor resize(const std::string& kind, const Tensor& image, std::int64_t h, std::int64_t w) {
  static const std::map<std::string, Filter> kFilters = {
      {"nearest", Filter::nearest}, {"lanczos", Filter::lanczos}, {"bilinear", Filter::bilinear},
      {"bicubic", Filter::bicubic}, {"box", Filter::box},         {"hamming", Filter::hamming}};
  if (kind == "opencv") return models::resize_opencv(image, h, w);
  return models::resize_pillow(image, h, w, kFilters.at(kind));
}

TEST(Resize, EqualsPillowAndOpenCvBitForBit) {
  const tensor::Safetensors cases = tensor::load_safetensors(cases_file());
  std::map<std::string, int> seen;
  for (const auto& [name, image] : cases.tensors) {
    if (!name.ends_with(".in")) continue;
    const std::string id = name.substr(0, name.size() - 3);
    const std::string kind = id.substr(id.find('.') + 1);
    const Tensor& want = cases.tensors.at(id + ".out");
    const Tensor got = resize(kind, image, want.shape(0), want.shape(1));
    ASSERT_EQ(got.shape(), want.shape()) << id;
    const Tensor difference = tensor::abs(got.astype(tensor::i32) - want.astype(tensor::i32));
    EXPECT_EQ(tensor::max(difference).item<int>(), 0)
        << id << ": " << tensor::sum(difference != 0).item<int>() << " levels of " << got.size()
        << " differ, " << image.shape() << " to " << want.shape();
    ++seen[kind];
  }
  EXPECT_EQ(seen.size(), 7u);
  for (const auto& [kind, count] : seen) EXPECT_GE(count, 6) << kind;
}

using Levels = std::vector<int>;

// Of a tall image of strong contrasts, by Pillow 13.0: as it is, and with two calls, the horizontal
// pass first, which is what Pillow 12 and torchvision do.
TEST(Resize, KnowsTheOrderOfEitherPillow) {
  using models::PassOrder;
  Levels levels;
  for (int y = 0; y < 12; ++y)
    for (int x = 0; x < 4; ++x) levels.push_back((x * 7 + y * y * 5 + x * y) % 11 < 5 ? 255 : 0);
  const Tensor image = tensor::array(levels, {12, 4, 1}).astype(tensor::u8);
  const auto resized = [&](Filter filter, PassOrder order) {
    return models::resize_pillow(image, 3, 3, filter, order).to_vector<int>();
  };
  EXPECT_EQ(resized(Filter::lanczos, PassOrder::pillow_13),
            (Levels{135, 119, 74, 213, 32, 105, 131, 71, 158}));
  EXPECT_EQ(resized(Filter::lanczos, PassOrder::pillow_12),
            (Levels{130, 121, 86, 210, 50, 107, 131, 81, 157}));
  EXPECT_EQ(resized(Filter::bicubic, PassOrder::pillow_13),
            (Levels{131, 110, 79, 207, 43, 100, 127, 79, 161}));
  EXPECT_EQ(resized(Filter::bicubic, PassOrder::pillow_12),
            (Levels{128, 113, 86, 206, 53, 101, 128, 85, 160}));
}

TEST(Resize, BeginsWithThePassThatPillow13BeginsWith) {
  const Tensor image = tensor::Generator(3).randint(0, 2, {20, 20, 3}, tensor::u8) * 255;
  const auto pass = [](const Tensor& x, std::int64_t h, std::int64_t w, models::PassOrder order) {
    return models::resize_pillow(x, h, w, Filter::lanczos, order);
  };
  const auto is_vertical_first = [&](std::int64_t h, std::int64_t w) {
    const auto order = models::PassOrder::pillow_12;
    const Tensor got = pass(image, h, w, models::PassOrder::pillow_13);
    const bool down = tensor::all(got == pass(pass(image, h, 20, order), h, w, order)).item<bool>();
    const bool across =
        tensor::all(got == pass(pass(image, 20, w, order), h, w, order)).item<bool>();
    EXPECT_NE(down, across) << h << " x " << w;
    return down;
  };
  EXPECT_FALSE(is_vertical_first(12, 16));  // 8 rows go, 4 columns
  EXPECT_TRUE(is_vertical_first(11, 16));
  EXPECT_TRUE(is_vertical_first(19, 21));  // a row goes, a column comes
  EXPECT_FALSE(is_vertical_first(21, 25));
}

TEST(Resize, TakesViews) {
  const Tensor image = tensor::Generator(1).randint(0, 256, {9, 14, 3}, tensor::u8);
  const Tensor flipped = image["::-1, ::2"];
  const Tensor same = flipped.copy();
  EXPECT_TRUE(
      tensor::all(models::resize_pillow(flipped, 5, 20) == models::resize_pillow(same, 5, 20))
          .item<bool>());
  EXPECT_TRUE(
      tensor::all(models::resize_opencv(flipped, 5, 20) == models::resize_opencv(same, 5, 20))
          .item<bool>());
}

TEST(Resize, CropsTheMiddle) {
  const Tensor image = tensor::arange(5 * 8).astype(tensor::u8).reshape({5, 8, 1});
  // The rest is 1 row and 3 columns: 0.5 and 1.5 round to 0 and 2, and down to 0 and 1.
  const auto first = [&](CropRounding odd) {
    return models::center_crop(image, 4, 5, odd).item<int>(0, 0, 0);
  };
  EXPECT_EQ(first(CropRounding::half_to_even), 0 * 8 + 2);
  EXPECT_EQ(first(CropRounding::down), 0 * 8 + 1);
  // Too small an image is framed in black: one row short, before it (down) or after it.
  const Tensor ones = tensor::ones({3, 8, 1}, tensor::u8);
  const auto column = [&](CropRounding odd) {
    return models::center_crop(ones, 4, 2, odd)[":, 0, 0"].to_vector<int>();
  };
  EXPECT_EQ(column(CropRounding::half_to_even), (std::vector<int>{1, 1, 1, 0}));
  EXPECT_EQ(column(CropRounding::down), (std::vector<int>{0, 1, 1, 1}));
}

TEST(Resize, SaysWhatIsWrong) {
  const Tensor image = tensor::zeros({4, 4, 3}, tensor::u8);
  EXPECT_EQ(error_of([&] { models::resize_pillow(image.astype(tensor::f32), 2, 2); }),
            "resize_pillow: got f32(4, 4, 3), need an image u8(height, width, channels)");
  EXPECT_EQ(error_of([&] {
              models::resize_opencv(tensor::zeros({0, 4, 3}, tensor::u8), 2, 2);
            }),
            "resize_opencv: got an empty image of the shape (0, 4, 3)");
  EXPECT_EQ(error_of([&] { models::center_crop(image, 1 << 20, 1 << 20); }),
            "center_crop: cannot make an image of 1048576 x 1048576 pixels, need 1 x 1 up to "
            "67108864 in all");
  EXPECT_EQ(
      error_of([&] { models::resize_pillow(image, 0, 2); }),
      "resize_pillow: cannot make an image of 0 x 2 pixels, need 1 x 1 up to 67108864 in all");
}

}  // namespace
