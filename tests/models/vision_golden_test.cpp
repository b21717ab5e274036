// The models of models/registry beside ViT and SETR against transformers' outputs, and the programs
// on pictures. Compiled they are among GoldenRuns.
#include <map>

#include "models/registry/registry.h"
#include "tests/models/cli_testing.h"

namespace {

using cli::Cli;
using cli::Outcome;
using models::VisionModel;
using tensor::Tensor;
using tensor::nn::StateDict;

struct Reference {
  const char* folder;
  const char* program;
  int outputs;  // that transformers gives, with its hidden states
};

class VisionGolden : public Cli, public ::testing::WithParamInterface<Reference> {
 protected:
  static VisionModel model() {
    return models::load_model(models::open_checkpoint(golden::folder(GetParam().folder)),
                              GetParam().program);
  }
  /// Those whose names begin so, without it.
  static StateDict of(const std::map<std::string, Tensor>& io, const std::string& prefix) {
    StateDict found;
    for (const auto& [name, value] : io)
      if (name.starts_with(prefix) && (prefix != "" || !name.starts_with("other.")))
        found.emplace(name.substr(prefix.size()), value);
    return found;
  }
};

TEST_P(VisionGolden, IsWhatTheReferenceComputes) {
  const VisionModel model = this->model();
  const auto io = golden::io(GetParam().folder);
  int compared = 0;
  for (const std::string prefix : {"", "other."}) {
    const StateDict want = of(io, prefix);
    if (want.empty()) continue;
    std::int64_t steps = 0;
    StateDict hidden;
    StateDict got =
        model.run(want.at("pixel_values"), [&](const std::string& name, const Tensor& value) {
          hidden.emplace(name, value), ++steps;
        });
    EXPECT_EQ(steps, model.steps);
    got.merge(hidden);
    for (const auto& [name, value] : want) {
      if (name == "pixel_values") continue;
      golden::expect_close(got.at(name), value, GetParam().folder + ("_" + prefix + name));
      compared += prefix.empty();
    }
  }
  EXPECT_EQ(compared, GetParam().outputs);
}

TEST_P(VisionGolden, TheProgramLooksAtPictures) {
  const std::string folder = golden::folder(GetParam().folder);
  const std::string picture = source("examples/images/scenes/scene-1.png");
  const Outcome got = run(GetParam().program, {"--checkpoint", folder, "--json", picture});
  const VisionModel model = this->model();
  if (got.code == 0 && std::string(GetParam().program) == "depth") return;  // has a test of its own
  if (model.labels.empty()) {
    EXPECT_EQ(got.code, 1);
    EXPECT_NE(got.err.find("has no classifier"), std::string::npos) << got.err;
    return;
  }
  EXPECT_EQ(got.code, 0) << got.err;
  // By hand: the picture as the folder's rule prepares it, and the model's scores.
  const Tensor levels = model.preparation.fit(tensor::load_image(picture));
  const Tensor logits = model.run(model.preparation.normalize(levels), {}).at("logits");
  const Json seen = Json::parse(got.out, "output")[0]["findings"];
  if (logits.rank() == 2) {
    const Tensor scores = tensor::softmax(logits(0));
    EXPECT_EQ(seen[0]["label"].text(), model.labels[tensor::argmax(scores).item<std::size_t>()]);
    EXPECT_NEAR(seen[0]["score"].number(), tensor::max(scores).item(), 1e-4);
  }
}

TEST_P(VisionGolden, TheProgramCountsIt) {
  const std::string folder = golden::folder(GetParam().folder);
  const Outcome got = run(GetParam().program, {"--checkpoint", folder, "--info"});
  EXPECT_EQ(got.code, 0) << got.err;
  const VisionModel model = this->model();
  std::int64_t count = 0;
  for (const tensor::nn::Parameter& p : model.parameters())
    if (p.name.find("running_") == std::string::npos) count += p.tensor->size();
  EXPECT_EQ(model.info(folder).parameters(), count);
  // Every weight is multiplied at least once, but for embeddings and norms.
  EXPECT_GT(model.info(folder).macs(), count / 2);
}

INSTANTIATE_TEST_SUITE_P(
    Models, VisionGolden,
    ::testing::Values(Reference{"convnext", "vit", 5}, Reference{"convnextv2", "vit", 5},
                      Reference{"convnext_headless", "vit", 2}, Reference{"swin", "vit", 5},
                      Reference{"swin_headless", "vit", 2}, Reference{"dinov2", "vit", 2},
                      Reference{"dinov2_classifier", "vit", 4},
                      Reference{"dinov2_registers", "vit", 4}, Reference{"dinov3", "vit", 2},
                      Reference{"dinov3_gated", "vit", 2}, Reference{"clip_vision", "vit", 2},
                      Reference{"clip", "vit", 3}, Reference{"clip_classifier", "vit", 1},
                      Reference{"siglip_vision", "vit", 2}, Reference{"siglip", "vit", 2},
                      Reference{"siglip_classifier", "vit", 1}, Reference{"sam", "vit", 5},
                      Reference{"sam_vision", "vit", 5}, Reference{"segformer", "setr", 4},
                      Reference{"depth_anything", "depth", 6},
                      Reference{"depth_anything_metric", "depth", 6}),
    [](const auto& it) { return std::string(it.param.folder); });

}  // namespace
