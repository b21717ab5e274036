// Pools of any number of spatial axes: those of two by the library's own, the others axis
// by axis.
#include <algorithm>

#include "src/onnx/window.h"

namespace tensor::onnx {
namespace {

Window pool_window(const Call& c) {
  return window_of(c, c[0].shape(), c.attribute("kernel_shape").integers);
}

// The padded image, with what lies beyond it, too.
Tensor surrounded(const Tensor& x, const Window& w, const Tensor& value) {
  Ints end = w.end;
  for (std::size_t i = 0; i < end.size(); ++i) end[i] += w.beyond[i];
  return padded(x, w.begin, end, value);
}

// The library's pool of an image of one or two axes.
constexpr auto kPoolMax = [](const Tensor& x, Pair kernel, Pair stride, Pair padding) {
  return max_pool2d(x, kernel, stride, padding);
};
constexpr auto kPoolAverage = [](const Tensor& x, Pair kernel, Pair stride, Pair padding) {
  return avg_pool2d(x, kernel, stride, padding);
};

template <class Pool>
Tensor pool2d(const Pool& pool, const Tensor& x, const Window& w, const Ints& padding) {
  const bool is_row = w.rank() == 1;
  const Tensor y = pool(is_row ? as_image(x) : x, last_two(w.kernel, 1), last_two(w.stride, 1),
                        last_two(padding, 0));
  return is_row ? squeeze(y, 2) : y;
}

Tensor lowest(DType dtype) { return limits_of(dtype).first; }

// Positions in the flattened image, as large as the image, row by row or column by column.
Tensor flat_positions(const Shape& shape, bool by_columns) {
  Shape sizes;
  for (int i = 2; i < shape.rank(); ++i) sizes.push_back(shape[i]);
  Shape all{shape[0] * shape[1]}, spatial_sizes = sizes;
  if (by_columns) std::reverse(spatial_sizes.begin(), spatial_sizes.end());
  for (const std::int64_t extent : spatial_sizes) all.push_back(extent);
  Tensor at = arange(num_elements(shape)).reshape(all);
  if (by_columns) {
    Dims axes{0};
    for (int i = all.rank() - 1; i > 0; --i) axes.push_back(i);
    at = at.transpose(axes);
  }
  return at.reshape(shape);
}

// The elements of a padded image under place k of the kernel, along one axis of the kernel.
Tensor under(const Tensor& image, const Window& w, std::size_t axis, std::int64_t k) {
  return sliced(image, static_cast<int>(axis) + 2, k * w.dilation[axis], w.out[axis],
                w.stride[axis]);
}

// Axis by axis, from the last on, with where each maximum is: the first of several.
Results max_by_axes(const Call& c, const Window& w) {
  const Tensor& x = c[0];
  Tensor best = surrounded(x, w, lowest(x.dtype())), at;
  if (c.gives(1))
    at = surrounded(flat_positions(x.shape(), c.integer("storage_order", 0) != 0).to(x.device()), w,
                    0);
  for (std::size_t axis = w.rank(); axis-- > 0;) {
    const Tensor image = best, places = at;
    best = under(image, w, axis, 0);
    if (places.defined()) at = under(places, w, axis, 0);
    for (std::int64_t k = 1; k < w.kernel[axis]; ++k) {
      const Tensor part = under(image, w, axis, k);
      if (places.defined()) at = where(part > best, under(places, w, axis, k), at);
      best = maximum(best, part);
    }
  }
  return {best, at};
}

Results max_pool(const Call& c) {
  const Window w = pool_window(c);
  if (w.rank() > 2 || w.is_dilated() || c.gives(1)) return max_by_axes(c, w);
  bool is_small = w.is_even();
  for (std::size_t i = 0; i < w.rank(); ++i) is_small &= 2 * w.begin[i] <= w.kernel[i];
  if (is_small) return {pool2d(kPoolMax, c[0], w, w.begin)};
  return {pool2d(kPoolMax, surrounded(c[0], w, lowest(c[0].dtype())), w, Ints(w.rank()))};
}

// How many elements each position averages over, [1, 1, out...]: those of the image and, if they
// count, its padding, but nothing beyond.
Tensor counts_of(const Shape& x, const Window& w, bool counts_padding) {
  Tensor all = full({}, 1, f64);
  for (std::size_t i = 0; i < w.rank(); ++i) {
    const std::int64_t extent = x[static_cast<int>(i) + 2];
    const std::int64_t first = counts_padding ? -w.begin[i] : 0;
    const std::int64_t last = extent + (counts_padding ? w.end[i] : 0);
    std::vector<double> counts;
    for (std::int64_t p = 0; p < w.out[i]; ++p) {
      double count = 0;
      for (std::int64_t k = 0; k < w.kernel[i]; ++k) {
        const std::int64_t at = p * w.stride[i] - w.begin[i] + k * w.dilation[i];
        if (at >= first && at < last) ++count;
      }
      counts.push_back(std::max(count, 1.0));
    }
    all = all.expand_dims(-1) * array(counts);
  }
  return all.expand_dims(0).expand_dims(0);
}

double kernel_size(const Window& w) {
  double size = 1;
  for (const std::int64_t extent : w.kernel) size *= static_cast<double>(extent);
  return size;
}

// The sum of every window over the kernel's size; what pads the image is 0.
Tensor average_over_all(const Tensor& x, const Window& w) {
  if (w.rank() <= 2 && !w.is_dilated()) {
    bool is_small = w.is_even();
    for (std::size_t i = 0; i < w.rank(); ++i) is_small &= 2 * w.begin[i] <= w.kernel[i];
    if (is_small) return pool2d(kPoolAverage, x, w, w.begin);
    return pool2d(kPoolAverage, surrounded(x, w, 0), w, Ints(w.rank()));
  }
  Tensor total = surrounded(x, w, 0);
  for (std::size_t axis = 0; axis < w.rank(); ++axis) {
    const Tensor image = total;
    total = under(image, w, axis, 0);
    for (std::int64_t k = 1; k < w.kernel[axis]; ++k) total = total + under(image, w, axis, k);
  }
  return total / kernel_size(w);
}

Results average_pool(const Call& c) {
  const Window w = pool_window(c);
  const Tensor factor =
      kernel_size(w) / counts_of(c[0].shape(), w, c.integer("count_include_pad", 0) != 0);
  const Tensor average = average_over_all(c[0], w);
  if (all(factor == 1.0).item<bool>()) return {average};
  return {average * factor.to(c[0].dtype()).to(c[0].device())};
}

Results lp_pool(const Call& c) {
  const Window w = pool_window(c);
  const double p = static_cast<double>(c.integer("p", 2));
  const Tensor powers = p == 2 ? square(c[0]) : power(abs(c[0]), p);
  const Tensor sums = average_over_all(powers, w) * kernel_size(w);
  return {p == 2 ? sqrt(sums) : power(sums, 1 / p)};
}

Axes spatial_axes(const Tensor& x) {
  Dims axes;
  for (int i = 2; i < x.rank(); ++i) axes.push_back(i);
  return axes;
}

Results global_average(const Call& c) { return {mean(c[0], spatial_axes(c[0]), true)}; }
Results global_max(const Call& c) { return {max(c[0], spatial_axes(c[0]), true)}; }
Results global_lp(const Call& c) {
  const double p = static_cast<double>(c.integer("p", 2));
  return {power(sum(power(abs(c[0]), p), spatial_axes(c[0]), true), 1 / p)};
}

constexpr std::string_view kMax =
    "auto_pad:s kernel_shape:I pads:I strides:I ceil_mode:i dilations:I storage_order:i";
constexpr std::string_view kAverage =
    "auto_pad:s kernel_shape:I pads:I strides:I ceil_mode:i dilations:I count_include_pad:i";
constexpr std::string_view kLp =
    "auto_pad:s kernel_shape:I pads:I strides:I ceil_mode:i dilations:I p:i";

constexpr Operator kPoolRows[] = {
    {"MaxPool", 1, 1, 1, 2, kMax, max_pool, refuse_auto_pad},
    {"AveragePool", 1, 1, 1, 1, kAverage, average_pool, refuse_auto_pad},
    {"LpPool", 2, 1, 1, 1, kLp, lp_pool, refuse_auto_pad},
    {"GlobalAveragePool", 1, 1, 1, 1, "", global_average},
    {"GlobalMaxPool", 1, 1, 1, 1, "", global_max},
    {"GlobalLpPool", 2, 1, 1, 1, "p:i", global_lp},
};

}  // namespace

std::span<const Operator> pool_operators() { return kPoolRows; }

}  // namespace tensor::onnx
