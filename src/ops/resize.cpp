// interpolate: resizing of images as torch.nn.functional.interpolate(size=...) does it.
//
// Every method but nearest is separable: an output element is a weighted sum of input elements
// along x, then along y. The coordinates are computed in double: in float, as PyTorch does for
// float images, those of a large image are off by so much that the result leaves 2e-5 of the exact
// one.
#include "src/ops/resize.h"

#include <algorithm>
#include <cmath>

#include "src/core/dispatch.h"
#include "src/core/loop.h"
#include "src/ops/op.h"
#include "src/ops/pack.h"
#include "src/ops/pair.h"
#include "tensor/creation.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

constexpr std::string_view kWhere = "interpolate";

// ---- Type rule. Attributes: size (height and width), mode, align_corners, antialias.

TensorType infer_interpolate(std::span<const TensorType> in, const Attrs& attrs) {
  const Shape& x = in[0].shape;
  check_images(x, kWhere);
  const Pair size = pair_of(attrs, "size", 1, kWhere);
  if (x[2] == 0 || x[3] == 0)
    fail(kWhere, "got an input of the shape ", x, ", need at least 1 x 1");
  const bool corners = attrs.flag("align_corners"), antialias = attrs.flag("antialias");
  const std::string mode = attrs.text("mode");
  if (mode != "nearest" && mode != "bilinear" && mode != "bicubic")
    fail(kWhere, "got the mode \"", mode, "\", need nearest, bilinear or bicubic");
  if (mode == "nearest") {
    if (corners || antialias)
      fail(kWhere, "the mode nearest has no ", corners ? "align_corners" : "antialias",
           ": use bilinear or bicubic");
  } else if (corners && antialias) {
    fail(kWhere, "align_corners and antialias exclude each other");
  } else if (!is_floating(in[0].dtype)) {
    fail(kWhere, "got a tensor of ", in[0].dtype, ", need a floating type for the mode ", mode,
         ": convert it with astype(f32), or use nearest");
  }
  return {{x[0], x[1], size.h, size.w}, in[0].dtype};
}

// ---- Nearest.

// PyTorch's "nearest" of float images, rounding of the float product included.
std::vector<std::int64_t> nearest_places(std::int64_t from, std::int64_t to) {
  const float scale = static_cast<float>(from) / static_cast<float>(to);
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < to; ++i) {
    const auto place = static_cast<std::int64_t>(std::floor(static_cast<float>(i) * scale));
    places.push_back(from == to ? i : to == 2 * from ? i / 2 : std::min(place, from - 1));
  }
  return places;
}

// Calls body(offset in x, offset in out) for the first element of every image.
template <class Body>
void for_each_image(const ConstView& x, const View& out, const Body& body) {
  const auto images = [](const Dims& dims) { return Dims{dims[0], dims[1]}; };
  for_each_index(images(x.shape), body, images(x.strides), images(out.strides));
}

void resize_nearest(const ConstView& x, const View& out) {
  const auto rows = nearest_places(x.shape[2], out.shape[2]);
  const auto columns = nearest_places(x.shape[3], out.shape[3]);
  const auto resize = [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    for_each_image(x, out, [&](std::int64_t from, std::int64_t to) {
      for (std::size_t oy = 0; oy < rows.size(); ++oy) {
        const T* in_row = x.as<T>() + from + rows[oy] * x.strides[2];
        T* out_row = out.as<T>() + to + static_cast<std::int64_t>(oy) * out.strides[2];
        for (std::size_t ox = 0; ox < columns.size(); ++ox)
          out_row[static_cast<std::int64_t>(ox) * out.strides[3]] =
              in_row[columns[ox] * x.strides[3]];
      }
    });
  };
  dispatch(x.dtype, resize);
}

// ---- Weighted sums.

// Keys' cubic convolution kernel at a distance (IEEE Trans. ASSP 29(6), 1981).
double cubic(double distance, double a) {
  const double x = std::fabs(distance);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((x - 5) * x + 8) * x * a - 4 * a;
  return 0;
}

double triangle(double distance) { return std::max(1 - std::fabs(distance), 0.0); }

struct Method {
  bool is_cubic, align_corners, antialias;
};

// Pillow's filters: the kernel is widened by the scale when shrinking, cut off at the edges and
// normalised.
Taps antialiased_taps(double centre, double scale, std::int64_t from, bool is_cubic) {
  const double wide = std::max(scale, 1.0), support = (is_cubic ? 2 : 1) * wide;
  const auto first = std::max<std::int64_t>(static_cast<std::int64_t>(centre - support + 0.5), 0);
  const auto last = std::min(static_cast<std::int64_t>(centre + support + 0.5), from);
  Taps taps;
  double total = 0;
  for (std::int64_t place = first; place < last; ++place) {
    const double distance = (static_cast<double>(place) - centre + 0.5) / wide;
    taps.push_back({place, is_cubic ? cubic(distance, -0.5) : triangle(distance)});
    total += taps.back().weight;
  }
  for (Tap& tap : taps) tap.weight /= total;
  return taps;
}

// Two or four neighbours of a place between elements, those beyond the edge replaced by the edge.
Taps neighbour_taps(double place, std::int64_t from, bool is_cubic) {
  const double below = std::min(std::floor(place), static_cast<double>(from - 1));
  const double rest = place - below;
  Taps taps;
  for (int i = is_cubic ? -1 : 0; i <= (is_cubic ? 2 : 1); ++i) {
    const std::int64_t at = static_cast<std::int64_t>(below) + i;
    taps.push_back({std::clamp<std::int64_t>(at, 0, from - 1),
                    is_cubic ? cubic(rest - i, -0.75) : triangle(rest - i)});
  }
  return taps;
}

// The taps of every place of the output along an axis.
std::vector<Taps> axis_taps(std::int64_t from, std::int64_t to, const Method& method) {
  const bool corners = method.align_corners;
  const double scale =
      corners ? (to > 1 ? static_cast<double>(from - 1) / static_cast<double>(to - 1) : 0)
              : static_cast<double>(from) / static_cast<double>(to);
  std::vector<Taps> result;
  for (std::int64_t i = 0; i < to; ++i) {
    const auto place = static_cast<double>(i);
    if (from == to)
      result.push_back({{i, 1}});
    else if (method.antialias)
      result.push_back(antialiased_taps(scale * (place + 0.5), scale, from, method.is_cubic));
    else if (corners)
      result.push_back(neighbour_taps(scale * place, from, method.is_cubic));
    else if (method.is_cubic)
      result.push_back(neighbour_taps(scale * (place + 0.5) - 0.5, from, true));
    else
      result.push_back(neighbour_taps(std::max(scale * (place + 0.5) - 0.5, 0.0), from, false));
  }
  return result;
}

// One image: along x into `middle` [input rows, output columns], then along y.
template <class T>
void resize_image(const T* in, const Strides& in_strides, const std::vector<Taps>& rows,
                  const std::vector<Taps>& columns, std::span<double> middle, T* out,
                  const Strides& out_strides) {
  const std::size_t width = columns.size(), in_rows = middle.size() / width;
  for (std::size_t y = 0; y < in_rows; ++y) {
    const T* row = in + static_cast<std::int64_t>(y) * in_strides[0];
    for (std::size_t x = 0; x < width; ++x) {
      double sum = 0;
      for (const Tap& tap : columns[x])
        sum += tap.weight *
               static_cast<double>(static_cast<Compute<T>>(row[tap.place * in_strides[1]]));
      middle[y * width + x] = sum;
    }
  }
  std::vector<double> sums(width);
  for (std::size_t y = 0; y < rows.size(); ++y) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (const Tap& tap : rows[y]) {
      const double* row = middle.data() + static_cast<std::size_t>(tap.place) * width;
      for (std::size_t x = 0; x < width; ++x) sums[x] += tap.weight * row[x];
    }
    T* out_row = out + static_cast<std::int64_t>(y) * out_strides[0];
    for (std::size_t x = 0; x < width; ++x)
      out_row[static_cast<std::int64_t>(x) * out_strides[1]] = convert<T>(sums[x]);
  }
}

void resize_weighted(const ConstView& x, const View& out, const Attrs& attrs) {
  const auto rows = interpolation_taps(x.shape[2], out.shape[2], attrs);
  const auto columns = interpolation_taps(x.shape[3], out.shape[3], attrs);
  Tensor middle = empty({x.shape[2], out.shape[3]}, f64);
  const auto image_strides = [](const auto& view) {
    return Strides{view.strides[2], view.strides[3]};
  };
  dispatch_floating(x.dtype, kWhere, [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    for_each_image(x, out, [&](std::int64_t from, std::int64_t to) {
      resize_image(x.as<T>() + from, image_strides(x), rows, columns, middle.mutable_span<double>(),
                   out.as<T>() + to, image_strides(out));
    });
  });
}

void eval_interpolate(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  if (num_elements(out.shape) == 0) return;
  if (in[0].shape == out.shape) return convert_elements(in[0], out);
  if (attrs.text("mode") == "nearest") return resize_nearest(in[0], out);
  resize_weighted(in[0], out, attrs);
}

constexpr OpInfo kResizeRows[] = {
    {Op::interpolate, "interpolate", 1, 1, Pattern::injective, infer_interpolate, eval_interpolate},
};

std::string_view name_of(Interpolation mode) {
  constexpr std::string_view kNames[] = {"nearest", "bilinear", "bicubic"};
  return kNames[static_cast<std::size_t>(mode)];
}

}  // namespace

std::span<const OpInfo> resize_ops() { return kResizeRows; }

std::vector<Taps> interpolation_taps(std::int64_t from, std::int64_t to, const Attrs& attrs) {
  const std::string mode = attrs.text("mode");
  if (mode != "nearest")
    return axis_taps(from, to,
                     {mode == "bicubic", attrs.flag("align_corners"), attrs.flag("antialias")});
  std::vector<Taps> result;
  for (const std::int64_t place : nearest_places(from, to)) result.push_back({{place, 1}});
  return result;
}

Tensor interpolate(const Tensor& x, Pair size, const InterpolateOptions& options) {
  return apply_op(Op::interpolate, {x},
                  {{"size", pair_value(size)},
                   {"mode", std::string(name_of(options.mode))},
                   {"align_corners", options.align_corners},
                   {"antialias", options.antialias}});
}

}  // namespace tensor
