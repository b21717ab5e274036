// Resize and Upsample: every axis by a list of positions (nearest) or a matrix of weights, which
// are made on the host; where it is the same, by interpolate().
#include <algorithm>
#include <cmath>

#include "src/onnx/operators.h"
#include "tensor/neural.h"

namespace tensor::onnx {
namespace {

// One axis that is resized.
struct Line {
  int axis = 0;
  std::int64_t in = 0, out = 0;
  double scale = 1, start = 0, end = 1;  // start and end: of the region of interest
};

struct Resize {
  std::string mode, coordinates, rounding;
  double cubic = -0.75, extrapolation = 0;
  bool excludes_outside = false, is_smooth = false;  // smooth: antialias
};

// Where element i of the result lies in the original, in its elements.
double position(const Resize& how, const Line& line, std::int64_t i) {
  const double at = static_cast<double>(i), in = static_cast<double>(line.in),
               out = static_cast<double>(line.out);
  if (how.coordinates == "align_corners") return line.out == 1 ? 0 : at * (in - 1) / (out - 1);
  if (how.coordinates == "asymmetric") return at / line.scale;
  if (how.coordinates == "tf_half_pixel_for_nn") return (at + 0.5) / line.scale;
  if (how.coordinates == "tf_crop_and_resize") {
    if (line.out == 1) return (line.start + line.end) * (in - 1) / 2;
    return line.start * (in - 1) + at * (line.end - line.start) * (in - 1) / (out - 1);
  }
  const double half = (at + 0.5) / line.scale - 0.5;
  if (how.coordinates == "pytorch_half_pixel" && line.out == 1) return 0;
  if (how.coordinates != "half_pixel_symmetric") return half;
  return in / 2 * (1 - out / (line.scale * in)) + half;
}

std::int64_t nearest(const Resize& how, const Line& line, std::int64_t i) {
  const double at = position(how, line, i);
  double place = std::floor(at);
  if (how.rounding == "ceil") place = std::ceil(at);
  if (how.rounding == "round_prefer_floor") place = std::ceil(at - 0.5);
  if (how.rounding == "round_prefer_ceil") place = std::floor(at + 0.5);
  return static_cast<std::int64_t>(std::clamp(place, 0.0, static_cast<double>(line.in - 1)));
}

double weight(const Resize& how, double distance) {
  const double d = std::abs(distance), a = how.cubic;
  if (how.mode == "linear") return std::max(1 - d, 0.0);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

// The weights of all elements for every element of the result, [out, in]. Elements beyond the ends
// are those at the ends, unless they are excluded.
Tensor weights(const Resize& how, const Line& line) {
  std::vector<float> matrix(static_cast<std::size_t>(line.in * line.out));
  const double stretch = how.is_smooth ? std::min(line.scale, 1.0) : 1;
  const double reach = (how.mode == "linear" ? 1 : 2) / stretch;
  for (std::int64_t i = 0; i < line.out; ++i) {
    const double at = position(how, line, i);
    std::vector<double> row(static_cast<std::size_t>(line.in));
    double total = 0;
    for (double j = std::ceil(at - reach); j <= at + reach; ++j) {
      const double w = weight(how, (j - at) * stretch);
      const bool is_inside = j >= 0 && j < static_cast<double>(line.in);
      if (!is_inside && how.excludes_outside) continue;
      const double place = std::clamp(j, 0.0, static_cast<double>(line.in - 1));
      row[static_cast<std::size_t>(place)] += w;
      total += w;
    }
    for (std::int64_t j = 0; j < line.in; ++j)
      matrix[static_cast<std::size_t>(i * line.in + j)] =
          static_cast<float>(row[static_cast<std::size_t>(j)] / total);
  }
  return array(matrix, {line.out, line.in});
}

Tensor multiplied(const Tensor& x, int axis, const Tensor& matrix) {
  const Tensor m = matrix.to(x.device());
  if (axis == x.rank() - 2) return matmul(m, x);
  return matmul(x.swapaxes(axis, -1), m.transpose()).swapaxes(axis, -1);
}

// Where the region of interest leaves the image along this axis, the result has another value.
Tensor filled(const Resize& how, const Line& line, const Tensor& y) {
  if (how.coordinates != "tf_crop_and_resize") return y;
  Shape shape = Shape::filled(y.rank(), 1);
  shape[line.axis] = line.out;
  Tensor mask = zeros({line.out}, boolean);
  for (std::int64_t i = 0; i < line.out; ++i) {
    const double at = position(how, line, i);
    mask.at<bool>(i) = at < 0 || at > static_cast<double>(line.in - 1);
  }
  return where(mask.reshape(shape).to(y.device()), how.extrapolation, y);
}

// ---- interpolate()

bool is_whole(const Line& line) {  // the scale is that of the extents
  constexpr double kClose = 1e-6;
  return std::abs(static_cast<double>(line.in) * line.scale - static_cast<double>(line.out)) <
         kClose * static_cast<double>(line.out);
}

// Whether interpolate() takes the same nearest elements.
bool takes_floor(const Resize& how, const Line& line) {
  for (std::int64_t i = 0; i < line.out; ++i)
    if (nearest(how, line, i) != i * line.in / line.out) return false;
  return true;
}

// What interpolate() would be told; nothing where it computes something else.
std::optional<InterpolateOptions> as_interpolation(const Resize& how, const Tensor& x,
                                                   const std::vector<Line>& lines) {
  if (x.rank() != 4 || lines.size() != 2 || lines[0].axis != 2 || lines[1].axis != 3) return {};
  if (how.mode == "nearest") {
    if (!takes_floor(how, lines[0]) || !takes_floor(how, lines[1])) return {};
    return InterpolateOptions{};
  }
  if (!is_floating(x.dtype()) || how.excludes_outside || how.is_smooth) return {};
  InterpolateOptions options{.mode = Interpolation::bilinear};
  if (how.mode == "cubic") {
    if (how.cubic != -0.75) return {};
    options.mode = Interpolation::bicubic;
  }
  options.align_corners = how.coordinates == "align_corners";
  for (const Line& line : lines) {
    const bool is_half = how.coordinates == "half_pixel" ||
                         (how.coordinates == "pytorch_half_pixel" && line.out > 1);
    if (!options.align_corners && !(is_half && is_whole(line))) return {};
  }
  return options;
}

Tensor resized(const Resize& how, const Tensor& image, std::vector<Line> lines) {
  for (const Line& line : lines)
    if (line.out < 1 || line.in < 1)
      fail("resize", "from an extent of ", line.in, " to ", line.out, ", need at least 1");
  std::erase_if(lines, [&](const Line& line) {
    return line.in == line.out && line.scale == 1 && how.coordinates != "tf_crop_and_resize";
  });
  if (lines.empty()) return image;
  std::vector<Line> both = lines;  // of an image, with the axis that stays as it is
  if (both.size() == 1 && image.rank() == 4 && both[0].axis >= 2) {
    const int other = 5 - both[0].axis;
    both.push_back({.axis = other, .in = image.shape(other), .out = image.shape(other)});
    std::ranges::sort(both, {}, &Line::axis);
  }
  if (const auto options = as_interpolation(how, image, both))
    return interpolate(image, {both[0].out, both[1].out}, *options);
  Tensor x = image;
  if (how.mode != "nearest" && !is_floating(x.dtype())) x = x.to(f32);
  for (const Line& line : lines) {
    if (how.mode == "nearest") {
      Ints places;
      for (std::int64_t i = 0; i < line.out; ++i) places.push_back(nearest(how, line, i));
      x = take(x, array(places).to(x.device()), line.axis);
    } else {
      x = multiplied(x, line.axis, weights(how, line).to(x.dtype()));
    }
  }
  for (const Line& line : lines) x = filled(how, line, x);
  return x.to(image.dtype());
}

// ---- Attributes and inputs

// Every axis by its scale; a shape takes the scales that lead to it.
std::vector<Line> scaled(const Tensor& x, const Ints& axes, const std::vector<float>& scales) {
  if (scales.size() != axes.size())
    fail("resize", "got ", scales.size(), " scales for ", axes.size(), " axes");
  std::vector<Line> lines;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const int axis = normalize_axis(axes[i], x.rank(), "resize");
    const float out = std::floor(static_cast<float>(x.shape(axis)) * scales[i]);
    if (!(out >= 0 && out < 0x1p31F)) fail("resize", "got a scale of ", scales[i]);
    lines.push_back({.axis = axis,
                     .in = x.shape(axis),
                     .out = static_cast<std::int64_t>(out),
                     .scale = static_cast<double>(scales[i])});
  }
  return lines;
}

std::vector<Line> sized(const Tensor& x, const Ints& axes, const Ints& sizes,
                        const std::string& policy) {
  if (sizes.size() != axes.size())
    fail("resize", "got ", sizes.size(), " sizes for ", axes.size(), " axes");
  std::vector<Line> lines;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const int axis = normalize_axis(axes[i], x.rank(), "resize");
    const double in = static_cast<double>(x.shape(axis)), out = static_cast<double>(sizes[i]);
    lines.push_back({.axis = axis, .in = x.shape(axis), .out = sizes[i], .scale = out / in});
  }
  if (policy == "stretch" || lines.empty()) return lines;
  const auto [least, most] = std::ranges::minmax_element(lines, {}, &Line::scale);
  const double scale = policy == "not_larger" ? least->scale : most->scale;
  for (Line& line : lines) {
    line.scale = scale;
    line.out = static_cast<std::int64_t>(std::floor(static_cast<double>(line.in) * scale + 0.5));
  }
  return lines;
}

Results resize_of(const Call& c) {
  const Tensor& x = c[0];
  Resize how{.mode = c.text("mode", "nearest"),
             .coordinates = c.text("coordinate_transformation_mode",
                                   c.opset() < 11 ? "asymmetric" : "half_pixel"),
             .rounding = c.text("nearest_mode", c.opset() < 11 ? "floor" : "round_prefer_floor"),
             .cubic = c.number("cubic_coeff_a", -0.75),
             .extrapolation = c.number("extrapolation_value", 0),
             .excludes_outside = c.integer("exclude_outside", 0) != 0,
             .is_smooth = c.integer("antialias", 0) != 0};
  Ints axes = c.ints("axes");
  if (!c.has("axes"))
    for (int axis = 0; axis < x.rank(); ++axis) axes.push_back(axis);
  const int scales = c.opset() < 11 ? 1 : 2;
  const bool has_sizes = c.has(3) && c[3].size() > 0;
  std::vector<Line> lines =
      has_sizes ? sized(x, axes, c.ints(3), c.text("keep_aspect_ratio_policy", "stretch"))
                : scaled(x, axes, c.host(scales).to_vector<float>());
  if (how.coordinates == "tf_crop_and_resize") {
    const std::vector<double> roi = c.host(1).to_vector<double>();
    if (roi.size() != 2 * lines.size())
      fail("resize", "got ", roi.size(), " numbers as the region of interest of ", lines.size(),
           " axes, need two for each");
    for (std::size_t i = 0; i < lines.size(); ++i)
      lines[i].start = roi[i], lines[i].end = roi[i + lines.size()];
  }
  return {resized(how, x, std::move(lines))};
}

std::string refuse_resize(const Node& n) {
  for (std::string why :
       {refuse_unless(n, "mode", {"nearest", "linear", "cubic"}),
        refuse_unless(n, "nearest_mode",
                      {"floor", "ceil", "round_prefer_floor", "round_prefer_ceil"}),
        refuse_unless(n, "coordinate_transformation_mode",
                      {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric",
                       "align_corners", "tf_half_pixel_for_nn", "tf_crop_and_resize"}),
        refuse_unless(n, "keep_aspect_ratio_policy", {"stretch", "not_larger", "not_smaller"})})
    if (!why.empty()) return why;
  return {};
}

Results upsample(const Call& c) {
  const Resize how{
      .mode = c.text("mode", "nearest"), .coordinates = "asymmetric", .rounding = "floor"};
  Ints axes;
  for (int axis = 0; axis < c[0].rank(); ++axis) axes.push_back(axis);
  return {resized(
      how, c[0],
      scaled(c[0], axes, c.has(1) ? c.host(1).to_vector<float>() : c.attribute("scales").numbers))};
}

Results grid_sample_of(const Call& c) {
  const std::string padding = c.text("padding_mode", "zeros");
  return {grid_sample(c[0], c[1],
                      {.mode = c.text("mode", "linear") == "nearest" ? Interpolation::nearest
                                                                     : Interpolation::bilinear,
                       .padding = padding == "zeros"    ? SamplePadding::zeros
                                  : padding == "border" ? SamplePadding::border
                                                        : SamplePadding::reflection,
                       .align_corners = c.integer("align_corners", 0) != 0})};
}

std::string refuse_grid_sample(const Node& n) {
  const std::string why = refuse_unless(n, "mode", {"bilinear", "linear", "nearest"});
  return why.empty() ? refuse_unless(n, "padding_mode", {"zeros", "border", "reflection"}) : why;
}

constexpr std::string_view kResize =
    "mode:s coordinate_transformation_mode:s nearest_mode:s cubic_coeff_a:f exclude_outside:i "
    "extrapolation_value:f antialias:i axes:I keep_aspect_ratio_policy:s";

constexpr Operator kResizeRows[] = {
    {"Resize", 10, 1, 4, 1, kResize, resize_of, refuse_resize},
    {"GridSample", 16, 2, 2, 1, "mode:s padding_mode:s align_corners:i", grid_sample_of,
     refuse_grid_sample},
    {"Upsample", 7, 1, 2, 1, "mode:s scales:F", upsample,
     [](const Node& n) {
       return refuse_unless(n, "mode", {"nearest", "linear"});
     }},
};

}  // namespace

std::span<const Operator> resize_operators() { return kResizeRows; }

}  // namespace tensor::onnx
