// The detr program: its options, its inputs and outputs, and the picture with boxes.
#include "models/detr/detr_program.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <iomanip>

#include "models/common/draw.h"
#include "models/common/labels.h"
#include "models/common/validators.h"
#include "models/detr/detr_checkpoint.h"
#include "models/detr/detr_info.h"
#include "models/registry/registry.h"
#include "tensor/tensor.h"
#include "tensor/text.h"

namespace models::detr {

using tensor::Tensor;
using tensor::nn::StateDict;

std::string DetrProgram::description() const {
  return "Finds objects in images with DETR: a box, a label and a score each.";
}

std::string DetrProgram::examples() const {
  return "  detr --checkpoint detr-resnet-50 --threshold 0.9 --out boxes.png street.jpg\n"
         "  detr --checkpoint detr-resnet-50 --input saved.safetensors --output out.safetensors\n"
         "  detr --model detr-resnet-50 --encoder-layers 3 --info\n";
}

std::vector<std::string> DetrProgram::standard_models() const {
  return {"detr-resnet-50", "detr-resnet-50-dc5", "detr-resnet-101", "detr-resnet-101-dc5"};
}

void DetrProgram::add_options(CLI::App& app) {
  app.add_option_function<std::string>(
         "--threshold", [this](const std::string& text) { threshold_ = parse_number(text); },
         "show objects that score above this")
      ->check(number(0, 1))
      ->type_name("T")
      ->default_str("0.5");
  app.add_option("--encoder-layers", encoder_layers_,
                 "with --model: the number of encoder layers, 6 if not given")
      ->check(whole_number(0, 100))
      ->type_name("N");
}

void DetrProgram::open(const std::string& checkpoint) {
  if (encoder_layers_ >= 0)
    tensor::fail("--encoder-layers",
                 "a checkpoint has the layers it has; give it with --model only");
  const Checkpoint folder = open_detr(checkpoint, takes_);
  require_program(folder.config, "detr");
  detr_ = load_detr(folder);
  title_ = checkpoint;
  labels_ = read_labels(folder.config, detr_.class_head.weight.shape(0) - 1);
  if (folder.preprocessor) preprocessing_ = read_preprocessing(*folder.preprocessor, processors());
}

void DetrProgram::make(const std::string& model) {
  DetrConfig config;
  if (model.starts_with("detr-resnet-101")) config.backbone = ResNetConfig::resnet101();
  config.backbone.dilated = model.ends_with("-dc5");
  if (encoder_layers_ >= 0) config.encoder_layers = encoder_layers_;
  detr_ = Detr::sized(config);
  title_ = model;
  labels_ = read_labels(tensor::Json::parse("{}", "config.json"), config.classes);
}

std::vector<tensor::nn::Parameter> DetrProgram::parameters() {
  return tensor::nn::parameters(detr_);
}

Info DetrProgram::info() {
  // The default rule leaves 800 x 1333, at which the papers count, as it is.
  return describe(detr_, title_, preprocessed_size({800, 1333}, preprocessing_));
}

std::int64_t DetrProgram::steps() const {
  return std::ssize(detr_.backbone.stages) + std::ssize(detr_.encoder) + 1 +
         std::ssize(detr_.decoder) + 1;
}

tensor::Shape DetrProgram::usual_shape() const {
  const Size size = preprocessed_size({800, 1333}, preprocessing_);
  return {detr_.backbone.stem.conv.weight.shape(1), size.height, size.width};
}

StateDict DetrProgram::blank(const InputSize& size) const {
  const bool has_mask =
      is_of_images(size) && (preprocessing_.pad_size || preprocessing_.pad_multiple > 0);
  const Size padded = has_mask ? padded_size(size.size, preprocessing_) : size.size;
  StateDict inputs = Program::blank({size.batch, padded});
  const tensor::Shape shape{size.batch, padded.height, padded.width};
  if (has_mask)
    inputs.emplace("pixel_mask", tensor::broadcast_to(tensor::ones({}, tensor::i64), shape));
  return inputs;
}

void DetrProgram::check(const StateDict& inputs) const {
  if (inputs.contains("levels")) return;
  const Tensor& pixels = inputs.at("pixel_values");
  const std::int64_t channels = detr_.backbone.stem.conv.weight.shape(1);
  if (pixels.shape(1) != channels)
    tensor::fail("pixel_values", "got the shape ", pixels.shape(), ", need [batch, ", channels,
                 ", height, width]");
  const auto mask = inputs.find("pixel_mask");
  if (mask == inputs.end()) return;
  const tensor::Shape need{pixels.shape(0), pixels.shape(2), pixels.shape(3)};
  if (mask->second.shape() != need)
    tensor::fail("pixel_mask", "got the shape ", mask->second.shape(), ", need ", need,
                 " to go with pixel_values ", pixels.shape());
  // Padding is at the bottom and the right; without a corner there may be no cell to look at.
  if (!tensor::all(mask->second["::, 0, 0"]).item<bool>())
    tensor::fail("pixel_mask", "the upper left pixel of an image is 0, need 1: ",
                 "only the bottom and the right can be padding");
}

StateDict DetrProgram::run(const StateDict& inputs, const Observer& observe) const {
  const auto found = inputs.find("pixel_mask");
  const Tensor mask = found == inputs.end() ? Tensor() : found->second;
  if (const auto levels = inputs.find("levels"); levels != inputs.end()) {
    const Tensor pixels = normalize_levels({levels->second, mask}, preprocessing_);
    const DetrOutput out = detr_(pixels, mask, observe);
    const BestClasses best = best_classes(out.logits);
    return {{"scores", best.scores}, {"labels", best.labels}, {"pred_boxes", out.pred_boxes}};
  }
  const DetrOutput out = detr_(inputs.at("pixel_values").astype(tensor::f32), mask, observe);
  return {{"logits", out.logits},
          {"pred_boxes", out.pred_boxes},
          {"encoder_last_hidden_state", out.encoder_last_hidden_state},
          {"last_hidden_state", out.last_hidden_state}};
}

std::vector<Object> DetrProgram::find(const Tensor& image, const Forward& forward) const {
  const Size size{image.shape(0), image.shape(1)};
  const std::int64_t queries = detr_.queries.weight.shape(0);
  const auto boxes = [&](const StateDict& outputs) {
    return output(outputs, "pred_boxes", {1, queries, 4})(0);
  };
  if (device_.is_cuda()) {
    const Levels batch = make_levels(image, preprocessing_);
    StateDict inputs = {{"levels", batch.levels}};
    if (batch.pixel_mask.defined()) inputs.emplace("pixel_mask", batch.pixel_mask);
    const StateDict outputs = forward(inputs);
    const BestClasses best{output(outputs, "scores", {1, queries})(0),
                           output(outputs, "labels", {1, queries})(0)};
    return find_objects(best, boxes(outputs), size, threshold_);
  }
  const Batch batch = make_batch({image}, preprocessing_);
  StateDict inputs = {{"pixel_values", batch.pixel_values}};
  if (batch.pixel_mask.defined()) inputs.emplace("pixel_mask", batch.pixel_mask);
  const StateDict outputs = forward(inputs);
  const Tensor& logits = output(outputs, "logits", {1, queries, std::ssize(labels_) + 1});
  return find_objects(logits(0), boxes(outputs), size, threshold_);
}

ImageResult DetrProgram::look(const Tensor& image, bool with_picture,
                              const Forward& forward) const {
  if (const std::int64_t channels = detr_.backbone.stem.conv.weight.shape(1); channels != 3)
    tensor::fail(title_, "takes ", channels, " channels, but images have 3");
  ImageResult result;
  for (const Object& object : find(image, forward))
    result.findings.push_back(
        {labels_[static_cast<std::size_t>(object.label)], object.label, object.score, object.box});
  if (with_picture) result.picture = draw_findings(image, result.findings);
  return result;
}

Tensor draw_findings(const Tensor& image, const std::vector<Finding>& findings) {
  Canvas canvas(image);
  const std::int64_t scale = text_scale(canvas.height(), canvas.width());
  // The best last, on top of the others; no outline crosses a text.
  for (auto finding = findings.rbegin(); finding != findings.rend(); ++finding) {
    const auto& [left, top, right, bottom] = finding->box.value();
    const std::int64_t x = std::llround(left), y = std::llround(top);
    canvas.outline({x, y, std::llround(right) - x, std::llround(bottom) - y}, palette(finding->id),
                   scale + 1);
  }
  for (auto finding = findings.rbegin(); finding != findings.rend(); ++finding) {
    const auto& [left, top, right, bottom] = finding->box.value();
    tensor::TextWriter text;
    text << finding->label << ": " << std::fixed << std::setprecision(0) << 100 * finding->score
         << '%';
    canvas.tag(std::llround(left), std::llround(top) - text_height(scale) - 2 * scale, text.str(),
               palette(finding->id), scale);
  }
  return canvas.image();
}

}  // namespace models::detr
