// References of convolutions, pools and interpolation, on [N, C, H, W].
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/generated/reference.h"

namespace tensor::generated {
namespace {

struct HeightWidth {
  std::int64_t h, w;
};

HeightWidth height_width(const Attrs& attrs, std::string_view name, std::int64_t fallback) {
  const Ints values = attrs.ints(name, {fallback});
  return {values.front(), values.back()};
}

bool all_whole(const Arrays& in) {
  return std::all_of(in.begin(), in.end(), [](const Array& x) {
    return std::all_of(x.values.begin(), x.values.end(),
                       [](Exact v) { return v == std::trunc(v); });
  });
}

// The sums of products of a convolution, with what bounds their error.
struct Sums {
  Expected result;
  std::vector<Exact> magnitudes, terms;
  Sums(const Shape& shape, DType dtype)
      : result(shape, dtype), magnitudes(result.size()), terms(result.size()) {}
  void add(std::size_t at, Exact product) {
    result.values[at] += product;
    magnitudes[at] += std::fabs(product);
    terms[at] += 1;
  }
};

Results finish(Sums sums, const Arrays& in) {
  Expected& result = sums.result;
  if (in.size() > 2)
    for (std::size_t i = 0; i < result.size(); ++i)
      sums.add(i, in[2].at({unravel(i, result.shape)[1]}));
  if (all_whole(in)) return {result};
  const Exact u = unit_roundoff(compute_type(result.dtype));
  for (std::size_t i = 0; i < result.size(); ++i)
    result.slack.push_back((sums.terms[i] + 1) * u * sums.magnitudes[i] +
                           ulp(result.dtype, result.values[i]));
  return {result};
}

Results conv2d(const Arrays& in, const Attrs& attrs) {
  const Array &x = in[0], &w = in[1];
  const HeightWidth stride = height_width(attrs, "stride", 1),
                    padding = height_width(attrs, "padding", 0),
                    dilation = height_width(attrs, "dilation", 1);
  const std::int64_t groups = attrs.integer("groups", 1);
  const std::int64_t height =
      (x.shape[2] + 2 * padding.h - dilation.h * (w.shape[2] - 1) - 1) / stride.h + 1;
  const std::int64_t width =
      (x.shape[3] + 2 * padding.w - dilation.w * (w.shape[3] - 1) - 1) / stride.w + 1;
  Sums sums({x.shape[0], w.shape[0], height, width}, x.dtype);
  for (std::size_t i = 0; i < sums.result.size(); ++i) {
    const Index out = unravel(i, sums.result.shape);
    const std::int64_t first =
        out[1] / (w.shape[0] / groups) * w.shape[1];  // input channel of the group
    for (std::int64_t c = 0; c < w.shape[1]; ++c)
      for (std::int64_t a = 0; a < w.shape[2]; ++a)
        for (std::int64_t b = 0; b < w.shape[3]; ++b) {
          const std::int64_t y = out[2] * stride.h - padding.h + a * dilation.h,
                             z = out[3] * stride.w - padding.w + b * dilation.w;
          if (y < 0 || z < 0 || y >= x.shape[2] || z >= x.shape[3]) continue;
          sums.add(i, x.at({out[0], first + c, y, z}) * w.at({out[1], c, a, b}));
        }
  }
  return finish(std::move(sums), in);
}

Results conv_transpose2d(const Arrays& in, const Attrs& attrs) {
  const Array &x = in[0], &w = in[1];
  const HeightWidth stride = height_width(attrs, "stride", 1),
                    padding = height_width(attrs, "padding", 0),
                    dilation = height_width(attrs, "dilation", 1);
  const HeightWidth more = height_width(attrs, "output_padding", 0);
  const std::int64_t groups = attrs.integer("groups", 1), per_group = x.shape[1] / groups;
  const Shape shape{
      x.shape[0], w.shape[1] * groups,
      (x.shape[2] - 1) * stride.h - 2 * padding.h + dilation.h * (w.shape[2] - 1) + more.h + 1,
      (x.shape[3] - 1) * stride.w - 2 * padding.w + dilation.w * (w.shape[3] - 1) + more.w + 1};
  Sums sums(shape, x.dtype);
  for (std::size_t i = 0; i < x.size(); ++i) {  // every input element is spread over the output
    const Index at = unravel(i, x.shape);
    for (std::int64_t c = 0; c < w.shape[1]; ++c)
      for (std::int64_t a = 0; a < w.shape[2]; ++a)
        for (std::int64_t b = 0; b < w.shape[3]; ++b) {
          const std::int64_t y = at[2] * stride.h - padding.h + a * dilation.h,
                             z = at[3] * stride.w - padding.w + b * dilation.w;
          if (y < 0 || z < 0 || y >= shape[2] || z >= shape[3]) continue;
          sums.add(ravel({at[0], at[1] / per_group * w.shape[1] + c, y, z}, shape),
                   x.values[i] * w.at({at[1], c, a, b}));
        }
  }
  return finish(std::move(sums), in);
}

// Whole windows; with ceil_mode one more for what is behind them, if it begins on the image.
std::int64_t pool_extent(std::int64_t extent, std::int64_t kernel, std::int64_t stride,
                         std::int64_t padding, bool ceil_mode) {
  const std::int64_t end = extent + padding;
  std::int64_t count = 0, begin = -padding;
  for (; begin + kernel <= end; begin += stride) ++count;
  const bool is_covered = count > 0 && begin - stride + kernel == end;
  return count + (ceil_mode && !is_covered && begin < extent);
}

Results pool(const Arrays& in, const Attrs& attrs, bool average) {
  const Array& x = in[0];
  const HeightWidth kernel = height_width(attrs, "kernel_size", 0),
                    padding = height_width(attrs, "padding", 0);
  const HeightWidth stride = attrs.has("stride") ? height_width(attrs, "stride", 0) : kernel;
  const bool ceil_mode = attrs.flag("ceil_mode", false),
             counts_all = attrs.flag("count_include_pad", true);
  const Shape shape{x.shape[0], x.shape[1],
                    pool_extent(x.shape[2], kernel.h, stride.h, padding.h, ceil_mode),
                    pool_extent(x.shape[3], kernel.w, stride.w, padding.w, ceil_mode)};
  const Exact u = unit_roundoff(compute_type(x.dtype));
  Expected result(shape, x.dtype);
  for (std::size_t i = 0; i < result.size(); ++i) {
    const Index out = unravel(i, shape);
    Exact top = -std::numeric_limits<Exact>::infinity(), sum = 0, magnitudes = 0, count = 0;
    for (std::int64_t a = 0; a < kernel.h; ++a)
      for (std::int64_t b = 0; b < kernel.w; ++b) {
        const std::int64_t y = out[2] * stride.h - padding.h + a,
                           z = out[3] * stride.w - padding.w + b;
        const bool inside = y >= 0 && z >= 0 && y < x.shape[2] && z < x.shape[3];
        count += inside || (counts_all && y < x.shape[2] + padding.h && z < x.shape[3] + padding.w);
        if (!inside) continue;
        const Exact value = x.at({out[0], out[1], y, z});
        if (std::isnan(value) || value > top) top = value;  // a NaN stays: nothing is greater
        sum += value;
        magnitudes += std::fabs(value);
      }
    result.values[i] = average ? sum / count : top;
    if (!average) continue;
    Exact slack = (count + 1) * u * magnitudes / count + ulp(x.dtype, result.values[i]);
    // A double sum of finite numbers may pass the largest one on the way.
    if (magnitudes > std::numeric_limits<double>::max())
      slack *= std::numeric_limits<Exact>::infinity();
    result.slack.push_back(std::isfinite(magnitudes) ? slack : 0);
  }
  return {result};
}

// ---- Interpolation: the weights of the source positions that make up one output position.

using Weights = std::vector<std::pair<std::int64_t, Exact>>;

Exact triangle(Exact x) { return std::max<Exact>(0, 1 - std::fabs(x)); }

// Keys' cubic convolution; a = -0.75 in PyTorch, -0.5 in Pillow (and in PyTorch's antialiased
// form).
Exact cubic(Exact x, Exact a) {
  x = std::fabs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

Weights weights(std::int64_t position, std::int64_t from, std::int64_t to, const Attrs& attrs) {
  const std::string mode = attrs.text("mode", "nearest");
  if (mode == "nearest") return {{position * from / to, 1}};
  const bool is_cubic = mode == "bicubic", corners = attrs.flag("align_corners", false);
  const Exact scale =
      corners ? (to > 1 ? Exact(from - 1) / Exact(to - 1) : 0) : Exact(from) / Exact(to);
  Weights result;
  if (attrs.flag("antialias", false)) {
    const Exact wide = std::max<Exact>(1, scale), support = (is_cubic ? 2 : 1) * wide,
                centre = scale * (Exact(position) + 0.5L);
    const auto begin =
        static_cast<std::int64_t>(std::max<Exact>(0, std::floor(centre - support + 0.5L)));
    const auto end = static_cast<std::int64_t>(
        std::min<Exact>(Exact(from), std::floor(centre + support + 0.5L)));
    Exact sum = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const Exact x = (Exact(i) - centre + 0.5L) / wide;
      result.push_back({i, is_cubic ? cubic(x, -0.5L) : triangle(x)});
      sum += result.back().second;
    }
    for (auto& [i, weight] : result) weight /= sum;
    return result;
  }
  Exact source = corners ? scale * Exact(position) : scale * (Exact(position) + 0.5L) - 0.5L;
  if (!is_cubic) source = std::max<Exact>(0, source);
  const auto base = static_cast<std::int64_t>(std::floor(source));
  for (std::int64_t i = base - (is_cubic ? 1 : 0); i <= base + (is_cubic ? 2 : 1); ++i) {
    const Exact x = source - Exact(i);
    result.push_back(
        {std::clamp<std::int64_t>(i, 0, from - 1), is_cubic ? cubic(x, -0.75L) : triangle(x)});
  }
  return result;
}

Results interpolate(const Arrays& in, const Attrs& attrs) {
  const Array& x = in[0];
  const HeightWidth size = height_width(attrs, "size", 0);
  const Exact u = unit_roundoff(compute_type(x.dtype));
  Expected result({x.shape[0], x.shape[1], size.h, size.w}, x.dtype);
  for (std::size_t i = 0; i < result.size(); ++i) {
    const Index out = unravel(i, result.shape);
    Exact sum = 0, largest = 0;
    for (const auto& [y, wy] : weights(out[2], x.shape[2], size.h, attrs))
      for (const auto& [z, wz] : weights(out[3], x.shape[3], size.w, attrs)) {
        const Exact value = x.at({out[0], out[1], y, z});
        sum += wy * wz * value;
        largest = std::max(largest, std::fabs(value));
      }
    result.values[i] = sum;
    // A source coordinate of up to `extent` errs by 3 u of itself, which a weight of slope below 2
    // passes on for each of at most 4 scale + 4 taps of an axis; then as many products and sums.
    const auto extent = static_cast<Exact>(x.shape[2] + x.shape[3]);
    if (attrs.text("mode", "nearest") != "nearest")
      result.slack.push_back(u * largest * 16 * (extent + 8) + ulp(x.dtype, sum));
  }
  return {result};
}

// ---- Cells of boxes.

struct Sample {
  Exact at, weight;
};

// Those of a cell along an axis that meet the image, and whether rounding may move one across its
// edge, or change how many there are.
std::pair<std::vector<Sample>, bool> samples(Exact low, Exact high, std::int64_t cells,
                                             std::int64_t cell, std::int64_t extent,
                                             const Attrs& attrs, Exact u) {
  Exact length = high - low;
  if (!attrs.flag("aligned", false)) length = std::max<Exact>(length, 1);
  length /= static_cast<Exact>(cells);
  const std::int64_t ratio = attrs.integer("sampling_ratio", -1);
  const Exact count = ratio > 0 ? static_cast<Exact>(ratio) : std::max<Exact>(std::ceil(length), 0);
  const Exact error = 16 * u * (std::fabs(low) + std::fabs(high) + 1);
  std::pair<std::vector<Sample>, bool> result;
  result.second = ratio <= 0 && std::fabs(length - std::round(length)) < error;
  for (Exact i = 0; i < count; ++i) {
    const Exact at = low + length * (static_cast<Exact>(cell) + (i + 0.5L) / count),
                end = static_cast<Exact>(extent);
    result.second |= std::fabs(at + 1) < error || std::fabs(at - end) < error;
    if (at >= -1 && at <= end)
      result.first.push_back({std::clamp<Exact>(at, 0, end - 1), 1 / count});
  }
  return result;
}

Results roi_align(const Arrays& in, const Attrs& attrs) {
  const Array &x = in[0], &boxes = in[1];
  const HeightWidth size = height_width(attrs, "output_size", 1);
  const Exact u = unit_roundoff(compute_type(x.dtype)), scale = attrs.number("spatial_scale", 1),
              offset = attrs.flag("aligned", false) ? 0.5 : 0;
  Exact largest = 0;
  for (const Exact value : x.values) largest = std::max(largest, std::fabs(value));
  Expected result({boxes.shape[0], x.shape[1], size.h, size.w}, x.dtype);
  for (std::size_t i = 0; i < result.size(); ++i) {
    const Index out = unravel(i, result.shape);
    const auto place = [&](std::int64_t k) { return boxes.at({out[0], k}) * scale - offset; };
    const auto image = static_cast<std::int64_t>(
        std::clamp<Exact>(boxes.at({out[0], 0}), 0, static_cast<Exact>(x.shape[0] - 1)));
    const auto [rows, row_moves] =
        samples(place(2), place(4), size.h, out[2], x.shape[2], attrs, u);
    const auto [columns, column_moves] =
        samples(place(1), place(3), size.w, out[3], x.shape[3], attrs, u);
    Exact sum = 0;
    for (const Sample& y : rows)
      for (const Sample& z : columns)
        for (std::int64_t a = 0; a < 2; ++a)
          for (std::int64_t b = 0; b < 2; ++b) {
            const auto at = [](Exact place, std::int64_t step, std::int64_t extent) {
              return std::min(static_cast<std::int64_t>(place) + step, extent - 1);
            };
            const Exact down = y.at - std::floor(y.at), right = z.at - std::floor(z.at);
            sum += (a ? down : 1 - down) * (b ? right : 1 - right) * y.weight * z.weight *
                   x.at({image, out[1], at(y.at, a, x.shape[2]), at(z.at, b, x.shape[3])});
          }
    result.values[i] = sum;
    // Places of up to 32 pixels err by 8 u of themselves, which pixels pass on with a slope of
    // twice the largest; then a sum of weights that are 1 together.
    const auto terms = static_cast<Exact>(4 * (rows.size() * columns.size() + 1));
    result.slack.push_back(row_moves || column_moves
                               ? 2 * largest
                               : u * largest * (2 * 2 * 8 * 32 + terms) + ulp(x.dtype, sum));
  }
  return {result};
}

}  // namespace

void add_image_references(References& table) {
  table["conv2d"] = conv2d;
  table["conv_transpose2d"] = conv_transpose2d;
  table["max_pool2d"] = [](const Arrays& in, const Attrs& attrs) { return pool(in, attrs, false); };
  table["avg_pool2d"] = [](const Arrays& in, const Attrs& attrs) { return pool(in, attrs, true); };
  table["interpolate"] = interpolate;
  table["roi_align"] = roi_align;
}

}  // namespace tensor::generated
