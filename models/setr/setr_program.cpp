// The setr program: its options, its inputs and outputs, and the coloured picture.
#include "models/setr/setr_program.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <iomanip>

#include "models/setr/setr_checkpoint.h"
#include "models/setr/setr_classes.h"
#include "models/setr/setr_info.h"
#include "tensor/tensor.h"
#include "tensor/text.h"

namespace models::setr {

using tensor::Tensor;
using tensor::nn::StateDict;

std::string SetrProgram::description() const {
  return "Says with SETR what every pixel of an image belongs to.";
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
Scale parse_scale(const std::string& text) {
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
  return {std::max(edges[0], edges[1]), std::min(edges[0], edges[1])};
}

}  // namespace

void SetrProgram::apply_options() {
  if (!labels_path_.empty() && net_.config.classes > 256)
    tensor::fail("--labels", "the model has ", net_.config.classes,
                 " classes, but a grey picture has 256 levels");
  if (scale_.empty()) return;
  preprocessing_.resize = true;
  preprocessing_.exact.reset();
  preprocessing_.scale = parse_scale(scale_);
}

void SetrProgram::open(const std::string& checkpoint) {
  const Checkpoint folder = open_setr(checkpoint, takes_);
  net_ = load_setr(folder);
  title_ = checkpoint;
  names_ = read_class_names(folder.config, net_.config.classes);
  colors_ = read_palette(folder.config, net_.config.classes);
  preprocessing_ = folder.preprocessor
                       ? read_preprocessing(*folder.preprocessor, net_.config.image_size)
                       : default_preprocessing(net_.config.image_size);
  apply_options();
}

void SetrProgram::make(const std::string& model) {
  net_ = Setr::sized(SetrConfig::standard(model));
  title_ = model;
  const tensor::Json nothing = tensor::Json::parse("{}", "config.json");
  names_ = read_class_names(nothing, net_.config.classes);
  colors_ = read_palette(nothing, net_.config.classes);
  preprocessing_ = default_preprocessing(net_.config.image_size);
  apply_options();
}

std::vector<tensor::nn::Parameter> SetrProgram::parameters() {
  return tensor::nn::parameters(net_);
}

Info SetrProgram::info() {
  return describe(net_, title_, {net_.config.image_size, net_.config.image_size});
}

tensor::Shape SetrProgram::usual_shape() const {
  return {net_.config.channels, net_.config.image_size, net_.config.image_size};
}

StateDict SetrProgram::blank(const InputSize& size) const {
  StateDict inputs = Program::blank(size);
  const tensor::Shape shape{1, net_.config.classes, size.size.height, size.size.width};
  if (is_of_images(size))
    inputs.emplace("sums", tensor::broadcast_to(tensor::zeros({}, tensor::f32), shape));
  return inputs;
}

StateDict SetrProgram::run(const StateDict& inputs, const Observer& observe) const {
  if (!is_pass(inputs)) return better_classes(inputs);
  const auto levels = inputs.find("levels"), sums = inputs.find("sums");
  const Tensor pixels = levels != inputs.end()
                            ? normalize_levels(levels->second, preprocessing_, net_.config.flavour)
                            : inputs.at("pixel_values").astype(tensor::f32);
  if (pixels.shape(1) != net_.config.channels)
    tensor::fail("pixel_values", "got the shape ", pixels.shape(), ", need [batch, ",
                 net_.config.channels, ", height, width]");
  const Tensor logits = net_(pixels, observe);
  if (sums == inputs.end()) return {{"logits", logits}};
  return {{"sums", sums->second + logits}};
}

std::int64_t SetrProgram::passes(const Tensor& image) const {
  if (whole_) return 1;
  const std::int64_t crop = net_.config.image_size, stride = default_stride(crop);
  const Size size = preprocessed_size({image.shape(0), image.shape(1)}, preprocessing_);
  return windows_along(size.height, crop, stride) * windows_along(size.width, crop, stride);
}

std::vector<Window> SetrProgram::windows(Size size) const {
  const std::int64_t crop = net_.config.image_size;
  if (whole_) return {{0, 0, size.height, size.width}};
  if (net_.config.flavour == Flavour::fudan && std::min(size.height, size.width) < crop)
    tensor::fail(kImage, "is ", size.width, " x ", size.height, " pixels after scaling, need at ",
                 "least ", crop, " x ", crop, " for a fudan SETR: give --scale larger edges");
  return slide_windows(size.height, size.width, crop, default_stride(crop));
}

Tensor SetrProgram::labels(const Tensor& image, const Forward& forward) const {
  const Tensor levels = fit_levels(image, preprocessing_);
  const Size size{levels.shape(0), levels.shape(1)};
  const std::vector<Window> parts = windows(size);
  // A GPU normalizes each window itself, from levels; the host normalizes the image once.
  const bool on_gpu = device_.is_cuda();
  const Tensor pixels =
      on_gpu ? Tensor() : normalize_image(levels, preprocessing_, net_.config.flavour);
  const auto add = [&](const Window& window, const Tensor& sums) {
    const tensor::Slice rows = tensor::slice(window.top, window.top + window.height);
    const tensor::Slice columns = tensor::slice(window.left, window.left + window.width);
    StateDict inputs{{"sums", sums}};
    if (on_gpu)
      inputs.emplace("levels", levels(rows, columns).expand_dims(0));
    else
      inputs.emplace("pixel_values", pixels(tensor::ellipsis, rows, columns));
    return output(forward(inputs), "sums", sums.shape());
  };
  const Tensor sums = slide_sums(add, net_.config.classes, size, parts, device_);
  const Tensor counts = count_windows(size, parts).to(device_);
  // The host takes class by class: to enlarge all and then to choose took three times as long.
  const std::int64_t most = on_gpu ? std::int64_t{1} << 26 : 1;
  return class_map(sums, counts, {image.shape(0), image.shape(1)}, forward, most).to("cpu");
}

ImageResult SetrProgram::look(const Tensor& image, bool with_picture,
                              const Forward& forward) const {
  if (net_.config.channels != 3)
    tensor::fail(title_, "takes ", net_.config.channels, " channels, but images have 3");
  const Tensor labels = this->labels(image, forward);
  std::vector<std::int64_t> pixel_count(names_.size());
  for (const std::int32_t k : labels.span<std::int32_t>())
    ++pixel_count[static_cast<std::size_t>(k)];
  ImageResult result;
  for (std::size_t k = 0; k < names_.size(); ++k) {
    const double share = static_cast<double>(pixel_count[k]) / static_cast<double>(labels.size());
    if (share > 0) result.findings.push_back({names_[k], static_cast<std::int64_t>(k), share, {}});
  }
  std::ranges::stable_sort(result.findings, std::greater(), &Finding::score);
  if (with_picture) result.picture = draw_classes(image, labels, result.findings, colors_);
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
