// The pictures of README.md are what the programs draw today.
#include "tensor/io.h"
#include "tests/docs/snippets.h"
#include "tests/temporary_folder.h"

namespace {

using tensor::Tensor;

/// The names, sizes and options are those of scripts/gallery.
void expect_like_gallery(const std::string& program, const std::string& arguments) {
  const tensor::check::TemporaryFolder folder;
  const std::string file = folder / "drawn.png";
  const docs::Output run = docs::shell(program + " --quiet --out '" + file + "' " + arguments);
  ASSERT_TRUE(run.good) << run.text;
  const Tensor drawn = tensor::load_image(file).astype(tensor::f64);
  const Tensor kept =
      tensor::load_image(DOCS_SOURCE "/docs/images/" + program + ".png").astype(tensor::f64);
  ASSERT_EQ(kept.shape(), drawn.shape());
  // 256 colours by median cut stay within a few of 255 levels; a box, tag or legend elsewhere
  // differs by a hundred in hundreds of places.
  const Tensor difference = tensor::abs(kept - drawn);
  EXPECT_LT(tensor::mean(difference).item(), 6);
  EXPECT_LT(tensor::mean((difference > 64).astype(tensor::f64)).item(), 0.001);
}

TEST(Gallery, Vit) {
  expect_like_gallery("vit",
                      "--top 3 --checkpoint models/vit/pretrained/digits "
                      "examples/images/digits/digit-8.png");
}

TEST(Gallery, Detr) {
  expect_like_gallery("detr",
                      "--checkpoint models/detr/pretrained/scenes "
                      "examples/images/scenes/scene-3.png");
}

TEST(Gallery, Setr) {
  expect_like_gallery("setr",
                      "--checkpoint models/setr/pretrained/scenes "
                      "examples/images/scenes/scene-3.png");
}

}  // namespace
