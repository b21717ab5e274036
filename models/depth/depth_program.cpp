// The depth program: its inputs and outputs, and the picture.
#include "models/depth/depth_program.h"

#include <array>
#include <cmath>

#include "models/common/text.h"
#include "models/dpt/dpt.h"
#include "models/registry/registry.h"
#include "tensor/tensor.h"

namespace models::depth {

using tensor::Tensor;
using tensor::nn::StateDict;

namespace {

/// Seven levels of Matplotlib's colour map "plasma", between which the others lie.
constexpr std::array<Color, 7> kColors{{{13, 8, 135},
                                        {92, 1, 166},
                                        {156, 23, 158},
                                        {203, 70, 121},
                                        {237, 121, 83},
                                        {253, 180, 47},
                                        {240, 249, 33}}};

Color color_of(std::int64_t level) {
  const double place = static_cast<double>(level) / 255 * (kColors.size() - 1);
  const std::size_t below = std::min(static_cast<std::size_t>(place), kColors.size() - 2);
  const double share = place - static_cast<double>(below);
  Color color;
  for (std::size_t c = 0; c < 3; ++c)
    color[c] = static_cast<std::uint8_t>(
        std::lround(kColors[below][c] * (1 - share) + kColors[below + 1][c] * share));
  return color;
}

enum Id : std::int64_t { kNearest, kFarthest };

}  // namespace

std::string DepthProgram::description() const {
  return "Says how far away every pixel of an image is: " + joined(model_types("depth"), ", ") +
         ".";
}

std::string DepthProgram::examples() const {
  return "  depth --checkpoint Depth-Anything-V2-Small-hf --out depth.png street.jpg\n"
         "  depth --checkpoint DIR --output depth.safetensors street.jpg\n"
         "  depth --model depth-anything-small --info\n";
}

std::vector<std::string> DepthProgram::standard_models() const {
  return {"depth-anything-small", "depth-anything-base", "depth-anything-large"};
}

Color DepthProgram::color(std::int64_t id) const { return color_of(id == kNearest ? 255 : 0); }

void DepthProgram::open(const std::string& checkpoint) {
  model_ = load_model(open_checkpoint(checkpoint, kConfigHint, takes_), "depth");
  title_ = checkpoint;
}

void DepthProgram::make(const std::string& model) {
  const dpt::DptConfig config = dpt::DptConfig::standard(model);
  model_ = dpt::vision_model(config, dpt::Dpt::sized(config));
  title_ = model;
}

tensor::Shape DepthProgram::usual_shape() const {
  return {model_.channels, model_.image.height, model_.image.width};
}

StateDict DepthProgram::run(const StateDict& inputs, const Observer& observe) const {
  const auto levels = inputs.find("levels");
  return model_.run(levels != inputs.end() ? model_.preparation.normalize_levels(levels->second)
                                           : inputs.at("pixel_values").astype(tensor::f32),
                    observe);
}

// As transformers' post_process_depth_estimation does.
Tensor DepthProgram::depth_of(const Tensor& image, const Forward& forward) const {
  const Tensor levels = model_.preparation.fit(image);
  const StateDict outputs = device_.is_cuda()
                                ? forward({{"levels", levels.expand_dims(0)}})
                                : forward({{"pixel_values", model_.preparation.normalize(levels)}});
  const auto found = outputs.find("predicted_depth");
  if (found == outputs.end() || found->second.rank() != 3)
    tensor::fail("model", "it has no output \"predicted_depth\" of an image");
  const Tensor depth = found->second.to("cpu").expand_dims(1);
  return tensor::interpolate(depth, {image.shape(0), image.shape(1)},
                             {.mode = tensor::Interpolation::bicubic})(0, 0);
}

ImageResult DepthProgram::look(const Tensor& image, bool with_picture,
                               const Forward& forward) const {
  if (model_.channels != 3)
    tensor::fail(title_, "takes ", model_.channels, " channels, but images have 3");
  const Tensor depth = depth_of(image, forward);
  ImageResult result;
  if (gives_features_) result.features.emplace("predicted_depth", depth.expand_dims(0));
  double nearest = tensor::min(depth).item(), farthest = tensor::max(depth).item();
  if (model_.is_nearness) std::swap(nearest, farthest);
  result.findings = {{"nearest", kNearest, nearest, {}, false},
                     {"farthest", kFarthest, farthest, {}, false}};
  result.labels = nearness_levels(depth, model_.is_nearness);
  if (with_picture) result.picture = draw_depth(result.labels);
  return result;
}

Tensor nearness_levels(const Tensor& depth, bool is_nearness) {
  const Tensor least = tensor::min(depth), range = tensor::max(depth) - least;
  if (!(range.item() > 0)) return tensor::zeros(depth.shape(), tensor::u8);
  const Tensor levels = tensor::round((depth - least) / range * 255);
  return (is_nearness ? levels : 255 - levels).astype(tensor::u8);
}

Tensor draw_depth(const Tensor& levels) {
  Tensor table = tensor::empty({256, 3}, tensor::u8);
  for (std::int64_t level = 0; level < 256; ++level)
    for (std::int64_t c = 0; c < 3; ++c)
      table.at<std::uint8_t>(level, c) = color_of(level)[static_cast<std::size_t>(c)];
  return tensor::take(table, levels.astype(tensor::i64), 0);
}

}  // namespace models::depth
