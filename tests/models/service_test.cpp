// models::service::Model, what its other users do not reach: pixels in place of a picture's file.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "models/service/model.h"
#include "tensor/tensor.h"
#include "tests/error_of.h"

namespace tn = tensor;

namespace {

using models::service::json_of;
using models::service::Model;

const std::string kSource = TENSOR_TEST_DATA "/../../";

std::string error_for(Model& model, const tn::Tensor& image) {
  return tn::check::error_of([&] { std::rethrow_exception(model.look(image).error); });
}

TEST(Service, LooksAtPixelsAsAtTheirFile) {
  const auto model = Model::open(kSource + "models/detr/pretrained/scenes");
  const std::string path = kSource + "examples/images/scenes/scene-3.png";
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const tn::Tensor image = tn::load_image(path);
  const std::string answer = json_of(model->look(image).result, *model->program());
  EXPECT_EQ(answer,
            json_of(model->look(std::as_bytes(std::span(bytes))).result, *model->program()));
  const tn::Tensor bgr = image(tn::ellipsis, tn::slice(tn::none, tn::none, -1)).copy();
  EXPECT_EQ(answer,
            json_of(model->look(bgr(tn::ellipsis, tn::slice(tn::none, tn::none, -1))).result,
                    *model->program()));
}

TEST(Service, RefusesWhatIsNoPicture) {
  const auto model = Model::open(kSource + "models/vit/pretrained/digits");
  EXPECT_EQ(error_for(*model, tn::zeros({4, 4, 3})),
            "the image: got f32(4, 4, 3), need u8(rows, columns, 3), the colours in RGB");
  EXPECT_EQ(error_for(*model, tn::zeros({4, 4}, tn::u8)),
            "the image: got u8(4, 4), need u8(rows, columns, 3), the colours in RGB");
  EXPECT_EQ(error_for(*model, tn::zeros({0, 4, 3}, tn::u8)),
            "the image: got u8(0, 4, 3), need u8(rows, columns, 3), the colours in RGB");
}

}  // namespace
