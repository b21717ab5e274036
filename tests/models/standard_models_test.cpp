// The nine standard models with random weights: every kernel of the compiled model against the
// reference operators, and for one of each kind the outputs against the eager run.
//
// TENSOR_MODELS_UP_TO is the largest size to run, in millions of parameters; others are reported as
// skipped. scripts/test sets it where the sanitizers make the large ones take minutes.
#include <cstdlib>
#include <memory>

#include "models/common/forward.h"
#include "models/detr/detr_program.h"
#include "models/setr/setr.h"
#include "models/vit/vit_standard.h"
#include "tensor/creation.h"
#include "tests/models/golden.h"

namespace {

using tensor::Tensor;
using tensor::nn::StateDict;

struct Case {
  std::string name;
  std::int64_t height, width;
  std::int64_t encoder_layers = -1;  // DETR's
  bool whole = false;                // compared with the eager run as well
};

/// A model behind the function that its program runs.
struct Model {
  std::vector<tensor::nn::Parameter> parameters;
  models::Forward run;
};

template <class Net>
Model model_of(std::shared_ptr<Net> net) {
  return {tensor::nn::parameters(*net), [net](const StateDict& in) -> StateDict {
            const auto out = (*net)(in.at("pixel_values"));
            if constexpr (std::is_same_v<Net, models::detr::Detr>)
              return {{"logits", out.logits}, {"pred_boxes", out.pred_boxes}};
            else if constexpr (std::is_same_v<Net, models::vit::Vit>)
              return {{"logits", out.logits}};
            else
              return {{"logits", out}};
          }};
}

Model standard(const Case& c) {
  if (c.name.starts_with("vit"))
    return model_of(std::make_shared<models::vit::Vit>(
        models::vit::Vit::sized(models::vit::standard_config(c.name))));
  if (c.name.starts_with("setr"))
    return model_of(std::make_shared<models::setr::Setr>(
        models::setr::Setr::sized(models::setr::SetrConfig::standard(c.name, c.height))));
  models::detr::DetrConfig config;
  config.encoder_layers = c.encoder_layers;
  return model_of(std::make_shared<models::detr::Detr>(models::detr::Detr::sized(config)));
}

class StandardModels : public ::testing::TestWithParam<Case> {};

TEST_P(StandardModels, EveryKernelIsAsExactAsItMustBe) {
  const Case& c = GetParam();
  const Model model = standard(c);
  std::int64_t count = 0;
  for (const auto& p : model.parameters) count += p.tensor->size();
  if (const char* most = std::getenv("TENSOR_MODELS_UP_TO");
      most && count > std::atoll(most) * 1000000)
    GTEST_SKIP() << count << " parameters, and TENSOR_MODELS_UP_TO is " << most << " million";
  tensor::nn::randomize(model.parameters, 20);
  tensor::CompileOptions options;
  for (const auto& p : model.parameters) options.names.emplace_back(p.name, *p.tensor);
  const StateDict inputs = {
      {"pixel_values", tensor::Generator(21).normal({1, 3, c.height, c.width})}};
  const models::NamedExecutable fast = models::compile_named(model.run, inputs, options);
  const auto checks = tensor::verify(fast.executable, fast.arguments(inputs));
  EXPECT_GE(checks.size(), 50u);
  double worst = 0;
  for (const tensor::GroupCheck& check : checks) {
    EXPECT_TRUE(check.ok()) << check.operators << " @ " << check.where << " [" << check.kernel
                            << "]: " << check.error << " > " << check.bound;
    worst = std::max(worst, check.error / check.bound);
  }
  RecordProperty("worst_share_of_bound", std::to_string(worst));
  const StateDict got = fast(inputs);
  for (const auto& [name, value] : got)
    EXPECT_TRUE(tensor::all(tensor::isfinite(value)).item<bool>()) << name;
  if (!c.whole) return;
  for (const auto& [name, want] : model.run(inputs)) golden::expect_close(got.at(name), want, name);
}

// ViT at its size; SETR at half its edge, a quarter of its patches; DETR, which takes any size, at
// a fifth.
INSTANTIATE_TEST_SUITE_P(Nine, StandardModels,
                         ::testing::Values(Case{"vit-base-patch16-224", 224, 224, -1, true},
                                           Case{"vit-large-patch16-224", 224, 224},
                                           Case{"vit-huge-patch14-224", 224, 224},
                                           Case{"setr-naive-base", 192, 192, -1, true},
                                           Case{"setr-naive", 192, 192}, Case{"setr-pup", 192, 192},
                                           Case{"setr-mla", 192, 192},
                                           Case{"detr-resnet-50", 160, 256, 3, true},
                                           Case{"detr-resnet-50", 160, 256, 6},
                                           Case{"detr-resnet-50", 160, 256, 12}),
                         [](const auto& it) {
                           std::string name = it.param.name;
                           if (it.param.encoder_layers >= 0)
                             name += "-e" + std::to_string(it.param.encoder_layers);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
