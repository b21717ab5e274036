// grid_sample, composed: coordinates, the pixels at them, their sum.
#include "src/ops/pair.h"
#include "src/ops/promote.h"
#include "src/ops/view.h"
#include "tensor/creation.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

// Mirrored at `low` and `high` until it lies between them.
Tensor reflected(const Tensor& at, double low, double high) {
  if (high <= low) return zeros_like(at);
  const double span = high - low;
  const Tensor off = abs(at - low), rest = fmod(off, span);
  const Tensor is_even = fmod(floor(off / span), 2) == 0;
  return where(is_even, rest + low, span - rest + low);
}

// From -1 ... 1 to places along an axis of the image.
Tensor places_along(const Tensor& grid, std::int64_t coordinate, std::int64_t extent,
                    const GridSampleOptions& options) {
  const auto size = static_cast<double>(extent);
  const Tensor given = squeeze(slice_axis(grid, 3, coordinate, 1), 3);
  const Tensor from = where(isnan(given), full({}, -1, grid.dtype()).to(grid.device()), given);
  Tensor at = options.align_corners ? (from + 1) / 2 * (size - 1) : ((from + 1) * size - 1) / 2;
  if (options.padding == SamplePadding::reflection)
    at = options.align_corners ? reflected(at, 0, size - 1) : reflected(at, -0.5, size - 0.5);
  return options.padding == SamplePadding::zeros ? at : clip(at, 0, size - 1);
}

// The pixels at whole places, 0 outside of the image: [N, C, H' W'].
Tensor pixels_at(const Tensor& x, const Tensor& row, const Tensor& column) {
  const std::int64_t height = x.shape(2), width = x.shape(3), count = row.shape(1) * row.shape(2);
  const auto place = [](const Tensor& at, std::int64_t extent) {
    return cast(clip(at, 0, static_cast<double>(extent - 1)), i64);
  };
  const auto is_inside = [](const Tensor& at, std::int64_t extent) {
    return (at >= 0) & (at <= static_cast<double>(extent - 1));
  };
  const auto line = [&](const Tensor& per_place) {
    return reshape(per_place, {x.shape(0), 1, count});
  };
  const Tensor index = place(row, height) * width + place(column, width);
  const Tensor found =
      take_along_axis(reshape(x, {x.shape(0), x.shape(1), height * width}), line(index), 2);
  return where(line(is_inside(row, height) & is_inside(column, width)), found,
               zeros({}, x.dtype()).to(x.device()));
}

}  // namespace

Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& options) {
  check_images(x.shape(), "grid_sample");
  const Tensor both[] = {x, grid};
  const DType dtype = floating_result_type(both, "grid_sample");
  if (grid.rank() != 4 || grid.shape(3) != 2 || grid.shape(0) != x.shape(0))
    fail("grid_sample", "got a grid of the shape ", grid.shape(), " for the shape ", x.shape(),
         ", need (", x.shape(0), ", height, width, 2)");
  if (x.shape(2) == 0 || x.shape(3) == 0)
    fail("grid_sample", "got an input of the shape ", x.shape(), ", need at least 1 x 1");
  if (options.mode == Interpolation::bicubic)
    fail("grid_sample", "got the mode bicubic, need bilinear or nearest");
  const Tensor image = cast(x, wide_type(dtype)), points = cast(grid, wide_type(dtype));
  const Tensor column = places_along(points, 0, x.shape(3), options),
               row = places_along(points, 1, x.shape(2), options);
  const Shape result{x.shape(0), x.shape(1), grid.shape(1), grid.shape(2)};
  if (options.mode == Interpolation::nearest)
    return cast(reshape(pixels_at(image, round(row), round(column)), result), dtype);
  const Tensor top = floor(row), left = floor(column);
  const Tensor down = reshape(row - top, {x.shape(0), 1, grid.shape(1) * grid.shape(2)}),
               right = reshape(column - left, down.shape());
  const Tensor sum = pixels_at(image, top, left) * ((1 - down) * (1 - right)) +
                     pixels_at(image, top, left + 1) * ((1 - down) * right) +
                     pixels_at(image, top + 1, left) * (down * (1 - right)) +
                     pixels_at(image, top + 1, left + 1) * (down * right);
  return cast(reshape(sum, result), dtype);
}

}  // namespace tensor
