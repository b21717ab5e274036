// Opening, running and reporting for the vit program.
#include "models/vit/vit_program.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "models/common/draw.h"
#include "models/common/report.h"
#include "models/common/text.h"
#include "models/common/validators.h"
#include "models/registry/registry.h"
#include "models/vit/vit_preprocess.h"
#include "models/vit/vit_standard.h"
#include "tensor/creation.h"
#include "tensor/text.h"

namespace models::vit {

using tensor::Tensor;
using tensor::nn::StateDict;

Tensor scores_of(const Tensor& logits, Scores scores) {
  if (scores == Scores::numbers) return logits;
  return scores == Scores::sigmoid ? tensor::sigmoid(logits) : tensor::softmax(logits);
}

std::vector<Finding> best_classes(const Tensor& scores, const std::vector<std::string>& labels,
                                  std::int64_t top, bool are_shares) {
  const auto [values, classes] = tensor::topk(scores, std::min(top, scores.size()));
  std::vector<Finding> findings;
  for (std::int64_t i = 0; i < values.size(); ++i) {
    const auto id = classes.item<std::int64_t>(i);
    findings.push_back(
        {labels[static_cast<std::size_t>(id)], id, values.item(i), std::nullopt, are_shares});
  }
  return findings;
}

namespace {
const Color kBars = palette(1);
}

Tensor draw_classes(const Tensor& image, const std::vector<Finding>& classes) {
  constexpr std::int64_t kSmallest = 320;  // pixels that the picture is wide at least
  constexpr Color kPanel = {24, 26, 30}, kInk = {235, 235, 235}, kTrack = {60, 64, 72};
  const std::int64_t enlarge = std::max<std::int64_t>(1, kSmallest / image.shape(1));
  const Tensor large =
      resize_pillow(image, image.shape(0) * enlarge, image.shape(1) * enlarge, Filter::nearest);
  const std::int64_t width = std::max(large.shape(1), kSmallest);
  const std::int64_t scale = std::max<std::int64_t>(text_scale(large.shape(0), width), 2);
  const std::int64_t pad = 6 * scale, line = text_height(scale) + 3 * scale;
  const auto count = static_cast<std::int64_t>(classes.size());
  const std::int64_t height = large.shape(0);
  Canvas canvas(tensor::zeros({height + count * 2 * line + pad, width, 3}, tensor::u8));
  canvas.fill({0, 0, width, canvas.height()}, kPanel);
  canvas.paste((width - large.shape(1)) / 2, 0, large);
  for (std::int64_t i = 0; i < count; ++i) {
    const Finding& finding = classes[static_cast<std::size_t>(i)];
    const std::int64_t y = height + pad / 2 + i * 2 * line;
    const std::string number = score_text(finding);
    const std::int64_t room = width - 2 * pad;
    const std::int64_t right = width - pad - text_width(number, scale);
    canvas.text(pad, y + scale, shortened(finding.label, right - 2 * pad, scale), kInk, scale);
    canvas.text(right, y + scale, number, kInk, scale);
    if (!finding.is_share) continue;
    const Rect bar{pad, y + line, room, line / 2};
    canvas.fill(bar, kTrack);
    const auto filled = static_cast<std::int64_t>(finding.score * static_cast<double>(room) + 0.5);
    canvas.fill({bar.x, bar.y, filled, bar.height}, kBars);
  }
  return canvas.image();
}

namespace {

class VitProgram final : public Program {
 public:
  std::string name() const override { return "vit"; }
  std::string description() const override {
    return "Classifies images, or gives their features, with a Vision Transformer (ViT) or "
           "another\n"
           "backbone: " +
           joined(model_types("vit"), ", ") + ".";
  }
  std::string examples() const override {
    return "  vit --checkpoint models/vit/pretrained/digits examples/images/digits\n"
           "  vit --checkpoint DIR --top 3 --out labelled.png photo.jpg\n"
           "  vit --checkpoint DIR --json photos/ > classes.json\n"
           "  vit --checkpoint DIR --output features.safetensors photos/\n"
           "  vit --checkpoint DIR --input in.safetensors --output out.safetensors\n"
           "  vit --checkpoint DIR --dtype bf16 --plan vit.plan --report photo.jpg\n"
           "  vit --model vit-base-patch16-224 --info\n";
  }
  std::vector<std::string> standard_models() const override { return standard_names(); }

  Color color(std::int64_t) const override { return kBars; }
  void add_options(CLI::App& app) override {
    app.add_option("--top", top_, "how many classes to show (5)")
        ->type_name("K")
        ->check(whole_number(1));
    app.add_flag("--interpolate-pos-encoding", resize_position_,
                 "take pixel_values of any size: resize the position embedding");
  }

  void open(const std::string& checkpoint) override {
    name_ = std::filesystem::path(checkpoint).lexically_normal().string();
    model_ = load_model(open_checkpoint(checkpoint, kConfigHint, takes_), "vit",
                        {.any_size = resize_position_});
  }

  void make(const std::string& model) override {
    name_ = model;
    LoadedVit vit;
    vit.config = standard_config(model);
    if (resize_position_) vit.config.position_resize = PositionResize::huggingface;
    vit.model = Vit::sized(vit.config);
    vit.preprocessing = huggingface_preprocessing(vit.config.image);
    for (std::int64_t i = 0; i < vit.config.classes; ++i)
      vit.labels.push_back("class " + std::to_string(i));
    model_ = vision_model(std::move(vit));
  }

  std::vector<tensor::nn::Parameter> parameters() override { return model_.parameters(); }
  Info info() override { return model_.info(name_); }
  std::int64_t steps() const override { return model_.steps; }

  tensor::Shape usual_shape() const override {
    return {model_.channels, model_.image.height, model_.image.width};
  }

  StateDict run(const StateDict& inputs, const Observer& observe) const override {
    const auto levels = inputs.find("levels");
    if (levels == inputs.end())
      return model_.run(inputs.at("pixel_values").astype(tensor::f32), observe);
    const Tensor pixels = model_.preparation.normalize_levels(levels->second);
    StateDict outputs = model_.run(pixels, observe);
    const auto logits = outputs.find("logits");
    if (logits == outputs.end()) return outputs;
    return {{"scores", scores_of(logits->second, model_.scores)}};
  }

  void give_features() override {
    if (!model_.labels.empty()) Program::give_features();
    gives_features_ = true;
  }

  ImageResult look(const Tensor& image, bool with_picture, const Forward& forward) const override {
    if (model_.labels.empty() && !gives_features_)
      tensor::fail(name_,
                   "has no classifier, so it cannot name what an image shows: use --output for "
                   "its features");
    if (model_.channels != 3)
      tensor::fail(name_, "takes ", model_.channels, " channels, but images have 3");
    ImageResult result;
    const StateDict outputs = forward(inputs_of(image));
    if (gives_features_)
      result.features = outputs;
    else
      result.findings = findings_of(outputs);
    if (with_picture) result.picture = draw_classes(image, result.findings);
    return result;
  }

 private:
  /// A GPU normalizes the levels itself.
  StateDict inputs_of(const Tensor& image) const {
    const Tensor levels = model_.preparation.fit(image);
    if (device_.is_cuda()) return {{"levels", levels.expand_dims(0)}};
    return {{"pixel_values", model_.preparation.normalize(levels)}};
  }

  std::vector<Finding> findings_of(const StateDict& outputs) const {
    const tensor::Shape shape{1, std::ssize(model_.labels)};
    const bool are_shares = model_.scores != Scores::numbers;
    const Tensor scores = device_.is_cuda()
                              ? output(outputs, "scores", shape)
                              : scores_of(output(outputs, "logits", shape), model_.scores);
    return best_classes(scores.reshape({-1}), model_.labels, top_, are_shares);
  }

  std::string name_;
  VisionModel model_;
  std::int64_t top_ = 5;
  bool resize_position_ = false, gives_features_ = false;
};

}  // namespace

std::unique_ptr<Program> make_program() { return std::make_unique<VitProgram>(); }

}  // namespace models::vit
