// Models in eight bits: what they lose, and that outliers which the weights take back cost nothing.
#include <gtest/gtest.h>

#include <cmath>

#include "models/setr/setr_checkpoint.h"
#include "tensor/io.h"
#include "tests/models/digits.h"
#include "tests/models/golden.h"
#include "tests/models/narrow.h"
#include "tests/seed.h"

namespace {

using tensor::Tensor;

constexpr double kMostLost = 0.003;  // of all answers

TEST(EightBitModels, AreNear) {
  for (const std::string& folder : golden::folders(""))
    golden::expect_right(folder, {.dtype = tensor::i8});
}

TEST(EightBitModels, ReadTheDigits) {
  const models::vit::LoadedVit vit = digits::shipped_vit();
  const auto f = [&](const Tensor& pixels) { return vit.model(pixels).logits; };
  const Tensor pixels = digits::test_pixels(vit);
  const Tensor labels =
      tensor::load_npz(TENSOR_TEST_DATA "/../../models/vit/pretrained/digits/test.npz")
          .at("labels")
          .astype(tensor::i64);
  const auto right = [&](const tensor::CompileOptions& options) {
    const Tensor found = tensor::argmax(tensor::compile(f, options)(pixels), 1);
    return tensor::mean((found == labels).astype(tensor::f64)).item();
  };
  EXPECT_GE(right({.dtype = tensor::i8}), right({}) - kMostLost);
}

// Calibrated on six pictures, none of them among those that are read.
TEST(EightBitModels, ReadTheDigitsByOneScaleForEachProduct) {
  models::vit::LoadedVit vit = digits::shipped_vit();
  const tensor::TensorFunction f = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    return {vit.model(in[0]).logits};
  };
  const Tensor pixels = digits::test_pixels(vit);
  tensor::CompileOptions options{.dtype = tensor::i8};
  for (const auto& parameter : tensor::nn::parameters(vit.model))
    options.names.emplace_back(parameter.name, *parameter.tensor);
  for (const char* digit : {"0", "2", "3", "5", "7", "8"}) {
    const Tensor image = tensor::load_image(
        TENSOR_TEST_DATA "/../../examples/images/digits/digit-" + std::string(digit) + ".png");
    options.scales = tensor::calibrate(
        f, {models::preprocess(image, vit.preprocessing).expand_dims(0)}, options);
  }
  const tensor::Executable fast = tensor::compile(f, {pixels}, options);
  const Tensor want = tensor::compile(f, {pixels}, {})({pixels})[0], got = fast({pixels})[0];
  const Tensor differ = tensor::argmax(got, 1) != tensor::argmax(want, 1);
  EXPECT_LE(tensor::mean(differ.astype(tensor::f64)).item(), kMostLost);
  const double off = std::sqrt(tensor::sum(tensor::square(got - want)).item() /
                               tensor::sum(tensor::square(want)).item());
  EXPECT_LE(off, 0.02);
  RecordProperty("error", std::to_string(off));
  const std::vector<Tensor> some = {pixels(tensor::slice(0, 2)).copy()};
  golden::expect_verified(tensor::compile(f, some, options), some);
}

// A few channels of the norm times 30 to 100, and the weights that meet them divided.
void add_outliers(tensor::nn::LayerNorm& norm, const std::vector<tensor::nn::Linear*>& readers,
                  std::mt19937& random) {
  const std::int64_t width = norm.weight.size();
  std::vector<float> factors(static_cast<std::size_t>(width), 1.0f);
  for (int i = 0; i < 3; ++i)
    factors[random() % factors.size()] = 30 + static_cast<float>(random() % 71);
  const Tensor by = tensor::array(factors);
  norm.weight = norm.weight * by, norm.bias = norm.bias * by;
  for (tensor::nn::Linear* reader : readers) reader->weight = reader->weight / by;
}

double error_of(const std::function<Tensor(const Tensor&)>& f, const Tensor& x) {
  const Tensor want = tensor::compile(f, {})(x), got = tensor::compile(f, {.dtype = tensor::i8})(x);
  return std::sqrt(tensor::sum(tensor::square(got - want)).item() /
                   tensor::sum(tensor::square(want)).item());
}

TEST(EightBitModels, OutliersCostNothing) {
  std::mt19937 random(static_cast<unsigned>(tensor::check::seed()));
  const auto outliers_of = [&](auto& layers) {
    for (auto& layer : layers) {
      add_outliers(layer.norm_before,
                   {&layer.attention.query, &layer.attention.key, &layer.attention.value}, random);
      add_outliers(layer.norm_after, {&layer.fc1}, random);
    }
  };
  models::vit::LoadedVit vit = digits::shipped_vit();
  const Tensor pixels = digits::test_pixels(vit)(tensor::slice(0, 32)).copy();
  const auto logits = [&](const Tensor& x) { return vit.model(x).logits; };
  const double before = error_of(logits, pixels);
  outliers_of(vit.model.layers);
  const double after = error_of(logits, pixels);
  EXPECT_LE(after, 2 * before);
  RecordProperty("vit", std::to_string(before) + " " + std::to_string(after));

  models::setr::Setr setr = models::setr::load_setr(
      models::setr::open_setr(TENSOR_TEST_DATA "/../../models/setr/pretrained/scenes"));
  const std::int64_t size = setr.config.image_size;
  const Tensor image = tensor::Generator(random()).normal({1, 3, size, size});
  const auto classes = [&](const Tensor& x) { return setr(x); };
  const double plain = error_of(classes, image);
  outliers_of(setr.layers);
  const double spoiled = error_of(classes, image);
  EXPECT_LE(spoiled, 2 * plain);
  RecordProperty("setr", std::to_string(plain) + " " + std::to_string(spoiled));
}

}  // namespace
