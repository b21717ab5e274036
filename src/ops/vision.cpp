// Compositions that models of images need beside convolutions: activations with a weight, norms,
// adaptive pools, pixels to channels and back, windows as columns.
#include <algorithm>

#include "src/ops/pair.h"
#include "src/ops/promote.h"
#include "tensor/creation.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

// The windows of an adaptive pool along one axis: their places, in rows as long as the longest
// window, where the last place of shorter ones is repeated; and how long each is.
struct Windows {
  std::vector<std::int64_t> places, lengths;
  std::int64_t longest = 0;
};

Windows adaptive_windows(std::int64_t extent, std::int64_t count) {
  Windows windows;
  const auto begin = [&](std::int64_t i) { return i * extent / count; };
  const auto end = [&](std::int64_t i) { return ((i + 1) * extent + count - 1) / count; };
  for (std::int64_t i = 0; i < count; ++i) {
    windows.lengths.push_back(end(i) - begin(i));
    windows.longest = std::max(windows.longest, windows.lengths.back());
  }
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t k = 0; k < windows.longest; ++k)
      windows.places.push_back(std::min(begin(i) + k, end(i) - 1));
  return windows;
}

// The elements of every window as axis + 1.
Tensor in_windows(const Tensor& x, const Windows& windows, int axis) {
  const auto count = static_cast<std::int64_t>(windows.lengths.size());
  return take(x, array(windows.places, {count, windows.longest}).to(x.device()), axis);
}

Tensor sum_of_windows(const Tensor& x, const Windows& windows, int axis) {
  std::vector<std::uint8_t> own;  // whether a place is no repetition
  for (const std::int64_t length : windows.lengths)
    for (std::int64_t k = 0; k < windows.longest; ++k) own.push_back(k < length);
  Shape shape{static_cast<std::int64_t>(windows.lengths.size()), windows.longest};
  for (int i = axis + 1; i < x.rank(); ++i) shape.push_back(1);
  const Tensor is_own = (array(own, shape) != 0).to(x.device());
  return sum(where(is_own, in_windows(x, windows, axis), zeros({}, x.dtype()).to(x.device())),
             axis + 1);
}

void check_adaptive(const Tensor& x, Pair size, std::string_view where) {
  check_images(x.shape(), where);
  if (x.shape(2) < 1 || x.shape(3) < 1 || size.h < 1 || size.w < 1 || size.h > kLargestExtent ||
      size.w > kLargestExtent)
    fail(where, "got an input of the shape ", x.shape(), " and the size ", size.h, " x ", size.w,
         ", need at least 1 x 1 of both");
}

bool divides(const Tensor& x, Pair size) {
  return x.shape(2) % size.h == 0 && x.shape(3) % size.w == 0;
}

void check_factor(std::int64_t factor, const Tensor& x, std::string_view where) {
  if (x.rank() < 3)
    fail(where, "got the shape ", x.shape(), ", need (..., channels, height, width)");
  if (factor < 1 || factor > 65535) fail(where, "got the factor ", factor, ", need at least 1");
}

// The places of every window's k-th element: [kernel, windows].
Tensor window_places(std::int64_t padded, std::int64_t kernel, std::int64_t dilation,
                     std::int64_t stride) {
  const std::int64_t windows = (padded - dilation * (kernel - 1) - 1) / stride + 1;
  return arange(kernel).expand_dims(1) * dilation + arange(windows) * stride;
}

}  // namespace

Tensor prelu(const Tensor& x, const Tensor& weight) {
  const Tensor both[] = {x, weight};
  const DType dtype = floating_result_type(both, "prelu");
  if (weight.rank() > 1 || (weight.size() != 1 && (x.rank() < 2 || weight.size() != x.shape(1))))
    fail("prelu", "got a weight of the shape ", weight.shape(), " for the shape ", x.shape(),
         ", need one number or one a channel (axis 1)");
  Shape shape = Dims::filled(std::max(x.rank() - 1, 1), 1);
  shape[0] = weight.size();
  const Tensor slope = weight.size() == 1 ? reshape(weight, {}) : reshape(weight, shape);
  const Tensor wide = cast(x, wide_type(dtype));
  return cast(where(wide > 0, wide, cast(slope, wide_type(dtype)) * wide), dtype);
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, const std::optional<double>& eps) {
  std::vector<Tensor> inputs{x};
  if (weight.defined()) inputs.push_back(weight);
  const DType dtype = floating_result_type(inputs, "rms_norm");
  if (x.rank() == 0) fail("rms_norm", "got a 0-d tensor, need (..., features)");
  if (weight.defined() && !(weight.shape() == Shape{x.shape(-1)}))
    fail("rms_norm", "got a weight of the shape ", weight.shape(), " for ", x.shape(-1),
         " features, need ", Shape{x.shape(-1)});
  const Tensor wide = cast(x, wide_type(dtype));
  const Tensor scale = rsqrt(mean(square(wide), -1, true) + eps.value_or(epsilon_of(x.dtype())));
  const Tensor result = wide * scale;
  return cast(weight.defined() ? result * cast(weight, wide_type(dtype)) : result, dtype);
}

Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  if (x.rank() < 3)
    fail("instance_norm", "got the shape ", x.shape(), ", need (batch, channels, ...)");
  return group_norm(x, x.shape(1), weight, bias, eps);
}

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv1dOptions& options) {
  if (x.rank() != 3 || weight.rank() != 3)
    fail("conv1d", "got the shape ", x.shape(), " and a weight of the shape ", weight.shape(),
         ", need (batch, channels, length) and (outputs, channels / groups, kernel)");
  return squeeze(conv2d(expand_dims(x, 2), expand_dims(weight, 2), bias,
                        {.stride = {1, options.stride},
                         .padding = {0, options.padding},
                         .dilation = {1, options.dilation},
                         .groups = options.groups}),
                 2);
}

Tensor adaptive_avg_pool2d(const Tensor& x, Pair size) {
  check_adaptive(x, size, "adaptive_avg_pool2d");
  const Tensor inputs[] = {x};
  const DType dtype = floating_result_type(inputs, "adaptive_avg_pool2d");
  if (size.h == 1 && size.w == 1) return mean(x, {2, 3}, true);
  if (divides(x, size)) return avg_pool2d(x, {x.shape(2) / size.h, x.shape(3) / size.w});
  const Windows rows = adaptive_windows(x.shape(2), size.h),
                columns = adaptive_windows(x.shape(3), size.w);
  const Tensor wide = cast(x, wide_type(dtype));
  const Tensor sums = sum_of_windows(sum_of_windows(wide, columns, 3), rows, 2);
  const Tensor counts = array(rows.lengths).expand_dims(1) * array(columns.lengths);
  return cast(sums / counts.astype(wide.dtype()).to(x.device()), dtype);
}

Tensor adaptive_max_pool2d(const Tensor& x, Pair size) {
  check_adaptive(x, size, "adaptive_max_pool2d");
  if (divides(x, size)) return max_pool2d(x, {x.shape(2) / size.h, x.shape(3) / size.w});
  const Windows rows = adaptive_windows(x.shape(2), size.h),
                columns = adaptive_windows(x.shape(3), size.w);
  return max(in_windows(max(in_windows(x, columns, 3), 4), rows, 2), 3);
}

Tensor pixel_shuffle(const Tensor& x, std::int64_t upscale_factor) {
  const std::int64_t r = upscale_factor;
  check_factor(r, x, "pixel_shuffle");
  const int c = x.rank() - 3;
  if (x.shape(c) % (r * r) != 0)
    fail("pixel_shuffle", "cannot divide ", x.shape(c), " channels by ", r, " x ", r);
  Shape apart_shape, result;
  Dims axes;
  for (int i = 0; i < c; ++i)
    apart_shape.push_back(x.shape(i)), result.push_back(x.shape(i)), axes.push_back(i);
  for (const std::int64_t extent : {x.shape(c) / (r * r), r, r, x.shape(-2), x.shape(-1)})
    apart_shape.push_back(extent);
  for (const int axis : {0, 3, 1, 4, 2}) axes.push_back(c + axis);
  for (const std::int64_t extent : {x.shape(c) / (r * r), x.shape(-2) * r, x.shape(-1) * r})
    result.push_back(extent);
  return reshape(transpose(reshape(x, apart_shape), axes), result);
}

Tensor pixel_unshuffle(const Tensor& x, std::int64_t downscale_factor) {
  const std::int64_t r = downscale_factor;
  check_factor(r, x, "pixel_unshuffle");
  const int c = x.rank() - 3;
  if (x.shape(-2) % r != 0 || x.shape(-1) % r != 0)
    fail("pixel_unshuffle", "cannot divide ", x.shape(-2), " x ", x.shape(-1), " pixels by ", r);
  Shape apart_shape, result;
  Dims axes;
  for (int i = 0; i < c; ++i)
    apart_shape.push_back(x.shape(i)), result.push_back(x.shape(i)), axes.push_back(i);
  for (const std::int64_t extent : {x.shape(c), x.shape(-2) / r, r, x.shape(-1) / r, r})
    apart_shape.push_back(extent);
  for (const int axis : {0, 2, 4, 1, 3}) axes.push_back(c + axis);
  for (const std::int64_t extent : {x.shape(c) * r * r, x.shape(-2) / r, x.shape(-1) / r})
    result.push_back(extent);
  return reshape(transpose(reshape(x, apart_shape), axes), result);
}

Tensor unfold(const Tensor& x, Pair kernel_size, Pair dilation, Pair padding, Pair stride) {
  check_images(x.shape(), "unfold");
  for (const std::int64_t number : {kernel_size.h, kernel_size.w, dilation.h, dilation.w, stride.h,
                                    stride.w, padding.h + 1, padding.w + 1})
    if (number < 1 || number > kLargestExtent)
      fail("unfold", "got the kernel ", kernel_size.h, " x ", kernel_size.w, ", dilation ",
           dilation.h, " x ", dilation.w, ", padding ", padding.h, " x ", padding.w, " and stride ",
           stride.h, " x ", stride.w, ", need at least 1 (0 of the padding)");
  const Pair padded{x.shape(2) + 2 * padding.h, x.shape(3) + 2 * padding.w};
  const Pair span{dilation.h * (kernel_size.h - 1) + 1, dilation.w * (kernel_size.w - 1) + 1};
  if (span.h > padded.h || span.w > padded.w)
    fail("unfold", "the kernel covers ", span.h, " x ", span.w,
         " elements, but the padded input has ", padded.h, " x ", padded.w);
  const Tensor rows = window_places(padded.h, kernel_size.h, dilation.h, stride.h),
               columns = window_places(padded.w, kernel_size.w, dilation.w, stride.w);
  const Tensor image = pad(x, {{0, 0}, {0, 0}, {padding.h, padding.h}, {padding.w, padding.w}},
                           zeros({}, x.dtype()));
  const Tensor windows = take(take(image, rows.to(x.device()), 2), columns.to(x.device()),
                              4);  // [N, C, kh, H', kw, W']
  return reshape(
      transpose(windows, {0, 1, 2, 4, 3, 5}),
      {x.shape(0), x.shape(1) * kernel_size.h * kernel_size.w, rows.shape(1) * columns.shape(1)});
}

}  // namespace tensor
