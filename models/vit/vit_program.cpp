// Opening, running and reporting for the vit program.
#include "models/vit/vit_program.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "models/common/draw.h"
#include "models/common/report.h"
#include "models/common/validators.h"
#include "models/vit/vit_checkpoint.h"
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
    return "Classifies images with a Vision Transformer (ViT).";
  }
  std::string examples() const override {
    return "  vit --checkpoint models/vit/pretrained/digits examples/images/digits\n"
           "  vit --checkpoint DIR --top 3 --out labelled.png photo.jpg\n"
           "  vit --checkpoint DIR --json photos/ > classes.json\n"
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
    vit_ = load_vit(open_checkpoint(checkpoint, kConfigHint, takes_), resize_position_);
  }

  void make(const std::string& model) override {
    name_ = model;
    vit_.config = standard_config(model);
    if (resize_position_) vit_.config.position_resize = PositionResize::huggingface;
    vit_.model = Vit::sized(vit_.config);
    vit_.preprocessing = huggingface_preprocessing(vit_.config.image);
    for (std::int64_t i = 0; i < vit_.config.classes; ++i)
      vit_.labels.push_back("class " + std::to_string(i));
  }

  std::vector<tensor::nn::Parameter> parameters() override {
    return tensor::nn::parameters(vit_.model);
  }
  Info info() override { return describe(name_, vit_.model, vit_.config); }
  std::int64_t steps() const override { return vit_.config.layers + 1; }

  tensor::Shape usual_shape() const override {
    return {vit_.config.channels, vit_.config.image.height, vit_.config.image.width};
  }

  StateDict run(const StateDict& inputs, const Observer& observe) const override {
    if (const auto levels = inputs.find("levels"); levels != inputs.end()) {
      const Tensor pixels = normalize_levels(levels->second, vit_.preprocessing.normalization);
      return {{"scores", scores_of(vit_.model(pixels, observe).logits, vit_.scores)}};
    }
    const VitOutput out = vit_.model(inputs.at("pixel_values").astype(tensor::f32), observe);
    if (out.logits.defined()) return {{"logits", out.logits}};
    StateDict result{{"last_hidden_state", out.last_hidden_state}};
    if (out.pooler_output.defined()) result.emplace("pooler_output", out.pooler_output);
    return result;
  }

  ImageResult look(const Tensor& image, bool with_picture, const Forward& forward) const override {
    if (vit_.config.classes == 0)
      tensor::fail(name_,
                   "has no classifier, so it cannot name what an image shows: use --input "
                   "and --output for its features");
    if (vit_.config.channels != 3)
      tensor::fail(name_, "takes ", vit_.config.channels, " channels, but images have 3");
    ImageResult result{find(image, forward), {}};
    if (with_picture) result.picture = draw_classes(image, result.findings);
    return result;
  }

 private:
  std::vector<Finding> find(const Tensor& image, const Forward& forward) const {
    const Preprocessing& rule = vit_.preprocessing;
    const tensor::Shape shape{1, vit_.config.classes};
    const bool are_shares = vit_.scores != Scores::numbers;
    if (device_.is_cuda()) {
      const StateDict outputs = forward({{"levels", fit_levels(image, rule).expand_dims(0)}});
      return best_classes(output(outputs, "scores", shape).reshape({-1}), vit_.labels, top_,
                          are_shares);
    }
    const StateDict outputs = forward({{"pixel_values", preprocess(image, rule).expand_dims(0)}});
    const Tensor logits = output(outputs, "logits", shape).reshape({-1});
    return best_classes(scores_of(logits, vit_.scores), vit_.labels, top_, are_shares);
  }

  std::string name_;
  LoadedVit vit_;
  std::int64_t top_ = 5;
  bool resize_position_ = false;
};

}  // namespace

std::unique_ptr<Program> make_program() { return std::make_unique<VitProgram>(); }

}  // namespace models::vit
