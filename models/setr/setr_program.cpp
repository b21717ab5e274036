// The setr program: its options, its inputs and outputs, and the coloured picture.
#include "models/setr/setr_program.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <iomanip>

#include "models/common/text.h"
#include "models/registry/registry.h"
#include "models/setr/setr_checkpoint.h"
#include "models/setr/setr_classes.h"
#include "models/setr/setr_info.h"
#include "tensor/tensor.h"
#include "tensor/text.h"

namespace models::setr {

using tensor::Tensor;
using tensor::nn::StateDict;

std::string SetrProgram::description() const {
  return "Says what every pixel of an image belongs to, with SETR or another segmenter: " +
         joined(model_types("setr"), ", ") + ".";
}

std::string SetrProgram::examples() const {
  return "  setr --checkpoint setr-pup --out coloured.png street.png\n"
         "  setr --checkpoint setr-mla --scale 2048,512 --labels classes.png --json room.jpg\n"
         "  setr --model setr-naive-base --info\n";
}

std::vector<std::string> SetrProgram::standard_models() const {
  return {"setr-naive-base", "setr-naive", "setr-pup", "setr-mla"};
}

void SetrProgram::add_options(CLI::App& app) {
  app.add_option("--scale", scale_,
                 "enlarge or shrink an image until it fits these two edges (by default those of "
                 "the model's data set)")
      ->type_name("LONG,SHORT");
  auto* slide = app.add_flag("--slide", slide_, "run a window over the image (the default)");
  auto* whole = app.add_flag("--whole", whole_, "run the image in one piece");
  whole->excludes(slide);
  app.add_option("--labels", labels_path_,
                 "write the class number of every pixel as a grey picture here; a folder if there "
                 "are several images")
      ->type_name("FILE.png");
}

namespace {

/// "2048,512", in either order.
SizeRule parse_scale(const std::string& text) {
  constexpr std::int64_t kMost = 1 << 16;
  std::int64_t edges[2] = {};
  const char *at = text.data(), *end = at + text.size();
  for (std::int64_t& edge : edges) {
    const auto [rest, error] = std::from_chars(at, end, edge);
    const bool last = &edge == &edges[1];
    if (error != std::errc() || edge < 1 || edge > kMost ||
        (last ? rest != end : rest == end || *rest != ','))
      tensor::fail("--scale", "got \"", text, "\", need two edges LONG,SHORT from 1 to ", kMost);
    at = rest + 1;
  }
  const auto [shortest, longest] = std::minmax(edges[0], edges[1]);
  return {SizeRule::Kind::shortest_edge, {}, shortest, longest};
}

}  // namespace

LoadSettings SetrProgram::load_settings() const {
  LoadSettings settings;
  if (!scale_.empty()) settings.scale = parse_scale(scale_);
  return settings;
}

void SetrProgram::check_options() const {
  if (!labels_path_.empty() && model_.labels.size() > 256)
    tensor::fail("--labels", "the model has ", model_.labels.size(),
                 " classes, but a grey picture has 256 levels");
  if (slide_ && model_.window == 0)
    tensor::fail("--slide", "this model takes an image in one piece: leave it out");
}

void SetrProgram::open(const std::string& checkpoint) {
  model_ = load_model(open_setr(checkpoint, takes_), "setr", load_settings());
  title_ = checkpoint;
  check_options();
}

void SetrProgram::make(const std::string& model) {
  Setr net = Setr::sized(SetrConfig::standard(model));
  title_ = model;
  const tensor::Json nothing = tensor::Json::parse("{}", "config.json");
  const std::int64_t classes = net.config.classes, image = net.config.image_size;
  model_ = vision_model(std::move(net), read_class_names(nothing, classes),
                        read_palette(nothing, classes), default_preprocessing(image),
                        load_settings().scale);
  check_options();
}

std::vector<tensor::nn::Parameter> SetrProgram::parameters() { return model_.parameters(); }

Info SetrProgram::info() { return model_.info(title_); }

tensor::Shape SetrProgram::usual_shape() const {
  return {model_.channels, model_.image.height, model_.image.width};
}

Size SetrProgram::map_of(Size size) const {
  const auto rows = [&](std::int64_t extent) {
    return (extent + model_.stride - 1) / model_.stride;
  };
  return {rows(size.height), rows(size.width)};
}

StateDict SetrProgram::blank(const InputSize& size) const {
  StateDict inputs = Program::blank(size);
  const Size map = map_of(size.size);
  const tensor::Shape shape{1, std::ssize(model_.labels), map.height, map.width};
  if (is_of_images(size))
    inputs.emplace("sums", tensor::broadcast_to(tensor::zeros({}, tensor::f32), shape));
  return inputs;
}

StateDict SetrProgram::run(const StateDict& inputs, const Observer& observe) const {
  if (!is_pass(inputs)) return better_classes(inputs);
  const auto levels = inputs.find("levels"), sums = inputs.find("sums");
  const Tensor pixels = levels != inputs.end() ? model_.preparation.normalize_levels(levels->second)
                                               : inputs.at("pixel_values").astype(tensor::f32);
  if (pixels.shape(1) != model_.channels)
    tensor::fail("pixel_values", "got the shape ", pixels.shape(), ", need [batch, ",
                 model_.channels, ", height, width]");
  const Tensor logits = model_.run(pixels, observe).at("logits");
  if (sums == inputs.end()) return {{"logits", logits}};
  return {{"sums", sums->second + logits}};
}

std::int64_t SetrProgram::passes(const Tensor& image) const {
  if (whole_ || model_.window == 0) return 1;
  const std::int64_t crop = model_.window, stride = default_stride(crop);
  const Size size = model_.preparation.size({image.shape(0), image.shape(1)});
  return windows_along(size.height, crop, stride) * windows_along(size.width, crop, stride);
}

std::vector<Window> SetrProgram::windows(Size size) const {
  const std::int64_t crop = model_.window;
  const Size map = map_of(size);
  if (whole_ || crop == 0) return {{0, 0, map.height, map.width}};
  if (model_.is_window_least && std::min(size.height, size.width) < crop)
    tensor::fail(kImage, "is ", size.width, " x ", size.height, " pixels after scaling, need at ",
                 "least ", crop, " x ", crop, " for a fudan SETR: give --scale larger edges");
  return slide_windows(size.height, size.width, crop, default_stride(crop));
}

Tensor SetrProgram::labels(const Tensor& image, const Forward& forward) const {
  const Tensor levels = model_.preparation.fit(image);
  const Size size{levels.shape(0), levels.shape(1)}, map = map_of(size);
  const std::vector<Window> parts = windows(size);
  // A GPU normalizes each window itself, from levels; the host normalizes the image once.
  const bool on_gpu = device_.is_cuda();
  const Tensor pixels = on_gpu ? Tensor() : model_.preparation.normalize(levels);
  const auto add = [&](const Window& window, const Tensor& sums) {
    // A slice ends where the image does.
    const auto seen = [&](std::int64_t begin, std::int64_t extent) {
      return tensor::slice(begin * model_.stride, (begin + extent) * model_.stride);
    };
    const tensor::Slice rows = seen(window.top, window.height);
    const tensor::Slice columns = seen(window.left, window.width);
    StateDict inputs{{"sums", sums}};
    if (on_gpu)
      inputs.emplace("levels", levels(rows, columns).expand_dims(0));
    else
      inputs.emplace("pixel_values", pixels(tensor::ellipsis, rows, columns));
    return output(forward(inputs), "sums", sums.shape());
  };
  const Tensor sums = slide_sums(add, std::ssize(model_.labels), map, parts, device_);
  const Tensor counts = count_windows(map, parts).to(device_);
  // The host takes class by class: to enlarge all and then to choose took three times as long.
  const std::int64_t most = on_gpu ? std::int64_t{1} << 26 : 1;
  return class_map(sums, counts, {image.shape(0), image.shape(1)}, forward, most).to("cpu");
}

ImageResult SetrProgram::look(const Tensor& image, bool with_picture,
                              const Forward& forward) const {
  if (model_.channels != 3)
    tensor::fail(title_, "takes ", model_.channels, " channels, but images have 3");
  const Tensor labels = this->labels(image, forward);
  std::vector<std::int64_t> pixel_count(model_.labels.size());
  for (const std::int32_t k : labels.span<std::int32_t>())
    ++pixel_count[static_cast<std::size_t>(k)];
  ImageResult result;
  for (std::size_t k = 0; k < model_.labels.size(); ++k) {
    const double share = static_cast<double>(pixel_count[k]) / static_cast<double>(labels.size());
    if (share > 0)
      result.findings.push_back({model_.labels[k], static_cast<std::int64_t>(k), share, {}});
  }
  std::ranges::stable_sort(result.findings, std::greater(), &Finding::score);
  if (with_picture) result.picture = draw_classes(image, labels, result.findings, model_.colors);
  result.labels = labels.astype(tensor::u8);
  return result;
}

Tensor draw_classes(const Tensor& image, const Tensor& labels, const std::vector<Finding>& findings,
                    const std::vector<Color>& colors) {
  Tensor table = tensor::empty({std::ssize(colors), 3}, tensor::u8);
  for (std::int64_t k = 0; k < std::ssize(colors); ++k)
    for (std::int64_t c = 0; c < 3; ++c)
      table.at<std::uint8_t>(k, c) =
          colors[static_cast<std::size_t>(k)][static_cast<std::size_t>(c)];
  const Tensor overlay = blend(grey(image), tensor::take(table, labels, 0), 0.5);
  std::vector<LegendEntry> entries;
  for (const Finding& finding : findings) {
    tensor::TextWriter text;
    text << finding.label << ": " << std::fixed << std::setprecision(1) << 100 * finding.score
         << '%';
    entries.push_back({colors[static_cast<std::size_t>(finding.id)], text.str()});
  }
  return with_legend(overlay, entries);
}

}  // namespace models::setr
