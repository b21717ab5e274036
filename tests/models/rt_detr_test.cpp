// RT-DETR in the detr program. What its forward pass computes is compared in GoldenRuns.
#include "models/rt_detr/rt_detr.h"
#include "models/detr/detr_processing.h"
#include "models/detr/detr_program.h"
#include "models/service/model.h"
#include "tests/error_of.h"
#include "tests/models/cli_testing.h"
#include "tests/models/malformed.h"

namespace {

using cli::Cli;
using cli::Outcome;
using models::detr::Detector;
using tensor::Json;
using tensor::Tensor;
using tensor::check::error_of;
using tensor::nn::StateDict;

Detector load(const std::string& folder) {
  return models::rt_detr::load_rt_detr(models::open_checkpoint(folder));
}

class RtDetr : public Cli {
 protected:
  /// What transformers makes of a picture, and sees in it.
  const StateDict made_ =
      tensor::load_safetensors(golden::folder("rt_detr") + "/picture.safetensors",
                               tensor::FileAccess::read)
          .tensors;
  std::string picture() const {
    tensor::save_png(path("picture.png"), made_.at("levels"));
    return path("picture.png");
  }
};

TEST_F(RtDetr, PreparesPicturesAsTransformersDoes) {
  const models::detr::Batch batch =
      models::detr::make_batch({made_.at("levels")}, load(golden::folder("rt_detr")).preprocessing);
  golden::expect_close(batch.pixel_values, made_.at("pixel_values"), "pixel_values");
  EXPECT_FALSE(batch.pixel_mask.defined());
}

TEST_F(RtDetr, FindsTheObjectsThatTransformersFinds) {
  const Outcome got = run("detr", {"--checkpoint", golden::folder("rt_detr"), "--threshold", "0",
                                   "--json", "--out", path("out.png"), picture()});
  EXPECT_EQ(got.code, 0) << got.err;
  const Json found = Json::parse(got.out, "output")[0]["findings"];
  const Tensor &scores = made_.at("scores"), &labels = made_.at("labels"),
               &boxes = made_.at("boxes");
  ASSERT_EQ(found.size(), static_cast<std::size_t>(scores.size()));
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    EXPECT_EQ(found[i]["id"].integer(), labels.item<std::int64_t>(at));
    EXPECT_NEAR(found[i]["score"].number(), scores.item(at), golden::kRounding);
    for (std::size_t k = 0; k < 4; ++k)  // of a picture of 50 pixels at most
      EXPECT_NEAR(found[i]["box"][k].number(), boxes.item(at, static_cast<std::int64_t>(k)),
                  50 * golden::kRounding);
  }
  EXPECT_EQ(tensor::load_image(path("out.png")).shape(), made_.at("levels").shape());
}

TEST_F(RtDetr, PairsAreChosenAmongAllQueriesAndClasses) {
  // One query has the two best classes; another has none of the best three.
  const Tensor logits = tensor::array({{3.f, -1.f}, {2.f, 2.5f}, {-4.f, -2.f}}).expand_dims(0);
  const Tensor boxes = tensor::arange(0, 12, 1).astype(tensor::f32).reshape({1, 3, 4});
  const models::detr::BestObjects best = models::detr::best_pairs(logits, boxes);
  EXPECT_EQ(best.classes.labels.to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 1, 0}));
  EXPECT_TRUE(tensor::array_equal(best.classes.scores(0),
                                  tensor::sigmoid(tensor::array({3.f, 2.5f, 2.f}))));
  EXPECT_EQ(best.boxes(tensor::ellipsis, 0).to_vector<float>(), (std::vector<float>{0, 4, 4}));
}

TEST_F(RtDetr, IsCounted) {
  // PyTorch's count of RTDetrConfig()'s parameters, without those of training and of the classes
  // that only earlier layers tell; its batch normalisations of the backbone are none.
  models::rt_detr::RtDetr net = models::rt_detr::RtDetr::sized({});
  const models::Info info = models::rt_detr::describe(net, "r50", {640, 640});
  EXPECT_EQ(info.parameters(), 42'767'836);
  // By hooks on its layers 68.56 billion, with boxes of 8100 cells and classes of five layers that
  // are not needed, and without attention.
  constexpr double kUnneeded = 8100. * (2 * 256 * 256 + 4 * 256) + 5. * 300 * 256 * 80;
  constexpr double kAttention = 2. * 400 * 400 * 256 + 6. * (2 * 300 * 300 * 256 + 300 * 12 * 256);
  EXPECT_NEAR(static_cast<double>(info.macs()), 68.5623296e9 - kUnneeded + kAttention, 1e6);
}

TEST_F(RtDetr, SaysWhatItDoesNotTake) {
  const Detector model = load(golden::folder("rt_detr"));
  const auto refusal = [&](const tensor::Shape& shape) {
    return error_of([&] { model.run(tensor::zeros(shape), {}, {}); });
  };
  EXPECT_EQ(refusal({1, 3, 64, 80}),
            "pixel_values: got an image of 64 x 80, need multiples of 32: the maps would not be "
            "halves of each other");
  EXPECT_EQ(refusal({1, 1, 64, 64}),
            "pixel_values: got (1, 1, 64, 64), need (batch, 3, height, width)");
  const malformed::Folder folder(path("folder"), "rt_detr");
  folder.config("\"num_queries\": 9", "\"num_queries\": 99");
  EXPECT_EQ(error_of([&] {
              load(folder.path()).run(tensor::zeros({1, 3, 64, 64}), {}, {});
            }),
            "pixel_values: is so small that its maps have only 84 cells, less than the 99 queries");
  const Outcome bucket =
      run("detr", {"--checkpoint", golden::folder("rt_detr"), "--bucket", "64", picture()});
  EXPECT_NE(bucket.err.find("--bucket: pads images, but this model has no mask"), std::string::npos)
      << bucket.err;
}

TEST_F(RtDetr, NamesOfOtherVersionsAreTaken) {
  const malformed::Folder folder(path("folder"), "rt_detr");
  folder.change([](malformed::Tensors& all) {
    malformed::Tensors renamed;
    for (const auto& [name, value] : all) {
      std::string other = name;
      for (const auto& [from, to] : {std::pair("encoder.encoder.", "encoder.aifi."),
                                     {".out_proj.", ".o_proj."},
                                     {".fc1.", ".mlp.fc1."},
                                     {".fc2.", ".mlp.fc2."},
                                     {"model.decoder.bbox_embed.", "bbox_embed."}})
        if (const std::size_t at = other.find(from); at != other.npos)
          other.replace(at, std::string_view(from).size(), to);
      renamed.emplace(other, value);
    }
    all = renamed;
  });
  const StateDict io = golden::io("rt_detr");
  const StateDict got = load(folder.path()).run(io.at("pixel_values"), {}, {});
  golden::expect_close(got.at("pred_boxes"), io.at("pred_boxes"), "pred_boxes");
}

TEST_F(RtDetr, ThePlanAndTheServiceHoldIt) {
  const StateDict made = saved_run("detr", "rt_detr_v2", {"--plan", path("plan")});
  const StateDict read = saved_run("detr", "rt_detr_v2", {"--plan", path("plan")});
  for (const auto& [key, value] : made)
    EXPECT_TRUE(tensor::array_equal(value, read.at(key))) << key;
  models::service::OpenOptions options;
  options.set("threshold", "0");
  const auto model = models::service::Model::open(golden::folder("rt_detr"), options);
  const std::string bytes = tensor::testing::read_bytes(picture());
  const models::service::Seen seen = model->look(std::as_bytes(std::span(bytes)));
  ASSERT_EQ(seen.error, nullptr);
  ASSERT_EQ(seen.result.findings.size(), 9u);
  EXPECT_NEAR(seen.result.findings[0].score, made_.at("scores").item(0), golden::kRounding);
}

}  // namespace
