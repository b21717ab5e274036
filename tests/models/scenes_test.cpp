// The shipped DETR and SETR on scenes they never saw: the same numbers as in PyTorch, and most of
// what is in the pictures.
#include <gtest/gtest.h>

#include <cmath>

#include "models/detr/detr_checkpoint.h"
#include "models/detr/detr_processing.h"
#include "models/setr/setr_checkpoint.h"
#include "models/setr/setr_inference.h"
#include "models/setr/setr_processing.h"
#include "tensor/io.h"
#include "tensor/tensor.h"

namespace models {
namespace {

using tensor::Tensor;

std::string scenes(const std::string& model) {
  return TENSOR_TEST_DATA "/../../models/" + model + "/pretrained/scenes";
}

/// PyTorch computed these in f32 on a GPU: the bound of the reference checkpoints, ten times over.
void expect_close(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.shape(), want.shape());
  const double error = tensor::max(tensor::abs(got - want)).item();
  EXPECT_LE(error, 1e-3 * tensor::max(tensor::abs(want)).item());
}

double overlap(const std::array<double, 4>& a, const std::array<double, 4>& b) {
  const auto extent = [](double low, double high) { return std::max(high - low, 0.0); };
  const double inside = extent(std::max(a[0], b[0]), std::min(a[2], b[2])) *
                        extent(std::max(a[1], b[1]), std::min(a[3], b[3]));
  const auto area = [](const std::array<double, 4>& r) { return (r[2] - r[0]) * (r[3] - r[1]); };
  return inside / (area(a) + area(b) - inside);
}

TEST(Scenes, DetrGivesPyTorchsNumbersAndFindsTheDigits) {
  const detr::Detr net = detr::load_detr(scenes("detr"));
  const Preprocessing rule =
      read_preprocessing(tensor::Json::load(scenes("detr") + "/preprocessor_config.json"),
                         detr::default_preprocessing());
  const auto test = tensor::load_npz(scenes("detr") + "/test.npz");
  int digits = 0, found = 0;
  for (std::int64_t i = 0; i < 8; ++i) {
    const Tensor image = test.at("images")(i);
    const detr::DetrOutput out = net(detr::make_batch({image}, rule).pixel_values);
    expect_close(out.logits(0), test.at("logits")(i));
    expect_close(out.pred_boxes(0), test.at("pred_boxes")(i));
    const auto objects =
        detr::find_objects(out.logits(0), out.pred_boxes(0), {image.shape(0), image.shape(1)}, 0.5);
    for (std::int64_t k = 0; k < test.at("labels").shape(1); ++k) {
      const auto label = test.at("labels").item<std::int64_t>(i, k);
      if (label < 0) continue;
      const Tensor& b = test.at("boxes");
      const std::array<double, 4> box = {b.item(i, k, 0), b.item(i, k, 1), b.item(i, k, 2),
                                         b.item(i, k, 3)};
      ++digits;
      found += std::ranges::any_of(objects, [&](const detr::Object& object) {
        return object.label == label && overlap(object.box, box) > 0.5;
      });
    }
  }
  ASSERT_GE(digits, 15);
  // The average precision at this overlap is 0.96 over 1024 scenes.
  EXPECT_GE(found, 0.8 * digits) << found << " of " << digits;
}

TEST(Scenes, SetrGivesPyTorchsNumbersAndLabelsThePixels) {
  const setr::Setr net = setr::load_setr(open_checkpoint(scenes("setr")));
  const setr::SetrPreprocessing rule = setr::read_preprocessing(
      tensor::Json::load(scenes("setr") + "/preprocessor_config.json"), 160);
  const auto test = tensor::load_npz(scenes("setr") + "/test.npz");
  double right = 0, as_in_pytorch = 0, pixels = 0;
  for (std::int64_t i = 0; i < 4; ++i) {
    const Tensor image = test.at("images")(i);
    const Tensor logits = net(setr::preprocess(image, rule, net.config.flavour));
    expect_close(logits["0, ..., ::4, ::4"], test.at("logits_every_4th")(i));
    const Tensor map = setr::class_map(logits, image.shape(0), image.shape(1));
    right += tensor::sum(map == test.at("classes")(i)).item();
    as_in_pytorch += tensor::sum(map == test.at("predicted")(i)).item();
    pixels += double(map.size());
  }
  // 0.98 over 1024 scenes; PyTorch's own choice differs only where two classes are a hair apart.
  EXPECT_GE(right, 0.95 * pixels);
  EXPECT_GE(as_in_pytorch, 0.9995 * pixels);
}

}  // namespace
}  // namespace models
