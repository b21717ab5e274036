// SETR's program: its options, and what it refuses.
#include <gtest/gtest.h>

#include <sstream>

#include "models/setr/setr_program.h"
#include "tensor/io.h"
#include "tests/io/io_testing.h"
#include "tests/models/checkpoint_testing.h"
#include "tests/models/golden.h"
#include "tests/ops/check.h"

namespace models::setr {
namespace {

using tensor::Tensor;
using tensor::nn::StateDict;

class SetrCommand : public tensor::testing::FolderTest {
 protected:
  int setr(const std::vector<std::string>& arguments) {
    SetrProgram program;
    out_.str(""), err_.str("");
    return run_program(program, arguments, out_, err_);
  }
  std::string write_image(std::int64_t h, std::int64_t w, const std::string& name = "image.png") {
    tensor::save_png(path(name),
                     tensor::check::random().randint(0, 256, {h, w, 3}).astype(tensor::u8));
    return path(name);
  }

  const std::string mmseg_ = golden::folder("setr_mmseg_pup");
  const std::string fudan_ = golden::folder("setr_fudan_naive");
  std::ostringstream out_, err_;
};

TEST_F(SetrCommand, SavedInputsGiveSavedOutputs) {
  const std::string input = mmseg_ + "/io.safetensors", output = path("out.safetensors");
  ASSERT_EQ(setr({"--checkpoint", mmseg_, "--input", input, "--output", output, "--hidden-states"}),
            0)
      << err_.str();
  const StateDict got = tensor::load_safetensors(output).tensors;
  golden::expect_close(got.at("logits"), tensor::load_safetensors(input).tensors.at("logits"),
                       "logits");
  EXPECT_EQ(got.size(), 1u + 7u);
  EXPECT_TRUE(got.contains("hidden_states.6"));
}

TEST_F(SetrCommand, SharesLabelsAndPicturesAgree) {
  const std::string image = write_image(70, 140);
  ASSERT_EQ(setr({"--checkpoint", mmseg_, "--json", "--out", path("picture.png"), "--labels",
                  path("labels.png"), image}),
            0)
      << err_.str();
  const tensor::Json found = tensor::Json::parse(out_.str(), "out")[0]["findings"];
  const Tensor labels = tensor::load_image(path("labels.png"));  // grey, spread over RGB
  ASSERT_EQ(labels.shape(), (tensor::Shape{70, 140, 3}));
  double total = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::int64_t k = found[i]["id"].integer();
    const double share = tensor::mean((labels["..., 0"] == k).astype(tensor::f64)).item();
    EXPECT_NEAR(found[i]["share"].number(), share, 1e-6);
    EXPECT_EQ(found[i]["label"].text(), "class " + std::to_string(k));
    total += share;
  }
  EXPECT_NEAR(total, 1, 1e-9);
  // Half the image in grey, half the palette of this folder; the legend is below.
  const Tensor picture = tensor::load_image(path("picture.png")), plain = tensor::load_image(image);
  EXPECT_GT(picture.shape(0), 70);
  ASSERT_EQ(picture.shape(1), 140);
  for (std::int64_t y = 0; y < 70; y += 3)
    for (std::int64_t x = 0; x < 140; x += 7) {
      const std::int64_t k = labels.item<std::int64_t>(y, x, 0);
      const std::int64_t color[] = {40 * k, 255 - 40 * k, 90};
      const double luma =
          0.299 * plain.item(y, x, 0) + 0.587 * plain.item(y, x, 1) + 0.114 * plain.item(y, x, 2);
      for (std::int64_t c = 0; c < 3; ++c)
        ASSERT_NEAR(picture.item(y, x, c), 0.5 * (luma + double(color[c])), 0.75);  // rounded twice
    }
}

TEST_F(SetrCommand, SlidesByDefaultAndScalesAsAsked) {
  const std::string image = write_image(96, 96);
  const auto labels = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"--checkpoint", fudan_, "--labels", path("l.png"), image};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(setr(arguments), 0) << err_.str();
    return tensor::load_image(path("l.png"));
  };
  // An image of the crop's size is one window.
  testing::expect_same(labels({"--scale", "96,96"}), labels({"--whole", "--scale", "96,96"}));
  EXPECT_EQ(labels({"--scale", "200,120"}).shape(), (tensor::Shape{96, 96, 3}));
}

TEST_F(SetrCommand, SeveralImagesNeedFolders) {
  const std::string a = write_image(96, 96, "a.png"), b = write_image(96, 120, "b.png");
  EXPECT_EQ(setr({"--checkpoint", fudan_, "--labels", path("l.png"), a, b}), 1);
  EXPECT_EQ(err_.str(),
            "setr: --labels: got 2 images for the one file " + path("l.png") + ": name a folder\n");
  EXPECT_EQ(setr({"--checkpoint", fudan_, "--labels", path("l"), a, b}), 0) << err_.str();
  EXPECT_EQ(tensor::load_image(path("l/b.png")).shape(), (tensor::Shape{96, 120, 3}));
}

TEST_F(SetrCommand, BadInputIsOneLine) {
  const std::string image = write_image(96, 96);
  const auto error = [&](const std::vector<std::string>& arguments) {
    EXPECT_EQ(setr(arguments), 1);
    return err_.str();
  };
  EXPECT_EQ(error({"--checkpoint", fudan_, "--scale", "90,90", image}),
            "setr: " + image +
                ": is 90 x 90 pixels after scaling, need at least 96 x 96 for a fudan "
                "SETR: give --scale larger edges\n");
  EXPECT_NE(error({"--checkpoint", fudan_, "--slide", "--whole", image}).find("excludes"),
            std::string::npos)
      << err_.str();
  const std::string pixel = write_image(1, 1);
  EXPECT_EQ(error({"--checkpoint", mmseg_, "--scale", "32768,65536", pixel}),
            "setr: " + pixel +
                ": is 1 x 1 pixels: resized for the model it would be 32768 x "
                "32768, need 1 x 1 up to 67108864 in all: give --scale smaller edges\n");
  for (const char* scale : {"90", "90,", ",90", "90,x", "90,90,90", "0,5", "-1,5", "90,99999"})
    EXPECT_EQ(error({"--checkpoint", fudan_, "--scale=" + std::string(scale), image}),
              "setr: --scale: got \"" + std::string(scale) +
                  "\", need two edges LONG,SHORT from 1 to 65536\n");
  tensor::save_safetensors(path("in.safetensors"),
                           {{"pixel_values", tensor::zeros({1, 4, 96, 96})}});
  EXPECT_EQ(error({"--checkpoint", fudan_, "--input", path("in.safetensors"), "--output",
                   path("out.safetensors")}),
            "setr: pixel_values: got the shape (1, 4, 96, 96), need [batch, 3, height, width]\n");
}

TEST_F(SetrCommand, TellsTheSizeOfAStandardModel) {
  ASSERT_EQ(setr({"--model", "setr-pup", "--info"}), 0);
  EXPECT_NE(out_.str().find("307,827,475"), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find("221.14"), std::string::npos) << out_.str();
}

}  // namespace
}  // namespace models::setr
