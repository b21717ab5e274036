// The detr program: its options, its inputs and outputs, and the picture with boxes.
#include "models/detr/detr_program.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <iomanip>

#include "models/common/draw.h"
#include "models/common/validators.h"
#include "models/detr/detr_checkpoint.h"
#include "models/registry/registry.h"
#include "models/rt_detr/rt_detr.h"
#include "tensor/tensor.h"
#include "tensor/text.h"

namespace models::detr {

using tensor::Tensor;
using tensor::nn::StateDict;

std::string DetrProgram::description() const {
  return "Finds objects in images with DETR or RT-DETR: a box, a label and a score each.";
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
  title_ = checkpoint;
  detector_ = model_type_of(folder.config).starts_with("rt_detr") ? rt_detr::load_rt_detr(folder)
                                                                  : load_detector(folder);
}

void DetrProgram::make(const std::string& model) {
  DetrConfig config;
  if (model.starts_with("detr-resnet-101")) config.backbone = ResNetConfig::resnet101();
  config.backbone.dilated = model.ends_with("-dc5");
  if (encoder_layers_ >= 0) config.encoder_layers = encoder_layers_;
  title_ = model;
  detector_ = detector(Detr::sized(config));
}

void DetrProgram::bucket(std::int64_t pixels) {
  if (!detector_.takes_mask) Program::bucket(pixels);
  detector_.preprocessing.pad_multiple = pixels;
}

Info DetrProgram::info() {
  // DETR's default rule leaves 800 x 1333, at which the papers count, as it is.
  return detector_.info(title_, preprocessed_size(detector_.picture, detector_.preprocessing));
}

std::vector<std::string> DetrProgram::inputs() const {
  if (!detector_.takes_mask) return {"pixel_values"};
  return {"pixel_mask", "pixel_values"};
}

tensor::Shape DetrProgram::usual_shape() const {
  const Size size = preprocessed_size(detector_.picture, detector_.preprocessing);
  return {detector_.channels, size.height, size.width};
}

StateDict DetrProgram::blank(const InputSize& size) const {
  const Preprocessing& rule = detector_.preprocessing;
  const bool has_mask = is_of_images(size) && (rule.pad_size || rule.pad_multiple > 0);
  const Size padded = has_mask ? padded_size(size.size, rule) : size.size;
  StateDict inputs = Program::blank({size.batch, padded});
  const tensor::Shape shape{size.batch, padded.height, padded.width};
  if (has_mask)
    inputs.emplace("pixel_mask", tensor::broadcast_to(tensor::ones({}, tensor::i64), shape));
  return inputs;
}

void DetrProgram::check(const StateDict& inputs) const {
  if (inputs.contains("levels")) return;
  const Tensor& pixels = inputs.at("pixel_values");
  if (pixels.shape(1) != detector_.channels)
    tensor::fail("pixel_values", "got the shape ", pixels.shape(), ", need [batch, ",
                 detector_.channels, ", height, width]");
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

BestObjects DetrProgram::best(const Tensor& logits, const Tensor& boxes) const {
  if (detector_.is_focal) return best_pairs(logits, boxes);
  return {best_classes(logits), boxes};
}

StateDict DetrProgram::run(const StateDict& inputs, const Observer& observe) const {
  const auto found = inputs.find("pixel_mask");
  const Tensor mask = found == inputs.end() ? Tensor() : found->second;
  const auto levels = inputs.find("levels");
  if (levels == inputs.end())
    return detector_.run(inputs.at("pixel_values").astype(tensor::f32), mask, observe);
  const Tensor pixels = normalize_levels({levels->second, mask}, detector_.preprocessing);
  const StateDict out = detector_.run(pixels, mask, observe);
  const BestObjects objects = best(out.at("logits"), out.at("pred_boxes"));
  return {{"scores", objects.classes.scores},
          {"labels", objects.classes.labels},
          {"pred_boxes", objects.boxes}};
}

std::vector<Object> DetrProgram::find(const Tensor& image, const Forward& forward) const {
  const std::int64_t queries = detector_.queries;
  const auto found = [&](const BestObjects& best) {
    return find_objects({best.classes.scores(0), best.classes.labels(0)}, best.boxes(0),
                        {image.shape(0), image.shape(1)}, threshold_);
  };
  const auto outputs_of = [&](const char* name, const Tensor& pixels, const Tensor& mask) {
    StateDict inputs = {{name, pixels}};
    if (mask.defined()) inputs.emplace("pixel_mask", mask);
    return forward(inputs);
  };
  if (device_.is_cuda()) {
    const Levels batch = make_levels(image, detector_.preprocessing);
    const StateDict outputs = outputs_of("levels", batch.levels, batch.pixel_mask);
    return found(
        {{output(outputs, "scores", {1, queries}), output(outputs, "labels", {1, queries})},
         output(outputs, "pred_boxes", {1, queries, 4})});
  }
  const Batch batch = make_batch({image}, detector_.preprocessing);
  const StateDict outputs = outputs_of("pixel_values", batch.pixel_values, batch.pixel_mask);
  return found(best(output(outputs, "logits", {1, queries, detector_.classes()}),
                    output(outputs, "pred_boxes", {1, queries, 4})));
}

ImageResult DetrProgram::look(const Tensor& image, bool with_picture,
                              const Forward& forward) const {
  if (detector_.channels != 3)
    tensor::fail(title_, "takes ", detector_.channels, " channels, but images have 3");
  ImageResult result;
  for (const Object& object : find(image, forward))
    result.findings.push_back({detector_.labels[static_cast<std::size_t>(object.label)],
                               object.label, object.score, object.box});
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
